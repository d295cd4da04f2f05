//! Suspension and resumption of calls whose clients have no sessions (2026-07-28).
//!
//! A call that needs client input ends with an `input_required` result: the requests, and the sealed journal as
//! `requestState`. The client sends the call again with both, and [`ReplaySession`] replays it. `catalog::replay` has
//! the state machine.

use std::borrow::Cow;
use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::client_requests::count;
use super::errors::{call_failed, internal_error, invalid_params};
use super::parts::Server;
use super::reply::{MaybeReady, RejectReason, Reply, begin};
use super::request_context::{Caller, RequestContext};
use super::running_call::{CallFailure, CallOptions, SuspendedCall};
use super::share::{StateKind, owner_of};
use super::snapshot::Snapshot;
use super::text::truncated;
use crate::catalog::{
    CallContext, Client, ClientRequestError, InputRound, LogLevel, PendingRequest, ReplayError,
    ReplaySession, StatelessRequest, Suspension,
};
use crate::environment::unix_seconds;
use crate::protocol::message::{self, Request};
use crate::protocol::scan::rounded_integer;
use crate::protocol::{ClientAbility, ErrorCode, ErrorObject, Method, canonical, push_string};
use crate::seal::{
    JOURNAL_MAX_BYTES, OpenedState, RequestName, RequestState, STORED_MAX_BYTES, StateScope,
    digest, random_bytes,
};
use crate::state::{Retention, StateError};

impl Server {
    /// Creates the context of a call that can ask its client, and the options of the call. `timeout` overrides the configured
    /// one.
    #[inline]
    pub(super) fn call_context(
        self: &Arc<Self>,
        method: Method,
        request_context: RequestContext<'_>,
        log_level: Option<LogLevel>,
        timeout: Option<Duration>,
    ) -> Result<(Arc<CallContext>, CallOptions), Reply> {
        let RequestContext {
            caller,
            headers,
            body,
            request,
        } = request_context;
        let replay = self.replay_session(caller, method.as_str(), body.bytes, request)?;
        let options = self.calls.options(caller, timeout);
        let context = caller.context(headers, request, log_level, replay, options.timeout);
        Ok((context, options))
    }

    /// Creates the replay session of a call, with the journal if the client resumes it.
    #[inline]
    pub(super) fn replay_session(
        self: &Arc<Self>,
        caller: Caller<'_>,
        method: &'static str,
        body: &Bytes,
        request: &Request<'_>,
    ) -> Result<ReplaySession, Reply> {
        if let Some(problem) = caller.reach.problem() {
            return Ok(ReplaySession::new(Client::Unreachable(problem)));
        }
        if caller.revision.has_sessions() {
            return Ok(ReplaySession::new(Client::Session {
                revision: caller.revision,
                capabilities: caller.capabilities,
                response_timeout: self.calls.client_request_timeout,
            }));
        }
        let stateless = StatelessRequest::new(method, body, request);
        let rare = request.params.rare();
        match (rare.input_responses, rare.request_state) {
            (None, None) => Ok(ReplaySession::new(Client::Stateless(stateless))),
            (responses, state) => self.resume(caller, stateless, request.id, responses, state),
        }
    }

    /// Resumes a call (MRTR-05, MRTR-06, MRTR-09).
    #[cold]
    fn resume(
        self: &Arc<Self>,
        caller: Caller<'_>,
        stateless: StatelessRequest,
        id: &str,
        responses: Option<&str>,
        state: Option<&str>,
    ) -> Result<ReplaySession, Reply> {
        let responses: HashMap<Box<str>, Box<RawValue>> = match responses {
            None => HashMap::new(),
            Some(object) if message::is_object(object) => serde_json::from_str(object)
                .map_err(|_| invalid_params(id, "inputResponses is an object"))?,
            Some(_) => return Err(invalid_params(id, "inputResponses is an object")),
        };
        let target = request_digest(&stateless);
        let state = match state.map(message::string) {
            None => None,
            Some(None) => return Err(invalid_params(id, "requestState is a string")),
            Some(Some(sealed)) => {
                let scope = self.scope(caller.principal.id(), target);
                let opened = RequestState::open(&self.keys, scope, &sealed, caller.now);
                Some(opened.ok_or_else(|| {
                    count(&self.calls.inflight.client_requests.counters.states_refused);
                    invalid_params(id, INVALID_STATE)
                })?)
            }
        };
        count(&self.calls.inflight.client_requests.counters.resumed);
        let owner = owner_of(caller.principal, caller.address);
        let claims = StateKind::Journal.of(&self.state, owner.as_deref());
        let client = Client::Stateless(stateless);
        Ok(match state {
            None => ReplaySession::resumed(client, None, responses, claims),
            Some(OpenedState::Inline(state)) => {
                ReplaySession::resumed(client, Some(state), responses, claims)
            }
            Some(OpenedState::Stored(id)) => {
                let (server, now) = (Arc::clone(self), caller.now);
                let principal = caller.principal.id().to_owned();
                let fetch = async move {
                    let scope = server.scope(&principal, target);
                    server.fetch_journal(id, scope, now).await
                };
                ReplaySession::resumed_from_store(client, Box::pin(fetch), responses, claims)
            }
        })
    }

    fn scope<'a>(&'a self, principal: &'a str, target: [u8; 32]) -> StateScope<'a> {
        StateScope {
            endpoint: &self.endpoint,
            principal,
            target,
        }
    }

    /// Responds to a call that returned nothing, or asks for the input that it needs. `what` is its kind and name.
    #[cold]
    pub(super) fn call_failed(
        self: &Arc<Self>,
        id: &str,
        what: (&str, &str),
        snapshot: &Snapshot,
        failure: CallFailure,
    ) -> MaybeReady {
        let CallFailure::Suspended(call) = failure else {
            return MaybeReady::Ready(call_failed(id, what, &failure));
        };
        let SuspendedCall {
            suspension,
            context,
        } = *call;
        let name = truncated(what.1);
        MaybeReady::Ready(match suspension {
            Suspension::Failed(ReplayError::InvalidResponse(problem)) => {
                invalid_params(id, &problem)
            }
            Suspension::Failed(ReplayError::NonDeterminism(problem)) => {
                tracing::error!(%name, %problem, "tool replay diverged: the tool did not repeat its earlier requests and steps; wrap side effects in CallContext::step");
                let message = format!(
                    "{name} made other requests to the client when it was called again, so the call cannot be continued"
                );
                Reply::fail(id, ErrorCode::Internal, message)
            }
            Suspension::Failed(ReplayError::JournalUnavailable(error)) => {
                tracing::error!(%name, %error, "tool replay failed: the stored journal cannot be read");
                internal_error(id)
            }
            Suspension::InputRequired(round) => {
                let response = self.input_required(id, &context, snapshot, round);
                return response.unwrap_or_else(|| {
                    tracing::error!(%name, limit_bytes = STORED_MAX_BYTES, "the journal of a call is too large");
                    MaybeReady::Ready(journal_too_large(id))
                });
            }
        })
    }

    /// Writes the result that asks for input (MRTR-02, MRTR-03). `None` if the journal is too large.
    fn input_required(
        self: &Arc<Self>,
        id: &str,
        context: &CallContext,
        snapshot: &Snapshot,
        round: InputRound,
    ) -> Option<MaybeReady> {
        let InputRound {
            requests,
            mut state,
        } = round;
        let target = request_digest(context.replay.stateless_request()?);
        let mut out = begin(id, 1024);
        state.requests = push_input_requests(&mut out, &requests);
        let response = InputRequired {
            out,
            result_meta: snapshot.result_meta.clone(),
        };
        let now = unix_seconds();
        if state.started_at == 0 {
            state.started_at = now;
        }
        let max_age = self.config.client_requests.state_seconds;
        let expires = now + max_age;
        let scope = self.scope(context.principal().id(), target);
        if let Ok(sealed) = state.seal(&self.keys, scope, expires) {
            self.count_asked(requests.len());
            return Some(MaybeReady::Ready(response.finish(&sealed)));
        }
        let sealed = state.seal_for_storage(&self.keys, scope, expires).ok()?;
        let (server, id) = (Arc::clone(self), id.to_owned());
        let principal = scope.principal.to_owned();
        let owner = owner_of(context.principal(), context.address);
        Some(MaybeReady::Pending(Box::pin(async move {
            let stored = server
                .store_journal(&sealed, Duration::from_secs(max_age), owner.as_deref())
                .await;
            let journal = match stored {
                Ok(journal) => journal,
                Err(error) => {
                    tracing::error!(%error, "the journal of a call cannot be stored; it is too large to travel with the client");
                    return journal_too_large(&id);
                }
            };
            let scope = server.scope(&principal, target);
            server.count_asked(requests.len());
            let reference = RequestState::seal_reference(&server.keys, scope, expires, journal);
            response.finish(&reference)
        })))
    }

    fn count_asked(&self, requests: usize) {
        let asked = &self.calls.inflight.client_requests.counters.asked;
        (0..requests).for_each(|_| count(asked));
    }

    /// Stores a sealed journal in the shared state, and returns its ID.
    async fn store_journal(
        &self,
        sealed: &str,
        max_age: Duration,
        owner: Option<&str>,
    ) -> Result<[u8; 16], StateError> {
        let state = StateKind::Journal.of(&self.state, owner);
        let id = random_bytes();
        let log = self.journal_log(id);
        let retention = Retention {
            entries: STORED_PARTS_MAX,
            bytes: STORED_PARTS_MAX * STORED_PART_BYTES,
            life: max_age,
            may_go: false,
        };
        for part in sealed.as_bytes().chunks(STORED_PART_BYTES) {
            let part = Bytes::copy_from_slice(part);
            state.append(&log, part, retention).await?;
        }
        Ok(id)
    }

    /// Fetches and opens a stored journal.
    async fn fetch_journal(
        &self,
        id: [u8; 16],
        scope: StateScope<'_>,
        now: u64,
    ) -> Result<RequestState, ReplayError> {
        let page = self
            .state
            .read_after(&self.journal_log(id), 0, STORED_PARTS_MAX)
            .await
            .map_err(|error| ReplayError::JournalUnavailable(error.to_string()))?;
        let parts = page.into_iter().flat_map(|page| page.entries);
        let sealed: Vec<u8> = parts.flat_map(|(_, part)| part).collect();
        std::str::from_utf8(&sealed)
            .ok()
            .and_then(|sealed| RequestState::open_stored(&self.keys, scope, sealed, now))
            .ok_or_else(|| {
                count(&self.calls.inflight.client_requests.counters.states_refused);
                ReplayError::InvalidResponse(INVALID_STATE.to_owned())
            })
    }

    fn journal_log(&self, id: [u8; 16]) -> String {
        let id = u128::from_be_bytes(id);
        format!("journal/{}/{id:032x}", self.endpoint)
    }
}

/// Digest of a request that is the same in all rounds of its call: method, target and canonical arguments.
fn request_digest(request: &StatelessRequest) -> [u8; 32] {
    let target = request.target().and_then(message::string);
    digest(&[
        request.method().as_bytes(),
        target.unwrap_or_default().as_bytes(),
        one_text(request.arguments().unwrap_or("{}")).as_bytes(),
    ])
}

/// Returns one text for all forms of equal arguments. Numbers that a float does not hold keep their digits, so that others
/// do not pass for them; clients have to repeat such arguments as they were.
fn one_text(arguments: &str) -> Cow<'_, str> {
    match canonical(arguments) {
        Some(text) if rounded_integer(arguments).is_none() => text.into(),
        _ => arguments.into(),
    }
}

/// Writes `inputRequests`, up to its closing brace. Returns the names of the requests.
fn push_input_requests(out: &mut Vec<u8>, requests: &[Arc<PendingRequest>]) -> Vec<RequestName> {
    let mut names: Vec<RequestName> = Vec::with_capacity(requests.len());
    out.extend_from_slice(br#","result":{"inputRequests":{"#);
    for (position, request) in requests.iter().enumerate() {
        let name = unused_name(request.name(), request.kind().as_str(), &names);
        if 0 < position {
            out.push(b',');
        }
        push_string(out, &name);
        out.extend_from_slice(br#":{"method":""#);
        out.extend_from_slice(request.kind().method().as_bytes());
        out.extend_from_slice(br#"","params":"#);
        out.extend_from_slice(request.params().as_bytes());
        out.push(b'}');
        names.push(RequestName {
            key: request.key(),
            name: name.into(),
        });
    }
    names
}

/// An `input_required` result without its resume token.
struct InputRequired {
    out: Vec<u8>,
    result_meta: String,
}

impl InputRequired {
    fn finish(self, state: &str) -> Reply {
        let mut out = self.out;
        out.extend_from_slice(br#"},"requestState":""#);
        out.extend_from_slice(state.as_bytes());
        out.extend_from_slice(br#"","resultType":"input_required","_meta":"#);
        out.extend_from_slice(self.result_meta.as_bytes());
        out.extend_from_slice(b"}}");
        Reply::document(out)
    }
}

fn journal_too_large(id: &str) -> Reply {
    let message = format!(
        "the responses and step results of this request cannot be stored: up to {} KiB travel with the client, and up \
         to {} KiB are stored in the shared state, if that is available",
        JOURNAL_MAX_BYTES / 1024,
        STORED_MAX_BYTES / 1024
    );
    Reply::fail(id, ErrorCode::Internal, message)
}

/// Size of one entry of a stored journal, in bytes.
const STORED_PART_BYTES: usize = 200 * 1024;
/// Maximum number of entries. Base64 encodes three bytes as four.
const STORED_PARTS_MAX: usize = STORED_MAX_BYTES * 4 / 3 / STORED_PART_BYTES + 2;

const INVALID_STATE: &str = "requestState is not valid: it was changed, has expired, or belongs to another request; repeat the request without it";

/// Returns the name of a request in this round: its own, or a generated one.
fn unused_name(own: Option<&str>, kind: &str, taken: &[RequestName]) -> String {
    let is_taken = |name: &str| taken.iter().any(|other| *other.name == *name);
    if let Some(own) = own
        && !is_taken(own)
    {
        return own.to_owned();
    }
    let stem = own.unwrap_or(kind);
    (1..)
        .map(|number| format!("{stem}-{number}"))
        .find(|name| !is_taken(name))
        .unwrap_or_default()
}

/// Rejects a request whose client has not declared a capability (META-04).
#[cold]
pub(super) fn missing_capability(id: &str, ability: ClientAbility) -> Reply {
    let message = format!("Server requires the {ability} capability");
    let error = ErrorObject::new(ErrorCode::MissingCapability, message);
    let data = serde_json::json!({"requiredCapabilities": ability.required()});
    Reply::refused(RejectReason::Capability, Some(id), &error.with_data(data))
}

/// Names the page that the user has to visit before the request is sent again (ELI-10).
#[cold]
pub(super) fn url_elicitation_required(
    id: &str,
    cause: Option<&(dyn Error + Send + Sync + 'static)>,
) -> Reply {
    let cause = cause.and_then(|cause| cause.downcast_ref());
    let Some(ClientRequestError::UrlElicitationRequired(required)) = cause else {
        return internal_error(id);
    };
    let error = ErrorObject::new(
        ErrorCode::UrlElicitationRequired,
        required.message().to_owned(),
    );
    let data = serde_json::json!({"elicitations": [required.elicitation()]});
    Reply::error(id, &error.with_data(data))
}

/// Returns true if a result depends on client input or on steps, so that it must not be cached for other callers.
pub(super) fn depends_on_input(context: &Arc<CallContext>) -> bool {
    context.replay.is_used()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mrtr_05_other_arguments_do_not_pass_for_those_of_a_state() {
        assert_eq!(
            one_text(r#"{"b": 1.0, "a": 2}"#),
            one_text(r#"{"a":2,"b":1}"#)
        );
        for (one, other) in [
            (r#"{"to":"ada","x":1e400}"#, r#"{"to":"bob","x":1e400}"#),
            (r#"{"x":1e400}"#, "{}"),
            (
                r#"{"x":123456789012345678901234567890}"#,
                r#"{"x":123456789012345678901234567891}"#,
            ),
        ] {
            assert_ne!(one_text(one), one_text(other));
        }
    }
}

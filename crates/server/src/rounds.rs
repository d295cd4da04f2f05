//! Calls of 2026-07-28 that need their client's input: they end with questions, and begin anew with the answers.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::value::RawValue;

use super::client_requests::count;
use super::inflight::SuspendedCall;
use super::reply::{Refusal, Reply, begin};
use super::share::{StateKind, owner_of};
use super::snapshot::Snapshot;
use super::tools::{internal_error, invalid_params};
use super::{Caller, MaybeReady, Server};
use crate::catalog::{
    AskError, Asking, CallContext, Client, Desk, Fault, Interruption, Round, read_request,
};
use crate::protocol::message::{self, Request};
use crate::protocol::{ClientAbility, ErrorCode, ErrorObject, canonical, push_string};
use crate::seal::{
    AskedQuestion, Binding, JOURNAL_MAX_BYTES, KEPT_MAX_BYTES, Opened, RequestState, digest,
    random_bytes,
};
use crate::state::{Retention, StateError};

/// Whether a caller can be asked something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// It can.
    Stream,
    /// It takes no event streams.
    NoStream,
    /// Its answers come with those of other requests.
    Batch,
    /// Its revision has no streams of this kind.
    OldRevision,
    /// It does not speak the protocol.
    Plain,
}

impl Reach {
    fn problem(self) -> Option<&'static str> {
        match self {
            Self::Stream => None,
            Self::NoStream => Some(
                "it takes no event stream for an answer; its requests' Accept has to name text/event-stream",
            ),
            Self::Batch => Some("the call is one of an array; it has to come by itself"),
            Self::Plain => {
                Some("it calls the tool without the protocol; over MCP it could be asked")
            }
            Self::OldRevision => Some("clients of 2024-11-05 cannot be asked over this transport"),
        }
    }
}

impl Server {
    /// How a call can ask its client, and what it was told before.
    #[inline]
    pub(super) fn asking(
        self: &Arc<Self>,
        caller: Caller<'_>,
        body: &Bytes,
        request: &Request<'_>,
    ) -> Result<Asking, Reply> {
        if let Some(problem) = caller.reach.problem() {
            return Ok(Asking::new(Client::Nobody(problem)));
        }
        if caller.revision.has_sessions() {
            return Ok(Asking::new(Client::Session {
                revision: caller.revision,
                capabilities: caller.capabilities,
                timeout: self.question_timeout,
            }));
        }
        let client = Client::Stateless {
            request: body.clone(),
        };
        match (
            request.params.rare().input_responses,
            request.params.rare().request_state,
        ) {
            (None, None) => Ok(Asking::new(client)),
            (responses, state) => self.resumed(caller, client, request, responses, state),
        }
    }

    /// A call that begins anew (MRTR-05, MRTR-06, MRTR-09).
    #[cold]
    fn resumed(
        self: &Arc<Self>,
        caller: Caller<'_>,
        client: Client,
        request: &Request<'_>,
        responses: Option<&str>,
        state: Option<&str>,
    ) -> Result<Asking, Reply> {
        let responses: HashMap<Box<str>, Box<RawValue>> = match responses {
            None => HashMap::new(),
            Some(object) if message::is_object(object) => serde_json::from_str(object)
                .map_err(|_| invalid_params(request.id, "inputResponses is an object"))?,
            Some(_) => return Err(invalid_params(request.id, "inputResponses is an object")),
        };
        let state = match state.map(message::string) {
            None => None,
            Some(None) => return Err(invalid_params(request.id, "requestState is a string")),
            Some(Some(sealed)) => {
                let binding = self.binding(caller.principal.id(), request);
                let opened = RequestState::open(&self.keys, binding, &sealed, caller.now);
                Some(opened.ok_or_else(|| {
                    count(&self.inflight.client_requests.counters.states_refused);
                    invalid_params(request.id, BAD_STATE)
                })?)
            }
        };
        count(&self.inflight.client_requests.counters.resumed);
        let desk = match state {
            None => Desk::resume(None, responses, self.state.clone()),
            Some(Opened::Whole(state)) => Desk::resume(Some(state), responses, self.state.clone()),
            Some(Opened::Kept(name)) => {
                let (server, now) = (Arc::clone(self), caller.now);
                let principal = caller.principal.id().to_owned();
                let target = self.binding(&principal, request).target;
                let get = async move {
                    let binding = Binding {
                        mount: &server.mount,
                        principal: &principal,
                        target,
                    };
                    server.kept_journal(name, binding, now).await
                };
                Desk::resume_with(Box::pin(get), responses, self.state.clone())
            }
        };
        Ok(Asking::resumed(client, desk))
    }

    /// What a state of a request is good for.
    fn binding<'a>(&'a self, principal: &'a str, request: &Request<'_>) -> Binding<'a> {
        let params = &request.params;
        let name = params.name.or(params.uri).and_then(message::string);
        let arguments = params.arguments.and_then(canonical);
        let arguments = arguments.as_deref().unwrap_or("{}");
        Binding {
            mount: &self.mount,
            principal,
            target: digest(&[
                request.method.as_bytes(),
                name.unwrap_or_default().as_bytes(),
                arguments.as_bytes(),
            ]),
        }
    }

    /// The answer to a call that did not come to its end.
    #[cold]
    pub(super) fn interrupted(
        self: &Arc<Self>,
        id: &str,
        what: &str,
        snapshot: &Snapshot,
        interrupted: SuspendedCall,
    ) -> MaybeReady {
        let SuspendedCall {
            interruption,
            context,
        } = interrupted;
        MaybeReady::Ready(match interruption {
            Interruption::Fault(Fault::BadAnswer(problem)) => invalid_params(id, &problem),
            Interruption::Fault(Fault::Departed(how)) => {
                tracing::error!(name = %super::truncated(what), %how, "what ran again after a question did not do the same as before; its request failed");
                internal_error(id)
            }
            Interruption::Fault(Fault::Lost(why)) => {
                tracing::error!(name = %super::truncated(what), %why, "what a request has kept between its rounds cannot be got");
                internal_error(id)
            }
            Interruption::Round(round) => {
                let asked = self.round(id, &context, snapshot, round);
                return asked.unwrap_or_else(|| {
                    tracing::error!(name = %super::truncated(what), "a call keeps more between its questions than fits");
                    MaybeReady::Ready(too_much(id))
                });
            }
        })
    }

    /// The result that asks for input (MRTR-02, MRTR-03). `None` if too much is settled already.
    fn round(
        self: &Arc<Self>,
        id: &str,
        context: &CallContext,
        snapshot: &Snapshot,
        round: Round,
    ) -> Option<MaybeReady> {
        let Round {
            questions,
            mut state,
        } = round;
        let request = read_request(context.asking.request()?)?;
        let mut out = begin(id, 1024);
        out.extend_from_slice(br#","result":{"inputRequests":{"#);
        for (position, question) in questions.iter().enumerate() {
            let name = unused_name(question.name(), question.kind().as_str(), &state.asked);
            if 0 < position {
                out.push(b',');
            }
            push_string(&mut out, &name);
            out.extend_from_slice(br#":{"method":""#);
            out.extend_from_slice(question.kind().method().as_bytes());
            out.extend_from_slice(br#"","params":"#);
            out.extend_from_slice(question.params().as_bytes());
            out.push(b'}');
            state.asked.push(AskedQuestion {
                key: question.place,
                name: name.into(),
            });
        }
        let now = unix_time();
        if state.begun == 0 {
            state.begun = now;
        }
        let life = self.config.client_requests.state_seconds;
        let expires = now + life;
        let binding = self.binding(context.principal().id(), &request);
        let asked = questions.len();
        let asking = Asks {
            out,
            result_meta: snapshot.result_meta.clone(),
        };
        if let Ok(sealed) = state.seal(&self.keys, binding, expires) {
            self.count_asked(asked);
            return Some(MaybeReady::Ready(asking.with(&sealed)));
        }
        let sealed = state.seal_to_keep(&self.keys, binding, expires).ok()?;
        let (server, id) = (Arc::clone(self), id.to_owned());
        let (principal, target) = (binding.principal.to_owned(), binding.target);
        let owner = owner_of(context.principal(), context.address);
        Some(MaybeReady::Pending(Box::pin(async move {
            let kept = server
                .keep_journal(&sealed, Duration::from_secs(life), owner.as_deref())
                .await;
            let name = match kept {
                Ok(name) => name,
                Err(error) => {
                    tracing::error!(%error, "what a request keeps between its rounds does not travel with its client, and cannot be kept for it");
                    return too_much(&id);
                }
            };
            let binding = Binding {
                mount: &server.mount,
                principal: &principal,
                target,
            };
            server.count_asked(asked);
            asking.with(&RequestState::refer(&server.keys, binding, expires, name))
        })))
    }

    fn count_asked(&self, questions: usize) {
        let asked = &self.inflight.client_requests.counters.asked;
        (0..questions).for_each(|_| count(asked));
    }

    /// Keeps a sealed journal in the state that replicas share. Returns under which name.
    async fn keep_journal(
        &self,
        sealed: &str,
        life: Duration,
        owner: Option<&str>,
    ) -> Result<[u8; 16], StateError> {
        let state = StateKind::Journal.of(&self.state, owner);
        let name = random_bytes();
        let log = self.journal(name);
        let keep = Retention {
            entries: KEPT_PARTS_MAX,
            bytes: KEPT_PARTS_MAX * KEPT_PART_BYTES,
            life,
            may_go: false,
        };
        for part in sealed.as_bytes().chunks(KEPT_PART_BYTES) {
            let part = Bytes::copy_from_slice(part);
            state.append(&log, part, keep).await?;
        }
        Ok(name)
    }

    /// Gets a journal that was kept, for who it belongs to.
    async fn kept_journal(
        &self,
        name: [u8; 16],
        binding: Binding<'_>,
        now: u64,
    ) -> Result<RequestState, Fault> {
        let page = self
            .state
            .read_after(&self.journal(name), 0, KEPT_PARTS_MAX)
            .await
            .map_err(|error| Fault::Lost(error.to_string()))?;
        let parts = page.into_iter().flat_map(|page| page.entries);
        let sealed: Vec<u8> = parts.flat_map(|(_, part)| part).collect();
        std::str::from_utf8(&sealed)
            .ok()
            .and_then(|sealed| RequestState::open_kept(&self.keys, binding, sealed, now))
            .ok_or_else(|| {
                count(&self.inflight.client_requests.counters.states_refused);
                Fault::BadAnswer(BAD_STATE.to_owned())
            })
    }

    fn journal(&self, name: [u8; 16]) -> String {
        let name = u128::from_be_bytes(name);
        format!("journal/{}/{name:032x}", self.mount)
    }
}

/// The beginning of a result that asks for input.
struct Asks {
    out: Vec<u8>,
    result_meta: String,
}

impl Asks {
    /// The result, with what the client is to send back.
    fn with(self, state: &str) -> Reply {
        let mut out = self.out;
        out.extend_from_slice(br#"},"requestState":""#);
        out.extend_from_slice(state.as_bytes());
        out.extend_from_slice(br#"","resultType":"input_required","_meta":"#);
        out.extend_from_slice(self.result_meta.as_bytes());
        out.extend_from_slice(b"}}");
        Reply::document(out)
    }
}

fn too_much(id: &str) -> Reply {
    let message = format!(
        "what this request keeps between its rounds cannot be kept: {} KiB travel with the client, and up to {} KiB \
         are kept in the shared state, if that can be used",
        JOURNAL_MAX_BYTES / 1024,
        KEPT_MAX_BYTES / 1024
    );
    Reply::error(id, &ErrorObject::new(ErrorCode::Internal, message))
}

/// One entry of what is kept.
const KEPT_PART_BYTES: usize = 200 * 1024;
/// Base64 makes four bytes of three.
const KEPT_PARTS_MAX: usize = KEPT_MAX_BYTES * 4 / 3 / KEPT_PART_BYTES + 2;

const BAD_STATE: &str = "requestState is not good for this: it was changed, is too old, or belongs to another request; repeat the request without it";

/// The name that a question goes by in this round.
fn unused_name(own: Option<&str>, kind: &str, taken: &[AskedQuestion]) -> String {
    let is_taken = |name: &str| taken.iter().any(|asked| *asked.name == *name);
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

fn unix_time() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

/// META-04: the client would have to have declared something.
#[cold]
pub(super) fn missing_capability(id: &str, ability: ClientAbility) -> Reply {
    let message = format!("Server requires the {ability} capability");
    let error = ErrorObject::new(ErrorCode::MissingCapability, message);
    let data = serde_json::json!({"requiredCapabilities": ability.required()});
    Reply::refused(Refusal::Capability, Some(id), &error.with_data(data))
}

/// ELI-10: a page has to be visited first; `cause` says which.
#[cold]
pub(super) fn visit_required(
    id: &str,
    cause: Option<&(dyn Error + Send + Sync + 'static)>,
) -> Reply {
    let Some(AskError::VisitRequired(visit)) = cause.and_then(|cause| cause.downcast_ref()) else {
        return internal_error(id);
    };
    let error = ErrorObject::new(
        ErrorCode::UrlElicitationRequired,
        visit.message().to_owned(),
    );
    let data = serde_json::json!({"elicitations": [visit.elicitation()]});
    Reply::error(id, &error.with_data(data))
}

/// Whether anything in a result came from its client's answers, so that it is good for nobody else.
pub(super) fn has_asked(context: &Arc<CallContext>) -> bool {
    context.asking.desk().is_some()
}

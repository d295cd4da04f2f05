//! Calls of 2026-07-28 that need their client's input: they end with questions, and begin anew with the answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::value::RawValue;

use super::call::Interrupted;
use super::generation::Generation;
use super::questions::count;
use super::reply::{Refusal, Reply, begin};
use super::tools::{internal_error, invalid_params};
use super::{Caller, Server};
use crate::catalog::{Asking, CallContext, Client, Desk, Fault, Interruption, Round, read_request};
use crate::protocol::message::{self, Request};
use crate::protocol::{ClientAbility, ErrorCode, ErrorObject, canonical, push_string};
use crate::seal::{AskedQuestion, Binding, JOURNAL_MAX_BYTES, RequestState, digest};

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
        &self,
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
        &self,
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
                    count(&self.inflight.questions.counters.states_refused);
                    invalid_params(
                        request.id,
                        "requestState is not good for this: it was changed, is too old, or belongs to another request; repeat the request without it",
                    )
                })?)
            }
        };
        count(&self.inflight.questions.counters.resumed);
        let desk = Desk::resume(state, responses, self.state.clone());
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
        &self,
        id: &str,
        what: &str,
        generation: &Generation,
        interrupted: Interrupted,
    ) -> Reply {
        let Interrupted {
            interruption,
            context,
        } = interrupted;
        match interruption {
            Interruption::Fault(Fault::BadAnswer(problem)) => invalid_params(id, &problem),
            Interruption::Fault(Fault::Departed(how)) => {
                tracing::error!(name = %super::truncated(what), %how, "what ran again after a question did not do the same as before; its request failed");
                internal_error(id)
            }
            Interruption::Round(round) => {
                self.round(id, &context, generation, round)
                    .unwrap_or_else(|| {
                        tracing::error!(name = %super::truncated(what), "a call keeps more between its questions than fits");
                        let message = format!(
                            "what this request keeps between its rounds takes more than {} KiB",
                            JOURNAL_MAX_BYTES / 1024
                        );
                        Reply::error(id, &ErrorObject::new(ErrorCode::Internal, message))
                    })
            }
        }
    }

    /// The result that asks for input (MRTR-02, MRTR-03). `None` if too much is settled already.
    fn round(
        &self,
        id: &str,
        context: &CallContext,
        generation: &Generation,
        round: Round,
    ) -> Option<Reply> {
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
        let expires = now + self.config.questions.state_seconds;
        let binding = self.binding(context.principal().id(), &request);
        let sealed = state.seal(&self.keys, binding, expires).ok()?;
        let asked = &self.inflight.questions.counters.asked;
        questions.iter().for_each(|_| count(asked));
        out.extend_from_slice(br#"},"requestState":""#);
        out.extend_from_slice(sealed.as_bytes());
        out.extend_from_slice(br#"","resultType":"input_required","_meta":"#);
        out.extend_from_slice(generation.result_meta.as_bytes());
        out.extend_from_slice(b"}}");
        Some(Reply::document(out))
    }
}

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

/// Whether anything in a result came from its client's answers, so that it is good for nobody else.
pub(super) fn has_asked(context: &Arc<CallContext>) -> bool {
    context.asking.desk().is_some()
}

//! What clients say without asking: notifications, and answers to questions.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::questions::Heard;
use super::reply::{Refusal, Reply};
use super::streams::Word;
use super::{Server, call};
use crate::auth::Principal;
use crate::protocol::message::{Notification, Response};
use crate::protocol::{ErrorCode, ErrorObject};

/// How large an answer may be that is passed on to the replica that asked.
const ANSWER_ELSEWHERE_BYTES: usize = 30 * 1024;

impl Server {
    /// A notification of a client's; `session` is where its ids mean something.
    pub(super) fn notified(&self, session: &str, notification: &Notification<'_>) {
        #[derive(Deserialize)]
        struct Cancelled<'a> {
            #[serde(borrow, rename = "requestId")]
            request_id: &'a RawValue,
        }
        // CAN-01: a malformed one is ignored.
        if notification.method == "notifications/cancelled"
            && let Some(params) = notification.params.object
            && let Ok(cancelled) = serde_json::from_str::<Cancelled<'_>>(params)
        {
            let request = cancelled.request_id.get();
            if self.inflight.cancel(session, request) {
                return;
            }
            if session == call::STDIO {
                self.streams.cancel(request);
            } else {
                self.streams.say(Word::Cancelled {
                    session: session.into(),
                    request: request.to_owned(),
                });
            }
        }
    }

    /// An answer of a client's to a question; `session` is where it was asked.
    pub(super) fn answered(
        &self,
        session: &str,
        principal: &Principal,
        response: &Response<'_>,
    ) -> Reply {
        match self
            .inflight
            .questions
            .hear(session, principal.id(), response)
        {
            Heard::Here => Reply::Accepted,
            Heard::Elsewhere(to) => {
                let (Some(id), outcome) = (response.id, response.outcome) else {
                    return Reply::Accepted;
                };
                let size = outcome.map_or_else(str::len, str::len);
                if self.reaches_others && size <= ANSWER_ELSEWHERE_BYTES {
                    self.streams.say(Word::Answered {
                        to,
                        session: session.into(),
                        principal: principal.id().into(),
                        id: id.to_owned(),
                        outcome: outcome.map(str::to_owned).map_err(str::to_owned),
                    });
                    return Reply::Accepted;
                }
                let message = if self.reaches_others {
                    "this is the answer to a question that another replica has asked, and it is too large to be \
                    passed on; send the requests of a session to the same replica"
                } else {
                    "this is the answer to a question that another process has asked, and replicas share no state \
                    (App::store); give them one, or send the requests of a session to the same replica"
                };
                let error = ErrorObject::new(ErrorCode::Http(409), message);
                let error = error.with_data(serde_json::json!({"setting": "state"}));
                Reply::refused(Refusal::AskedElsewhere, None, &error)
            }
        }
    }
}

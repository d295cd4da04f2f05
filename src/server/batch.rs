//! Arrays of messages, which 2025-03-26 alone has.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;

use super::reply::Reply;
use super::{Caller, Server, malformed, not_a_message};
use crate::protocol::message::Message;
use crate::protocol::{ErrorCode, ErrorObject};

/// How many messages one array may hold.
const BATCH_MAX: usize = 50;
/// How large the answer to an array may become, in bytes.
const BATCH_ANSWER_MAX_BYTES: usize = 16 * 1024 * 1024;

impl Server {
    /// Answers the messages of an array side by side, in their order, those that want no answer left out.
    pub(super) async fn batch(
        self: &Arc<Self>,
        caller: &Caller,
        headers: Option<&HeaderMap>,
        body: &Bytes,
        elements: Vec<&str>,
    ) -> Reply {
        if elements.is_empty() {
            return malformed("an array of messages has at least one");
        }
        if elements.len() > BATCH_MAX {
            return malformed("an array has at most 50 messages");
        }
        let answers = elements.into_iter().map(|text| async move {
            let request = match Message::read(text) {
                Ok(Message::Request(request)) => request,
                Ok(Message::Notification(notification)) => {
                    if let Some(session) = &caller.session {
                        self.notified(session, &notification);
                    }
                    return None;
                }
                Ok(Message::Response(_)) => return None,
                Err(problem) => return Some(not_a_message(&problem)),
            };
            // RPC-07, and a request of the stateless era is never in an array.
            if request.method == "initialize" || request.params.meta.protocol_version.is_some() {
                let error = ErrorObject::new(
                    ErrorCode::InvalidRequest,
                    "this request is not accepted in an array of messages",
                );
                return Some(Reply::error(request.id, &error));
            }
            let headers = headers.cloned();
            Some(Box::pin(self.session_request(caller.clone(), headers, body, &request)).await)
        });
        let answers = futures_util::future::join_all(answers).await;
        let mut out = b"[".to_vec();
        for answer in answers.into_iter().flatten() {
            let Reply::Answer(answer) = answer else {
                continue;
            };
            if out.len() + answer.head.len() + answer.rest.len() > BATCH_ANSWER_MAX_BYTES {
                return malformed(
                    "the answers together are too large; send fewer requests at once",
                );
            }
            if out.len() > 1 {
                out.push(b',');
            }
            out.extend_from_slice(&answer.head);
            out.extend_from_slice(&answer.rest);
        }
        if out.len() == 1 {
            return Reply::Accepted;
        }
        out.push(b']');
        Reply::document(out)
    }
}

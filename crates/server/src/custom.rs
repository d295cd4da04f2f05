//! Methods of an application's own.

use std::sync::Arc;
use std::task::Context;

use serde_json::{Map, Value};

use super::call::Outcome;
use super::reply::{Reply, begin};
use super::{Handled, Incoming, Server, audited, generation, tools};
use crate::protocol::{ErrorCode, ErrorObject, Method};

/// What has no way to ask: the specification has questions for calls, readings and prompts only (MRTR-01).
pub(super) const NOT_HERE: &str = "only tools, resources and prompts can ask";

impl Server {
    /// A method of the application's own. `None` if there is none of the name.
    pub(super) fn other_method(
        &self,
        cx: &mut Context<'_>,
        incoming: Incoming<'_>,
    ) -> Option<Handled> {
        let Incoming {
            caller,
            headers,
            request,
            ..
        } = incoming;
        // The specification's own stay what they are, also in revisions that do not have them.
        if Method::parse(&request.method).is_some() {
            return None;
        }
        let handler = Arc::clone(self.methods.get(&*request.method)?);
        if caller.is_barred() {
            return Some(Handled::Now(audited::unrecorded(request.id)));
        }
        let params = request.params.object.unwrap_or("{}");
        let params = match serde_json::from_str::<Map<String, Value>>(params) {
            Ok(params) => Value::Object(params),
            Err(e) => {
                return Some(Handled::Now(tools::invalid_params(
                    request.id,
                    &e.to_string(),
                )));
            }
        };
        let context = caller.mute_context(headers, request, NOT_HERE);
        let server_info = caller
            .revision
            .has_result_type()
            .then(|| self.generation.load().server_info.clone());
        let (id, name) = (request.id.to_owned(), request.method.to_string());
        let (limits, share) = (Arc::clone(&self.limits), caller.share());
        let start = move |context| handler.call(context, params);
        let conclude = move |outcome| {
            Handled::Now(match outcome {
                Outcome::Done(Ok(Value::Object(result))) => {
                    other_result(&id, result, server_info).counted(&limits, share, &id)
                }
                Outcome::Done(Ok(_)) => {
                    tracing::error!(method = %name, "a method is at fault: its result is no object");
                    tools::internal_error(&id)
                }
                Outcome::Done(Err(error)) => Reply::error(&id, &error),
                Outcome::TimedOut(limit) => {
                    let seconds = limit.as_secs_f64();
                    tracing::warn!(method = %name, limit_s = seconds, "a method ran out of time");
                    let message = format!("the method did not answer within {seconds} s");
                    Reply::error(&id, &ErrorObject::new(ErrorCode::Internal, message))
                }
                Outcome::Panicked => {
                    tracing::error!(method = %name, "a method panicked; its request failed, nothing else is affected");
                    tools::internal_error(&id)
                }
                Outcome::Stopped => tools::stopped(&id),
                // It has nobody to ask.
                Outcome::Interrupted(_) => tools::internal_error(&id),
                Outcome::Cancelled => Reply::Cancelled,
            })
        };
        let terms = self.terms(caller, None);
        Some(self.run(cx, request.id, start, context, terms, conclude))
    }
}

/// `server_info` is there in the stateless era, whose results say more than their own.
pub(super) fn other_result(
    id: &str,
    mut result: Map<String, Value>,
    server_info: Option<Value>,
) -> Reply {
    if let Some(server_info) = server_info {
        result.entry("resultType").or_insert("complete".into());
        let meta = result.entry("_meta").or_insert_with(|| Map::new().into());
        if let Value::Object(meta) = meta {
            meta.entry(generation::SERVER_INFO).or_insert(server_info);
        }
    }
    let mut out = begin(id, 128);
    out.extend_from_slice(br#","result":"#);
    out.extend_from_slice(Value::Object(result).to_string().as_bytes());
    out.push(b'}');
    Reply::document(out)
}

//! Custom methods of the application.

use std::sync::Arc;
use std::task::Context;

use serde_json::{Map, Value};

use super::execute::{Call, PermitsNeeded};
use super::parts::Server;
use super::reply::{MaybeReady, Reply};
use super::request_context::RequestContext;
use super::{audit_record, errors, snapshot};
use crate::protocol::Method;

/// Error for handlers without client requests: the specification allows them for calls, reads and prompts only
/// (MRTR-01).
pub(super) const CANNOT_ASK: &str = "only tools, resources and prompts can ask";

/// Handles a custom method. Returns `None` if the name is unknown.
pub(super) fn call(
    server: &Server,
    cx: &mut Context<'_>,
    request_context: RequestContext<'_>,
) -> Option<MaybeReady> {
    let RequestContext {
        caller,
        headers,
        request,
        ..
    } = request_context;
    // Method names of the specification are reserved, also in revisions that do not have them.
    if Method::parse(&request.method).is_some() {
        return None;
    }
    let handler = Arc::clone(server.methods.get(&*request.method)?);
    if caller.is_barred() {
        return Some(MaybeReady::Ready(audit_record::audit_unavailable(
            request.id,
        )));
    }
    let params = request.params.object.unwrap_or("{}");
    let params = match serde_json::from_str::<Map<String, Value>>(params) {
        Ok(params) => Value::Object(params),
        Err(e) => {
            return Some(MaybeReady::Ready(errors::invalid_params(
                request.id,
                &e.to_string(),
            )));
        }
    };
    let context = caller.mute_context(headers, request, CANNOT_ASK);
    let server_info = caller
        .revision
        .has_result_type()
        .then(|| server.snapshots.load().server_info.clone());
    let (id, name) = (request.id.to_owned(), request.method.to_string());
    let (limits, share) = (Arc::clone(&server.limits), caller.share());
    let conclude = move |outcome| {
        MaybeReady::Ready(match outcome {
            Ok(Ok(Value::Object(result))) => {
                custom_result(&id, result, server_info).counted(&limits, share, &id)
            }
            Ok(Ok(_)) => {
                tracing::error!(%name, "a custom method failed: its result is not an object");
                errors::internal_error(&id)
            }
            Ok(Err(error)) => Reply::error(&id, &error),
            Err(failure) => errors::call_failed(&id, ("method", &name), &failure),
        })
    };
    let call = Call {
        context: &context,
        options: server.calls.options(caller, None),
        permits: PermitsNeeded::Common,
        start: |context| handler.call(context, params),
    };
    Some(server.calls.execute(cx, call, conclude))
}

/// Writes the result. `server_info` is set in the stateless lifecycle, which adds members to every result.
pub(super) fn custom_result(
    id: &str,
    mut result: Map<String, Value>,
    server_info: Option<Value>,
) -> Reply {
    if let Some(server_info) = server_info {
        result.entry("resultType").or_insert("complete".into());
        let meta = result.entry("_meta").or_insert_with(|| Map::new().into());
        if let Value::Object(meta) = meta {
            meta.entry(snapshot::SERVER_INFO).or_insert(server_info);
        }
    }
    Reply::result(id, Value::Object(result))
}

//! REST access to tools: calls and lists without a JSON-RPC message. They use the same dispatch as messages, so all
//! checks apply.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Context;

use bytes::Bytes;
use http::{Extensions, HeaderMap};
use serde_json::{Value, json};

use super::errors::{malformed, malformed_message};
use super::parts::Server;
use super::reply::MaybeReady;
use super::request_context::{Caller, Channel, Headers, Origin, RequestContext};
use super::snapshot::supported_versions;
use super::worker_state::WorkerState;
use super::{dispatch, instrument};
use crate::auth::Principal;
use crate::protocol::Method;
use crate::protocol::message::{self, Malformed, MessageBounds, Params, Request};
use crate::protocol::scan::Scanner;
use crate::telemetry::{RequestOrigin, RequestScope};

/// Placeholder for the JSON-RPC id.
const ID: &str = "0";

impl Server {
    /// Calls a tool with the arguments in `body`: a JSON object, or nothing. The reply is a response to `tools/call`
    /// of the newest revision.
    pub fn call_tool_rest(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        (worker, seen): (&WorkerState, RequestOrigin<'_>),
        principal: &Arc<Principal>,
        (headers, extensions): (&mut HeaderMap, Option<&Arc<Extensions>>),
        name: &str,
        body: &Bytes,
    ) -> MaybeReady {
        let (arguments, arguments_repeat) = match object(body, self.bounds) {
            Ok(Some(object)) => object,
            Ok(None) => {
                return MaybeReady::Ready(malformed(
                    "the body is a JSON object: the tool's arguments",
                ));
            }
            Err(problem) => {
                return MaybeReady::Ready(malformed_message(&self.limits.hits, &problem));
            }
        };
        let name = json!(name).to_string();
        let request = Request {
            id: ID,
            method: Cow::Borrowed(Method::ToolsCall.as_str()),
            params: Params {
                name: Some(&name),
                arguments: Some(arguments).filter(|arguments| !arguments.is_empty()),
                arguments_repeat,
                ..Params::default()
            },
        };
        let headers = Headers {
            mcp: None,
            all: headers,
            extensions,
        };
        let seen = RequestOrigin {
            headers: Some(headers.all),
            ..seen
        };
        let watch = instrument::observe(self, worker.cells(), principal, seen, &request);
        let address = seen.peer.map(|peer| peer.address);
        let caller = rest_caller(self, principal, address, watch.as_ref());
        let request_context = RequestContext {
            caller,
            headers: Some(headers),
            body: body.into(),
            request: &request,
        };
        let handled = dispatch::dispatch(self, cx, Method::ToolsCall, request_context);
        instrument::observed(self, watch, &request, handled)
    }

    /// Returns one page of the tools, as a response to `tools/list` of the newest revision. `by` is `None` if the page is not
    /// a request of its own, which metrics and audit log would count.
    pub fn list_tools_rest(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        by: Option<(&WorkerState, RequestOrigin<'_>)>,
        principal: &Arc<Principal>,
        cursor: Option<&str>,
    ) -> MaybeReady {
        let params = cursor.map(|cursor| json!({ "cursor": cursor }).to_string());
        let request = Request {
            id: ID,
            method: Cow::Borrowed(Method::ToolsList.as_str()),
            params: Params {
                object: params.as_deref(),
                ..Params::default()
            },
        };
        let body = Bytes::new();
        let watch = by.and_then(|(worker, seen)| {
            instrument::observe(self, worker.cells(), principal, seen, &request)
        });
        let address = by.and_then(|(_, seen)| Some(seen.peer?.address));
        let request_context = RequestContext {
            caller: rest_caller(self, principal, address, watch.as_ref()),
            headers: None,
            body: (&body).into(),
            request: &request,
        };
        let handled = dispatch::dispatch(self, cx, Method::ToolsList, request_context);
        instrument::observed(self, watch, &request, handled)
    }

    /// Server information for REST clients.
    pub fn info(&self) -> Value {
        let snapshot = self.snapshots.load();
        let mut info = snapshot.server_info.clone();
        info["longshore"] = env!("CARGO_PKG_VERSION").into();
        info["protocolVersions"] = supported_versions().into();
        info["capabilities"] = snapshot.capabilities.clone();
        if let Some(instructions) = &snapshot.instructions {
            info["instructions"] = instructions.as_str().into();
        }
        info
    }

    /// Name and version of the server and of the runtime.
    pub fn version(&self) -> Value {
        let info = &self.snapshots.load().server_info;
        json!({
            "name": info["name"],
            "version": info["version"],
            "longshore": env!("CARGO_PKG_VERSION"),
        })
    }
}

fn rest_caller<'a>(
    server: &Server,
    principal: &'a Arc<Principal>,
    address: Option<IpAddr>,
    watch: Option<&'a RequestScope<'a>>,
) -> Caller<'a> {
    let origin = Origin {
        principal,
        address,
        // Only sessions and replays depend on the time, which REST calls do not have.
        now: 0,
        watch,
    };
    Caller::new(Channel::Rest, origin, None, server.caller_defaults)
}

/// Returns the JSON object in a body, or an empty string for an empty body; `None` if the body begins like another value. The
/// flag is true if a member may be repeated.
fn object(body: &Bytes, bounds: MessageBounds) -> Result<Option<(&str, bool)>, Malformed<'_>> {
    let text = message::text(body)?;
    let mut scanner = Scanner::within(text, bounds.of_documents());
    match scanner.peek() {
        None => Ok(Some(("", false))),
        Some(b'{') => {
            let object = scanner.value_with_names();
            let object = object.and_then(|object| scanner.end().map(|()| object));
            object
                .map(Some)
                .map_err(|error| Malformed::scanned(error, &scanner))
        }
        Some(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_one_object_or_nothing() {
        let read = |text: &'static [u8]| {
            let body = Bytes::from_static(text);
            let read = object(&body, MessageBounds::default()).ok().flatten();
            read.map(|(object, _)| object.to_owned())
        };
        assert_eq!(read(b" {\"a\": [1]} \n").as_deref(), Some("{\"a\": [1]}"));
        assert_eq!(read(b"").as_deref(), Some(""));
        assert_eq!(read(b" \r\n").as_deref(), Some(""));
        for refused in [
            &b"[]"[..],
            b"1",
            b"null",
            b"{",
            b"{}x",
            b"{\"a\":}",
            b"{\"a\":\"\xff\"}",
        ] {
            assert_eq!(read(refused), None, "{refused:?}");
        }
        let few = MessageBounds::new(8, 16, 3, 36);
        let excess = |text: &'static [u8]| {
            let body = Bytes::from_static(text);
            object(&body, few).err().and_then(|problem| problem.excess)
        };
        assert_eq!(excess(b"{\"a\":[1]}"), None);
        assert_eq!(excess(b"{\"a\":[1,2]}"), Some(message::Excess::Values));
    }
}

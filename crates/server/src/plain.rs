//! Tools for those who speak no MCP: calls and lists that no message asked for. They take the way that messages take,
//! so that whatever is asked of those is asked of these.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Context;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Value, json};

use super::call::{OnDisconnect, Resumption};
use super::generation::supported_versions;
use super::rounds::Reach;
use super::watched::speaks;
use super::{Caller, Handled, Headers, Incoming, Local, Server, malformed};
use crate::auth::Principal;
use crate::catalog::Room;
use crate::protocol::message::{MessageBounds, Params, Request};
use crate::protocol::scan::Scanner;
use crate::protocol::{ClientCapabilities, Method, Revision};
use crate::telemetry::{Seen, Watch};

/// What answers carry where messages have their id.
const ID: &str = "0";

impl Server {
    /// Calls a tool with a body of arguments: a JSON object, or nothing. The reply is an answer to `tools/call` of the
    /// newest revision.
    pub(crate) fn call_plainly(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        (local, seen): (&Local, Seen<'_>),
        principal: &Arc<Principal>,
        headers: &mut HeaderMap,
        name: &str,
        body: &Bytes,
    ) -> Handled {
        let Some((arguments, arguments_repeat)) = object(body, self.bounds) else {
            return Handled::Now(malformed("the body is a JSON object: the tool's arguments"));
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
        };
        let seen = Seen {
            headers: Some(headers.all),
            ..seen
        };
        let watch = self.watch(local.cells(), principal, seen, &request);
        let address = seen.peer.map(|peer| peer.address);
        let caller = self.plain_caller(principal, address, watch.as_ref());
        let incoming = Incoming {
            caller,
            headers: Some(headers),
            body,
            request: &request,
        };
        let handled = self.dispatch(cx, Method::ToolsCall, incoming);
        self.watched(watch, &request, handled)
    }

    /// A page of the list of tools: an answer to `tools/list` of the newest revision.
    pub(crate) fn list_plainly(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        principal: &Arc<Principal>,
        cursor: Option<&str>,
    ) -> Handled {
        let params = cursor.map(|cursor| json!({ "cursor": cursor }).to_string());
        let request = Request {
            id: ID,
            method: Cow::Borrowed(Method::ToolsList.as_str()),
            params: Params {
                object: params.as_deref(),
                ..Params::default()
            },
        };
        let incoming = Incoming {
            caller: self.plain_caller(principal, None, None),
            headers: None,
            body: &Bytes::new(),
            request: &request,
        };
        self.dispatch(cx, Method::ToolsList, incoming)
    }

    /// What this server says about itself.
    pub(crate) fn info(&self) -> Value {
        let generation = self.generation.load();
        let mut info = generation.server_info.clone();
        info["longshore"] = env!("CARGO_PKG_VERSION").into();
        info["protocolVersions"] = supported_versions().into();
        info["capabilities"] = generation.capabilities.clone();
        if let Some(instructions) = &generation.instructions {
            info["instructions"] = instructions.as_str().into();
        }
        info
    }

    /// Its name and version, and that of the runtime.
    pub(crate) fn version(&self) -> Value {
        let info = &self.generation.load().server_info;
        json!({
            "name": info["name"],
            "version": info["version"],
            "longshore": env!("CARGO_PKG_VERSION"),
        })
    }

    /// Nobody who could be asked anything, be told of progress, or be sent a stream.
    fn plain_caller<'a>(
        &self,
        principal: &'a Arc<Principal>,
        address: Option<IpAddr>,
        watch: Option<&'a Watch<'a>>,
    ) -> Caller<'a> {
        speaks(watch, Revision::V2026_07_28, None);
        Caller {
            principal,
            address,
            revision: Revision::V2026_07_28,
            session: None,
            on_disconnect: OnDisconnect::Cancel,
            stream_after: None,
            resumption: Resumption::No,
            capabilities: ClientCapabilities::default(),
            reach: Reach::Plain,
            room: Room::default(),
            now: 0,
            watch,
            propagation: self.telemetry.propagation(),
        }
    }
}

/// The one JSON object of a body, or the empty text of an empty body; and whether a member may appear twice in it.
fn object(body: &Bytes, bounds: MessageBounds) -> Option<(&str, bool)> {
    let text = simdutf8::basic::from_utf8(body).ok()?;
    let mut scanner = Scanner::within(text, bounds.of_documents());
    match scanner.peek() {
        None => Some(("", false)),
        Some(b'{') => {
            let object = scanner.value_with_names().ok()?;
            scanner.end().ok()?;
            Some(object)
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_one_object_or_nothing() {
        let read = |text: &'static [u8]| {
            let body = Bytes::from_static(text);
            let read = object(&body, MessageBounds::default());
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
        let object = |text: &'static [u8]| object(&Bytes::from_static(text), few).is_some();
        assert!(object(b"{\"a\":[1]}") && !object(b"{\"a\":[1,2]}"));
    }
}

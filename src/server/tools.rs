//! `tools/list` and `tools/call`.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use serde::Deserialize;
use serde_json::Value;

use super::call::{self, OnDisconnect, Outcome};
use super::generation::Generation;
use super::reply::{Reply, begin};
use super::{Caller, Server, ValidationErrors, stateless, truncated};
use crate::catalog::{
    Arguments, CallContext, Output, OutputContent, RequestId, ToolError, ToolErrorKind,
};
use crate::protocol::message::{self, Request};
use crate::protocol::{Content, ErrorCode, ErrorObject, Revision, push_escaped};

impl Server {
    pub(super) fn list_tools(&self, caller: &Caller, request: &Request<'_>) -> Reply {
        #[derive(Deserialize)]
        struct ListParams<'a> {
            #[serde(borrow)]
            cursor: Option<Cow<'a, str>>,
        }
        let generation = self.generation.load();
        let frame = generation.frame(caller.revision, &self.config, &self.keys, &self.mount);
        let listing = generation.listing(frame);
        let page = match request.params.object {
            None | Some("{}") => listing.first().clone(),
            Some(params) => match serde_json::from_str::<ListParams<'_>>(params) {
                Ok(ListParams { cursor: None }) => listing.first().clone(),
                Ok(ListParams {
                    cursor: Some(cursor),
                }) => {
                    let Some(page) = listing.after(&generation.catalog, frame, &cursor) else {
                        return invalid_params(
                            request.id,
                            "the cursor is not one of this server's; list from the start",
                        );
                    };
                    page
                }
                Err(e) => return invalid_params(request.id, &e.to_string()),
            },
        };
        Reply::pieces(begin(request.id, 0).into(), page)
    }

    /// Calls a tool. `headers` are those of the HTTP request, and `mirrored` says that they have to agree with
    /// the body.
    #[inline]
    pub(super) async fn call_tool(
        self: &Arc<Self>,
        caller: Caller,
        headers: Option<HeaderMap>,
        body: &Bytes,
        request: &Request<'_>,
    ) -> Reply {
        let Some(name) = request.params.name.and_then(message::string) else {
            return invalid_params(request.id, "name is required, a string: which tool to call");
        };
        let generation = self.generation.load_full();
        if !caller.revision.has_sessions() {
            if let Some(headers) = &headers
                && let Err(refusal) = stateless::check_name(request, &name, headers)
            {
                return refusal;
            }
            if let Err(refusal) = stateless::check_log_level(request) {
                return refusal;
            }
        }
        let Some(entry) = generation.catalog.tool(&name) else {
            return unknown_tool(&generation, request.id, &name);
        };
        if !caller.revision.has_sessions()
            && let Some(headers) = &headers
            && let Err(refusal) =
                stateless::check_parameters(request.id, entry, &request.params, headers)
        {
            return refusal;
        }
        let arguments = match request.params.arguments {
            None => Arguments::none(),
            Some(object) if message::is_object(object) => {
                Arguments::from_checked(body.slice_ref(object.as_bytes()))
            }
            Some(_) => return invalid_params(request.id, "arguments is an object"),
        };
        let writer = ResultWriter {
            generation: &generation,
            id: request.id,
            revision: caller.revision,
        };
        let arguments = match entry.check(arguments) {
            Ok(arguments) => arguments,
            Err(invalid) => {
                return writer.failure(&name, &invalid.into(), self.config.validation_errors);
            }
        };
        let on_disconnect = if caller.revision.has_sessions() {
            OnDisconnect::RunOn
        } else {
            OnDisconnect::Cancel
        };
        let timeout = entry.tool.definition().timeout;
        let timeout = timeout.unwrap_or(Duration::from_secs(self.config.call_timeout_seconds));
        let context = Arc::new(CallContext {
            principal: caller.principal,
            session: caller.session,
            request_id: RequestId::from_json(request.id),
            headers,
        });
        let start = || entry.tool.call(context, arguments);
        match call::run(start, timeout, on_disconnect, &self.inflight).await {
            Outcome::Done(Ok(output)) => match entry.check_output(&output) {
                Ok(()) => writer.success(&output),
                Err(problem) => {
                    tracing::error!(tool = %name, %problem, "a result does not fit the tool's output schema");
                    internal_error(request.id)
                }
            },
            Outcome::Done(Err(error)) => {
                writer.failure(&name, &error, self.config.validation_errors)
            }
            Outcome::TimedOut(limit) => {
                let message = format!("the tool did not answer within {} s", limit.as_secs_f64());
                tracing::warn!(tool = %name, limit_s = limit.as_secs_f64(), "a call ran out of time");
                writer.failure(
                    &name,
                    &ToolError::new(message),
                    self.config.validation_errors,
                )
            }
            Outcome::Panicked => {
                tracing::error!(tool = %name, "a tool panicked; its call failed, nothing else is affected");
                internal_error(request.id)
            }
        }
    }
}

/// Writes the results of calls as a revision's clients read them (TOOL-10).
struct ResultWriter<'a> {
    generation: &'a Generation,
    id: &'a str,
    revision: Revision,
}

impl ResultWriter<'_> {
    fn success(&self, output: &Output) -> Reply {
        let text_len = match &output.content {
            OutputContent::Text(text) => text.len(),
            OutputContent::Structured | OutputContent::Blocks(_) => 256,
        };
        let structured = output.structured.as_deref();
        // Most texts need few escapes or none; one that needs more makes the buffer grow.
        let capacity = 96
            + text_len
            + text_len / 16
            + structured.map_or(0, |s| 2 * s.len())
            + self.generation.result_tail.len();
        let mut out = begin(self.id, capacity);
        out.extend_from_slice(br#","result":{"content":["#);
        match &output.content {
            OutputContent::Text(text) => push_text_block(&mut out, text),
            OutputContent::Structured => push_text_block(&mut out, structured.unwrap_or_default()),
            OutputContent::Blocks(blocks) => {
                for (position, block) in blocks.iter().enumerate() {
                    if position > 0 {
                        out.push(b',');
                    }
                    push_block(&mut out, block, self.revision);
                }
            }
        }
        out.push(b']');
        if let Some(json) = structured
            && self.revision.has_structured_results()
            && (json.starts_with('{') || self.revision.has_structured_values_of_any_kind())
        {
            out.extend_from_slice(br#","structuredContent":"#);
            out.extend_from_slice(json.as_bytes());
        }
        out.extend_from_slice(br#","isError":false"#);
        self.finish(out, output)
    }

    /// A failure that the model reads, or an error of the protocol's where that is what the revision has.
    #[cold]
    fn failure(&self, tool: &str, error: &ToolError, reporting: ValidationErrors) -> Reply {
        match error.kind() {
            ToolErrorKind::Internal => {
                tracing::error!(%tool, error = error.message(), source = error.source().map(tracing::field::display), "a tool is at fault");
                internal_error(self.id)
            }
            ToolErrorKind::InvalidArguments => {
                let message = format!("Invalid arguments for tool {tool}: {}", error.message());
                let to_model = match reporting {
                    ValidationErrors::Auto => self.revision.shows_invalid_arguments_to_the_model(),
                    ValidationErrors::Protocol => false,
                    ValidationErrors::Tool => true,
                };
                if !to_model {
                    return Reply::error(
                        self.id,
                        &ErrorObject::new(ErrorCode::InvalidParams, message),
                    );
                }
                self.error_result(&message)
            }
            ToolErrorKind::Failed => {
                if let Some(source) = error.source() {
                    tracing::debug!(%tool, %source, "a call failed");
                }
                self.error_result(error.message())
            }
        }
    }

    fn error_result(&self, message: &str) -> Reply {
        let mut out = begin(
            self.id,
            128 + message.len() + self.generation.result_tail.len(),
        );
        out.extend_from_slice(br#","result":{"content":["#);
        push_text_block(&mut out, message);
        out.extend_from_slice(br#"],"isError":true"#);
        self.finish(out, &Output::default())
    }

    fn finish(&self, mut out: Vec<u8>, output: &Output) -> Reply {
        match (&output.meta, self.revision.has_result_type()) {
            (None, true) => out.extend_from_slice(self.generation.result_tail.as_bytes()),
            (None, false) => {}
            (Some(meta), with_server_info) => {
                let mut meta = meta.clone();
                if with_server_info {
                    out.extend_from_slice(br#","resultType":"complete""#);
                    meta.entry("io.modelcontextprotocol/serverInfo")
                        .or_insert_with(|| self.generation.server_info.clone());
                }
                out.extend_from_slice(br#","_meta":"#);
                out.extend_from_slice(Value::Object(meta).to_string().as_bytes());
            }
        }
        out.extend_from_slice(b"}}");
        Reply::document(out)
    }
}

#[inline]
fn push_text_block(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(br#"{"type":"text","text":""#);
    push_escaped(out, text);
    out.extend_from_slice(br#""}"#);
}

/// Writes a block, or what stands for it in revisions that do not know its kind.
fn push_block(out: &mut Vec<u8>, block: &Content, revision: Revision) {
    match block {
        Content::Audio(audio) if !revision.has_annotations() => {
            push_text_block(
                out,
                &format!(
                    "[audio, {}: this client cannot receive it]",
                    audio.mime_type
                ),
            );
        }
        Content::ResourceLink(link) if !revision.has_structured_results() => {
            push_text_block(out, &format!("{}: {}", link.name, link.uri));
        }
        block => match serde_json::to_writer(&mut *out, block) {
            Ok(()) => {}
            Err(_) => unreachable!("content blocks have nothing that JSON cannot hold"),
        },
    }
}

fn unknown_tool(generation: &Generation, id: &str, name: &str) -> Reply {
    let mut message = format!("Unknown tool: {}", truncated(name));
    if let Some(nearest) = generation.catalog.nearest(name) {
        message.push_str("; did you mean ");
        message.push_str(nearest);
        message.push('?');
    }
    Reply::error(id, &ErrorObject::new(ErrorCode::InvalidParams, message))
}

pub(super) fn invalid_params(id: &str, problem: &str) -> Reply {
    let message = format!("Invalid params: {}", truncated(problem));
    Reply::error(id, &ErrorObject::new(ErrorCode::InvalidParams, message))
}

pub(super) fn internal_error(id: &str) -> Reply {
    Reply::error(id, &ErrorObject::new(ErrorCode::Internal, "Internal error"))
}

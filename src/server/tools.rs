//! `tools/call`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;

use super::call::{self, OnDisconnect, Outcome};
use super::content::{push_block, push_text_block};
use super::generation::Generation;
use super::reply::{Reply, begin, finish};
use super::{Caller, Server, ValidationErrors, stateless, truncated};
use crate::catalog::{Arguments, Output, OutputContent, ToolError, ToolErrorKind};
use crate::protocol::message::{self, Request};
use crate::protocol::{ErrorCode, ErrorObject, Revision};

impl Server {
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
        if let Err(refusal) =
            stateless::check_named(caller.revision, request, &name, headers.as_ref())
        {
            return refusal;
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
        let on_disconnect = OnDisconnect::of(caller.revision);
        let timeout = entry.tool.definition().timeout;
        let timeout = timeout.unwrap_or(Duration::from_secs(self.config.call_timeout_seconds));
        let context = caller.into_context(request.id, headers);
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

    fn finish(&self, out: Vec<u8>, output: &Output) -> Reply {
        finish(out, self.generation, self.revision, output.meta.as_ref())
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

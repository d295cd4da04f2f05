//! `tools/call`.

use std::sync::Arc;
use std::task::Context;

use super::call::{self, OnDisconnect, Outcome, Step, Terms};
use super::content::{TEXT_BLOCK_BYTES, push_block, push_plain_text_block, push_text_block};
use super::dispatch::unnamed;
use super::generation::Generation;
use super::reply::{Refusal, Reply, begin, end_len, finish};
use super::rounds::{missing_capability, visit_required};
use super::run::in_parts;
use super::search::Meant;
use super::stream::CallStream;
use super::tasks::TaskCall;
use super::{Caller, Handled, Headers, Incoming, Server, ValidationErrors, stateless, truncated};
use crate::auth::Shelf;
use crate::catalog::{
    Arguments, CallContext, CatalogTool, InvalidArguments, Output, OutputContent, TaskSupport,
    ToolError, ToolErrorKind,
};
use crate::limit::{LARGE_BYTES, ToolLimits};
use crate::net::ShareKey;
use crate::protocol::message::{self, Request};
use crate::protocol::{ErrorCode, ErrorObject, Method, Revision, is_plain};
use crate::telemetry::Verdict;

impl Server {
    /// Calls a tool. In the stateless era the headers have to agree with the body.
    #[inline]
    pub(super) fn call_tool(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        incoming: Incoming<'_>,
    ) -> Handled {
        let Incoming {
            caller,
            mut headers,
            body,
            request,
        } = incoming;
        let generation = self.generation.load();
        let lent = Incoming {
            caller,
            headers: headers.as_mut().map(Headers::reborrow),
            body,
            request,
        };
        match self.start_call(&generation, lent) {
            Err(refusal) if refusal.is_unknown_tool() => {
                let incoming = Incoming {
                    caller,
                    headers,
                    body,
                    request,
                };
                self.unless_starting(&generation, Method::ToolsCall, incoming, refusal)
            }
            Err(refusal) => Handled::Now(refusal),
            Ok(mut started) => {
                let support = started.entry.tool.definition().task;
                if support != TaskSupport::Forbidden || request.params.rare.is_some() {
                    match self.call_as_task(&generation, caller, request, started) {
                        Ok(ordinary) => started = ordinary,
                        Err(handled) => return handled,
                    }
                }
                let Started {
                    entry,
                    arguments,
                    mut context,
                    terms,
                    limits,
                } = started;
                let writer = ResultWriter {
                    generation: &generation,
                    entry,
                    id: request.id,
                    revision: caller.revision,
                    server: self,
                    share: Some(context.share),
                };
                let start = |context| entry.tool.call(context, arguments);
                let limits = limits.as_deref();
                let has_room = self
                    .limits
                    .has_room(caller.principal, caller.address, limits);
                let begun = if has_room {
                    call::begin(cx, start, &context, terms)
                } else {
                    call::prepared(start, &context)
                };
                if let Ok(Step::Done(outcome)) = begun {
                    let handled = writer.conclude(outcome);
                    give_back(&mut context, headers);
                    return handled;
                }
                let turn = self.limits.turn(caller.principal, caller.address, limits);
                let conclusion = Conclusion {
                    name: writer.name().to_owned(),
                    id: request.id.to_owned(),
                    revision: caller.revision,
                    server: Arc::clone(self),
                    generation: Arc::clone(&generation),
                    share: Some(context.share),
                };
                let streams = self.resumption_of(terms);
                Handled::Later(Box::pin(async move {
                    let step = match begun {
                        Ok(step) => step,
                        Err(call) => {
                            let held = if has_room {
                                turn.take()
                            } else {
                                match turn.wait().await {
                                    Ok(held) => held,
                                    Err(refused) => {
                                        return Reply::limited(Some(&conclusion.id), refused);
                                    }
                                }
                            };
                            let inflight = &conclusion.server.inflight;
                            call::wait(call, &context, terms, inflight, held).await
                        }
                    };
                    match step {
                        Step::Done(outcome) => {
                            let handled = conclusion.writer(|writer| writer.conclude(outcome));
                            handled.reply().await
                        }
                        Step::Streams(running) => {
                            let hold = conclusion.server.inflight.stream();
                            let conclude =
                                move |outcome| conclusion.writer(|writer| writer.conclude(outcome));
                            let stream = CallStream::new(running, context, conclude, hold);
                            in_parts(stream, streams, terms)
                        }
                    }
                }))
            }
        }
    }

    /// Makes a task of a call, if it is to be one.
    ///
    /// # Errors
    ///
    /// What was made of it, if it is no ordinary call.
    #[cold]
    fn call_as_task<'g>(
        self: &Arc<Self>,
        generation: &Arc<Generation>,
        caller: Caller<'_>,
        request: &Request<'_>,
        started: Started<'g>,
    ) -> Result<Started<'g>, Handled> {
        let definition = started.entry.tool.definition();
        let (support, context) = (definition.task, &started.context);
        let terms = self
            .task_terms(caller, support, context, request, started.terms.timeout)
            .map_err(Handled::Now)?;
        let Some(terms) = terms else {
            return Ok(started);
        };
        let conclusion = Conclusion {
            name: definition.name().to_owned(),
            id: request.id.to_owned(),
            revision: caller.revision,
            server: Arc::clone(self),
            generation: Arc::clone(generation),
            // The outcome of a task is kept elsewhere.
            share: None,
        };
        let Started {
            entry,
            arguments,
            context,
            terms: on_its_own,
            limits,
            ..
        } = started;
        let start = |context| entry.tool.call(context, arguments);
        let Some(call) = call::guard(start, &context) else {
            return Err(conclusion.writer(|writer| writer.conclude(Outcome::Panicked)));
        };
        let task = TaskCall {
            audited: self.audited_task(caller, &conclusion.name, definition.deferred_task),
            call,
            tool: conclusion.name.clone(),
            later: definition.deferred_task,
            stream_after: on_its_own.stream_after,
            runs_on: on_its_own.on_disconnect == OnDisconnect::RunOn,
            context,
            terms,
        };
        let turn = self
            .limits
            .turn(caller.principal, caller.address, limits.as_deref());
        Err(self.begin_task(request.id, task, turn, move |id, outcome| {
            let conclusion = Conclusion {
                id: id.to_owned(),
                ..conclusion
            };
            conclusion.writer(|writer| writer.conclude(outcome))
        }))
    }

    /// Everything that has to be right before a tool is called.
    #[inline]
    fn start_call<'g>(
        self: &'g Arc<Self>,
        generation: &'g Generation,
        incoming: Incoming<'_>,
    ) -> Result<Started<'g>, Reply> {
        let Incoming {
            caller, request, ..
        } = incoming;
        let Some(name) = request.params.name.and_then(message::string) else {
            let problem = "name is required, a string: which tool to call";
            return Err(unnamed(&incoming, problem));
        };
        let log_level = self.check_named(&incoming, &name)?;
        let mut meant = Meant {
            name,
            arguments: request.params.arguments,
            is_direct: true,
        };
        if let Some(search) = &generation.search {
            meant = generation.meant(search, caller, request.id, meant.name, meant.arguments)?;
        }
        let name = meant.name;
        let Some(entry) = generation.catalog.tool(&name) else {
            return Err(unknown_tool(generation, caller, request.id, &name));
        };
        // What is hidden is not there.
        let tools = &generation.catalog.tools;
        if !generation.sees_key(caller.principal, Shelf::Tools, tools, &name) {
            return Err(unknown_tool(generation, caller, request.id, &name));
        }
        caller.names(entry.operation);
        let scopes = &entry.tool.definition().scopes;
        if !scopes.is_empty() {
            check_scopes(caller, request.id, scopes)?;
        }
        if let Some(required) = generation.required_for(caller.principal, &name) {
            let all: Vec<_> = scopes.iter().chain(&*required).cloned().collect();
            check_scopes(caller, request.id, &all)?;
        }
        let refused = |invalid: InvalidArguments| {
            let writer = ResultWriter {
                generation,
                entry,
                id: request.id,
                revision: caller.revision,
                server: self,
                share: None,
            };
            writer.failure(&invalid.into())
        };
        // Before anybody reads them: another reader might take the other one.
        if let Some(path) = request.params.repeated_argument(meant.arguments) {
            return Err(refused(InvalidArguments::repeated(&path)));
        }
        if !caller.revision.has_sessions()
            && meant.is_direct
            && let Some(headers) = &incoming.headers
            && headers.mcp.is_some()
        {
            stateless::check_parameters(request.id, entry, &request.params, headers.all)?;
        }
        let arguments = match meant.arguments {
            None => Arguments::none(),
            Some(object) if message::is_object(object) => {
                Arguments::from_checked(incoming.body.slice_ref(object.as_bytes()))
            }
            Some(_) => return Err(invalid_params(request.id, "arguments is an object")),
        };
        let arguments = entry.check(arguments).map_err(refused)?;
        let limits = self
            .limits
            .call(&name)
            .map_err(|refused| Reply::limited(Some(request.id), refused))?;
        if entry.is_large() {
            // Nothing is done for a result that could not be kept.
            self.limits
                .check_response(caller.share())
                .map_err(|refused| Reply::limited(Some(request.id), refused))?;
        }
        let asking = self.asking(caller, incoming.body, request)?;
        let timeout = entry.tool.definition().timeout;
        Ok(Started {
            entry,
            arguments,
            terms: self.terms(caller, timeout),
            context: caller.context(incoming.headers, request, log_level, asking),
            limits,
        })
    }
}

/// Gives the headers of a request back that a call had, if nobody else has them. There is room in them.
#[inline]
fn give_back(context: &mut Arc<CallContext>, headers: Option<Headers<'_>>) {
    if let Some(headers) = headers
        && let Some(context) = Arc::get_mut(context)
        && let Some(taken) = context.headers.take()
    {
        *headers.all = taken;
    }
}

/// AUTH-09: a caller that lacks a scope is told all that are needed.
fn check_scopes(caller: Caller<'_>, id: &str, needed: &[String]) -> Result<(), Reply> {
    if needed.iter().all(|scope| caller.principal.has_scope(scope)) {
        return Ok(());
    }
    let message = format!(
        "the credential lacks a scope that is needed: {}",
        needed.join(" ")
    );
    let error = ErrorObject::new(ErrorCode::Http(403), message);
    let error = error.with_data(serde_json::json!({ "requiredScopes": needed }));
    Err(Reply::refused(
        Refusal::Scope(needed.into()),
        Some(id),
        &error,
    ))
}

/// A call about to be made.
struct Started<'g> {
    entry: &'g CatalogTool,
    arguments: Arguments,
    terms: Terms,
    context: Arc<CallContext>,
    /// The tool's own, if it has any.
    limits: Option<Arc<ToolLimits>>,
}

/// What it takes to write a result once its request is gone.
struct Conclusion {
    generation: Arc<Generation>,
    name: String,
    id: String,
    revision: Revision,
    server: Arc<Server>,
    share: Option<ShareKey>,
}

impl Conclusion {
    fn writer(&self, write: impl FnOnce(ResultWriter<'_>) -> Handled) -> Handled {
        match self.generation.catalog.tool(&self.name) {
            Some(entry) => write(ResultWriter {
                generation: &self.generation,
                entry,
                id: &self.id,
                revision: self.revision,
                server: &self.server,
                share: self.share,
            }),
            None => Handled::Now(internal_error(&self.id)),
        }
    }
}

/// Writes the results of calls as a revision's clients read them (TOOL-10).
struct ResultWriter<'a> {
    generation: &'a Generation,
    entry: &'a CatalogTool,
    id: &'a str,
    revision: Revision,
    server: &'a Arc<Server>,
    /// Whose share of the memory for responses the result takes; `None` if it is not sent.
    share: Option<ShareKey>,
}

/// What the model reads instead of an error that was not written for it.
const MASKED: &str = "the tool failed; the reason is in the server's log";

impl ResultWriter<'_> {
    #[inline]
    fn conclude(&self, outcome: Outcome<Result<Output, ToolError>>) -> Handled {
        Handled::Now(match outcome {
            Outcome::Done(Ok(output)) => match self.entry.check_output(&output) {
                Ok(()) => self.success(&output),
                Err(problem) => {
                    tracing::error!(tool = self.name(), %problem, "a result does not fit the tool's output schema");
                    internal_error(self.id)
                }
            },
            Outcome::Done(Err(error)) => self.failure(&error),
            Outcome::TimedOut(limit) => {
                let message = format!("the tool did not answer within {} s", limit.as_secs_f64());
                tracing::warn!(
                    tool = self.name(),
                    limit_s = limit.as_secs_f64(),
                    "a call ran out of time"
                );
                self.error_result(&message).because(Refusal::TimedOut)
            }
            Outcome::Panicked => {
                tracing::error!(
                    tool = self.name(),
                    "a tool panicked; its call failed, nothing else is affected"
                );
                internal_error(self.id)
            }
            Outcome::Cancelled => Reply::Cancelled,
            Outcome::Stopped => stopped(self.id),
            Outcome::Interrupted(interrupted) => {
                return self.server.interrupted(
                    self.id,
                    self.name(),
                    self.generation,
                    *interrupted,
                );
            }
        })
    }

    fn name(&self) -> &str {
        self.entry.tool.definition().name()
    }

    fn success(&self, output: &Output) -> Reply {
        let weight = output.weight();
        if LARGE_BYTES <= weight
            && let Some(share) = self.share
        {
            return self.large_success(output, weight, share);
        }
        let reply = success(self.generation, self.revision, self.id, output);
        match self.share {
            Some(share) => reply.counted(&self.server.limits, share, self.id),
            None => reply,
        }
    }

    /// A large result counts as unread from before it is written, so that its memory is not taken twice.
    #[cold]
    fn large_success(&self, output: &Output, weight: usize, share: ShareKey) -> Reply {
        self.entry.has_large_results();
        match self.server.limits.reserve_response(share, weight) {
            Err(refused) => {
                tracing::warn!(
                    tool = self.name(),
                    bytes = weight,
                    setting = refused.limit.setting(),
                    "a result was dropped: too many large responses wait to be read"
                );
                Reply::limited(Some(self.id), refused)
            }
            Ok(reservation) => {
                success(self.generation, self.revision, self.id, output).holding(reservation)
            }
        }
    }

    /// A failure that the model reads, or an error of the protocol's where that is what the revision has.
    #[cold]
    fn failure(&self, error: &ToolError) -> Reply {
        let tool = self.name();
        match error.kind() {
            ToolErrorKind::Internal => {
                tracing::error!(%tool, error = error.message(), source = error.source().map(tracing::field::display), "a tool is at fault");
                internal_error(self.id)
            }
            ToolErrorKind::InvalidArguments => {
                let message = format!("Invalid arguments for tool {tool}: {}", error.message());
                let to_model = match self.server.config.validation_errors {
                    ValidationErrors::Auto => self.revision.shows_invalid_arguments_to_the_model(),
                    ValidationErrors::Protocol => false,
                    ValidationErrors::Tool => true,
                };
                if !to_model {
                    let error = ErrorObject::new(ErrorCode::InvalidParams, message);
                    return Reply::refused(Refusal::Arguments, Some(self.id), &error);
                }
                self.error_result(&message).because(Refusal::Arguments)
            }
            ToolErrorKind::MissingCapability(ability) if !self.revision.has_sessions() => {
                missing_capability(self.id, ability)
            }
            ToolErrorKind::VisitRequired => visit_required(self.id, error.source()),
            ToolErrorKind::Failed if self.server.config.mask_errors && error.is_foreign() => {
                tracing::error!(%tool, error = error.message(), "a call failed, and its caller is not told why");
                self.error_result(MASKED)
            }
            ToolErrorKind::Failed | ToolErrorKind::MissingCapability(_) => {
                if let Some(source) = error.source() {
                    tracing::debug!(%tool, %source, "a call failed");
                }
                self.error_result(error.message())
            }
        }
    }

    fn error_result(&self, message: &str) -> Reply {
        error_result(self.generation, self.revision, self.id, message)
    }
}

/// The answer to a call that succeeded.
#[inline]
pub(super) fn success(
    generation: &Generation,
    revision: Revision,
    id: &str,
    output: &Output,
) -> Reply {
    let structured = output.structured.as_deref();
    let mut plain = false;
    let content_len = match &output.content {
        OutputContent::Text(text) => {
            plain = is_plain(text);
            // Most texts need few escapes; one that needs more makes the buffer grow.
            let escapes = if plain { 0 } else { 16 + text.len() / 16 };
            TEXT_BLOCK_BYTES + text.len() + escapes
        }
        OutputContent::Structured | OutputContent::Blocks(_) => 256,
    };
    // Exactly what a plain text takes: a buffer that is full is sent as it is.
    let capacity = CONTENT.len()
        + content_len
        + structured.map_or(0, |s| 2 * s.len())
        + 1
        + is_error(output).len()
        + end_len(generation, revision, output.meta.as_ref());
    let mut out = begin(id, capacity);
    out.extend_from_slice(CONTENT);
    match &output.content {
        OutputContent::Text(text) if plain => push_plain_text_block(&mut out, text),
        OutputContent::Text(text) => push_text_block(&mut out, text),
        OutputContent::Structured => push_text_block(&mut out, structured.unwrap_or_default()),
        OutputContent::Blocks(blocks) => {
            for (position, block) in blocks.iter().enumerate() {
                if position > 0 {
                    out.push(b',');
                }
                push_block(&mut out, block, revision);
            }
        }
    }
    out.push(b']');
    if let Some(json) = structured
        && revision.has_structured_results()
        && (json.starts_with('{') || revision.has_structured_values_of_any_kind())
    {
        out.extend_from_slice(br#","structuredContent":"#);
        out.extend_from_slice(json.as_bytes());
    }
    out.extend_from_slice(is_error(output));
    finish(out, generation, revision, output.meta.as_ref())
}

const CONTENT: &[u8] = br#","result":{"content":["#;

#[inline]
fn is_error(output: &Output) -> &'static [u8] {
    if output.is_error {
        br#","isError":true"#
    } else {
        br#","isError":false"#
    }
}

/// The answer to a call that failed in a way that the model reads.
pub(super) fn error_result(
    generation: &Generation,
    revision: Revision,
    id: &str,
    message: &str,
) -> Reply {
    let mut out = begin(id, 128 + message.len() + generation.result_tail.len());
    out.extend_from_slice(CONTENT);
    push_text_block(&mut out, message);
    out.extend_from_slice(br#"],"isError":true"#);
    finish(out, generation, revision, None).with_verdict(Verdict::ToolError)
}

fn unknown_tool(generation: &Generation, caller: Caller<'_>, id: &str, name: &str) -> Reply {
    let mut message = format!("Unknown tool: {}", truncated(name));
    if let Some(nearest) = generation.catalog.nearest(name, |place| {
        generation.sees(caller.principal, Shelf::Tools, place)
    }) {
        message.push_str("; did you mean ");
        message.push_str(nearest);
        message.push('?');
    }
    let error = ErrorObject::new(ErrorCode::InvalidParams, message);
    Reply::refused(Refusal::Tool, Some(id), &error)
}

pub(super) fn invalid_params(id: &str, problem: &str) -> Reply {
    let message = format!("Invalid params: {}", truncated(problem));
    Reply::error(id, &ErrorObject::new(ErrorCode::InvalidParams, message))
}

/// The server stops and could not wait any longer.
pub(super) fn stopped(id: &str) -> Reply {
    let message = "The server is stopping and ended the call; send it again";
    Reply::error(id, &ErrorObject::new(ErrorCode::Http(503), message))
}

pub(super) fn internal_error(id: &str) -> Reply {
    Reply::error(id, &ErrorObject::new(ErrorCode::Internal, "Internal error"))
}

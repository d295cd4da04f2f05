//! Handler of `prompts/get`.

use std::sync::Arc;
use std::task::Context;

use super::content::push_block;
use super::dispatch::missing_name;
use super::inflight::CallOutcome;
use super::reply::{Reply, begin, finish};
use super::rounds::{missing_capability, visit_required};
use super::snapshot::Snapshot;
use super::tools::{self, internal_error, invalid_params, stopped};
use super::{MaybeReady, RequestContext, Server, truncated};
use crate::auth::Shelf;
use crate::catalog::{
    InvalidArguments, Parameters, PromptDefinition, PromptError, PromptErrorKind, PromptOutput,
};
use crate::net::ShareKey;
use crate::protocol::message;
use crate::protocol::{ErrorCode, ErrorObject, Method, Revision, Role, push_string};

impl Server {
    /// Handles `prompts/get`.
    pub(super) fn get_prompt(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        request_context: RequestContext<'_>,
    ) -> Result<MaybeReady, Reply> {
        let RequestContext {
            caller, request, ..
        } = request_context;
        let Some(name) = request.params.name.and_then(message::string) else {
            let problem = "name is required, a string: which prompt to get";
            return Err(missing_name(&request_context, problem));
        };
        let log_level = self.check_named(&request_context, &name)?;
        let snapshot = self.snapshot.load_full();
        let prompts = &snapshot.catalog.prompts;
        let sees = |_: &&_| snapshot.sees_key(caller.principal, Shelf::Prompts, prompts, &name);
        let Some(entry) = prompts.get(&name).filter(sees) else {
            let unknown = unknown_prompt(request.id, &name);
            return Ok(self.wait_for_source(
                &snapshot,
                Method::PromptsGet,
                request_context,
                unknown,
            ));
        };
        caller.names(entry.operation);
        let definition = entry.prompt.definition();
        if let Some(path) = request.params.repeated_argument(request.params.arguments) {
            let repeated = InvalidArguments::repeated(&path);
            return Err(invalid_params(
                request.id,
                &format!("arguments: {repeated}"),
            ));
        }
        let arguments = read_arguments(request.params.arguments, definition)
            .map_err(|problem| invalid_params(request.id, &problem))?;
        let asking = self.asking(caller, request_context.body, request)?;
        let options = self.options(caller, definition.timeout);
        let getting = PromptResponder {
            id: request.id.to_owned(),
            name: name.into_owned(),
            description: definition.description.clone(),
            revision: caller.revision,
            snapshot: Arc::clone(&snapshot),
            server: Arc::clone(self),
            share: caller.share(),
        };
        let context = caller.context(
            request_context.headers,
            request,
            log_level,
            asking,
            options.timeout,
        );
        let start = |context| entry.prompt.get(context, arguments);
        let conclude = move |outcome| getting.conclude(outcome);
        Ok(self.execute(cx, request.id, start, context, options, conclude))
    }
}

/// Owned data of a prompt request, for its response.
struct PromptResponder {
    id: String,
    name: String,
    description: Option<String>,
    revision: Revision,
    snapshot: Arc<Snapshot>,
    server: Arc<Server>,
    share: ShareKey,
}

impl PromptResponder {
    fn conclude(&self, outcome: CallOutcome<Result<PromptOutput, PromptError>>) -> MaybeReady {
        MaybeReady::Ready(match outcome {
            CallOutcome::Done(Ok(output)) => self.write(&output),
            CallOutcome::Done(Err(error)) => match error.kind() {
                PromptErrorKind::MissingCapability(ability) if !self.revision.has_sessions() => {
                    missing_capability(&self.id, ability)
                }
                _ => failed(&self.id, "prompt", &self.name, &error),
            },
            CallOutcome::TimedOut(limit) => {
                let limit_s = limit.as_secs_f64();
                tracing::warn!(prompt = %self.name, limit_s, "a prompt ran out of time");
                let message = format!("the prompt was not there within {limit_s} s");
                Reply::error(&self.id, &ErrorObject::new(ErrorCode::Internal, message))
            }
            CallOutcome::Panicked => {
                tracing::error!(prompt = %self.name, "a prompt panicked; its request failed, nothing else is affected");
                internal_error(&self.id)
            }
            CallOutcome::Cancelled => Reply::Cancelled,
            CallOutcome::Stopped => stopped(&self.id),
            CallOutcome::Suspended(interrupted) => {
                return self
                    .server
                    .interrupted(&self.id, &self.name, &self.snapshot, *interrupted);
            }
        })
    }

    fn write(&self, output: &PromptOutput) -> Reply {
        let mut out = begin(&self.id, 512 + self.snapshot.result_tail.len());
        out.extend_from_slice(br#","result":{"#);
        if let Some(description) = output.description.as_ref().or(self.description.as_ref()) {
            out.extend_from_slice(br#""description":"#);
            push_string(&mut out, description);
            out.push(b',');
        }
        out.extend_from_slice(br#""messages":["#);
        for (position, message) in output.messages.iter().enumerate() {
            if position > 0 {
                out.push(b',');
            }
            out.extend_from_slice(match message.role {
                Role::User => br#"{"role":"user","content":"#,
                Role::Assistant => br#"{"role":"assistant","content":"#,
            });
            push_block(&mut out, &message.content, self.revision);
            out.push(b'}');
        }
        out.push(b']');
        finish(out, &self.snapshot, self.revision, output.meta.as_ref()).counted(
            &self.server.limits,
            self.share,
            &self.id,
        )
    }
}

/// PRM-02, PRM-03: arguments are strings, all are known, and required ones are present.
fn read_arguments(
    arguments: Option<&str>,
    definition: &PromptDefinition,
) -> Result<Parameters, String> {
    let arguments: Parameters = match arguments {
        None => Parameters::default(),
        Some(text) => serde_json::from_str(text)
            .map_err(|e| format!("arguments: {}", without_position(&e)))?,
    };
    let known = &definition.arguments;
    if let Some((unknown, _)) = arguments
        .iter()
        .find(|(name, _)| !known.iter().any(|k| k.name == *name))
    {
        let known: Vec<_> = known.iter().map(|k| k.name.as_str()).collect();
        return Err(match known.is_empty() {
            true => format!("the prompt has no argument `{unknown}`, nor any other"),
            false => format!(
                "the prompt has no argument `{}`; it has `{}`",
                truncated(unknown),
                known.join("`, `")
            ),
        });
    }
    let missing: Vec<_> = known
        .iter()
        .filter(|k| k.required && arguments.get(&k.name).is_none())
        .map(|k| k.name.as_str())
        .collect();
    if !missing.is_empty() {
        return Err(format!("missing argument: `{}`", missing.join("`, `")));
    }
    Ok(arguments)
}

/// Error message without the position, which refers to a part of the request only.
pub(super) fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}

pub(super) fn unknown_prompt(id: &str, name: &str) -> Reply {
    let message = format!("Unknown prompt: {}", truncated(name));
    Reply::error(id, &ErrorObject::new(ErrorCode::InvalidParams, message))
}

pub(super) fn failed(id: &str, what: &str, name: &str, error: &PromptError) -> Reply {
    let source = error.source().map(tracing::field::display);
    match error.kind() {
        PromptErrorKind::InvalidArguments => invalid_params(id, error.message()),
        PromptErrorKind::VisitRequired => visit_required(id, error.source()),
        PromptErrorKind::Forbidden => tools::forbidden(id, error.message(), error.source()),
        PromptErrorKind::Failed | PromptErrorKind::MissingCapability(_) => {
            tracing::debug!(
                what,
                name,
                error = error.message(),
                source,
                "a prompt failed"
            );
            let message = error.message().to_owned();
            Reply::error(id, &ErrorObject::new(ErrorCode::Internal, message))
        }
        // `Internal`, and kinds that are added later.
        _ => {
            tracing::error!(
                what,
                name,
                error = error.message(),
                source,
                "a prompt is at fault"
            );
            internal_error(id)
        }
    }
}

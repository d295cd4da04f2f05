//! `prompts/get`.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use super::call::{self, OnDisconnect, Outcome};
use super::content::push_block;
use super::generation::Generation;
use super::reply::{Reply, begin, finish};
use super::tools::{internal_error, invalid_params};
use super::{Caller, Server, stateless, truncated};
use crate::catalog::{Parameters, PromptDefinition, PromptError, PromptErrorKind, PromptOutput};
use crate::protocol::message::{self, Request};
use crate::protocol::{ErrorCode, ErrorObject, Revision, Role, push_string};

impl Server {
    /// Makes the messages of a prompt.
    pub(super) async fn get_prompt(
        self: &Arc<Self>,
        caller: Caller,
        headers: Option<HeaderMap>,
        request: &Request<'_>,
    ) -> Reply {
        let Some(name) = request.params.name.and_then(message::string) else {
            return invalid_params(
                request.id,
                "name is required, a string: which prompt to get",
            );
        };
        let revision = caller.revision;
        if let Err(refusal) = stateless::check_named(revision, request, &name, headers.as_ref()) {
            return refusal;
        }
        let generation = self.generation.load_full();
        let Some(entry) = generation.catalog.prompts.get(&name) else {
            return unknown_prompt(request.id, &name);
        };
        let definition = entry.prompt.definition();
        let arguments = match read_arguments(request.params.arguments, definition) {
            Ok(arguments) => arguments,
            Err(problem) => return invalid_params(request.id, &problem),
        };
        let timeout = definition.timeout;
        let timeout = timeout.unwrap_or(Duration::from_secs(self.config.call_timeout_seconds));
        let context = caller.into_context(request.id, headers);
        let start = || entry.prompt.get(context, arguments);
        let on_disconnect = OnDisconnect::of(revision);
        match call::run(start, timeout, on_disconnect, &self.inflight).await {
            Outcome::Done(Ok(output)) => {
                write(request.id, &generation, revision, definition, &output)
            }
            Outcome::Done(Err(error)) => failed(request.id, "prompt", &name, &error),
            Outcome::TimedOut(limit) => {
                let limit_s = limit.as_secs_f64();
                tracing::warn!(prompt = %name, limit_s, "a prompt ran out of time");
                let message = format!("the prompt was not there within {limit_s} s");
                Reply::error(request.id, &ErrorObject::new(ErrorCode::Internal, message))
            }
            Outcome::Panicked => {
                tracing::error!(prompt = %name, "a prompt panicked; its request failed, nothing else is affected");
                internal_error(request.id)
            }
        }
    }
}

/// PRM-02, PRM-03: strings, all of them known, and those that are required.
fn read_arguments(
    arguments: Option<&str>,
    definition: &PromptDefinition,
) -> Result<Parameters, String> {
    let arguments: Parameters = match arguments {
        None => Parameters::default(),
        Some(text) => {
            serde_json::from_str(text).map_err(|e| format!("arguments: {}", without_place(&e)))?
        }
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

/// What is wrong, without the position, which counts from where the caller does not.
pub(super) fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}

fn write(
    id: &str,
    generation: &Generation,
    revision: Revision,
    definition: &PromptDefinition,
    output: &PromptOutput,
) -> Reply {
    let mut out = begin(id, 512 + generation.result_tail.len());
    out.extend_from_slice(br#","result":{"#);
    if let Some(description) = output
        .description
        .as_ref()
        .or(definition.description.as_ref())
    {
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
        push_block(&mut out, &message.content, revision);
        out.push(b'}');
    }
    out.push(b']');
    finish(out, generation, revision, output.meta.as_ref())
}

pub(super) fn unknown_prompt(id: &str, name: &str) -> Reply {
    let message = format!("Unknown prompt: {}", truncated(name));
    Reply::error(id, &ErrorObject::new(ErrorCode::InvalidParams, message))
}

pub(super) fn failed(id: &str, what: &str, name: &str, error: &PromptError) -> Reply {
    let source = error.source().map(tracing::field::display);
    match error.kind() {
        PromptErrorKind::InvalidArguments => invalid_params(id, error.message()),
        PromptErrorKind::Failed => {
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
        PromptErrorKind::Internal => {
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

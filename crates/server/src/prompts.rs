//! `prompts/get`.

use std::sync::Arc;
use std::task::Context;

use super::call::Outcome;
use super::content::push_block;
use super::dispatch::unnamed;
use super::generation::Generation;
use super::reply::{Reply, begin, finish};
use super::rounds::{missing_capability, visit_required};
use super::tools::{internal_error, invalid_params, stopped};
use super::{Handled, Incoming, Server, truncated};
use crate::auth::Shelf;
use crate::catalog::{
    InvalidArguments, Parameters, PromptDefinition, PromptError, PromptErrorKind, PromptOutput,
};
use crate::net::ShareKey;
use crate::protocol::message;
use crate::protocol::{ErrorCode, ErrorObject, Method, Revision, Role, push_string};

impl Server {
    /// Makes the messages of a prompt.
    pub(super) fn get_prompt(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        incoming: Incoming<'_>,
    ) -> Result<Handled, Reply> {
        let Incoming {
            caller, request, ..
        } = incoming;
        let Some(name) = request.params.name.and_then(message::string) else {
            let problem = "name is required, a string: which prompt to get";
            return Err(unnamed(&incoming, problem));
        };
        let log_level = self.check_named(&incoming, &name)?;
        let generation = self.generation.load_full();
        let prompts = &generation.catalog.prompts;
        let sees = |_: &&_| generation.sees_key(caller.principal, Shelf::Prompts, prompts, &name);
        let Some(entry) = prompts.get(&name).filter(sees) else {
            let unknown = unknown_prompt(request.id, &name);
            return Ok(self.unless_starting(&generation, Method::PromptsGet, incoming, unknown));
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
        let asking = self.asking(caller, incoming.body, request)?;
        let terms = self.terms(caller, definition.timeout);
        let getting = Getting {
            id: request.id.to_owned(),
            name: name.into_owned(),
            description: definition.description.clone(),
            revision: caller.revision,
            generation: Arc::clone(&generation),
            server: Arc::clone(self),
            share: caller.share(),
        };
        let context = caller.context(incoming.headers, request, log_level, asking);
        let start = |context| entry.prompt.get(context, arguments);
        let conclude = move |outcome| getting.conclude(outcome);
        Ok(self.run(cx, request.id, start, context, terms, conclude))
    }
}

/// What it takes to answer once the messages are there.
struct Getting {
    id: String,
    name: String,
    description: Option<String>,
    revision: Revision,
    generation: Arc<Generation>,
    server: Arc<Server>,
    share: ShareKey,
}

impl Getting {
    fn conclude(&self, outcome: Outcome<Result<PromptOutput, PromptError>>) -> Handled {
        Handled::Now(match outcome {
            Outcome::Done(Ok(output)) => self.write(&output),
            Outcome::Done(Err(error)) => match error.kind() {
                PromptErrorKind::MissingCapability(ability) if !self.revision.has_sessions() => {
                    missing_capability(&self.id, ability)
                }
                _ => failed(&self.id, "prompt", &self.name, &error),
            },
            Outcome::TimedOut(limit) => {
                let limit_s = limit.as_secs_f64();
                tracing::warn!(prompt = %self.name, limit_s, "a prompt ran out of time");
                let message = format!("the prompt was not there within {limit_s} s");
                Reply::error(&self.id, &ErrorObject::new(ErrorCode::Internal, message))
            }
            Outcome::Panicked => {
                tracing::error!(prompt = %self.name, "a prompt panicked; its request failed, nothing else is affected");
                internal_error(&self.id)
            }
            Outcome::Cancelled => Reply::Cancelled,
            Outcome::Stopped => stopped(&self.id),
            Outcome::Interrupted(interrupted) => {
                return self.server.interrupted(
                    &self.id,
                    &self.name,
                    &self.generation,
                    *interrupted,
                );
            }
        })
    }

    fn write(&self, output: &PromptOutput) -> Reply {
        let mut out = begin(&self.id, 512 + self.generation.result_tail.len());
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
        finish(out, &self.generation, self.revision, output.meta.as_ref()).counted(
            &self.server.limits,
            self.share,
            &self.id,
        )
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

pub(super) fn unknown_prompt(id: &str, name: &str) -> Reply {
    let message = format!("Unknown prompt: {}", truncated(name));
    Reply::error(id, &ErrorObject::new(ErrorCode::InvalidParams, message))
}

pub(super) fn failed(id: &str, what: &str, name: &str, error: &PromptError) -> Reply {
    let source = error.source().map(tracing::field::display);
    match error.kind() {
        PromptErrorKind::InvalidArguments => invalid_params(id, error.message()),
        PromptErrorKind::VisitRequired => visit_required(id, error.source()),
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

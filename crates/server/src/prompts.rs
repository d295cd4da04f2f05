//! Handler of `prompts/get`.

use std::sync::Arc;
use std::task::Context;

use super::errors::{
    causes, check_scopes, forbidden, internal_error, invalid_params, protocol_error,
    without_position,
};
use super::execute::{Call, PermitsNeeded};
use super::parts::Server;
use super::replay::{missing_capability, url_elicitation_required};
use super::reply::{HandlerError, HandlerResult, MaybeReady, Reply, begin, finish};
use super::request_context::RequestContext;
use super::results::push_block;
use super::running_call::CallOutcome;
use super::snapshot::Snapshot;
use super::stateless::{check_named, missing_name};
use super::text::truncated;
use crate::auth::ItemKind;
use crate::catalog::{
    InvalidArguments, Parameters, PromptDefinition, PromptError, PromptErrorKind, PromptOutput,
};
use crate::net::ShareKey;
use crate::protocol::message;
use crate::protocol::{ErrorCode, Method, Revision, Role, push_string};

/// Handles `prompts/get`.
pub(super) fn get(
    server: &Arc<Server>,
    cx: &mut Context<'_>,
    request_context: RequestContext<'_>,
) -> HandlerResult {
    let RequestContext {
        caller, request, ..
    } = request_context;
    let Some(name) = request.params.name.and_then(message::string) else {
        let problem = "name is required, a string: which prompt to get";
        return Err(missing_name(&request_context, problem).into());
    };
    let log_level = check_named(&server.sessions, &request_context, &name)?;
    let snapshot = server.snapshots.load_full();
    let prompts = &snapshot.catalog.prompts;
    let sees = |_: &&_| snapshot.sees_key(caller.principal, ItemKind::Prompts, prompts, &name);
    let Some(entry) = prompts.get(&name).filter(sees) else {
        let unknown = unknown_prompt(request.id, &name);
        return Err(HandlerError::UnknownItem(unknown, Arc::clone(&snapshot)));
    };
    caller.names(entry.operation);
    if let Some(needed) =
        snapshot.required_scopes(caller.principal, ItemKind::Prompts, prompts, &name)
    {
        check_scopes(caller.principal, request.id, &needed)?;
    }
    let definition = entry.prompt.definition();
    if let Some(path) = request.params.repeated_argument(request.params.arguments) {
        let repeated = InvalidArguments::repeated(&path);
        let problem = format!("arguments: {repeated}");
        return Err(invalid_params(request.id, &problem).into());
    }
    let arguments = read_arguments(request.params.arguments, definition)
        .map_err(|problem| invalid_params(request.id, &problem))?;
    let method = Method::PromptsGet;
    let (context, options) =
        server.call_context(method, request_context, log_level, definition.timeout)?;
    let getting = PromptResponder {
        id: request.id.to_owned(),
        name: name.into_owned(),
        description: definition.description.clone(),
        revision: caller.revision,
        snapshot: Arc::clone(&snapshot),
        server: Arc::clone(server),
        share: caller.share(),
    };
    let call = Call {
        context: &context,
        options,
        permits: PermitsNeeded::Common,
        start: |context| entry.prompt.get(context, arguments),
    };
    Ok(server
        .calls
        .execute(cx, call, move |outcome| getting.conclude(outcome)))
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
            Ok(Ok(output)) => self.write(&output),
            Ok(Err(error)) => {
                let error = error.masked(self.server.config.mask_errors);
                failed(&self.id, ("prompt", &self.name), self.revision, &error)
            }
            Err(failure) => {
                let what = ("prompt", &*self.name);
                return self
                    .server
                    .call_failed(&self.id, what, &self.snapshot, failure);
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
            true => format!("the prompt has no arguments, and so no `{unknown}`"),
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

pub(super) fn unknown_prompt(id: &str, name: &str) -> Reply {
    let message = format!("Unknown prompt: {}", truncated(name));
    Reply::fail(id, ErrorCode::InvalidParams, message)
}

/// Error response of a failed prompt, or completion of its argument. `what` is one of these, with its name.
pub(super) fn failed(
    id: &str,
    what: (&str, &str),
    revision: Revision,
    error: &PromptError,
) -> Reply {
    let (kind, name) = (what.0, truncated(what.1));
    let source = causes(error.source());
    match error.kind() {
        PromptErrorKind::MissingCapability(ability) if !revision.has_sessions() => {
            missing_capability(id, ability)
        }
        PromptErrorKind::InvalidArguments => invalid_params(id, error.message()),
        PromptErrorKind::UrlElicitationRequired => url_elicitation_required(id, error.source()),
        PromptErrorKind::Forbidden => forbidden(id, error.message(), error.source()),
        PromptErrorKind::Protocol => {
            tracing::debug!(%name, source, "a {kind} failed at another server");
            protocol_error(id, error.protocol_error())
        }
        PromptErrorKind::Failed | PromptErrorKind::MissingCapability(_) => {
            tracing::debug!(%name, error = error.message(), source, "a {kind} failed");
            Reply::fail(id, ErrorCode::Internal, error.message().to_owned())
        }
        // `Internal`, and kinds that are added later.
        _ => {
            tracing::error!(%name, error = error.message(), source, "a {kind} failed with an internal error");
            internal_error(id)
        }
    }
}

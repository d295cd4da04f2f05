//! Handler of `completion/complete`.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use serde::Deserialize;

use super::custom::CANNOT_ASK;
use super::errors::{call_failed, check_scopes, invalid_params, without_position};
use super::execute::{Call, PermitsNeeded};
use super::parts::Server;
use super::prompts::unknown_prompt;
use super::reply::{MaybeReady, Reply, begin, finish};
use super::request_context::{Caller, RequestContext};
use super::running_call::CallOutcome;
use super::snapshot::Snapshot;
use super::text::truncated;
use super::{prompts, resources};
use crate::audit::{Subject, SubjectKind};
use crate::auth::{ItemKind, Principal};
use crate::catalog::{
    CatalogPrompt, CatalogTemplate, Client, CompletionRequest, Completions, ListItem, Parameters,
    PromptError, ReplaySession, ResourceError, ResourceErrorKind, Table, strict,
};
use crate::protocol::message::Request;
use crate::protocol::{ErrorCode, ErrorObject, Revision, UriTemplate, push_string};

/// COMP-02: maximum number of values in a response.
const VALUES_MAX: usize = 100;
/// Maximum size of an argument's value, in bytes.
const VALUE_MAX_BYTES: usize = 8 * 1024;

#[derive(Deserialize)]
struct CompleteParams<'a> {
    #[serde(borrow, rename = "ref")]
    reference: Reference<'a>,
    #[serde(borrow)]
    argument: Argument<'a>,
    #[serde(default)]
    context: Option<KnownArguments>,
}

#[derive(Deserialize)]
struct Reference<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    uri: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Argument<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    value: Cow<'a, str>,
}

/// Returns the prompt or the template whose argument a request completes, for its audit record.
pub(super) fn subject(request: &Request<'_>) -> Option<Subject> {
    #[derive(Deserialize)]
    struct OnlyReference<'a> {
        #[serde(borrow, rename = "ref")]
        reference: Reference<'a>,
    }
    let OnlyReference { reference } = serde_json::from_str(request.params.object?).ok()?;
    match (&*reference.kind, reference.name, reference.uri) {
        ("ref/prompt", Some(name), _) => Some(Subject::new(SubjectKind::Prompt, &name)),
        ("ref/resource", _, Some(uri)) => Some(Subject::new(SubjectKind::Resource, &uri)),
        _ => None,
    }
}

#[derive(Default, Deserialize)]
struct KnownArguments {
    #[serde(default)]
    arguments: Option<Parameters>,
}

/// Owner of the argument to complete.
enum CompletionTarget<'c> {
    Prompt(&'c CatalogPrompt),
    Template(&'c CatalogTemplate),
}

impl<'c> CompletionTarget<'c> {
    /// Finds the target of a reference.
    fn found(
        reference: &Reference<'_>,
        snapshot: &'c Snapshot,
        caller: Caller<'_>,
        id: &str,
    ) -> Result<Self, Reply> {
        let catalog = &snapshot.catalog;
        match (&*reference.kind, &reference.name, &reference.uri) {
            ("ref/prompt", Some(name), _) => {
                let table = &catalog.prompts;
                match seen(snapshot, caller, id, (ItemKind::Prompts, table), name)? {
                    Some(entry) => Ok(Self::Prompt(entry)),
                    None => Err(unknown_prompt(id, name)),
                }
            }
            ("ref/resource", _, Some(uri)) => {
                let table = &catalog.templates;
                match seen(snapshot, caller, id, (ItemKind::Templates, table), uri)? {
                    Some(entry) => Ok(Self::Template(entry)),
                    None => {
                        let message = format!("Unknown resource template: {}", truncated(uri));
                        let error = ErrorObject::new(ErrorCode::InvalidParams, message);
                        Err(Reply::error(id, &error))
                    }
                }
            }
            _ => {
                let forms = r#"ref is {"type":"ref/prompt","name":...} or {"type":"ref/resource","uri":...}"#;
                Err(invalid_params(id, forms))
            }
        }
    }

    /// Returns true if there are suggestions for the argument, or `None` if the target has no such argument.
    fn completes(&self, argument: &str) -> Option<bool> {
        match self {
            Self::Prompt(entry) => {
                let mut arguments = entry.prompt.definition().arguments.iter();
                arguments
                    .any(|known| known.name == argument)
                    .then(|| entry.prompt.completes(argument))
            }
            Self::Template(entry) => entry
                .uri
                .variables()
                .any(|known| known == argument)
                .then(|| entry.template.completes(argument)),
        }
    }

    fn timeout(&self) -> Option<Duration> {
        match self {
            Self::Prompt(entry) => entry.prompt.definition().timeout,
            Self::Template(entry) => entry.template.definition().timeout,
        }
    }
}

/// Returns the item with a key, if the caller sees it.
///
/// # Errors
///
/// The caller lacks a scope that rules require for the item.
fn seen<'c, T: ListItem>(
    snapshot: &Snapshot,
    caller: Caller<'_>,
    id: &str,
    (shelf, table): (ItemKind, &'c Table<T>),
    key: &str,
) -> Result<Option<&'c T>, Reply> {
    let principal = caller.principal;
    if !snapshot.sees_key(principal, shelf, table, key) {
        return Ok(None);
    }
    if let Some(needed) = snapshot.required_scopes(principal, shelf, table, key) {
        check_scopes(principal, id, &needed)?;
    }
    Ok(table.get(key))
}

/// Handles `completion/complete`.
pub(super) fn complete(
    server: &Server,
    cx: &mut Context<'_>,
    request_context: RequestContext<'_>,
) -> Result<MaybeReady, Reply> {
    let RequestContext {
        caller,
        headers,
        request,
        ..
    } = request_context;
    let id = request.id;
    let params = request.params.object.unwrap_or("{}");
    let params: CompleteParams<'_> =
        strict::from_str(params).map_err(|e| invalid_params(id, &without_position(&e)))?;
    let Argument { name, value } = params.argument;
    if value.len() > VALUE_MAX_BYTES {
        return Err(invalid_params(
            id,
            "argument.value has more than 8192 bytes",
        ));
    }
    let snapshot = server.snapshots.load_full();
    let whose = CompletionTarget::found(&params.reference, &snapshot, caller, id)?;
    match whose.completes(&name) {
        Some(true) => {}
        Some(false) => {
            let none = Completions::default();
            return Ok(MaybeReady::Ready(write(
                id,
                &snapshot,
                caller.revision,
                &none,
            )));
        }
        None => {
            let problem = format!("the argument `{}` does not exist", truncated(&name));
            return Err(invalid_params(id, &problem));
        }
    }
    let arguments = params.context.unwrap_or_default().arguments;
    let hides = match &whose {
        CompletionTarget::Template(entry) if snapshot.policy_view.is_some() => Some(ValueFilter {
            template: entry.uri.clone(),
            known: arguments.clone().unwrap_or_default(),
            principal: Arc::clone(caller.principal),
        }),
        _ => None,
    };
    let asked = CompletionRequest::new(name, value).with_arguments(arguments.unwrap_or_default());
    let options = server.calls.options(caller, whose.timeout());
    let completing = CompletionResponder {
        id: id.to_owned(),
        argument: asked.argument.clone(),
        revision: caller.revision,
        snapshot: Arc::clone(&snapshot),
        hides,
        masks_errors: server.config.mask_errors,
    };
    let context = caller.context(
        headers,
        request,
        None,
        ReplaySession::new(Client::Unreachable(CANNOT_ASK)),
        options.timeout,
    );
    Ok(match whose {
        CompletionTarget::Prompt(entry) => {
            let call = Call {
                context: &context,
                options,
                permits: PermitsNeeded::Common,
                start: |context| entry.prompt.complete(context, asked),
            };
            server.calls.execute(cx, call, move |outcome| {
                MaybeReady::Ready(completing.conclude(outcome, prompt_failed))
            })
        }
        CompletionTarget::Template(entry) => {
            let call = Call {
                context: &context,
                options,
                permits: PermitsNeeded::Common,
                start: |context| entry.template.complete(context, asked),
            };
            server.calls.execute(cx, call, move |outcome| {
                MaybeReady::Ready(completing.conclude(outcome, template_failed))
            })
        }
    })
}

/// Owned data of a completion, for its response.
struct CompletionResponder {
    id: String,
    argument: String,
    revision: Revision,
    snapshot: Arc<Snapshot>,
    /// `None` if the policy hides no resource.
    hides: Option<ValueFilter>,
    masks_errors: bool,
}

/// Removes suggestions that lead to resources which the caller may not read.
struct ValueFilter {
    template: UriTemplate,
    /// Variables with a known value.
    known: Parameters,
    principal: Arc<Principal>,
}

impl ValueFilter {
    fn sees(&self, snapshot: &Snapshot, variable: &str, value: &str) -> bool {
        // Unknown variables get a placeholder, because rules that hide part of a tree hide all of it.
        let uri = self.template.expand(|name| {
            Some(match name == variable {
                true => value,
                false => self.known.get(name).unwrap_or("x"),
            })
        });
        snapshot.sees_uri(&self.principal, &uri)
    }
}

impl CompletionResponder {
    fn conclude<E>(
        &self,
        outcome: CallOutcome<Result<Completions, E>>,
        failed: impl FnOnce(&Self, E) -> Reply,
    ) -> Reply {
        let argument = &*self.argument;
        match outcome {
            Ok(Ok(mut found)) => {
                if let Some(hides) = &self.hides {
                    found.has_more |= found.values.len() < found.total.unwrap_or_default();
                    let sees = |value: &String| hides.sees(&self.snapshot, argument, value);
                    found.values.retain(sees);
                    // The total would reveal the number of hidden values.
                    found.total = None;
                }
                write(&self.id, &self.snapshot, self.revision, &found)
            }
            Ok(Err(error)) => failed(self, error),
            Err(failure) => call_failed(&self.id, ("completion", argument), &failure),
        }
    }
}

fn prompt_failed(completing: &CompletionResponder, error: PromptError) -> Reply {
    let error = error.masked(completing.masks_errors);
    let what = ("completion", &*completing.argument);
    prompts::failed(&completing.id, what, completing.revision, &error)
}

fn template_failed(completing: &CompletionResponder, error: ResourceError) -> Reply {
    let CompletionResponder {
        id,
        argument,
        revision,
        snapshot,
        ..
    } = completing;
    let error = error.masked(completing.masks_errors);
    match error.kind() {
        ResourceErrorKind::NotFound => write(id, snapshot, *revision, &Completions::default()),
        _ => resources::failed(id, ("completion", argument), *revision, &error),
    }
}

fn write(id: &str, snapshot: &Snapshot, revision: Revision, found: &Completions) -> Reply {
    let shown = &found.values[..found.values.len().min(VALUES_MAX)];
    let total = found.total.unwrap_or(0).max(found.values.len());
    let has_more = found.has_more || total > shown.len();
    let mut out = begin(id, 256 + snapshot.result_tail.len());
    out.extend_from_slice(br#","result":{"completion":{"values":["#);
    for (position, value) in shown.iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        push_string(&mut out, value);
    }
    out.push(b']');
    // Without a total, the number of values is not one.
    if found.total.is_some() || !found.has_more {
        out.extend_from_slice(format!(r#","total":{total}"#).as_bytes());
    }
    out.extend_from_slice(format!(r#","hasMore":{has_more}}}"#).as_bytes());
    finish(out, snapshot, revision, None)
}

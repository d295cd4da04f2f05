//! `completion/complete`.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use serde::Deserialize;

use super::call::Outcome;
use super::custom::NOT_HERE;
use super::generation::Generation;
use super::prompts::{self, unknown_prompt, without_place};
use super::reply::{Reply, begin, finish};
use super::tools::{internal_error, invalid_params, stopped};
use super::{Caller, Handled, Incoming, Server, truncated};
use crate::auth::{Principal, Shelf};
use crate::catalog::{
    Asking, CatalogPrompt, CatalogTemplate, Client, CompletionRequest, Completions, Parameters,
    PromptError, ResourceError, ResourceErrorKind, strict,
};
use crate::protocol::{ErrorCode, ErrorObject, Revision, UriTemplate, push_string};

/// COMP-02: how many values a client is sent.
const VALUES_MAX: usize = 100;
/// How much of an argument may have been typed.
const VALUE_MAX_BYTES: usize = 8 * 1024;

#[derive(Deserialize)]
struct CompleteParams<'a> {
    #[serde(borrow, rename = "ref")]
    reference: Reference<'a>,
    #[serde(borrow)]
    argument: Argument<'a>,
    #[serde(default)]
    context: Option<Known>,
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

#[derive(Default, Deserialize)]
struct Known {
    #[serde(default)]
    arguments: Option<Parameters>,
}

/// Whose argument it is.
enum Whose<'c> {
    Prompt(&'c CatalogPrompt),
    Template(&'c CatalogTemplate),
}

impl<'c> Whose<'c> {
    /// Finds what a reference means.
    fn found(
        reference: &Reference<'_>,
        generation: &'c Generation,
        caller: Caller<'_>,
        id: &str,
    ) -> Result<Self, Reply> {
        let catalog = &generation.catalog;
        let prompts =
            |name| generation.sees_key(caller.principal, Shelf::Prompts, &catalog.prompts, name);
        let templates =
            |uri| generation.sees_key(caller.principal, Shelf::Templates, &catalog.templates, uri);
        match (&*reference.kind, &reference.name, &reference.uri) {
            ("ref/prompt", Some(name), _) => {
                match catalog.prompts.get(name).filter(|_| prompts(name)) {
                    Some(entry) => Ok(Self::Prompt(entry)),
                    None => Err(unknown_prompt(id, name)),
                }
            }
            ("ref/resource", _, Some(uri)) => {
                match catalog.templates.get(uri).filter(|_| templates(uri)) {
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

    /// `None` if it has no such argument, else whether there are suggestions for it.
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

impl Server {
    /// Suggests values for an argument of a prompt, or for a variable of a template.
    pub(super) fn complete(
        &self,
        cx: &mut Context<'_>,
        incoming: Incoming<'_>,
    ) -> Result<Handled, Reply> {
        let Incoming {
            caller,
            headers,
            request,
            ..
        } = incoming;
        let id = request.id;
        let params = request.params.object.unwrap_or("{}");
        let params: CompleteParams<'_> =
            strict::from_str(params).map_err(|e| invalid_params(id, &without_place(&e)))?;
        let Argument { name, value } = params.argument;
        if value.len() > VALUE_MAX_BYTES {
            return Err(invalid_params(
                id,
                "argument.value has more than 8192 bytes",
            ));
        }
        let generation = self.generation.load_full();
        let whose = Whose::found(&params.reference, &generation, caller, id)?;
        match whose.completes(&name) {
            Some(true) => {}
            Some(false) => {
                let none = Completions::default();
                return Ok(Handled::Now(write(id, &generation, caller.revision, &none)));
            }
            None => {
                let problem = format!("there is no argument `{}`", truncated(&name));
                return Err(invalid_params(id, &problem));
            }
        }
        let arguments = params.context.unwrap_or_default().arguments;
        let hides = match &whose {
            Whose::Template(entry) if generation.seen.is_some() => Some(Hides {
                template: entry.uri.clone(),
                known: arguments.clone().unwrap_or_default(),
                principal: Arc::clone(caller.principal),
            }),
            _ => None,
        };
        let asked =
            CompletionRequest::new(name, value).with_arguments(arguments.unwrap_or_default());
        let terms = self.terms(caller, whose.timeout());
        let completing = Completing {
            id: id.to_owned(),
            argument: asked.argument.clone(),
            revision: caller.revision,
            generation: Arc::clone(&generation),
            hides,
        };
        let context = caller.context(
            headers,
            request,
            None,
            Asking::new(Client::Nobody(NOT_HERE)),
        );
        Ok(match whose {
            Whose::Prompt(entry) => {
                let start = |context| entry.prompt.complete(context, asked);
                let conclude =
                    move |outcome| Handled::Now(completing.conclude(outcome, prompt_failed));
                self.run(cx, id, start, context, terms, conclude)
            }
            Whose::Template(entry) => {
                let start = |context| entry.template.complete(context, asked);
                let conclude =
                    move |outcome| Handled::Now(completing.conclude(outcome, template_failed));
                self.run(cx, id, start, context, terms, conclude)
            }
        })
    }
}

/// What it takes to answer once there are suggestions.
struct Completing {
    id: String,
    argument: String,
    revision: Revision,
    generation: Arc<Generation>,
    /// `None` if nothing is hidden.
    hides: Option<Hides>,
}

/// What it takes to leave out suggestions that lead to resources which the caller may not read.
struct Hides {
    template: UriTemplate,
    /// Variables that are settled.
    known: Parameters,
    principal: Arc<Principal>,
}

impl Hides {
    fn sees(&self, generation: &Generation, variable: &str, value: &str) -> bool {
        // What is not settled yet is taken for something: rules that hide a part of a tree hide all of it.
        let uri = self.template.expand(|name| {
            Some(match name == variable {
                true => value,
                false => self.known.get(name).unwrap_or("x"),
            })
        });
        generation.sees_uri(&self.principal, &uri)
    }
}

impl Completing {
    fn conclude<E>(
        &self,
        outcome: Outcome<Result<Completions, E>>,
        failed: impl FnOnce(&Self, &E) -> Reply,
    ) -> Reply {
        let argument = &*self.argument;
        match outcome {
            Outcome::Done(Ok(mut found)) => {
                if let Some(hides) = &self.hides {
                    let sees = |value: &String| hides.sees(&self.generation, argument, value);
                    found.values.retain(sees);
                    // How many there are besides is nobody's business.
                    found.total = None;
                }
                write(&self.id, &self.generation, self.revision, &found)
            }
            Outcome::Done(Err(error)) => failed(self, &error),
            Outcome::TimedOut(limit) => {
                let limit_s = limit.as_secs_f64();
                tracing::warn!(argument, limit_s, "a completion ran out of time");
                let message = format!("no suggestions within {limit_s} s");
                Reply::error(&self.id, &ErrorObject::new(ErrorCode::Internal, message))
            }
            Outcome::Panicked => {
                tracing::error!(
                    argument,
                    "a completion panicked; its request failed, nothing else is affected"
                );
                internal_error(&self.id)
            }
            Outcome::Cancelled => Reply::Cancelled,
            Outcome::Stopped => stopped(&self.id),
            // There was nobody to ask.
            Outcome::Interrupted(_) => internal_error(&self.id),
        }
    }
}

fn prompt_failed(completing: &Completing, error: &PromptError) -> Reply {
    prompts::failed(&completing.id, "completion", &completing.argument, error)
}

fn template_failed(completing: &Completing, error: &ResourceError) -> Reply {
    let argument = &*completing.argument;
    let source = error.source().map(tracing::field::display);
    match error.kind() {
        ResourceErrorKind::NotFound => write(
            &completing.id,
            &completing.generation,
            completing.revision,
            &Completions::default(),
        ),
        // There was nobody to ask.
        ResourceErrorKind::Failed
        | ResourceErrorKind::MissingCapability(_)
        | ResourceErrorKind::VisitRequired => {
            tracing::debug!(
                argument,
                error = error.message(),
                source,
                "a completion failed"
            );
            let message = error.message().to_owned();
            Reply::error(
                &completing.id,
                &ErrorObject::new(ErrorCode::Internal, message),
            )
        }
        ResourceErrorKind::Internal => {
            tracing::error!(
                argument,
                error = error.message(),
                source,
                "a completion is at fault"
            );
            internal_error(&completing.id)
        }
    }
}

fn write(id: &str, generation: &Generation, revision: Revision, found: &Completions) -> Reply {
    let shown = &found.values[..found.values.len().min(VALUES_MAX)];
    let total = found.total.unwrap_or(0).max(found.values.len());
    let mut out = begin(id, 256 + generation.result_tail.len());
    out.extend_from_slice(br#","result":{"completion":{"values":["#);
    for (position, value) in shown.iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        push_string(&mut out, value);
    }
    let has_more = total > shown.len();
    out.extend_from_slice(format!(r#"],"total":{total},"hasMore":{has_more}}}"#).as_bytes());
    finish(out, generation, revision, None)
}

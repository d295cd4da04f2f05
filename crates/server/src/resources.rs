//! `resources/read`.

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use serde_json::json;

use super::call::Outcome;
use super::content::push_contents;
use super::dispatch::unnamed;
use super::generation::Generation;
use super::kept::Key;
use super::reply::{Reply, begin, finish};
use super::rounds::{has_asked, missing_capability, visit_required};
use super::tools::{internal_error, stopped};
use super::{Handled, Incoming, Server, truncated};
use crate::auth::Principal;
use crate::catalog::{
    CallContext, Catalog, Parameters, ReadFuture, Resource, ResourceDefinition, ResourceError,
    ResourceErrorKind, ResourceTemplate, UnlistedResource,
};
use crate::protocol::message;
use crate::protocol::{
    CacheScope, ErrorCode, ErrorObject, Method, ResourceContents, Revision, fault_of_uri,
};

impl Server {
    /// Reads a resource.
    pub(super) fn read_resource(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        incoming: Incoming<'_>,
    ) -> Result<Handled, Reply> {
        let Incoming {
            caller, request, ..
        } = incoming;
        let Some(uri) = request.params.uri.and_then(message::string) else {
            let problem = "uri is required, a string: which resource to read";
            return Err(unnamed(&incoming, problem));
        };
        let log_level = self.check_named(&incoming, &uri)?;
        if let Some(problem) = fault_of_uri(&uri) {
            let message = format!("Invalid params: uri: {problem}");
            let error = ErrorObject::new(ErrorCode::InvalidParams, message);
            let error = error.with_data(json!({"uri": truncated(&uri)}));
            return Err(Reply::error(request.id, &error));
        }
        let generation = self.generation.load_full();
        let Some(found) = Found::seen(&uri, &generation, caller.principal) else {
            let unknown = not_found(request.id, &uri, caller.revision);
            return Ok(self.unless_starting(&generation, Method::ResourcesRead, incoming, unknown));
        };
        let asking = self.asking(caller, incoming.body, request)?;
        let definition = found.definition();
        let terms = self.terms(caller, definition.timeout);
        let key = definition.ttl.and_then(|_| {
            let scope = definition.cache_scope;
            Key::of(&uri, scope, caller.principal)
        });
        let kept = key.as_ref().and_then(|key| generation.kept.get(key));
        let context = caller.context(incoming.headers, request, log_level, asking);
        let reading = Reading {
            id: request.id.to_owned(),
            uri: uri.clone().into_owned(),
            definition: definition.clone(),
            revision: caller.revision,
            generation: Arc::clone(&generation),
            key,
            context: Arc::clone(&context),
            server: Arc::clone(self),
        };
        if let Some((contents, left)) = kept {
            return Ok(Handled::Now(reading.write(&contents, left)));
        }
        let start = |context| found.read(context, &uri);
        let conclude = move |outcome| reading.conclude(outcome);
        Ok(self.run(cx, request.id, start, context, terms, conclude))
    }
}

/// Returns true if there is something at a URI that a principal may read.
pub(super) fn offers_uri(generation: &Generation, principal: &Principal, uri: &str) -> bool {
    Found::seen(uri, generation, principal).is_some()
}

/// What it takes to answer once something was read.
struct Reading {
    id: String,
    uri: String,
    definition: ResourceDefinition,
    revision: Revision,
    generation: Arc<Generation>,
    /// Where the contents are kept, if they are.
    key: Option<Key>,
    context: Arc<CallContext>,
    server: Arc<Server>,
}

impl Reading {
    fn conclude(
        mut self,
        outcome: Outcome<Result<Vec<ResourceContents>, ResourceError>>,
    ) -> Handled {
        Handled::Now(match outcome {
            // RES-03: no contents do not stand for a resource.
            Outcome::Done(Ok(contents)) if contents.is_empty() => self.not_found(),
            Outcome::Done(Ok(contents)) => {
                let contents = completed(contents, &self.uri, &self.definition);
                if has_asked(&self.context) {
                    // What a client has answered is in it, so it is good for this once.
                    self.key = None;
                    self.definition.ttl = None;
                    self.definition.cache_scope = CacheScope::Private;
                }
                let ttl = self.definition.ttl.unwrap_or_default();
                let reply = self.write(&contents, ttl);
                if let Some(key) = self.key.take() {
                    self.generation.kept.put(key, contents.into(), ttl);
                }
                reply
            }
            Outcome::Done(Err(error)) => self.failed(&error),
            Outcome::TimedOut(limit) => {
                let limit_s = limit.as_secs_f64();
                tracing::warn!(uri = %truncated(&self.uri), limit_s, "a reading ran out of time");
                let message = format!("the resource was not there within {limit_s} s");
                Reply::error(&self.id, &ErrorObject::new(ErrorCode::Internal, message))
            }
            Outcome::Panicked => {
                tracing::error!(uri = %truncated(&self.uri), "a resource panicked; its reading failed, nothing else is affected");
                internal_error(&self.id)
            }
            Outcome::Cancelled => Reply::Cancelled,
            Outcome::Stopped => stopped(&self.id),
            Outcome::Interrupted(interrupted) => {
                return self.server.interrupted(
                    &self.id,
                    &self.uri,
                    &self.generation,
                    *interrupted,
                );
            }
        })
    }

    fn failed(&self, error: &ResourceError) -> Reply {
        let uri = truncated(&self.uri);
        let source = error.source().map(tracing::field::display);
        match error.kind() {
            ResourceErrorKind::NotFound => self.not_found(),
            ResourceErrorKind::MissingCapability(ability) if !self.revision.has_sessions() => {
                missing_capability(&self.id, ability)
            }
            ResourceErrorKind::VisitRequired => visit_required(&self.id, error.source()),
            ResourceErrorKind::Failed | ResourceErrorKind::MissingCapability(_) => {
                tracing::debug!(%uri, error = error.message(), source, "a reading failed");
                let message = error.message().to_owned();
                Reply::error(&self.id, &ErrorObject::new(ErrorCode::Internal, message))
            }
            ResourceErrorKind::Internal => {
                tracing::error!(%uri, error = error.message(), source, "a resource is at fault");
                internal_error(&self.id)
            }
        }
    }

    fn not_found(&self) -> Reply {
        not_found(&self.id, &self.uri, self.revision)
    }

    /// Writes the result, and for how long and for whom it is good (CACHE-01).
    fn write(&self, contents: &[ResourceContents], ttl: Duration) -> Reply {
        let mut out = begin(&self.id, 256 + self.generation.result_tail.len());
        out.extend_from_slice(br#","result":{"contents":["#);
        for (position, part) in contents.iter().enumerate() {
            if position > 0 {
                out.push(b',');
            }
            push_contents(&mut out, part, self.revision);
        }
        out.push(b']');
        if self.revision.has_result_type() {
            let ttl_ms = ttl.as_millis();
            let scope = self.definition.cache_scope.as_str();
            let hints = format!(r#","ttlMs":{ttl_ms},"cacheScope":"{scope}""#);
            out.extend_from_slice(hints.as_bytes());
        }
        finish(out, &self.generation, self.revision, None).counted(
            &self.server.limits,
            self.context.share,
            &self.id,
        )
    }
}

/// What is at a URI.
enum Found<'c> {
    Fixed(&'c dyn Resource),
    Template(&'c dyn ResourceTemplate, Parameters),
    Unlisted(UnlistedResource),
}

impl<'c> Found<'c> {
    /// What a principal may read at a URI.
    fn seen(uri: &str, generation: &'c Generation, principal: &Principal) -> Option<Self> {
        Self::at(uri, &generation.catalog, principal).filter(|found| match found {
            Self::Unlisted(found) => generation.sees_one_of(principal, &found.names),
            Self::Fixed(_) | Self::Template(..) => generation.sees_uri(principal, uri),
        })
    }

    /// A resource of just that URI comes before templates, and these in the order in which they were added; what is in no
    /// list comes last.
    fn at(uri: &str, catalog: &'c Catalog, principal: &Principal) -> Option<Self> {
        if let Some(entry) = catalog.resources.get(uri) {
            return Some(Self::Fixed(&*entry.resource));
        }
        if let Some((entry, variables)) = catalog.template_for(uri) {
            return Some(Self::Template(&*entry.template, variables));
        }
        let found = catalog.unlisted.find(principal, uri)?;
        Some(Self::Unlisted(found))
    }

    fn definition(&self) -> &ResourceDefinition {
        match self {
            Self::Fixed(resource) => resource.definition(),
            Self::Template(template, _) => template.definition(),
            Self::Unlisted(found) => found.resource.definition(),
        }
    }

    fn read(self, context: Arc<CallContext>, uri: &str) -> ReadFuture {
        match self {
            Self::Fixed(resource) => resource.read(context),
            Self::Template(template, variables) => template.read(context, uri, variables),
            Self::Unlisted(found) => found.resource.read(context),
        }
    }
}

/// Fills in what the resource left to the server.
fn completed(
    mut contents: Vec<ResourceContents>,
    uri: &str,
    definition: &ResourceDefinition,
) -> Vec<ResourceContents> {
    for part in &mut contents {
        if part.uri.is_empty() {
            uri.clone_into(&mut part.uri);
        }
        if part.mime_type.is_none() {
            part.mime_type.clone_from(&definition.mime_type);
        }
    }
    contents
}

/// RES-02: there is nothing at the URI.
pub(super) fn not_found(id: &str, uri: &str, revision: Revision) -> Reply {
    let code = if revision.has_resource_not_found() {
        ErrorCode::ResourceNotFound
    } else {
        ErrorCode::InvalidParams
    };
    let error = ErrorObject::new(code, "Resource not found");
    Reply::error(id, &error.with_data(json!({ "uri": uri })))
}

//! Handler of `resources/read`.

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use serde_json::json;

use super::content::push_contents;
use super::dispatch::missing_name;
use super::inflight::CallOutcome;
use super::reply::{Reply, begin, finish};
use super::resource_cache::CacheKey;
use super::rounds::{has_asked, missing_capability, visit_required};
use super::snapshot::Snapshot;
use super::tools::{self, internal_error, stopped};
use super::{MaybeReady, RequestContext, Server, truncated};
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
    /// Handles `resources/read`.
    pub(super) fn read_resource(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        request_context: RequestContext<'_>,
    ) -> Result<MaybeReady, Reply> {
        let RequestContext {
            caller, request, ..
        } = request_context;
        let Some(uri) = request.params.uri.and_then(message::string) else {
            let problem = "uri is required, a string: which resource to read";
            return Err(missing_name(&request_context, problem));
        };
        let log_level = self.check_named(&request_context, &uri)?;
        if let Some(problem) = fault_of_uri(&uri) {
            let message = format!("Invalid params: uri: {problem}");
            let error = ErrorObject::new(ErrorCode::InvalidParams, message);
            let error = error.with_data(json!({"uri": truncated(&uri)}));
            return Err(Reply::error(request.id, &error));
        }
        let snapshot = self.snapshot.load_full();
        let Some(found) = ResourceMatch::seen(&uri, &snapshot, caller.principal) else {
            let unknown = not_found(request.id, &uri, caller.revision);
            return Ok(self.wait_for_source(
                &snapshot,
                Method::ResourcesRead,
                request_context,
                unknown,
            ));
        };
        let asking = self.asking(caller, request_context.body, request)?;
        let definition = found.definition();
        let options = self.options(caller, definition.timeout);
        let key = definition.ttl.and_then(|_| {
            let scope = definition.cache_scope;
            CacheKey::of(&uri, scope, caller.principal)
        });
        let kept = key
            .as_ref()
            .and_then(|key| snapshot.resource_cache.get(key));
        let context = caller.context(
            request_context.headers,
            request,
            log_level,
            asking,
            options.timeout,
        );
        let reading = ReadResponder {
            id: request.id.to_owned(),
            uri: uri.clone().into_owned(),
            definition: definition.clone(),
            revision: caller.revision,
            snapshot: Arc::clone(&snapshot),
            key,
            context: Arc::clone(&context),
            server: Arc::clone(self),
        };
        if let Some((contents, left)) = kept {
            return Ok(MaybeReady::Ready(reading.write(&contents, left)));
        }
        let start = |context| found.read(context, &uri);
        let conclude = move |outcome| reading.conclude(outcome);
        Ok(self.execute(cx, request.id, start, context, options, conclude))
    }
}

/// Returns true if the principal may read a resource with this URI.
pub(super) fn offers_uri(snapshot: &Snapshot, principal: &Principal, uri: &str) -> bool {
    ResourceMatch::seen(uri, snapshot, principal).is_some()
}

/// Owned data of a read, for its response.
struct ReadResponder {
    id: String,
    uri: String,
    definition: ResourceDefinition,
    revision: Revision,
    snapshot: Arc<Snapshot>,
    /// Cache key of the contents; `None` if they are not cached.
    key: Option<CacheKey>,
    context: Arc<CallContext>,
    server: Arc<Server>,
}

impl ReadResponder {
    fn conclude(
        mut self,
        outcome: CallOutcome<Result<Vec<ResourceContents>, ResourceError>>,
    ) -> MaybeReady {
        MaybeReady::Ready(match outcome {
            // RES-03: an empty result means that the resource does not exist.
            CallOutcome::Done(Ok(contents)) if contents.is_empty() => self.not_found(),
            CallOutcome::Done(Ok(contents)) => {
                let contents = completed(contents, &self.uri, &self.definition);
                if has_asked(&self.context) {
                    // The contents depend on client input, so they must not be cached.
                    self.key = None;
                    self.definition.ttl = None;
                    self.definition.cache_scope = CacheScope::Private;
                }
                let ttl = self.definition.ttl.unwrap_or_default();
                let reply = self.write(&contents, ttl);
                if let Some(key) = self.key.take() {
                    self.snapshot.resource_cache.put(key, contents.into(), ttl);
                }
                reply
            }
            CallOutcome::Done(Err(error)) => self.failed(&error),
            CallOutcome::TimedOut(limit) => {
                let limit_s = limit.as_secs_f64();
                tracing::warn!(uri = %truncated(&self.uri), limit_s, "a reading ran out of time");
                let message = format!("the resource was not there within {limit_s} s");
                Reply::error(&self.id, &ErrorObject::new(ErrorCode::Internal, message))
            }
            CallOutcome::Panicked => {
                tracing::error!(uri = %truncated(&self.uri), "a resource panicked; its reading failed, nothing else is affected");
                internal_error(&self.id)
            }
            CallOutcome::Cancelled => Reply::Cancelled,
            CallOutcome::Stopped => stopped(&self.id),
            CallOutcome::Suspended(interrupted) => {
                return self
                    .server
                    .interrupted(&self.id, &self.uri, &self.snapshot, *interrupted);
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
            ResourceErrorKind::Forbidden => {
                tools::forbidden(&self.id, error.message(), error.source())
            }
            ResourceErrorKind::Failed | ResourceErrorKind::MissingCapability(_) => {
                tracing::debug!(%uri, error = error.message(), source, "a reading failed");
                let message = error.message().to_owned();
                Reply::error(&self.id, &ErrorObject::new(ErrorCode::Internal, message))
            }
            // `Internal`, and kinds that are added later.
            _ => {
                tracing::error!(%uri, error = error.message(), source, "a resource is at fault");
                internal_error(&self.id)
            }
        }
    }

    fn not_found(&self) -> Reply {
        not_found(&self.id, &self.uri, self.revision)
    }

    /// Writes the result with its cache hints (CACHE-01).
    fn write(&self, contents: &[ResourceContents], ttl: Duration) -> Reply {
        let mut out = begin(&self.id, 256 + self.snapshot.result_tail.len());
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
        finish(out, &self.snapshot, self.revision, None).counted(
            &self.server.limits,
            self.context.share,
            &self.id,
        )
    }
}

/// The resource, template or unlisted resource that a URI selects.
enum ResourceMatch<'c> {
    Fixed(&'c dyn Resource),
    Template(&'c dyn ResourceTemplate, Parameters),
    Unlisted(UnlistedResource),
}

impl<'c> ResourceMatch<'c> {
    /// Finds the resource with this URI, if the principal may read it.
    fn seen(uri: &str, snapshot: &'c Snapshot, principal: &Principal) -> Option<Self> {
        Self::at(uri, &snapshot.catalog, principal).filter(|found| match found {
            Self::Unlisted(found) => snapshot.sees_any(principal, &found.names),
            Self::Fixed(_) | Self::Template(..) => snapshot.sees_uri(principal, uri),
        })
    }

    /// Finds the resource with this URI. Exact matches precede templates, in the order of registration; unlisted
    /// resources come last.
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

/// Fills in the URI and media type that the resource left out.
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

/// RES-02: error for an unknown URI.
pub(super) fn not_found(id: &str, uri: &str, revision: Revision) -> Reply {
    let code = if revision.has_resource_not_found() {
        ErrorCode::ResourceNotFound
    } else {
        ErrorCode::InvalidParams
    };
    let error = ErrorObject::new(code, "Resource not found");
    Reply::error(id, &error.with_data(json!({ "uri": uri })))
}

//! Handler of `resources/read`.

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use serde_json::json;

use super::errors::{causes, check_scopes, forbidden, internal_error, protocol_error};
use super::execute::{Call, PermitsNeeded};
use super::parts::Server;
use super::replay::{depends_on_input, missing_capability, url_elicitation_required};
use super::reply::{HandlerError, HandlerResult, MaybeReady, Reply, begin, finish};
use super::request_context::RequestContext;
use super::resource_cache::{CacheKey, CacheableRead};
use super::results::push_contents;
use super::running_call::CallOutcome;
use super::snapshot::Snapshot;
use super::stateless::{check_named, missing_name};
use super::text::truncated;
use crate::auth::{Decision, Principal};
use crate::catalog::{
    CallContext, Catalog, Parameters, ReadFuture, Resource, ResourceDefinition, ResourceError,
    ResourceErrorKind, ResourceTemplate, UnlistedResource,
};
use crate::protocol::message;
use crate::protocol::{
    CacheScope, ErrorCode, ErrorObject, Method, ResourceContents, Revision, fault_of_uri,
};

/// Handles `resources/read`.
pub(super) fn read(
    server: &Arc<Server>,
    cx: &mut Context<'_>,
    request_context: RequestContext<'_>,
) -> HandlerResult {
    let RequestContext {
        caller, request, ..
    } = request_context;
    let Some(uri) = request.params.uri.and_then(message::string) else {
        let problem = "uri is required, a string: which resource to read";
        return Err(missing_name(&request_context, problem).into());
    };
    let log_level = check_named(&server.sessions, &request_context, &uri)?;
    if let Some(problem) = fault_of_uri(&uri) {
        let message = format!("Invalid params: uri: {problem}");
        let error = ErrorObject::new(ErrorCode::InvalidParams, message);
        let error = error.with_data(json!({"uri": truncated(&uri)}));
        return Err(Reply::error(request.id, &error).into());
    }
    let snapshot = server.snapshots.load_full();
    let Some((found, needed)) = ResourceMatch::seen(&uri, &snapshot, caller.principal) else {
        let unknown = not_found(request.id, &uri, caller.revision);
        return Err(HandlerError::UnknownItem(unknown, Arc::clone(&snapshot)));
    };
    check_scopes(caller.principal, request.id, &needed)?;
    let (method, definition) = (Method::ResourcesRead, found.definition());
    let (context, options) =
        server.call_context(method, request_context, log_level, definition.timeout)?;
    let key = definition.ttl.and_then(|_| {
        let scope = definition.cache_scope;
        CacheKey::of(&uri, scope, caller.principal)
    });
    let (kept, cacheable) = match key.map(|key| snapshot.resource_cache.get(key)) {
        Some(Ok(kept)) => (Some(kept), None),
        Some(Err(cacheable)) => (None, Some(cacheable)),
        None => (None, None),
    };
    let reading = ReadResponder {
        id: request.id.to_owned(),
        uri: uri.clone().into_owned(),
        definition: definition.clone(),
        revision: caller.revision,
        snapshot: Arc::clone(&snapshot),
        cacheable,
        context: Arc::clone(&context),
        server: Arc::clone(server),
    };
    if let Some((contents, left)) = kept {
        return Ok(MaybeReady::Ready(reading.write(&contents, left)));
    }
    let call = Call {
        context: &context,
        options,
        permits: PermitsNeeded::Common,
        start: |context| found.read(context, &uri),
    };
    Ok(server
        .calls
        .execute(cx, call, move |outcome| reading.conclude(outcome)))
}

/// Returns true if the principal sees a resource with this URI.
pub(super) fn offers_uri(snapshot: &Snapshot, principal: &Principal, uri: &str) -> bool {
    ResourceMatch::seen(uri, snapshot, principal).is_some()
}

/// Returns the decision of the policy about a read of a URI, or `None` without a policy.
pub(super) fn decide_read(
    snapshot: &Snapshot,
    principal: &Principal,
    uri: &str,
) -> Option<Decision> {
    match ResourceMatch::at(uri, &snapshot.catalog, principal) {
        Some(ResourceMatch::Unlisted(found)) => snapshot.decide_any(principal, &found.names),
        _ => snapshot.decide_any(principal, &[uri.to_owned()]),
    }
}

/// Owned data of a read, for its response.
struct ReadResponder {
    id: String,
    uri: String,
    definition: ResourceDefinition,
    revision: Revision,
    snapshot: Arc<Snapshot>,
    /// `None` if the contents are not cached.
    cacheable: Option<CacheableRead>,
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
            Ok(Ok(contents)) if contents.is_empty() => self.not_found(),
            Ok(Ok(contents)) => {
                let contents = completed(contents, &self.uri, &self.definition);
                if depends_on_input(&self.context) {
                    // The contents depend on client input, so they must not be cached.
                    self.cacheable = None;
                    self.definition.ttl = None;
                    self.definition.cache_scope = CacheScope::Private;
                }
                let ttl = self.definition.ttl.unwrap_or_default();
                let reply = self.write(&contents, ttl);
                if let Some(read) = self.cacheable.take() {
                    self.snapshot.resource_cache.put(read, contents.into(), ttl);
                }
                reply
            }
            Ok(Err(error)) => {
                let error = error.masked(self.server.config.mask_errors);
                failed(&self.id, ("resource", &self.uri), self.revision, &error)
            }
            Err(failure) => {
                let what = ("resource", &*self.uri);
                return self
                    .server
                    .call_failed(&self.id, what, &self.snapshot, failure);
            }
        })
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
            let scope = self.snapshot.shared_scope(self.definition.cache_scope);
            let scope = scope.as_str();
            let hints = format!(r#","ttlMs":{ttl_ms},"cacheScope":"{scope}""#);
            out.extend_from_slice(hints.as_bytes());
        }
        let meta = self.context.read_meta.get().map(|meta| &**meta);
        finish(out, &self.snapshot, self.revision, meta).counted(
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
    /// Finds the resource with this URI, if the principal sees it, and the scopes that rules require for it.
    fn seen(
        uri: &str,
        snapshot: &'c Snapshot,
        principal: &Principal,
    ) -> Option<(Self, Vec<String>)> {
        let found = Self::at(uri, &snapshot.catalog, principal)?;
        let needed = match &found {
            Self::Unlisted(found) => snapshot.scopes_for_any(principal, &found.names),
            Self::Fixed(_) | Self::Template(..) => snapshot.scopes_for_uri(principal, uri),
        };
        Some((found, needed?))
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

/// Error response of a failed read, or completion of a template's variable. `what` is one of these, with its name.
pub(super) fn failed(
    id: &str,
    what: (&str, &str),
    revision: Revision,
    error: &ResourceError,
) -> Reply {
    let (kind, name) = (what.0, truncated(what.1));
    let source = causes(error.source());
    match error.kind() {
        ResourceErrorKind::NotFound => not_found(id, what.1, revision),
        ResourceErrorKind::MissingCapability(ability) if !revision.has_sessions() => {
            missing_capability(id, ability)
        }
        ResourceErrorKind::UrlElicitationRequired => url_elicitation_required(id, error.source()),
        ResourceErrorKind::Forbidden => forbidden(id, error.message(), error.source()),
        ResourceErrorKind::Protocol => {
            tracing::debug!(%name, source, "a {kind} failed at another server");
            protocol_error(id, error.protocol_error())
        }
        ResourceErrorKind::Failed | ResourceErrorKind::MissingCapability(_) => {
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

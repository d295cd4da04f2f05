//! Examples of resources: text and bytes, at fixed URIs and from templates.

use serde::Serialize;

use super::PNG;
use crate::catalog::{
    AnyResource, CompletionRequest, Completions, IntoResource as _, ResourceDefinition,
    StaticResource,
};
use crate::protocol::{Annotations, ResourceBody, ResourceContents, Role};
use crate::resource;

/// A text that never changes.
#[resource(
    uri = "test://static-text",
    name = "Static Text Resource",
    mime_type = "text/plain",
    ttl = "1h",
    cache_scope = "public"
)]
pub(super) async fn static_text() -> &'static str {
    "This is the content of the static text resource."
}

/// An image that never changes.
#[resource(
    uri = "test://static-binary",
    name = "Static Binary Resource",
    mime_type = "image/png",
    ttl = "1h",
    cache_scope = "public"
)]
pub(super) async fn static_binary() -> ResourceContents {
    ResourceContents {
        uri: String::new(),
        mime_type: None,
        body: ResourceBody::Blob(PNG.to_owned()),
        meta: None,
    }
}

/// A resource to subscribe to.
#[resource(
    uri = "test://watched-resource",
    name = "Watched Resource",
    mime_type = "text/plain"
)]
pub(super) async fn watched() -> &'static str {
    "Watched resource content"
}

/// Guide to this toolset, written by hand with every member that a definition can have.
pub(super) fn guide() -> AnyResource {
    let definition = ResourceDefinition::new("everything://guide", "guide")
        .title("Guide")
        .description("What there is in the everything toolset.")
        .mime_type("text/markdown")
        .annotations(Annotations {
            audience: vec![Role::User, Role::Assistant],
            priority: Some(0.8),
            last_modified: Some("2026-07-28T00:00:00Z".to_owned()),
        })
        .meta("com.example/revision", 1.into());
    StaticResource::text(definition, include_str!("guide.md")).into_resource()
}

/// Several contents together, as in a folder, each at its own URI.
#[resource(
    uri = "everything://documents",
    name = "documents",
    title = "Documents"
)]
pub(super) async fn folder() -> Vec<ResourceContents> {
    KINDS
        .map(|kind| {
            ResourceContents::text(format!("A document about {kind}."))
                .with_uri(format!("everything://documents/{kind}"))
                .with_mime_type("text/plain")
        })
        .into()
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Data {
    id: String,
    template_test: bool,
    data: String,
}

/// Data for any ID.
#[resource(
    uri = "test://template/{id}/data",
    name = "Resource Template",
    mime_type = "application/json"
)]
pub(super) async fn template(id: String) -> Data {
    Data {
        data: format!("Data for ID: {id}"),
        template_test: true,
        id,
    }
}

const KINDS: [&str; 3] = ["features", "startup", "structure"];

/// A document of a given kind. The kinds support completion.
#[resource(
    uri = "everything://documents/{kind}",
    name = "document",
    title = "Document",
    mime_type = "text/plain",
    ttl = "60s",
    cache_scope = "public"
)]
pub(super) async fn document(#[arg(complete = kinds)] kind: String) -> Option<String> {
    let known = KINDS.contains(&kind.as_str());
    known.then(|| format!("A document about {kind}."))
}

fn kinds(request: &CompletionRequest) -> Completions {
    Completions::matching(&request.value, KINDS)
}

//! Server cards and the catalogue of them, as a draft of the specification has them (SEP-2127, `ext-server-card`).

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ALLOW, CACHE_CONTROL, CONTENT_TYPE,
};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use serde_json::{Value, json};

use super::AppError;
use super::hooks::Hook;
use super::items::NamedApp;
use super::responses::empty;
use crate::auth::{AuthMethodKind, PublicUrl};
use crate::config::Config;
use crate::net::Body;
use crate::protocol::Revision;
use crate::transport::http::{PublicPaths, RouteFuture, ServerCardError, with_entity_tag};

/// Last part of the path of a card.
const CARD: &str = "server-card";
const CATALOGUE: &str = "/.well-known/ai-catalog.json";
const CATALOGUE_MEDIA: &str = "application/ai-catalog+json";
const CARD_MEDIA: &str = "application/mcp-server-card+json";
const SCHEMA: &str = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json";
const METHODS: &str = "GET, HEAD, OPTIONS";

/// Documents by path, with their media types.
type Documents = BTreeMap<String, (&'static str, Bytes)>;

/// The documents that are served. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct ServerCards {
    documents: Arc<ArcSwap<Documents>>,
    apps: Arc<[AppEndpoint]>,
}

/// An endpoint with items of another application.
#[derive(Debug)]
struct AppEndpoint {
    endpoint: String,
    /// Name and version, if the application has its own.
    name: Option<(String, String)>,
}

impl ServerCards {
    /// Builds the documents, if they are configured. `apps` are the endpoints with items of other applications.
    ///
    /// # Errors
    ///
    /// A setting is missing or wrong.
    pub(super) fn new<'a>(
        config: &Config,
        apps: impl IntoIterator<Item = NamedApp<'a>>,
    ) -> Result<Option<Self>, AppError> {
        let apps = apps.into_iter().map(|(endpoint, identity)| AppEndpoint {
            endpoint: endpoint.to_owned(),
            name: identity.name.clone(),
        });
        let apps: Arc<[_]> = apps.collect();
        let documents = documents(config, &apps)?;
        Ok(documents.map(|documents| Self {
            documents: Arc::new(ArcSwap::from_pointee(documents)),
            apps,
        }))
    }

    /// Returns the hook that applies a changed title and version of the server. `started` is the configuration at the start,
    /// whose other settings stay in force.
    pub(super) fn hook(&self, started: &Arc<Config>) -> Hook {
        let (cards, started) = (self.clone(), Arc::clone(started));
        Box::new(move |config| {
            let mut shown = (*started).clone();
            shown.server = config.server.clone();
            let documents = documents(&shown, &cards.apps)?;
            let cards = cards.clone();
            Ok(Box::new(move || {
                if let Some(documents) = documents {
                    cards.documents.store(Arc::new(documents));
                }
            }))
        })
    }
}

fn documents(config: &Config, apps: &[AppEndpoint]) -> Result<Option<Documents>, AppError> {
    let card = &config.http.server_card;
    let public = config.http.public_url.as_deref().and_then(PublicUrl::parse);
    card.check(public.is_some())?;
    let (Some(name), Some(public)) = (&card.name, public) else {
        return Ok(None);
    };
    let is_taken = apps.iter().any(|app| app.endpoint == CARD);
    if is_taken || config.endpoints.contains_key(CARD) {
        return Err(ServerCardError::Endpoint.into());
    }
    let mut documents = BTreeMap::new();
    let mut entries = Vec::new();
    let server = &config.server;
    let title = server.title.as_ref().unwrap_or(&server.name);
    let place = |endpoint: &str| (format!("/mcp/{endpoint}"), format!("{name}-{endpoint}"));
    let endpoints = config.endpoints.iter().map(|(endpoint, settings)| {
        let title = settings.title.as_ref().unwrap_or(title);
        (place(endpoint), title, &server.version)
    });
    let apps = apps.iter().map(|app| {
        let (title, version) = match &app.name {
            Some((name, version)) => (name, version),
            None => (title, &server.version),
        };
        (place(&app.endpoint), title, version)
    });
    let whole = (("/mcp".to_owned(), name.clone()), title, &server.version);
    let all = std::iter::once(whole).chain(endpoints).chain(apps);
    for ((path, own), title, version) in all {
        let url = format!("{}{path}", public.root());
        let document = document(config, &own, (title, version), &url).to_string();
        documents.insert(
            format!("{path}/{CARD}"),
            (CARD_MEDIA, Bytes::from(document)),
        );
        entries.push(json!({
            "identifier": identifier(&own), "type": CARD_MEDIA, "url": format!("{url}/{CARD}"),
        }));
    }
    let catalogue = json!({"specVersion": "1.0", "entries": entries}).to_string();
    documents.insert(
        CATALOGUE.to_owned(),
        (CATALOGUE_MEDIA, Bytes::from(catalogue)),
    );
    Ok(Some(documents))
}

/// Returns the card of an endpoint.
fn document(config: &Config, name: &str, (title, version): (&str, &str), url: &str) -> Value {
    let card = &config.http.server_card;
    let description = card.description.as_deref().unwrap_or(title);
    let versions: Vec<_> = Revision::ALL.iter().map(|one| one.as_str()).collect();
    let mut remote = json!({
        "type": "streamable-http", "url": url, "supportedProtocolVersions": versions,
    });
    // Clients find out by themselves where to get an access token (RFC 9728).
    let kinds = config.auth.kinds();
    if kinds.contains(&AuthMethodKind::ApiKey) && !kinds.contains(&AuthMethodKind::OAuth) {
        remote["headers"] = json!([{
            "name": "Authorization", "description": "Bearer and an API key of this server", "isRequired": true, "isSecret": true,
        }]);
    }
    let cut = |text: &str| text.chars().take(100).collect::<String>();
    let mut document = json!({
        "$schema": SCHEMA, "name": name, "version": version, "title": cut(title),
        "description": cut(description), "remotes": [remote],
    });
    if let Some(url) = &card.website_url {
        document["websiteUrl"] = url.as_str().into();
    }
    document
}

/// Returns the identifier in a catalogue: the domain of the name in its usual order, and the rest.
fn identifier(name: &str) -> String {
    let (domain, own) = name.split_once('/').unwrap_or(("", name));
    let parts: Vec<_> = domain.rsplit('.').collect();
    format!("urn:air:{}:mcp:{own}", parts.join("."))
}

impl PublicPaths for ServerCards {
    fn has(&self, path: &str) -> bool {
        self.documents.load().contains_key(path)
    }

    fn respond(&self, path: &str, request: Request<Bytes>) -> RouteFuture {
        let documents = self.documents.load();
        let found = documents.get(path).map(|(media, document)| {
            let mut response = match *request.method() {
                Method::GET | Method::HEAD => {
                    let response = Response::new(Body::from(document.clone()));
                    with_entity_tag(request.headers(), document, response)
                }
                Method::OPTIONS => empty(StatusCode::NO_CONTENT),
                _ => empty(StatusCode::METHOD_NOT_ALLOWED),
            };
            let headers = response.headers_mut();
            for (name, value) in [
                (CONTENT_TYPE, *media),
                (ALLOW, METHODS),
                (CACHE_CONTROL, "public, max-age=3600"),
                (ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
                (ACCESS_CONTROL_ALLOW_METHODS, "GET"),
                (ACCESS_CONTROL_ALLOW_HEADERS, "Content-Type, If-None-Match"),
                (ACCESS_CONTROL_EXPOSE_HEADERS, "ETag"),
            ] {
                headers.insert(name, HeaderValue::from_static(value));
            }
            response
        });
        let response = found.unwrap_or_else(|| empty(StatusCode::NOT_FOUND));
        Box::pin(std::future::ready(response))
    }
}

//! Security schemes of a document, with the configured secrets for them.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderName, HeaderValue};
use serde_json::Value;

use super::document::Document;
use super::request::Location;
use super::text::text;
use crate::environment::Secret;
use crate::net::{FetchedResponse, OutgoingRequest};
use crate::source::credentials::{bearer_value, sensitive, set_parameter};
use crate::source::headers::header_name;
use crate::source::redact::{conceal, secrets_in};

/// Credentials that are added to the requests of an operation.
#[derive(Clone, Default)]
pub(super) struct Proofs(Vec<CredentialKind>);

#[derive(Clone)]
enum CredentialKind {
    Header(HeaderName, HeaderValue),
    Query(String, Secret),
    Cookie(String, Secret),
}

impl Proofs {
    /// Selects the first security requirement of an operation for which every scheme has a secret.
    ///
    /// # Errors
    ///
    /// A secret or a scheme is not valid.
    pub(super) fn new(
        document: &Document,
        operation: &Value,
        credentials: &BTreeMap<String, Secret>,
    ) -> Result<Self, String> {
        let ways = operation
            .get("security")
            .or_else(|| document.root.get("security"));
        for way in ways.and_then(Value::as_array).into_iter().flatten() {
            let Some(schemes) = way.as_object() else {
                continue;
            };
            let secrets: Option<Vec<_>> = schemes
                .keys()
                .map(|name| Some((name, credentials.get(name)?)))
                .collect();
            let Some(secrets) = secrets.filter(|secrets| !secrets.is_empty()) else {
                continue;
            };
            let proofs = secrets
                .into_iter()
                .map(|(name, secret)| proof(document, name, secret));
            return Ok(Self(proofs.collect::<Result<_, _>>()?));
        }
        Ok(Self::default())
    }

    /// Redacts the secrets in the API's response.
    pub(super) fn conceal(&self, answer: &mut FetchedResponse) {
        let secrets = self.0.iter().flat_map(|proof| match proof {
            CredentialKind::Header(_, value) => secrets_in(Some(value)),
            CredentialKind::Query(_, secret) | CredentialKind::Cookie(_, secret) => {
                vec![secret.expose().into()]
            }
        });
        conceal(secrets, answer);
    }

    /// Returns where requests carry the secrets, with the names of the headers, parameters and cookies.
    pub(super) fn parameters(&self) -> impl Iterator<Item = (Location, String)> {
        self.0.iter().map(|proof| match proof {
            CredentialKind::Header(name, _) => (Location::Header, name.to_string()),
            CredentialKind::Query(name, _) => (Location::Query, name.clone()),
            CredentialKind::Cookie(name, _) => (Location::Cookie, name.clone()),
        })
    }

    pub(super) fn apply(&self, request: &mut OutgoingRequest) {
        for proof in &self.0 {
            match proof {
                CredentialKind::Header(name, value) => {
                    request.headers.insert(name, value.clone());
                }
                CredentialKind::Query(name, secret) => {
                    set_parameter(&mut request.url, name, secret.expose());
                }
                CredentialKind::Cookie(name, secret) => {
                    let before = request
                        .headers
                        .get(COOKIE)
                        .and_then(|value| value.to_str().ok());
                    let own = format!("{name}={}", secret.expose());
                    let all = before.map_or(own.clone(), |before| format!("{before}; {own}"));
                    if let Ok(mut value) = HeaderValue::from_str(&all) {
                        value.set_sensitive(true);
                        request.headers.insert(COOKIE, value);
                    }
                }
            }
        }
    }
}

/// Returns the names of a document's security schemes.
pub(super) fn schemes(document: &Document) -> Vec<&str> {
    let schemes = document.root.pointer("/components/securitySchemes");
    schemes
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect()
}

fn proof(document: &Document, name: &str, secret: &Secret) -> Result<CredentialKind, String> {
    let scheme = document
        .root
        .pointer("/components/securitySchemes")
        .and_then(|schemes| schemes.get(name))
        .ok_or_else(|| format!("the security scheme {name:?} does not exist"))?;
    let scheme = document.resolve(scheme)?;
    let wrong = |problem: String| format!("the security scheme {name:?}: {problem}");
    let authorization = |value: Result<HeaderValue, String>| {
        Ok(CredentialKind::Header(AUTHORIZATION, value.map_err(wrong)?))
    };
    match (text(scheme, "type"), text(scheme, "in")) {
        ("apiKey", "header") => {
            let header = header_name(text(scheme, "name")).map_err(wrong)?;
            let value = sensitive(secret.expose()).map_err(wrong)?;
            Ok(CredentialKind::Header(header, value))
        }
        ("apiKey", "query") => Ok(CredentialKind::Query(
            text(scheme, "name").to_owned(),
            secret.clone(),
        )),
        ("apiKey", "cookie") => {
            let cookie = text(scheme, "name").to_owned();
            sensitive(&format!("{cookie}={}", secret.expose())).map_err(wrong)?;
            Ok(CredentialKind::Cookie(cookie, secret.clone()))
        }
        ("http", _) if text(scheme, "scheme").eq_ignore_ascii_case("basic") => {
            let encoded = STANDARD.encode(secret.expose());
            authorization(sensitive(&format!("Basic {encoded}")))
        }
        ("http", _) if text(scheme, "scheme").eq_ignore_ascii_case("bearer") => {
            authorization(bearer_value(secret.expose()))
        }
        ("oauth2" | "openIdConnect", _) => authorization(bearer_value(secret.expose())),
        (kind, _) => Err(format!(
            "the security scheme {name:?} has the type {kind:?}, which is not supported; use auth"
        )),
    }
}

impl std::fmt::Debug for Proofs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proofs({})", self.0.len())
    }
}

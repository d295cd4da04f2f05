//! Identity of the caller, told to the API behind a tool.
//!
//! Nothing about a caller leaves this server unless the configuration names it: in a header of `forward.headers`, in a
//! placeholder of a template, or as a claim of `forward.assertion`. The caller's own token is never forwarded.

use std::collections::BTreeMap;
use std::sync::Arc;

use data_encoding::HEXLOWER;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use minijinja::Value as Context;
use minijinja::value::{Enumerator, Object, Serde};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::headers::header_name;
use super::template::{EscapeContext, Template};
use crate::auth::{Principal, PrincipalKind};
use crate::catalog::ToolError;
use crate::environment::unix_seconds;
use crate::seal::{KeyRing, SigningKeys, random_bytes};

/// Path at which the public keys of assertions are served.
pub const ASSERTION_KEYS_PATH: &str = "/.well-known/caller-jwks.json";

/// Purpose for which the signing keys are derived from the key ring.
const PURPOSE: &str = "caller-assertion-1";
/// Media type of the assertion in the JWT header (RFC 8725, 3.11).
const TYPE: &str = "caller+jwt";
/// Maximum size of a forwarded header value, in bytes. Larger ones would exceed the limits of most servers.
const VALUE_MAX_BYTES: usize = 4096;

/// Facts about the caller to send to the API. Nothing is sent unless it is named here.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ForwardConfig {
    /// Headers as templates with facts about the caller: `{{ caller.name }}`, `{{ caller.subject }}`,
    /// `{{ caller.groups | join(",") }}`, `{{ caller.claims.email }}`.
    ///
    /// A call fails if the caller has no such value. `{{ caller.claims.email | default("") }}` leaves the header out
    /// instead.
    pub headers: BTreeMap<String, String>,
    /// Signed assertion about the caller, which the API can verify.
    pub assertion: AssertionConfig,
}

/// A JWT about the caller, signed by this server.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AssertionConfig {
    /// Audience of the assertion: the identifier of the API. Setting it enables the assertion.
    pub audience: Option<String>,
    /// Issuer of the assertion. Default: `http.public_url`.
    pub issuer: Option<String>,
    /// Header that carries the assertion. Default: `Authorization`, with the scheme `Bearer`.
    pub header: Option<String>,
    /// Claims of the caller's token to include, such as `email`; also `groups`, `scope` and `client_id`.
    #[serde(deserialize_with = "crate::environment::list")]
    pub claims: Vec<String>,
    /// Lifetime of an assertion, in seconds; from 10 to 600.
    pub lifetime_seconds: u64,
}

impl Default for AssertionConfig {
    fn default() -> Self {
        Self {
            audience: None,
            issuer: None,
            header: None,
            claims: Vec::new(),
            lifetime_seconds: 60,
        }
    }
}

/// Signer of assertions about callers. Replicas with the same key ring sign with the same keys.
#[derive(Clone, Debug)]
pub struct AssertionSigner {
    keys: Arc<SigningKeys>,
    /// Public URL of this server, if it is known.
    issuer: Option<String>,
}

impl AssertionSigner {
    /// Derives the keys. `issuer` is the public URL of this server.
    pub fn new(ring: &KeyRing, issuer: Option<String>) -> Option<Self> {
        let keys = Arc::new(SigningKeys::derive(ring, PURPOSE)?);
        Some(Self { keys, issuer })
    }

    /// Returns the public keys as a JWK set, in JSON.
    pub fn public_keys(&self) -> &str {
        self.keys.public()
    }
}

/// Facts about the caller that requests of a source carry.
#[derive(Clone, Debug, Default)]
pub(super) struct Forward {
    headers: Vec<(HeaderName, Template)>,
    assertion: Option<Assertion>,
}

#[derive(Clone, Debug)]
struct Assertion {
    signer: AssertionSigner,
    issuer: String,
    audience: String,
    /// `None` for `Authorization`.
    header: Option<HeaderName>,
    claims: Vec<String>,
    lifetime_seconds: u64,
}

impl Forward {
    /// Checks the settings. `has_credentials` is true if requests have an `Authorization` header of the source.
    ///
    /// # Errors
    ///
    /// Names the setting, and the problem.
    pub(super) fn new(
        config: &ForwardConfig,
        signer: Option<&AssertionSigner>,
        has_credentials: bool,
    ) -> Result<Self, (String, String)> {
        let mut headers = Vec::new();
        for (name, text) in &config.headers {
            let at = |problem: String| (format!("forward.headers.{name}"), problem);
            let template = Template::new(text, EscapeContext::Text, Some(&[])).map_err(at)?;
            headers.push((header_name(name).map_err(at)?, template));
        }
        let at =
            |(setting, problem): (&str, String)| (format!("forward.assertion.{setting}"), problem);
        let assertion = match &config.assertion.audience {
            Some(audience) => {
                let made = Assertion::new(&config.assertion, audience, signer, has_credentials);
                Some(made.map_err(at)?)
            }
            None if config.assertion != AssertionConfig::default() => {
                let problem = "it is not set; set it to the identifier of the API";
                return Err(at(("audience", problem.to_owned())));
            }
            None => None,
        };
        Ok(Self { headers, assertion })
    }

    /// Returns true if nothing about callers is sent.
    pub(super) fn is_empty(&self) -> bool {
        self.headers.is_empty() && self.assertion.is_none()
    }

    /// Adds the headers about a caller to a request. Returns the assertion, which responses must not reveal.
    ///
    /// # Errors
    ///
    /// The caller has no value that is to be sent, or none that a header can hold.
    pub(super) fn apply(
        &self,
        caller: &Principal,
        headers: &mut HeaderMap,
    ) -> Result<Option<HeaderValue>, ToolError> {
        if !self.headers.is_empty() {
            let caller = ("caller".to_owned(), caller_value(caller));
            let values = Context::from_object(BTreeMap::from([caller]));
            for (name, template) in &self.headers {
                let text = template.text(&values).map_err(|_| missing(name))?;
                let text = text.ok_or_else(|| missing(name))?;
                if text.is_empty() {
                    headers.remove(name);
                    continue;
                }
                headers.insert(name, header_value(name, &text)?);
            }
        }
        let Some(assertion) = &self.assertion else {
            return Ok(None);
        };
        let (name, value) = assertion.header_for(caller)?;
        headers.insert(name, value.clone());
        Ok(Some(value))
    }
}

impl Assertion {
    fn new(
        config: &AssertionConfig,
        audience: &str,
        signer: Option<&AssertionSigner>,
        has_credentials: bool,
    ) -> Result<Self, (&'static str, String)> {
        let fault = |setting, problem: &str| Err((setting, problem.to_owned()));
        if audience.is_empty() {
            return fault(
                "audience",
                "it is empty; set it to the identifier of the API",
            );
        }
        let header = config.header.as_deref().map(header_name).transpose();
        let header = header.map_err(|problem| ("header", problem))?;
        let header = header.filter(|name| *name != AUTHORIZATION);
        if header.is_none() && has_credentials {
            return fault(
                "header",
                "the source's own credentials use Authorization too; set it to another header",
            );
        }
        if !(10..=600).contains(&config.lifetime_seconds) {
            let problem = format!("{} is out of range; set 10 to 600", config.lifetime_seconds);
            return Err(("lifetime_seconds", problem));
        }
        let Some(signer) = signer else {
            return fault(
                "audience",
                "the signing keys could not be derived from seal.keys",
            );
        };
        let Some(issuer) = config.issuer.clone().or_else(|| signer.issuer.clone()) else {
            return fault(
                "issuer",
                "it is not set, and neither is http.public_url; set one of them to the URL of this server",
            );
        };
        Ok(Self {
            signer: signer.clone(),
            issuer,
            audience: audience.to_owned(),
            header,
            claims: config.claims.clone(),
            lifetime_seconds: config.lifetime_seconds,
        })
    }

    fn header_for(&self, caller: &Principal) -> Result<(HeaderName, HeaderValue), ToolError> {
        if caller.kind() == PrincipalKind::Anonymous {
            return Err(ToolError::forbidden(
                "this tool passes the caller's identity to its API: send credentials with the request",
            ));
        }
        let jwt = self.signer.keys.sign(TYPE, &self.claims_of(caller)?);
        let (name, text) = match &self.header {
            Some(name) => (name.clone(), jwt),
            None => (AUTHORIZATION, format!("Bearer {jwt}")),
        };
        let mut value = header_value(&name, &text)?;
        value.set_sensitive(true);
        Ok((name, value))
    }

    /// Claims of the assertion (RFC 7519). `idp` is the issuer of the caller's own token, in which `sub` is unique.
    fn claims_of(&self, caller: &Principal) -> Result<Map<String, Value>, ToolError> {
        let now = unix_seconds();
        let mut claims = Map::new();
        claims.insert("iss".to_owned(), json!(self.issuer));
        claims.insert("aud".to_owned(), json!(self.audience));
        let subject = caller.subject().unwrap_or(caller.name());
        claims.insert("sub".to_owned(), json!(subject));
        if let Some(issuer) = caller.issuer() {
            claims.insert("idp".to_owned(), json!(issuer));
        }
        claims.insert("iat".to_owned(), json!(now));
        claims.insert("exp".to_owned(), json!(now + self.lifetime_seconds));
        let id = HEXLOWER.encode(&random_bytes::<16>());
        claims.insert("jti".to_owned(), json!(id));
        for name in &self.claims {
            if claims.contains_key(name) {
                continue;
            }
            let value = fact(caller, name).ok_or_else(|| {
                ToolError::forbidden(format!(
                    "this tool passes your {name:?} to its API, and your credentials do not contain it"
                ))
            })?;
            claims.insert(name.clone(), value);
        }
        Ok(claims)
    }
}

/// Returns a claim of the caller's token, or the fact of the same name of other credentials.
fn fact(caller: &Principal, name: &str) -> Option<Value> {
    let known = match name {
        "groups" => Some(json!(caller.groups().collect::<Vec<_>>())),
        "scope" => Some(json!(caller.scopes().collect::<Vec<_>>().join(" "))),
        "client_id" => caller.client().map(|client| json!(client)),
        _ => None,
    };
    caller.claim(name).cloned().or(known)
}

/// The caller in templates. Members are computed on demand.
#[derive(Debug)]
struct CallerObject(Principal);

/// Members of `caller` in templates.
const MEMBERS: [&str; 8] = [
    "name", "kind", "subject", "issuer", "client", "groups", "scopes", "claims",
];

impl Object for CallerObject {
    fn get_value(self: &Arc<Self>, key: &Context) -> Option<Context> {
        let caller = &self.0;
        let list = |values: Vec<String>| Context::from(values);
        match key.as_str()? {
            "name" => Some(Context::from(caller.name())),
            "kind" => Some(Context::from(caller.kind().as_str())),
            "subject" => caller.subject().map(Context::from),
            "issuer" => caller.issuer().map(Context::from),
            "client" => caller.client().map(Context::from),
            "groups" => Some(list(caller.groups().map(str::to_owned).collect())),
            "scopes" => Some(list(caller.scopes().map(str::to_owned).collect())),
            "claims" => Some(Context::from(Serde(caller.claims()))),
            _ => None,
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Str(&MEMBERS)
    }
}

/// Returns the caller as a template value.
pub(super) fn caller_value(caller: &Principal) -> Context {
    Context::from_object(CallerObject(caller.clone()))
}

#[cold]
fn missing(name: &HeaderName) -> ToolError {
    ToolError::forbidden(format!(
        "this tool passes the caller's identity in the header {name}, and your credentials do not contain the value"
    ))
}

/// Builds a header value. Control characters, which could add another header, are rejected.
fn header_value(name: &HeaderName, text: &str) -> Result<HeaderValue, ToolError> {
    let is_too_long = VALUE_MAX_BYTES < text.len();
    let value = HeaderValue::from_str(text).ok().filter(|_| !is_too_long);
    value.ok_or_else(|| {
        ToolError::forbidden(format!(
            "the value of your credentials for the header {name} cannot be sent: it is too long or has control characters"
        ))
    })
}

/// Returns true if configured headers contain `Authorization`.
pub(super) fn names_authorization<'n>(mut names: impl Iterator<Item = &'n String>) -> bool {
    names.any(|name| name.eq_ignore_ascii_case(AUTHORIZATION.as_str()))
}

#[cfg(test)]
mod tests;

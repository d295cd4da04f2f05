//! The principal: the identity of a caller, independent of the authentication method.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, Value};

use super::policy::ClassCache;
use crate::digest::sha256_hex;

/// The authenticated caller.
///
/// State, sessions and limits belong to the principal, never to client-supplied names. Two principals are equal if
/// their [`id`](Self::id) is equal.
///
/// | proved by | name |
/// |---|---|
/// | nothing | `anonymous`, or what `auth.anonymous` says |
/// | being at the other end of standard input and output | `local` |
/// | an API key | `key:` and the name that the key was given |
/// | an access token | `oauth:`, the issuer's name, `#` and the token's subject |
/// | a certificate | `cert:` and the name that `auth.certificate.name` takes from it |
/// | a trusted proxy | `user:` and the name that it forwarded |
/// | a [`AuthMethod`](super::AuthMethod) of the application's own | what the proof says |
#[derive(Clone)]
pub struct Principal {
    name: Arc<str>,
    id: Arc<str>,
    kind: PrincipalKind,
    facts: Facts,
    standing: ClassCache,
    /// Its credential was taken away.
    withdrawn: Withdrawn,
}

/// Set when a credential is revoked. Copies of a principal share it.
#[derive(Clone, Debug, Default)]
struct Withdrawn(Arc<AtomicBool>);

/// Attributes of a principal other than its name.
#[derive(Clone, Default)]
pub(super) struct Facts {
    pub(super) subject: Option<Arc<str>>,
    pub(super) issuer: Option<Arc<str>>,
    pub(super) client: Option<Arc<str>>,
    pub(super) scopes: Arc<[Box<str>]>,
    pub(super) groups: Arc<[Box<str>]>,
    pub(super) claims: Arc<Map<String, Value>>,
    /// Endpoints that the token is valid for, if audiences differ by endpoint. An empty name is `/mcp`.
    pub(super) endpoints: Option<Arc<[Box<str>]>>,
    /// Expiry of the credential, in seconds of Unix time.
    pub(super) expires: Option<u64>,
    /// The access token itself, if something exchanges the tokens of callers.
    pub(super) token: Option<AccessToken>,
}

/// An access token of a caller. Its `Debug` output omits it.
#[derive(Clone)]
pub(super) struct AccessToken(pub(super) Arc<str>);

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessToken")
    }
}

longshore_protocol::named_enum! {
    /// Authentication method of the principal.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum PrincipalKind {
        /// Authentication is off, or unauthenticated callers are accepted.
        Anonymous = "anonymous",
        /// The parent process, over standard input and output.
        Local = "local",
        /// An API key.
        ApiKey = "api_key",
        /// An access token of a trusted issuer.
        Token = "oauth",
        /// A verified client certificate.
        Certificate = "certificate",
        /// A user name from a trusted proxy.
        Forwarded = "forwarded",
        /// An authentication method of the application.
        Custom = "custom",
    }
    /// Returns the kind as a word, for logs.
    pub fn as_str;
}

/// IDs are part of encrypted session IDs, whose length is limited.
const ID_MAX_BYTES: usize = 128;
/// Maximum length of a chain of actors.
const ACTORS_MAX: usize = 8;

impl Principal {
    /// Creates a principal for an [`AuthMethod`](super::AuthMethod) of the application. Built-in methods never use
    /// the same name.
    pub fn new(name: impl AsRef<str>) -> Self {
        let name = name.as_ref();
        Self::of(PrincipalKind::Custom, name, &[name])
    }

    /// Creates the principal of all callers if authentication is off.
    pub fn anonymous() -> Self {
        Self::anonymous_called("anonymous")
    }

    /// Creates the principal of unauthenticated callers, with a configured name.
    pub(super) fn anonymous_called(name: &str) -> Self {
        Self::of(PrincipalKind::Anonymous, name, &[name])
    }

    /// Creates the principal of the parent process, for standard input and output.
    pub fn local() -> Self {
        Self::of(PrincipalKind::Local, "local", &["local"])
    }

    /// Creates a principal of a kind. `marks` identify it within the kind.
    pub(super) fn of(kind: PrincipalKind, name: &str, marks: &[&str]) -> Self {
        Self {
            name: name.into(),
            id: id(kind, marks),
            kind,
            facts: Facts::default(),
            standing: ClassCache::default(),
            withdrawn: Withdrawn::default(),
        }
    }

    /// Returns the same principal with another credential.
    pub(super) fn by_another_credential(&self) -> Self {
        Self {
            withdrawn: Withdrawn::default(),
            ..self.clone()
        }
    }

    /// Marks the credential as revoked.
    pub(super) fn withdraw(&self) {
        self.withdrawn.0.store(true, Ordering::Release);
    }

    /// Returns true if the credential is revoked, so that open streams and calls must end.
    pub fn is_withdrawn(&self) -> bool {
        self.withdrawn.0.load(Ordering::Acquire)
    }

    /// Cached policy decisions.
    pub(super) fn standing(&self) -> &ClassCache {
        &self.standing
    }

    /// Sets the attributes.
    pub(super) fn with_facts(mut self, facts: Facts) -> Self {
        self.facts = facts;
        self.standing = ClassCache::default();
        self
    }

    /// Sets the granted scopes.
    #[must_use]
    pub fn with_scopes<S: Into<Box<str>>>(mut self, scopes: impl IntoIterator<Item = S>) -> Self {
        self.facts.scopes = scopes.into_iter().map(Into::into).collect();
        self.standing = ClassCache::default();
        self
    }

    /// Sets the groups.
    #[must_use]
    pub fn with_groups<S: Into<Box<str>>>(mut self, groups: impl IntoIterator<Item = S>) -> Self {
        self.facts.groups = groups.into_iter().map(Into::into).collect();
        self.standing = ClassCache::default();
        self
    }

    /// Sets further claims.
    #[must_use]
    pub fn with_claims(mut self, claims: Map<String, Value>) -> Self {
        self.facts.claims = Arc::new(claims);
        self.standing = ClassCache::default();
        self
    }

    /// Returns the name for policy rules and logs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the unique ID: at most 128 bytes, equal on all replicas, and not meant for display.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns how the principal was authenticated.
    pub fn kind(&self) -> PrincipalKind {
        self.kind
    }

    /// Returns the subject of the token.
    pub fn subject(&self) -> Option<&str> {
        self.facts.subject.as_deref()
    }

    /// Returns the issuer of the token.
    pub fn issuer(&self) -> Option<&str> {
        self.facts.issuer.as_deref()
    }

    /// Returns the OAuth client that the token was issued to.
    pub fn client(&self) -> Option<&str> {
        self.facts.client.as_deref()
    }

    /// Returns the granted scopes.
    pub fn scopes(&self) -> impl Iterator<Item = &str> {
        self.facts.scopes.iter().map(|scope| &**scope)
    }

    /// Returns true if the scope was granted. The local principal has all scopes because it started the process.
    pub fn has_scope(&self, scope: &str) -> bool {
        self.kind == PrincipalKind::Local || self.facts.scopes.iter().any(|s| **s == *scope)
    }

    /// Returns true if the token is valid for an endpoint. An empty name is `/mcp`.
    pub(super) fn is_for(&self, endpoint: &str) -> bool {
        match &self.facts.endpoints {
            None => true,
            Some(endpoints) => endpoints.iter().any(|known| **known == *endpoint),
        }
    }

    /// Returns the groups.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.facts.groups.iter().map(|group| &**group)
    }

    /// Sets the expiry of the credential, in seconds of Unix time. Streams of the principal end then.
    #[must_use]
    pub fn with_expiry(mut self, unix_seconds: u64) -> Self {
        self.facts.expires = Some(unix_seconds);
        self
    }

    /// Returns the expiry of the credential in seconds of Unix time, or `None` if it does not expire.
    pub fn expires(&self) -> Option<u64> {
        self.facts.expires
    }

    /// Returns another claim of the token.
    pub fn claim(&self, name: &str) -> Option<&Value> {
        self.facts.claims.get(name)
    }

    /// Returns a claim by name, or by the path of a member of an object: `realm_access.roles`.
    pub(super) fn claim_at(&self, path: &str) -> Option<&Value> {
        claim_at(&self.facts.claims, path)
    }

    /// Returns the subjects of the actors that use the token for its subject, the current one first: the `act` claim
    /// (RFC 8693, section 4.1).
    pub fn actors(&self) -> impl Iterator<Item = &str> {
        let first = self.facts.claims.get("act").and_then(Value::as_object);
        let chain = std::iter::successors(first, |actor| actor.get("act")?.as_object());
        chain
            .take(ACTORS_MAX)
            .filter_map(|actor| actor.get("sub")?.as_str())
    }

    /// Returns the caller's access token, to exchange it for one of its own rights at another server (RFC 8693). `None`
    /// for other credentials, and unless a setting says that tokens are exchanged.
    #[doc(hidden)]
    pub fn access_token(&self) -> Option<&str> {
        self.facts.token.as_ref().map(|token| &*token.0)
    }

    /// Sets the caller's access token; see [`access_token`](Self::access_token).
    #[doc(hidden)]
    #[must_use]
    pub fn with_access_token(mut self, token: impl Into<Arc<str>>) -> Self {
        self.facts.token = Some(AccessToken(token.into()));
        self
    }

    /// All claims of its token; empty without a token.
    pub fn claims(&self) -> &Map<String, Value> {
        &self.facts.claims
    }
}

impl PartialEq for Principal {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Principal {}

impl Hash for Principal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

/// Omits claims, which may contain personal data.
impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Principal")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("scopes", &self.facts.scopes)
            .field("groups", &self.facts.groups)
            .finish_non_exhaustive()
    }
}

/// Returns a claim by name, or by the path of a member of an object.
pub(super) fn claim_at<'c>(claims: &'c Map<String, Value>, path: &str) -> Option<&'c Value> {
    claims.get(path).or_else(|| {
        let (first, rest) = path.split_once('.')?;
        claim_at(claims.get(first)?.as_object()?, rest)
    })
}

/// Joins marks into a unique ID. A long ID is replaced by its digest.
fn id(kind: PrincipalKind, marks: &[&str]) -> Arc<str> {
    // These kinds have one principal each.
    if let (PrincipalKind::Anonymous | PrincipalKind::Local, [mark]) = (kind, marks)
        && mark.len() <= ID_MAX_BYTES
    {
        return (*mark).into();
    }
    let mut text = kind.as_str().to_owned();
    for mark in marks {
        // Length prefixes make the encoding unambiguous.
        text += &format!(":{}:{mark}", mark.len());
    }
    if text.len() <= ID_MAX_BYTES {
        return text.into();
    }
    format!("{}#{}", kind.as_str(), sha256_hex(text)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principals_are_told_apart_by_everything_that_was_proved() {
        let of = |marks: &[&str]| Principal::of(PrincipalKind::Token, "name", marks);
        let long = "x".repeat(300);
        let all = [
            of(&["https://a.example", "alice", "client"]),
            of(&["https://a.example", "alice", "other"]),
            of(&["https://b.example", "alice", "client"]),
            of(&["https://a.example", "alice:6:client"]),
            of(&[&long, "alice"]),
            of(&[&long, "bob"]),
            Principal::of(PrincipalKind::ApiKey, "name", &["alice"]),
            Principal::of(PrincipalKind::Forwarded, "name", &["alice"]),
            Principal::of(PrincipalKind::Certificate, "name", &["alice"]),
            Principal::new("alice"),
            Principal::anonymous(),
            Principal::local(),
        ];
        for (position, one) in all.iter().enumerate() {
            assert!(one.id().len() <= ID_MAX_BYTES, "{}", one.id());
            for other in &all[position + 1..] {
                assert_ne!(one, other);
            }
        }
    }

    #[test]
    fn sec_12_debug_output_leaves_claims_out() {
        let claims = [("email".to_owned(), Value::from("canary@example.com"))];
        let principal = Principal::new("alice").with_claims(Map::from_iter(claims));
        assert!(!format!("{principal:?}").contains("canary"));
    }

    #[test]
    fn the_local_principal_lacks_no_scope() {
        assert!(Principal::local().has_scope("anything"));
        assert!(!Principal::anonymous().has_scope("anything"));
        let some = Principal::new("a").with_scopes(["files:read"]);
        assert!(some.has_scope("files:read") && !some.has_scope("files"));
    }
}

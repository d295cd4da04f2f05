//! Who a request comes from, whatever it was proved with.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;
use serde_json::{Map, Value};

use super::policy::Standing;

/// Who is calling.
///
/// State, sessions and limits are bound to the principal, never to what a client says of itself. Two principals are
/// the same if their [`id`](Self::id) is.
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
    standing: Standing,
    /// Its credential was taken away.
    withdrawn: Withdrawn,
}

/// Set when the credential that proved a principal is taken away. A copy of a principal shares it.
#[derive(Clone, Debug, Default)]
struct Withdrawn(Arc<AtomicBool>);

/// What is known of a principal beside its name.
#[derive(Clone, Default)]
pub(super) struct Facts {
    pub(super) subject: Option<Arc<str>>,
    pub(super) issuer: Option<Arc<str>>,
    pub(super) client: Option<Arc<str>>,
    pub(super) scopes: Arc<[Box<str>]>,
    pub(super) groups: Arc<[Box<str>]>,
    pub(super) claims: Arc<Map<String, Value>>,
    /// The endpoints that its token is for, where they are told apart by that; an empty name is `/mcp`.
    pub(super) endpoints: Option<Arc<[Box<str>]>>,
    /// Until when what was shown is good, in seconds of Unix time.
    pub(super) expires: Option<u64>,
}

/// How a principal came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PrincipalKind {
    /// Nobody was asked for a proof.
    Anonymous,
    /// The process at the other end of standard input and output.
    Local,
    /// An API key.
    ApiKey,
    /// An access token of an issuer that is trusted.
    Token,
    /// A certificate that leads to an authority which is trusted.
    Certificate,
    /// A proxy that is trusted said so.
    Forwarded,
    /// A proof of the application's own.
    Custom,
}

impl PrincipalKind {
    /// A word for it, for logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Local => "local",
            Self::ApiKey => "api_key",
            Self::Token => "oauth",
            Self::Certificate => "certificate",
            Self::Forwarded => "forwarded",
            Self::Custom => "custom",
        }
    }
}

/// Ids are sealed into session ids, which have an end.
const ID_MAX_BYTES: usize = 128;

impl Principal {
    /// A principal that a [`AuthMethod`](super::AuthMethod) of the application's own has found out. Nobody else may get the
    /// name.
    pub fn new(name: impl AsRef<str>) -> Self {
        let name = name.as_ref();
        Self::of(PrincipalKind::Custom, name, &[name])
    }

    /// The caller of a server that asks for no proof.
    pub fn anonymous() -> Self {
        Self::anonymous_called("anonymous")
    }

    /// A caller without a proof, under the name that was configured for it.
    pub(super) fn anonymous_called(name: &str) -> Self {
        Self::of(PrincipalKind::Anonymous, name, &[name])
    }

    /// The process that started this one and talks to it over standard input and output.
    pub fn local() -> Self {
        Self::of(PrincipalKind::Local, "local", &["local"])
    }

    /// A principal of a kind; `marks` are what tells it from all others of that kind.
    pub(super) fn of(kind: PrincipalKind, name: &str, marks: &[&str]) -> Self {
        Self {
            name: name.into(),
            id: id(kind, marks),
            kind,
            facts: Facts::default(),
            standing: Standing::default(),
            withdrawn: Withdrawn::default(),
        }
    }

    /// The same principal, proved by another credential.
    pub(super) fn by_another_credential(&self) -> Self {
        Self {
            withdrawn: Withdrawn::default(),
            ..self.clone()
        }
    }

    /// Notes that the credential that proved it was taken away.
    pub(super) fn withdraw(&self) {
        self.withdrawn.0.store(true, Ordering::Release);
    }

    /// Returns true if the credential that proved it was taken away, so that nothing may go on in its name.
    pub fn is_withdrawn(&self) -> bool {
        self.withdrawn.0.load(Ordering::Acquire)
    }

    /// What it remembers of the policy.
    pub(super) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Adds what is known beside the name.
    pub(super) fn with_facts(mut self, facts: Facts) -> Self {
        self.facts = facts;
        self.standing = Standing::default();
        self
    }

    /// Says which scopes it was given.
    #[must_use]
    pub fn with_scopes<S: Into<Box<str>>>(mut self, scopes: impl IntoIterator<Item = S>) -> Self {
        self.facts.scopes = scopes.into_iter().map(Into::into).collect();
        self.standing = Standing::default();
        self
    }

    /// Says which groups it is in.
    #[must_use]
    pub fn with_groups<S: Into<Box<str>>>(mut self, groups: impl IntoIterator<Item = S>) -> Self {
        self.facts.groups = groups.into_iter().map(Into::into).collect();
        self.standing = Standing::default();
        self
    }

    /// Says what else is known of it.
    #[must_use]
    pub fn with_claims(mut self, claims: Map<String, Value>) -> Self {
        self.facts.claims = Arc::new(claims);
        self.standing = Standing::default();
        self
    }

    /// The name that rules and logs know it by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What tells it from all others: at most 128 bytes, the same on every replica, and not for people.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// How it came to be known.
    pub fn kind(&self) -> PrincipalKind {
        self.kind
    }

    /// The subject of its token, as the issuer writes it.
    pub fn subject(&self) -> Option<&str> {
        self.facts.subject.as_deref()
    }

    /// The issuer of its token.
    pub fn issuer(&self) -> Option<&str> {
        self.facts.issuer.as_deref()
    }

    /// The OAuth client that its token was issued to.
    pub fn client(&self) -> Option<&str> {
        self.facts.client.as_deref()
    }

    /// The scopes that it was given.
    pub fn scopes(&self) -> impl Iterator<Item = &str> {
        self.facts.scopes.iter().map(|scope| &**scope)
    }

    /// Whether it was given a scope. The local principal may do everything: it has started the process.
    pub fn has_scope(&self, scope: &str) -> bool {
        self.kind == PrincipalKind::Local || self.facts.scopes.iter().any(|s| **s == *scope)
    }

    /// Whether its token is for an endpoint; an empty name is `/mcp`.
    pub(super) fn is_for(&self, endpoint: &str) -> bool {
        match &self.facts.endpoints {
            None => true,
            Some(endpoints) => endpoints.iter().any(|known| **known == *endpoint),
        }
    }

    /// The groups that it is in.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.facts.groups.iter().map(|group| &**group)
    }

    /// Says until when its proof is good, in seconds of Unix time. Streams of its end then at the latest.
    #[must_use]
    pub fn with_expiry(mut self, unix_seconds: u64) -> Self {
        self.facts.expires = Some(unix_seconds);
        self
    }

    /// Until when its proof is good, in seconds of Unix time; `None` if nobody knows of an end.
    pub fn expires(&self) -> Option<u64> {
        self.facts.expires
    }

    /// What else its proof says of it: the claims of a token.
    pub fn claim(&self, name: &str) -> Option<&Value> {
        self.facts.claims.get(name)
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

/// Claims are left out: they may say more of a person than belongs into a log.
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

/// One text for several marks, such that no two lists of marks have the same: as it is while it is short, else its
/// digest.
fn id(kind: PrincipalKind, marks: &[&str]) -> Arc<str> {
    // The two that are only one each.
    if let (PrincipalKind::Anonymous | PrincipalKind::Local, [mark]) = (kind, marks)
        && mark.len() <= ID_MAX_BYTES
    {
        return (*mark).into();
    }
    let mut text = kind.as_str().to_owned();
    for mark in marks {
        // With its length in front, no mark can pass for two.
        text += &format!(":{}:{mark}", mark.len());
    }
    if text.len() <= ID_MAX_BYTES {
        return text.into();
    }
    let digest = digest(&SHA256, text.as_bytes());
    format!("{}#{}", kind.as_str(), HEXLOWER.encode(digest.as_ref())).into()
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

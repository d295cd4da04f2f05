//! The authenticator: runs the configured methods in order and decides about unauthenticated callers.

use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderName, PROXY_AUTHORIZATION};
use http::{HeaderMap, HeaderValue};

use super::credential_cache::{Cacheable, CredentialCache, Epoch};
use super::credentials::API_KEY_HEADER;
use super::resource::{RequestTarget, Resource};
use super::{
    AuthError, AuthMethod, AuthOutcome, Credentials, DisplayName, Principal, PrincipalKind,
};

/// Determines the principal of each request.
#[derive(Debug)]
pub struct Authenticator {
    proofs: Vec<ConfiguredMethod>,
    /// Counts changes that invalidate cached results; `None` if no method reports changes, and nothing is cached.
    changes: Option<Epoch>,
    /// Principal of callers without credentials; `None` if they are rejected.
    anonymous: Option<Arc<Principal>>,
    /// Credential headers, which are removed from requests before any tool sees them.
    credentials: Vec<HeaderName>,
    resource: Resource,
    /// Maximum lengths of credentials, in bytes.
    token_bytes: usize,
    key_bytes: usize,
}

/// An authentication method and whether its results can be cached.
#[derive(Debug)]
pub(super) enum ConfiguredMethod {
    /// For each request.
    Each(Arc<dyn AuthMethod>),
    Lasting(Arc<dyn Cacheable>),
}

impl ConfiguredMethod {
    fn proof(&self) -> &dyn AuthMethod {
        match self {
            Self::Each(proof) => &**proof,
            Self::Lasting(proof) => &**proof,
        }
    }
}

impl Authenticator {
    /// A gate with these proofs. Without any, it is open. `anonymous` is who those are that show nothing.
    pub(super) fn new(proofs: Vec<ConfiguredMethod>, anonymous: Option<&str>) -> Self {
        let anonymous = match anonymous {
            Some(name) => Some(Principal::anonymous_called(name)),
            None => proofs.is_empty().then(Principal::anonymous),
        };
        let mut credentials = vec![AUTHORIZATION, PROXY_AUTHORIZATION, API_KEY_HEADER];
        credentials.extend(proofs.iter().flat_map(|asked| asked.proof().headers()));
        Self {
            proofs,
            changes: None,
            anonymous: anonymous.map(Arc::new),
            credentials,
            resource: Resource::default(),
            token_bytes: usize::MAX,
            key_bytes: usize::MAX,
        }
    }

    /// Sets the maximum lengths of tokens and of API keys.
    pub(super) fn with_sizes(mut self, token_bytes: usize, key_bytes: usize) -> Self {
        self.token_bytes = token_bytes;
        self.key_bytes = key_bytes;
        self
    }

    /// Lets connections remember what they have shown last. Lasting proofs note in `changes` what makes them judge otherwise.
    pub(super) fn noticing(mut self, changes: Epoch) -> Self {
        self.changes = Some(changes);
        self
    }

    /// Sets the protected resource metadata, which is public.
    pub(super) fn with_resource(mut self, resource: Resource) -> Self {
        self.resource = resource;
        self
    }

    /// Returns the value of `WWW-Authenticate` for a rejected caller.
    pub fn challenge(&self, seen: RequestTarget<'_>, error: &AuthError) -> Option<HeaderValue> {
        self.resource.challenge(seen, error, &[])
    }

    /// Checks that a principal may use an endpoint: the audience and the scopes of its credential. An empty name is `/mcp`.
    pub fn check_endpoint(&self, principal: &Principal, endpoint: &str) -> Result<(), AuthError> {
        if !principal.is_for(endpoint) {
            return Err(AuthError::Invalid(
                "the token was issued for another endpoint".into(),
            ));
        }
        let scopes = self.resource.scopes_of(endpoint);
        // `auth.oauth.scopes` is required of access tokens only.
        let of_tokens: &[String] = match principal.kind() {
            PrincipalKind::Token => &self.resource.scopes,
            _ => &[],
        };
        let mut all = of_tokens.iter().chain(scopes);
        if all.all(|scope| principal.has_scope(scope)) {
            return Ok(());
        }
        Err(AuthError::InsufficientScope {
            required: self.resource.with_scopes(scopes),
        })
    }

    /// Returns the error for a missing scope, and the value of `WWW-Authenticate`. An unauthenticated caller is
    /// asked for a credential instead.
    pub fn lacking(
        &self,
        principal: &Principal,
        seen: RequestTarget<'_>,
        needed: &[String],
    ) -> (AuthError, Option<HeaderValue>) {
        let is_nobody = principal.kind() == PrincipalKind::Anonymous && !self.proofs.is_empty();
        let error = if is_nobody {
            AuthError::Missing
        } else {
            let required = self.resource.required_at(seen, needed);
            AuthError::InsufficientScope { required }
        };
        let challenge = self.resource.challenge(seen, &error, needed);
        (error, challenge)
    }

    /// The server's name for people.
    pub(super) fn display_name(&self) -> DisplayName {
        self.resource.name.clone()
    }

    /// The document about this server as a protected resource, if there is one at the path.
    pub fn document(&self, seen: RequestTarget<'_>) -> Option<Vec<u8>> {
        self.resource.document(seen)
    }

    /// Returns true if the public URL is configured, and not taken from each request.
    pub fn has_public_url(&self) -> bool {
        self.resource.public.is_some()
    }

    /// Returns the issuers of accepted access tokens, by name. Empty if tokens are not a method.
    pub fn issuers(&self) -> &[String] {
        &self.resource.issuers
    }

    /// Returns the path prefix of the server in its public URLs.
    pub fn prefix(&self) -> &str {
        self.resource.prefix()
    }

    /// Returns the principal of all callers if authentication is off.
    #[inline]
    pub fn everybody(&self) -> Option<&Arc<Principal>> {
        let anonymous = self.anonymous.as_ref();
        anonymous.filter(|_| self.proofs.is_empty())
    }

    /// Returns the cached principal of the connection, if the request has the same credential and nothing has
    /// changed since. On a hit, the credential headers are removed. `now` returns Unix time in seconds.
    #[inline]
    pub fn recall(
        &self,
        shown: &CredentialCache,
        headers: &mut HeaderMap,
        query: Option<&str>,
        now: impl FnOnce() -> u64,
    ) -> Option<Arc<Principal>> {
        // A query may contain a credential, so such a request is not served from the cache.
        let (Some(changes), None) = (&self.changes, query) else {
            return None;
        };
        let principal = shown.recall(headers, changes.count(), now)?;
        // The cache has already handled both headers that may contain a key.
        for name in &self.credentials[1..] {
            if *name != API_KEY_HEADER {
                headers.remove(name);
            }
        }
        Some(principal)
    }

    /// Caches the result of the method at this index for the connection. `changes` is the epoch before the method
    /// ran.
    fn remember(
        &self,
        shown: &CredentialCache,
        presented: &Credentials<'_>,
        (at, principal): (usize, &Arc<Principal>),
        changes: u64,
    ) {
        let ends = self.proofs[..=at].iter().map(|asked| match asked {
            ConfiguredMethod::Each(_) => None,
            ConfiguredMethod::Lasting(proof) => proof.holds_until(presented),
        });
        let until = ends.reduce(|one, other| Some(one?.min(other?))).flatten();
        if let Some(until) = until {
            shown.remember(presented, principal, until, changes);
        }
    }

    /// Returns the path prefix that the client of a request puts before the server's paths.
    pub fn prefix_of(&self, seen: RequestTarget<'_>) -> String {
        self.resource.prefix_of(seen)
    }

    /// Authenticates a request. An invalid credential is always an error. `shown` is the cache of the connection. DPoP
    /// proofs require the target of the request.
    pub async fn admit_at(
        &self,
        presented: Result<Credentials<'_>, AuthError>,
        shown: Option<&CredentialCache>,
        seen: Option<RequestTarget<'_>>,
    ) -> Result<Arc<Principal>, AuthError> {
        let presented = presented?;
        let url = match (presented.dpop(), seen) {
            (Some(_), Some(seen)) => self.resource.url_of(seen),
            _ => None,
        };
        let presented = &presented.with_url(url.as_deref().unwrap_or_default());
        presented.check_size(self.token_bytes, self.key_bytes)?;
        let changes = self.changes.as_ref().map(Epoch::count);
        for (at, asked) in self.proofs.iter().enumerate() {
            let proof = asked.proof();
            let judgement = match proof.judge(presented) {
                AuthOutcome::Later(judgement) => judgement.await,
                judgement => judgement,
            };
            match judgement {
                AuthOutcome::Absent => {}
                AuthOutcome::Proven(principal) => {
                    if let (Some(shown), Some(changes)) = (shown, changes) {
                        self.remember(shown, presented, (at, &principal), changes);
                    }
                    return Ok(principal);
                }
                AuthOutcome::Refused(error) => return Err(error),
                AuthOutcome::Later(_) => {
                    tracing::error!(
                        ?proof,
                        "an authentication method deferred its decision twice"
                    );
                    return Err(AuthError::Unavailable("the caller was not judged".into()));
                }
            }
        }
        if presented.is_something() {
            return Err(AuthError::Invalid("the credential is not known".into()));
        }
        self.anonymous.clone().ok_or(AuthError::Missing)
    }

    /// Removes the credential headers, so that tools cannot forward them.
    pub fn strip(&self, headers: &mut HeaderMap) {
        for name in &self.credentials {
            headers.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::api_key::ApiKeys;
    use super::super::config::AuthConfig;
    use super::*;

    const NOW: u64 = 1_800_000_000;
    const KEY: &str = "lsk_a-key-that-nobody-else-has";

    fn headers(pairs: &[(HeaderName, String)]) -> HeaderMap {
        let pairs = pairs.iter().cloned();
        pairs
            .map(|(name, value)| (name, value.parse().expect("a value")))
            .collect()
    }

    fn key_of_alice() -> HeaderMap {
        headers(&[(AUTHORIZATION, format!("Bearer {KEY}"))])
    }

    async fn admit(
        gate: &Authenticator,
        shown: &CredentialCache,
        headers: &HeaderMap,
    ) -> Option<String> {
        let presented = Credentials::read(headers, None, None, NOW);
        let admitted = gate.admit_at(presented, Some(shown), None).await;
        admitted.ok().map(|principal| principal.name().to_owned())
    }

    fn recall(
        gate: &Authenticator,
        shown: &CredentialCache,
        headers: &mut HeaderMap,
    ) -> Option<String> {
        let principal = gate.recall(shown, headers, None, || NOW)?;
        Some(principal.name().to_owned())
    }

    /// A gate whose keys are in a file.
    fn gate(
        file: &std::path::Path,
        before: Vec<ConfiguredMethod>,
    ) -> (Authenticator, Arc<ApiKeys>) {
        std::fs::write(file, format!("alice {KEY}\n")).expect("written");
        let config = AuthConfig {
            api_keys_file: Some(file.to_owned()),
            ..AuthConfig::default()
        };
        let changes = Epoch::default();
        let keys = ApiKeys::new(&config).expect("keys").noting(changes.clone());
        let keys = Arc::new(keys);
        let mut proofs = before;
        proofs.push(ConfiguredMethod::Lasting(Arc::<ApiKeys>::clone(&keys)));
        (Authenticator::new(proofs, None).noticing(changes), keys)
    }

    #[tokio::test]
    async fn a_key_that_is_taken_back_lets_nobody_in_on_a_connection_that_knows_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("keys");
        let (gate, keys) = gate(&file, Vec::new());
        let shown = CredentialCache::default();
        assert_eq!(recall(&gate, &shown, &mut key_of_alice()), None);
        let alice = Some("key:alice".to_owned());
        assert_eq!(admit(&gate, &shown, &key_of_alice()).await, alice);
        let mut headers = key_of_alice();
        headers.insert(PROXY_AUTHORIZATION, HeaderValue::from_static("Basic YTpi"));
        headers.insert("accept", HeaderValue::from_static("*/*"));
        assert_eq!(recall(&gate, &shown, &mut headers), alice);
        assert_eq!(headers.len(), 1, "credentials are taken away");
        // What has a query is looked at.
        let with_query = gate.recall(&shown, &mut key_of_alice(), Some("a=b"), || NOW);
        assert!(with_query.is_none());
        std::fs::write(&file, "bob lsk_another-key-that-nobody-else-has\n").expect("written");
        keys.refresh();
        assert_eq!(recall(&gate, &shown, &mut key_of_alice()), None);
        assert_eq!(admit(&gate, &shown, &key_of_alice()).await, None);
        assert_eq!(recall(&gate, &shown, &mut key_of_alice()), None);
    }

    /// Looks at something else than the credential.
    #[derive(Debug)]
    struct Other;

    impl AuthMethod for Other {
        fn judge(&self, presented: &Credentials<'_>) -> AuthOutcome {
            match presented.header(&HeaderName::from_static("x-other")) {
                Ok(Some(_)) => AuthOutcome::Proven(Arc::new(Principal::new("other"))),
                _ => AuthOutcome::Absent,
            }
        }
    }

    #[tokio::test]
    async fn nothing_is_remembered_behind_a_proof_that_looks_at_more_than_the_credential() {
        let folder = tempfile::tempdir().expect("a folder");
        let (gate, _) = gate(
            &folder.path().join("keys"),
            vec![ConfiguredMethod::Each(Arc::new(Other))],
        );
        let shown = CredentialCache::default();
        let alice = Some("key:alice".to_owned());
        assert_eq!(admit(&gate, &shown, &key_of_alice()).await, alice);
        let mut headers = key_of_alice();
        headers.insert("x-other", HeaderValue::from_static("1"));
        assert_eq!(recall(&gate, &shown, &mut headers), None);
        let other = admit(&gate, &shown, &headers).await;
        assert_eq!(other.as_deref(), Some("other"));
    }

    #[test]
    fn auth_09_a_token_needs_the_scopes_of_the_server_and_all_of_its_endpoint() {
        let gate = Authenticator::new(Vec::new(), None).with_resource(Resource {
            scopes: vec!["mcp".to_owned()],
            endpoints: vec![("files".into(), vec!["files:read".to_owned()])],
            ..Resource::default()
        });
        let check = |kind: PrincipalKind, scopes: &[&str], endpoint: &str| {
            let principal = Principal::of(kind, "alice", &["alice"]);
            let principal = principal.with_scopes(scopes.iter().copied());
            match gate.check_endpoint(&principal, endpoint) {
                Ok(()) => String::new(),
                Err(AuthError::InsufficientScope { required }) => required.join(" "),
                Err(other) => panic!("{other:?}"),
            }
        };
        let token = |scopes: &[&str], endpoint| check(PrincipalKind::Token, scopes, endpoint);
        assert_eq!(token(&["other"], ""), "mcp");
        assert_eq!(token(&["mcp"], ""), "");
        assert_eq!(token(&["mcp"], "files"), "mcp files:read");
        assert_eq!(token(&["files:read"], "files"), "mcp files:read");
        assert_eq!(token(&["files:read", "mcp"], "files"), "");
        // The scopes of the server are those of access tokens.
        let key = |scopes: &[&str]| check(PrincipalKind::ApiKey, scopes, "files");
        assert_eq!(key(&["files:read"]), "");
        assert_eq!(key(&[]), "mcp files:read");
    }
}

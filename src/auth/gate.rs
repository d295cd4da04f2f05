//! Who is let in: the proofs in their order, and what happens to those who have none.

use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderName, PROXY_AUTHORIZATION};
use http::{HeaderMap, HeaderValue};

use super::presented::API_KEY_HEADER;
use super::resource::{Resource, Seen};
use super::{AuthError, Judgement, Presented, Principal, PrincipalKind, Proof};

/// Says of each request who sent it.
#[derive(Debug)]
pub(crate) struct Gate {
    proofs: Vec<Arc<dyn Proof>>,
    /// Who callers are that show nothing; `None` if they are refused.
    anonymous: Option<Arc<Principal>>,
    /// Headers that nobody behind the gate gets to see.
    credentials: Vec<HeaderName>,
    resource: Resource,
    /// How long credentials may be.
    token_bytes: usize,
    key_bytes: usize,
}

impl Gate {
    /// A gate with these proofs. Without any, it is open. `anonymous` is who those are that show nothing.
    pub(crate) fn new(proofs: Vec<Arc<dyn Proof>>, anonymous: Option<&str>) -> Self {
        let anonymous = match anonymous {
            Some(name) => Some(Principal::anonymous_called(name)),
            None => proofs.is_empty().then(Principal::anonymous),
        };
        let mut credentials = vec![AUTHORIZATION, PROXY_AUTHORIZATION, API_KEY_HEADER];
        credentials.extend(proofs.iter().flat_map(|proof| proof.headers()));
        Self {
            proofs,
            anonymous: anonymous.map(Arc::new),
            credentials,
            resource: Resource::default(),
            token_bytes: usize::MAX,
            key_bytes: usize::MAX,
        }
    }

    /// Says how long a token may be, and an API key.
    pub(super) fn with_sizes(mut self, token_bytes: usize, key_bytes: usize) -> Self {
        self.token_bytes = token_bytes;
        self.key_bytes = key_bytes;
        self
    }

    /// Says what is told of this server to those who may not call it yet.
    pub(super) fn with_resource(mut self, resource: Resource) -> Self {
        self.resource = resource;
        self
    }

    /// What a refused caller has to show: the value of `WWW-Authenticate`.
    pub(crate) fn challenge(&self, seen: Seen<'_>, error: &AuthError) -> Option<HeaderValue> {
        self.resource.challenge(seen, error, &[])
    }

    /// Whether somebody who was let in may be at an endpoint; an empty name is `/mcp`.
    pub(crate) fn check_endpoint(
        &self,
        principal: &Principal,
        endpoint: &str,
    ) -> Result<(), AuthError> {
        if !principal.is_for(endpoint) {
            return Err(AuthError::Invalid(
                "the token was issued for another endpoint".into(),
            ));
        }
        let scopes = self.resource.scopes_of(endpoint);
        if scopes.iter().all(|scope| principal.has_scope(scope)) {
            return Ok(());
        }
        Err(AuthError::InsufficientScope {
            required: self.resource.with_scopes(scopes),
        })
    }

    /// The refusal of somebody who lacks a scope, and the value of `WWW-Authenticate`. Who has shown nothing is asked
    /// for a credential.
    pub(crate) fn lacking(
        &self,
        principal: &Principal,
        seen: Seen<'_>,
        needed: &[String],
    ) -> (AuthError, Option<HeaderValue>) {
        let is_nobody = principal.kind() == PrincipalKind::Anonymous && !self.proofs.is_empty();
        let error = if is_nobody {
            AuthError::Missing
        } else {
            let required = self.resource.with_scopes(needed);
            AuthError::InsufficientScope { required }
        };
        let challenge = self.resource.challenge(seen, &error, needed);
        (error, challenge)
    }

    /// The document about this server as a protected resource, if there is one at the path.
    pub(crate) fn document(&self, seen: Seen<'_>) -> Option<Vec<u8>> {
        self.resource.document(seen)
    }

    /// What stands in front of each path in the URLs that clients use.
    pub(crate) fn prefix(&self) -> &str {
        self.resource.prefix()
    }

    /// The principal of everybody, if nobody is asked for a proof.
    #[inline]
    pub(crate) fn everybody(&self) -> Option<&Arc<Principal>> {
        if self.proofs.is_empty() {
            self.anonymous.as_ref()
        } else {
            None
        }
    }

    /// Finds out who sent a request. What was shown and is no good never passes for nothing.
    pub(crate) async fn admit(
        &self,
        presented: Result<Presented<'_>, AuthError>,
    ) -> Result<Arc<Principal>, AuthError> {
        let presented = &presented?;
        presented.check_size(self.token_bytes, self.key_bytes)?;
        for proof in &self.proofs {
            let judgement = match proof.judge(presented) {
                Judgement::Later(judgement) => judgement.await,
                judgement => judgement,
            };
            match judgement {
                Judgement::Absent => {}
                Judgement::Proven(principal) => return Ok(principal),
                Judgement::Refused(error) => return Err(error),
                Judgement::Later(_) => {
                    tracing::error!(?proof, "a proof puts its judgement off twice");
                    return Err(AuthError::Unavailable("the caller was not judged".into()));
                }
            }
        }
        if presented.is_something() {
            return Err(AuthError::Invalid("the credential is not known".into()));
        }
        self.anonymous.clone().ok_or(AuthError::Missing)
    }

    /// Takes away the headers that hold credentials: what is behind the gate has no use for them, and must not pass
    /// them on.
    pub(crate) fn strip(&self, headers: &mut HeaderMap) {
        for name in &self.credentials {
            headers.remove(name);
        }
    }
}

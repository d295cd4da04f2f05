//! Verification of the access tokens of requests: signature, claims, the key that they are bound to.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::HeaderName;
use serde_json::{Map, Value};

use super::binding::Possession;
use super::cache_weight::principal_bytes;
use super::dpop::DpopVerifier;
use super::introspection::Introspection;
use super::issuer::Issuer;
use super::token::{self, ClaimRequirements, EXPIRED, Token, TokenError, UNKNOWN_KEY};
use super::{Inner, Tokens, Verified};
use crate::auth::credential_cache::{Cacheable, FOREVER};
use crate::auth::credentials::DPOP_HEADER;
use crate::auth::principal::{AccessToken, Facts, claim_at};
use crate::auth::scopes::Implied;
use crate::auth::{
    AuthError, AuthMethod, AuthOutcome, Credentials, Principal, PrincipalKind, sha256,
};

/// Maximum cache time, in seconds.
pub(super) const VERIFIED_SECONDS: u64 = 300;
/// Claims with the client, in order of precedence.
const CLIENT_CLAIMS: [&str; 4] = ["client_id", "azp", "cid", "appid"];
/// Maximum number of scopes and of groups in a token.
const WORDS_MAX: usize = 1024;

/// Result of a token's verification.
enum Looked {
    Good(Arc<Principal>),
    Bad(AuthError),
    /// The issuer has no keys yet.
    NoKeys(Arc<Issuer>),
    /// The issuer has no such key.
    UnknownKey(Arc<Issuer>),
}

impl AuthMethod for Tokens {
    fn judge(&self, presented: &Credentials<'_>) -> AuthOutcome {
        let now = presented.now();
        let shown = Possession::of(presented);
        if let Some((text, at, introspection)) = self.0.introspected(presented) {
            return self.introspect((text, shown), at, introspection, now);
        }
        let Some(text) = presented.access_token().filter(|text| Token::is_one(text)) else {
            return AuthOutcome::Absent;
        };
        let hash = sha256(text.as_bytes());
        if let Some(principal) = self.0.remembered(&hash, now) {
            return self.0.proven(principal, &shown, now);
        }
        match self.0.lookup(text, hash, now) {
            Looked::Good(principal) => self.0.proven(principal, &shown, now),
            Looked::Bad(error) => AuthOutcome::Refused(error),
            Looked::NoKeys(issuer) => self.later((text, shown), hash, now, issuer.ask_for_first()),
            Looked::UnknownKey(issuer) => match issuer.ask_for_unknown() {
                Some(waiting) => self.later((text, shown), hash, now, waiting),
                None => AuthOutcome::Refused(unknown_key(&issuer)),
            },
        }
    }

    fn headers(&self) -> Vec<HeaderName> {
        vec![DPOP_HEADER]
    }
}

/// Other keys of issuers are noted.
impl Cacheable for Tokens {
    fn holds_until(&self, presented: &Credentials<'_>) -> Option<u64> {
        // Each request has a proof of its own.
        if presented.dpop().is_some() {
            return None;
        }
        if let Some((text, _, introspection)) = self.0.introspected(presented) {
            let implied = self.0.implied.load();
            let result =
                introspection.cached(&sha256(text.as_bytes()), presented.now(), &implied)?;
            return Some(result.until());
        }
        let Some(text) = presented.access_token().filter(|text| Token::is_one(text)) else {
            return Some(FOREVER);
        };
        let verified = self.0.verified.get(&sha256(text.as_bytes()))?;
        let keys = self.0.issuers[verified.issuer].holds_for(verified.edition)?;
        Some(verified.until.min(presented.now() + keys))
    }
}

/// Waits for an outcome, so that it is not [`AuthOutcome::Later`].
pub(super) async fn settled(outcome: AuthOutcome) -> AuthOutcome {
    match outcome {
        AuthOutcome::Later(later) => later.await,
        outcome => outcome,
    }
}

impl Tokens {
    /// Introspects a token, unless the result is cached.
    fn introspect(
        &self,
        (text, shown): (&str, Possession<'_>),
        at: usize,
        introspection: &Arc<Introspection>,
        now: u64,
    ) -> AuthOutcome {
        let hash = sha256(text.as_bytes());
        let implied = self.0.implied.load_full();
        if let Some(result) = introspection.cached(&hash, now, &implied) {
            return self.0.bound(result.outcome(), &shown, now);
        }
        let (inner, introspection) = (Arc::clone(&self.0), Arc::clone(introspection));
        let (text, shown) = (text.to_owned(), shown.into_owned());
        AuthOutcome::Later(Box::pin(async move {
            let accept = |claims| {
                let claims = inner.completed(claims, at, &introspection, now)?;
                let token = (Token::introspected(claims), &*text);
                inner.accept(&inner.issuers[at], token, now, &implied)
            };
            let result = introspection
                .introspect(&text, hash, (now, &implied), accept)
                .await;
            settled(inner.bound(result.outcome(), &shown, now)).await
        }))
    }

    /// Checks a token again after a fetch of the keys.
    fn later(
        &self,
        (text, shown): (&str, Possession<'_>),
        hash: [u8; 32],
        now: u64,
        waiting: tokio::sync::watch::Receiver<u64>,
    ) -> AuthOutcome {
        let (inner, text) = (Arc::clone(&self.0), text.to_owned());
        let shown = shown.into_owned();
        AuthOutcome::Later(Box::pin(async move {
            Issuer::wait(waiting).await;
            match inner.lookup(&text, hash, now) {
                Looked::Good(principal) => settled(inner.proven(principal, &shown, now)).await,
                Looked::Bad(error) => AuthOutcome::Refused(error),
                Looked::UnknownKey(issuer) => AuthOutcome::Refused(unknown_key(&issuer)),
                Looked::NoKeys(_) => AuthOutcome::Refused(no_keys()),
            }
        }))
    }
}

impl Inner {
    /// Returns the outcome for the principal of a valid token, whose client has to have the key that it is bound to.
    fn proven(
        self: &Arc<Self>,
        principal: Arc<Principal>,
        shown: &Possession<'_>,
        now: u64,
    ) -> AuthOutcome {
        let claims = principal.claims();
        let is_bound = claims
            .get("cnf")
            .is_some_and(|cnf| cnf.get("jkt").is_some());
        if self.requires_dpop && !is_bound {
            return AuthOutcome::Refused(refused(TokenError(
                "the token is not bound to a key; this server requires DPoP",
            )));
        }
        let verifier = self.dpop.get_or_init(DpopVerifier::default);
        match shown.check(claims, verifier, now) {
            Ok(None) => AuthOutcome::Proven(principal),
            Ok(Some(proof)) => {
                let verifier = verifier.clone();
                AuthOutcome::Later(Box::pin(async move {
                    match verifier.use_once(&proof, principal.id()).await {
                        Ok(()) => AuthOutcome::Proven(principal),
                        Err(error) => AuthOutcome::Refused(error),
                    }
                }))
            }
            Err(error) => AuthOutcome::Refused(error),
        }
    }

    /// Applies [`proven`](Self::proven) to an outcome.
    fn bound(
        self: &Arc<Self>,
        outcome: AuthOutcome,
        shown: &Possession<'_>,
        now: u64,
    ) -> AuthOutcome {
        match outcome {
            AuthOutcome::Proven(principal) => self.proven(principal, shown, now),
            outcome => outcome,
        }
    }

    /// Returns the token of a request that is to be introspected: all but JWTs that name another issuer.
    fn introspected<'p>(
        &self,
        presented: &Credentials<'p>,
    ) -> Option<(&'p str, usize, &Arc<Introspection>)> {
        let (at, introspection) = self.introspection.as_ref()?;
        let text = presented.access_token()?;
        if is_api_key(text) || token::TOKEN_MAX_BYTES < text.len() {
            return None;
        }
        // The issuer judges tokens that are no JWT to this server, or one that it could not verify itself.
        let named = Token::is_one(text).then(|| Token::unverified_issuer(text));
        let is_of_issuer = match named.flatten() {
            Some(issuer) => self.issuers[*at].names.contains(&issuer),
            None => true,
        };
        is_of_issuer.then_some((text, *at, introspection))
    }

    /// Adds the members that are optional in an introspection response and required in a token.
    fn completed(
        &self,
        mut claims: Map<String, Value>,
        at: usize,
        introspection: &Introspection,
        now: u64,
    ) -> Result<Map<String, Value>, AuthError> {
        /// Validity of a token without an expiry, in seconds. Its result is cached for a shorter time.
        const VALID_SECONDS: u64 = 3600;
        let issuer = &self.issuers[at];
        let mut add = |name: &str, value: Value| {
            claims.entry(name).or_insert(value);
        };
        add("iss", issuer.names[0].clone().into());
        add("exp", (now + VALID_SECONDS).into());
        if let Some(client) = claims.get("client_id").cloned() {
            claims.entry("sub").or_insert(client);
        }
        let audience = issuer.preset.audience_claim();
        if !claims.contains_key(audience) {
            if introspection.requires_audience {
                return Err(refused(TokenError(
                    "the issuer does not name the audience of the token",
                )));
            }
            let own = issuer.audiences.first().cloned().unwrap_or_default();
            claims.insert(audience.to_owned(), own.into());
        }
        Ok(claims)
    }

    fn remembered(&self, hash: &[u8; 32], now: u64) -> Option<Arc<Principal>> {
        let verified = self.verified.get(hash)?;
        let keys = self.issuers[verified.issuer].keys()?;
        let good = now < verified.until
            && keys.edition == verified.edition
            && Arc::ptr_eq(&verified.implied, &self.implied.load());
        good.then(|| Arc::clone(&verified.principal))
    }

    fn lookup(&self, text: &str, hash: [u8; 32], now: u64) -> Looked {
        let token = match Token::read(text) {
            Ok(token) => token,
            Err(fault) => return Looked::Bad(refused(fault)),
        };
        let of = |name: &str| {
            let is_of = |issuer: &Arc<Issuer>| issuer.names.iter().any(|known| known == name);
            self.issuers.iter().position(is_of)
        };
        let Some(at) = token.issuer().and_then(of) else {
            let fault = match token.issuer() {
                None => TokenError("the token has no issuer"),
                Some(_) => TokenError("the token is of another issuer"),
            };
            return Looked::Bad(refused(fault));
        };
        let issuer = &self.issuers[at];
        let Some(held) = issuer.keys() else {
            return Looked::NoKeys(Arc::clone(issuer));
        };
        match token.check_signature(&held.keys) {
            Ok(()) => {}
            Err(UNKNOWN_KEY) => return Looked::UnknownKey(Arc::clone(issuer)),
            Err(fault) => return Looked::Bad(refused(fault)),
        }
        let implied = self.implied.load_full();
        match self.accept(issuer, (token, text), now, &implied) {
            Ok((principal, expires)) => {
                self.verified.insert(
                    hash,
                    Arc::new(Verified {
                        bytes: principal_bytes(&principal) + text.len() as u64,
                        principal: Arc::clone(&principal),
                        issuer: at,
                        edition: held.edition,
                        implied,
                        until: expires.min(now + VERIFIED_SECONDS),
                    }),
                );
                Looked::Good(principal)
            }
            Err(error) => Looked::Bad(error),
        }
    }

    /// Checks the claims of a token with a valid signature, and builds the principal. `text` is the token. Required scopes
    /// are checked later, when the caller is known and can be named in the audit log. Also returns until when the token is
    /// accepted, in seconds of Unix time.
    fn accept(
        &self,
        issuer: &Issuer,
        (token, text): (Token<'_>, &str),
        now: u64,
        implied: &Implied,
    ) -> Result<(Arc<Principal>, u64), AuthError> {
        let mut demands = ClaimRequirements {
            issuers: &issuer.names,
            audiences: &issuer.audiences,
            audience_claim: issuer.preset.audience_claim(),
            now,
            leeway: self.leeway,
        };
        let mut good_for: Vec<Box<str>> = Vec::new();
        let mut checked = token.check_claims(demands);
        if checked.is_ok() {
            good_for.push(Box::default());
        }
        for endpoint in &self.endpoints {
            demands.audiences = issuer.audiences_at(endpoint);
            let is_for = token.check_claims(demands);
            if is_for.is_ok() {
                good_for.push(endpoint.name.clone());
            }
            checked = checked.or(is_for);
        }
        checked.map_err(refused)?;
        let claims = token.claims();
        if !issuer.preset.is_for_calls(claims) {
            return Err(refused(TokenError("the token is not an access token")));
        }
        let scopes = words_of(claims, issuer.preset.scope_claims(), true)?;
        let group_claims: Vec<_> = issuer.group_claims.iter().map(String::as_str).collect();
        let groups = words_of(claims, &group_claims, false)?;
        let mut client = CLIENT_CLAIMS.into_iter();
        let client = client.find_map(|name| claims.get(name)?.as_str());
        let subject = token.subject().map_err(refused)?;
        let own_name = &issuer.names[0];
        let name = format!("oauth:{}#{subject}", issuer.name);
        let marks = [own_name.as_str(), subject, client.unwrap_or_default()];
        let principal = Principal::of(PrincipalKind::Token, &name, &marks);
        let expires = token.expires().saturating_add(self.leeway);
        let facts = Facts {
            subject: Some(subject.into()),
            issuer: Some(own_name.as_str().into()),
            client: client.map(Into::into),
            scopes: implied.expand(scopes.iter().map(String::as_str)),
            groups: groups.into_iter().map(String::into_boxed_str).collect(),
            claims: Arc::default(),
            endpoints: (!self.endpoints.is_empty()).then(|| good_for.into()),
            expires: Some(expires),
            // No other issuer exchanges a token of this server, so none may see it.
            token: (self.keeps_tokens.load(Ordering::Relaxed) && !issuer.is_local)
                .then(|| AccessToken(text.into())),
        };
        let principal = principal.with_facts(facts).with_claims(token.into_claims());
        Ok((Arc::new(principal), expires))
    }
}

/// Returns the error for a token of a key that the issuer is not known to have.
fn unknown_key(issuer: &Issuer) -> AuthError {
    match issuer.is_outdated() {
        true => no_keys(),
        false => refused(UNKNOWN_KEY),
    }
}

fn no_keys() -> AuthError {
    AuthError::Unavailable(
        "tokens cannot be verified now: the keys of their issuer are not available".into(),
    )
}

/// Returns true for API keys, which are not sent to an issuer.
fn is_api_key(text: &str) -> bool {
    text.starts_with(crate::auth::api_key::PREFIX)
}

pub(super) fn refused(fault: TokenError) -> AuthError {
    match fault {
        EXPIRED => AuthError::Expired,
        fault => AuthError::Invalid(fault.0.into()),
    }
}

/// Collects words from several claims: strings or lists of strings, split at spaces where the claim allows it.
fn words_of(
    claims: &Map<String, Value>,
    names: &[&str],
    spaced: bool,
) -> Result<Vec<String>, AuthError> {
    let odd = || {
        refused(TokenError(
            "the scopes or groups in the token are not strings",
        ))
    };
    let mut words = Vec::new();
    for name in names {
        match claim_at(claims, name) {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) if spaced => {
                words.extend(text.split_ascii_whitespace().map(str::to_owned));
            }
            Some(Value::String(text)) => words.push(text.clone()),
            Some(Value::Array(list)) => {
                for word in list {
                    words.push(word.as_str().ok_or_else(odd)?.to_owned());
                }
            }
            Some(_) => return Err(odd()),
        }
        if WORDS_MAX < words.len() {
            return Err(refused(TokenError(
                "the token has too many scopes or groups",
            )));
        }
    }
    Ok(words)
}

//! DPoP proofs (RFC 9449): a client signs each request with the key that its access token is bound to, so that a stolen
//! token cannot be used.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use jsonwebtoken::Algorithm;
use serde_json::{Map, Value};
use url::Url;

use super::keys::{self, Key};
use super::strict_json;
use crate::auth::AuthError;
use crate::digest::sha256_base64url;
use crate::state::{Claim, Memory, SharedState, StateError};
use crate::telemetry::LogInterval;

/// Signature algorithms of proofs.
pub const DPOP_ALGORITHMS: [&str; 4] = ["ES256", "EdDSA", "RS256", "PS256"];
/// Maximum difference between the time of a proof and the server's clock, in seconds, in either direction.
const PROOF_SECONDS: u64 = 300;
/// Maximum length of a proof, in bytes. It contains a public key.
const PROOF_MAX_BYTES: usize = 8 * 1024;
/// Maximum length of a proof's unique ID, in bytes.
const ID_MAX_BYTES: usize = 256;
/// Memory for the IDs of used proofs if there is no other state.
const OWN_MEMORY_BYTES: usize = 4 * 1024 * 1024;

/// Issues and checks the nonces of a server.
pub trait DpopNonces: std::fmt::Debug + Send + Sync {
    /// Returns a nonce that is valid from `now`, in seconds of Unix time. Visible ASCII without quotation marks and
    /// backslashes.
    fn issue(&self, now: u64) -> String;

    /// Returns true if a nonce was issued by this server, or by a replica with the same keys, and has not expired.
    fn is_valid(&self, nonce: &str, now: u64) -> bool;
}

/// Verifies DPoP proofs.
#[derive(Clone, Debug)]
pub struct DpopVerifier {
    used: SharedState,
    nonces: Option<Arc<dyn DpopNonces>>,
}

/// A request whose proof is to be verified.
#[derive(Clone, Debug)]
pub struct DpopRequest<'r> {
    /// Value of the header `DPoP`.
    pub proof: Option<&'r str>,
    pub method: &'r str,
    /// URL of the request as the client knows it. Query and fragment are ignored.
    pub url: &'r str,
    /// The access token that the request shows. `None` at the token endpoint.
    pub token: Option<&'r str>,
}

/// A valid proof, which counts once it is recorded by [`DpopVerifier::use_once`].
#[derive(Clone, Debug)]
pub struct DpopProof {
    /// SHA-256 of the client's public key (RFC 7638), in base64url.
    pub thumbprint: String,
    /// Key of the record that prevents a second use.
    record: String,
}

impl Default for DpopVerifier {
    fn default() -> Self {
        let memory = Arc::new(Memory::new(OWN_MEMORY_BYTES));
        Self::new(SharedState::new(memory, Duration::from_secs(1)), None)
    }
}

impl DpopVerifier {
    /// Creates a verifier. `used` records the IDs of used proofs. With `nonces`, each proof needs a nonce of this server.
    pub fn new(used: SharedState, nonces: Option<Arc<dyn DpopNonces>>) -> Self {
        Self { used, nonces }
    }

    /// Verifies a proof, except for whether it was used before (RFC 9449, section 4.3).
    ///
    /// # Errors
    ///
    /// [`AuthError::InvalidDpopProof`] with the reason, or [`AuthError::UseDpopNonce`].
    pub fn verify(&self, request: &DpopRequest<'_>, now: u64) -> Result<DpopProof, AuthError> {
        let text = request.proof.ok_or_else(|| {
            invalid("the header DPoP is missing; the token is bound to a key of the client")
        })?;
        let (thumbprint, claims) = read(text)?;
        let claim = |name: &str| claims.get(name).and_then(Value::as_str);
        if claim("htm") != Some(request.method) {
            return Err(invalid("htm is not the method of the request"));
        }
        if !claim("htu").is_some_and(|proven| is_same_url(proven, request.url)) {
            return Err(invalid("htu is not the URL of the request"));
        }
        let issued = claims.get("iat").and_then(Value::as_f64);
        #[expect(clippy::cast_precision_loss, reason = "seconds of Unix time are exact")]
        let age = issued.map(|issued| now as f64 - issued);
        #[expect(clippy::cast_precision_loss, reason = "the number is small")]
        let is_recent = age.is_some_and(|age| age.abs() <= PROOF_SECONDS as f64);
        if !is_recent {
            return Err(invalid(
                "iat is missing, or more than 5 minutes from this server's time",
            ));
        }
        if let Some(token) = request.token
            && claim("ath") != Some(&*sha256_base64url(token))
        {
            return Err(invalid("ath is not the hash of the access token"));
        }
        let id = claim("jti").filter(|id| (1..=ID_MAX_BYTES).contains(&id.len()));
        let id = id.ok_or_else(|| invalid("jti is missing or longer than 256 bytes"))?;
        if let Some(nonces) = &self.nonces
            && !claim("nonce").is_some_and(|nonce| nonces.is_valid(nonce, now))
        {
            return Err(AuthError::UseDpopNonce(nonces.issue(now).into()));
        }
        // By key, so that no client can use up the IDs of another one.
        let record = format!("dpop:{}", sha256_base64url(format!("{thumbprint} {id}")));
        Ok(DpopProof { thumbprint, record })
    }

    /// Records the use of a proof, in the share of an owner: the caller, or the user of a grant. Call it only once all else was
    /// checked, so that strangers cannot fill the state with proofs of keys that they make up.
    ///
    /// # Errors
    ///
    /// [`AuthError::InvalidDpopProof`] if it was used before; [`AuthError::Unavailable`] if that is not known.
    pub async fn use_once(&self, proof: &DpopProof, owner: &str) -> Result<(), AuthError> {
        // Longer than a proof of the future stays valid.
        let life = Duration::from_secs(2 * PROOF_SECONDS + 60);
        let used = self.used.claimed(Claim {
            owner: Some(owner),
            kind: "dpop",
            may_go: false,
        });
        let recorded = used.put_if_absent(&proof.record, Bytes::from_static(b"1"), life);
        match recorded.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(invalid("the proof was used before; sign a new one")),
            Err(error) => Err(unrecorded(&error)),
        }
    }
}

fn unrecorded(error: &StateError) -> AuthError {
    // Every request of a client with DPoP comes here while the state is down.
    static LINES: LogInterval = LogInterval::new(Duration::from_secs(60));
    if LINES.passes() {
        tracing::warn!(%error, "cannot record the use of DPoP proofs; requests with one are rejected (logged once a minute)");
    }
    AuthError::Unavailable("the server cannot record the DPoP proof now; try again".into())
}

fn invalid(reason: &'static str) -> AuthError {
    AuthError::InvalidDpopProof(Cow::Borrowed(reason))
}

/// Parses a proof and verifies its signature. Returns the thumbprint of its key, and its claims.
fn read(text: &str) -> Result<(String, Map<String, Value>), AuthError> {
    let malformed = || invalid("the proof is not a JWT");
    if PROOF_MAX_BYTES < text.len() {
        return Err(invalid("the proof is too long"));
    }
    let (message, signature) = text.rsplit_once('.').ok_or_else(malformed)?;
    let (header, claims) = message.split_once('.').ok_or_else(malformed)?;
    let object = |part: &str| {
        let part = URL_SAFE_NO_PAD.decode(part).ok()?;
        strict_json::object(&part)
    };
    let header = object(header).ok_or_else(malformed)?;
    let claims = object(claims).ok_or_else(malformed)?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| malformed())?;
    if header.get("typ").and_then(Value::as_str) != Some("dpop+jwt") {
        return Err(invalid("typ of the proof is not dpop+jwt"));
    }
    if header.contains_key("crit") || header.contains_key("b64") {
        return Err(invalid("the proof demands an extension that is not known"));
    }
    let algorithm = header.get("alg").and_then(Value::as_str);
    let algorithm = algorithm
        .and_then(keys::algorithm)
        .ok_or_else(|| invalid("alg of the proof must be ES256, EdDSA, RS256 or PS256"))?;
    let jwk = header.get("jwk").and_then(Value::as_object);
    let unusable = || invalid("jwk of the proof is not a public key for its alg");
    let jwk = jwk.ok_or_else(unusable)?;
    let (key, thumbprint) = public_key(jwk, algorithm).ok_or_else(unusable)?;
    if !key.verifies(algorithm, message.as_bytes(), &signature) {
        return Err(invalid("the signature of the proof is wrong"));
    }
    Ok((thumbprint, claims))
}

/// Returns a key and its thumbprint: the digest of its required members (RFC 7638, section 3).
fn public_key(jwk: &Map<String, Value>, algorithm: Algorithm) -> Option<(Key, String)> {
    const PRIVATE: [&str; 7] = ["d", "p", "q", "dp", "dq", "qi", "k"];
    if PRIVATE.iter().any(|name| jwk.contains_key(*name)) {
        return None;
    }
    let key = Key::read(jwk).filter(|key| key.is_for(algorithm))?;
    let members: &[&str] = match jwk.get("kty")?.as_str()? {
        "EC" => &["crv", "kty", "x", "y"],
        "OKP" => &["crv", "kty", "x"],
        "RSA" => &["e", "kty", "n"],
        _ => return None,
    };
    let pairs: Option<Vec<_>> = members
        .iter()
        .map(|name| Some(format!("\"{name}\":\"{}\"", jwk.get(*name)?.as_str()?)))
        .collect();
    Some((key, sha256_base64url(format!("{{{}}}", pairs?.join(",")))))
}

/// Compares two URLs after the normalizations of RFC 3986, without query and fragment.
fn is_same_url(one: &str, other: &str) -> bool {
    let normal = |text: &str| {
        let mut url = Url::parse(text).ok()?;
        url.set_query(None);
        url.set_fragment(None);
        Some(url)
    };
    normal(one).is_some_and(|one| Some(one) == normal(other))
}

//! Signatures that other programs verify: JWTs, signed with keys derived from the key ring.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

use super::KeyRing;
use crate::digest::sha256_base64url;

/// Ed25519 keys of one purpose, derived from the key ring: replicas with the same ring have the same keys.
pub struct SigningKeys {
    current: Ed25519KeyPair,
    current_id: String,
    public: String,
}

impl SigningKeys {
    /// Derives the keys. `None` if the cryptographic library rejects them, which it does not.
    pub fn derive(ring: &KeyRing, purpose: &'static str) -> Option<Self> {
        let mut public = Vec::new();
        let mut current = None;
        for seed in ring.seeds(purpose) {
            let pair = Ed25519KeyPair::from_seed_unchecked(&seed).ok()?;
            let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
            // RFC 7638: required members only, in alphabetical order.
            let thumbprint = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
            let id = sha256_base64url(thumbprint);
            public.push(json!({
                "kty": "OKP", "crv": "Ed25519", "x": x, "kid": id, "use": "sig", "alg": "EdDSA",
            }));
            current.get_or_insert((pair, id));
        }
        let (current, current_id) = current?;
        Some(Self {
            current,
            current_id,
            public: json!({ "keys": public }).to_string(),
        })
    }

    /// Returns the public keys of the whole ring as a JWK set (RFC 7517), in JSON.
    pub fn public(&self) -> &str {
        &self.public
    }

    /// Signs claims as a JWT of a type (RFC 7519).
    pub fn sign(&self, kind: &str, claims: &Map<String, Value>) -> String {
        let header = json!({ "alg": "EdDSA", "typ": kind, "kid": self.current_id });
        let encode = |text: String| URL_SAFE_NO_PAD.encode(text);
        let claims = Value::Object(claims.clone()).to_string();
        let message = format!("{}.{}", encode(header.to_string()), encode(claims));
        let signature = self.current.sign(message.as_bytes());
        let signature = URL_SAFE_NO_PAD.encode(signature.as_ref());
        format!("{message}.{signature}")
    }
}

impl std::fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKeys")
            .field("current_id", &self.current_id)
            .finish_non_exhaustive()
    }
}

//! Metadata of the authorization server (RFC 8414), and its public keys (RFC 7517).

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

use crate::seal::KeyRing;

/// Purpose for which signing keys are derived from the key ring.
const SIGNING: &str = "oauth-signing-1";

/// Keys that sign access tokens, derived from the key ring: replicas with the same ring have the same keys.
pub(super) struct SigningKeys {
    current: Ed25519KeyPair,
    current_id: String,
    /// The public keys of the whole ring as a JWK set, in JSON.
    pub(super) public: String,
}

impl SigningKeys {
    /// Derives the keys. `None` if the cryptographic library rejects them, which it does not.
    pub(super) fn derive(ring: &KeyRing) -> Option<Self> {
        let mut public = Vec::new();
        let mut current = None;
        for seed in ring.seeds(SIGNING) {
            let pair = Ed25519KeyPair::from_seed_unchecked(&seed).ok()?;
            let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
            // RFC 7638: required members only, in alphabetical order.
            let thumbprint = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
            let id = URL_SAFE_NO_PAD.encode(digest(&SHA256, thumbprint.as_bytes()));
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

    /// Signs claims as a JWT of a type (RFC 7519).
    pub(super) fn sign(&self, kind: &str, claims: &Map<String, Value>) -> String {
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

/// Returns the metadata document.
pub(super) fn document(
    issuer: &str,
    scopes: &[String],
    registration: bool,
    metadata_documents: bool,
) -> String {
    let mut document = json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{issuer}/token"),
        "revocation_endpoint": format!("{issuer}/revoke"),
        "jwks_uri": format!("{issuer}/.well-known/jwks.json"),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
        "revocation_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
        "authorization_response_iss_parameter_supported": true,
        "client_id_metadata_document_supported": metadata_documents,
    });
    if registration {
        document["registration_endpoint"] = format!("{issuer}/register").into();
    }
    if !scopes.is_empty() {
        document["scopes_supported"] = json!(scopes);
    }
    document.to_string()
}

//! Metadata of the authorization server (RFC 8414).

use serde_json::{Value, json};

use crate::auth::{DPOP_ALGORITHMS, FacadeConfig};

/// Grant type of identity assertions (RFC 7523).
pub(super) const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// Purpose for which signing keys are derived from the key ring.
pub(super) const SIGNING: &str = "oauth-signing-1";

/// Metadata documents, in JSON.
#[derive(Debug)]
pub(super) struct Documents {
    /// RFC 8414.
    pub(super) oauth: String,
    /// OpenID Connect Discovery, where clients look that find no other. Some reject it without its required members,
    /// although this server issues no ID tokens.
    pub(super) openid: String,
}

impl Documents {
    pub(super) fn new(issuer: &str, scopes: &[String], config: &FacadeConfig) -> Self {
        let mut metadata = document(issuer, scopes, config);
        let oauth = metadata.to_string();
        metadata["subject_types_supported"] = json!(["public"]);
        metadata["id_token_signing_alg_values_supported"] = json!(["EdDSA"]);
        Self {
            oauth,
            openid: metadata.to_string(),
        }
    }
}

/// Returns the metadata of the authorization server.
fn document(issuer: &str, scopes: &[String], config: &FacadeConfig) -> Value {
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
        "dpop_signing_alg_values_supported": DPOP_ALGORITHMS,
        "client_id_metadata_document_supported": config.metadata_documents,
    });
    if config.identity_assertions {
        document["grant_types_supported"] =
            json!(["authorization_code", "refresh_token", JWT_BEARER]);
        document["authorization_grant_profiles_supported"] =
            json!(["urn:ietf:params:oauth:grant-profile:id-jag"]);
    }
    if config.registration {
        document["registration_endpoint"] = format!("{issuer}/register").into();
    }
    if !scopes.is_empty() {
        document["scopes_supported"] = json!(scopes);
    }
    document
}

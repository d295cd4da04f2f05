//! DPoP on the side of the client (RFC 9449): tokens are bound to a key of this program, and each request is signed with it, so
//! that a stolen token cannot be used.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::json;

use super::error::{CredentialError, Rejection};
use super::header_value::{bearer_value, dpop_value};
use crate::environment::unix_seconds;
use crate::net::{Client, FetchedResponse, Mutex, OutgoingRequest, challenge_parameter};
use crate::seal::{random_bytes, sha256_base64url};
use crate::source::redact::without_query;

/// Algorithm of the signatures, as in metadata.
pub(crate) const ALGORITHM: &str = "ES256";
const DPOP: HeaderName = HeaderName::from_static("dpop");
const DPOP_NONCE: HeaderName = HeaderName::from_static("dpop-nonce");
/// Longest nonce of a server that is used, in bytes.
const NONCE_MAX_BYTES: usize = 1024;

/// The key that tokens are bound to.
pub(crate) struct DpopKey {
    pair: EcdsaKeyPair,
    /// Coordinates of the public key, in base64url.
    x: String,
    y: String,
    /// Latest nonce of the server that the tokens are for.
    nonce: Mutex<Option<String>>,
}

impl DpopKey {
    /// Generates a key: PKCS #8 in base64url, as it is stored.
    pub(crate) fn generate() -> Result<String, CredentialError> {
        EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
            .map(|key| URL_SAFE_NO_PAD.encode(key.as_ref()))
            .map_err(|_| CredentialError::DpopKey)
    }

    /// Reads a stored key.
    pub(crate) fn read(stored: &str) -> Result<Self, CredentialError> {
        let unusable = || CredentialError::DpopKey;
        let der = URL_SAFE_NO_PAD.decode(stored).map_err(|_| unusable())?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der);
        let pair = pair.map_err(|_| unusable())?;
        // An uncompressed point (SEC 1, 2.3.3).
        let point = pair.public_key().as_ref();
        let (x, y) = match point.split_first() {
            Some((4, coordinates)) if coordinates.len() == 64 => coordinates.split_at(32),
            _ => return Err(unusable()),
        };
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        let nonce = Mutex::default();
        Ok(Self { pair, x, y, nonce })
    }

    /// Returns the SHA-256 of the public key (RFC 7638), in base64url.
    pub(crate) fn thumbprint(&self) -> String {
        let Self { x, y, .. } = self;
        sha256_base64url(format!(
            r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#
        ))
    }

    /// Signs a request. `token` is the access token that it shows; `None` at the token endpoint.
    fn sign(
        &self,
        request: &mut OutgoingRequest,
        token: Option<&str>,
        nonce: Option<&str>,
    ) -> Result<(), CredentialError> {
        let header = json!({
            "typ": "dpop+jwt", "alg": ALGORITHM,
            "jwk": {"kty": "EC", "crv": "P-256", "x": self.x, "y": self.y},
        });
        let mut claims = json!({
            "jti": URL_SAFE_NO_PAD.encode(random_bytes::<16>()),
            "htm": request.method.as_str(), "htu": without_query(&request.url),
            "iat": unix_seconds(),
        });
        if let Some(token) = token {
            claims["ath"] = sha256_base64url(token).into();
        }
        if let Some(nonce) = nonce {
            claims["nonce"] = nonce.into();
        }
        let encoded = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", encoded(header), encoded(claims));
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes());
        let signature = signature.map_err(|_| CredentialError::DpopKey)?;
        let proof = format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()));
        let proof = HeaderValue::try_from(proof).map_err(|_| CredentialError::NotText)?;
        request.headers.insert(DPOP, proof);
        Ok(())
    }

    /// Sends a token request, signed. Repeats it once if the issuer demands a nonce (RFC 9449, section 8).
    pub(crate) async fn fetch(
        &self,
        client: &Client,
        mut request: OutgoingRequest,
    ) -> Result<FetchedResponse, CredentialError> {
        self.sign(&mut request, None, None)?;
        let response = client.fetch(request.clone()).await?;
        let rejection = Rejection::of(&response).filter(|_| response.status.is_client_error());
        let demand = rejection.filter(|rejection| &*rejection.code == USE_NONCE);
        let Some(nonce) = demand.and_then(|_| nonce_in(&response.headers)) else {
            return Ok(response);
        };
        self.sign(&mut request, None, Some(&nonce))?;
        Ok(client.fetch(request).await?)
    }
}

impl fmt::Debug for DpopKey {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DpopKey").finish_non_exhaustive()
    }
}

/// An access token as requests show it.
#[derive(Clone, Debug)]
pub(crate) struct AccessToken {
    /// Value of `Authorization`.
    pub(crate) value: HeaderValue,
    /// The key that the token is bound to.
    pub(crate) key: Option<Arc<DpopKey>>,
}

impl AccessToken {
    /// A token for the scheme `DPoP` if it is bound to a key, else for `Bearer`.
    ///
    /// # Errors
    ///
    /// The token has characters that no header can hold.
    pub(super) fn new(token: &str, key: Option<Arc<DpopKey>>) -> Result<Self, CredentialError> {
        let value = match &key {
            Some(_) => dpop_value(token),
            None => bearer_value(token),
        };
        let value = value.map_err(|_| CredentialError::NotText)?;
        Ok(Self { value, key })
    }

    /// Adds the token to a request and, if it is bound to a key, signs the request. Call it once method and URL are final.
    pub(super) fn apply(&self, request: &mut OutgoingRequest) -> Result<(), CredentialError> {
        if let Some(key) = &self.key {
            let token = crate::source::redact::bare(Some(&self.value));
            let nonce = key.nonce.lock().clone();
            key.sign(request, Some(token), nonce.as_deref())?;
        }
        request
            .headers
            .insert(http::header::AUTHORIZATION, self.value.clone());
        Ok(())
    }

    /// Takes the nonce that a server demands in its response to a request. Returns true if the request can be repeated.
    pub(super) fn takes_nonce(&self, response: &HeaderMap) -> bool {
        let (Some(key), Some(nonce)) = (&self.key, demanded_nonce(response)) else {
            return false;
        };
        // A server that demands again what it was just sent would be asked without end.
        key.nonce.lock().replace(nonce.clone()).as_ref() != Some(&nonce)
    }
}

const USE_NONCE: &str = "use_dpop_nonce";

/// Returns the nonce that a server demands (RFC 9449, section 9).
pub(super) fn demanded_nonce(response: &HeaderMap) -> Option<String> {
    let challenges = response.get_all(http::header::WWW_AUTHENTICATE).iter();
    let mut challenges = challenges.filter_map(|value| value.to_str().ok());
    challenges
        .any(|challenge| challenge_parameter(challenge, "error").as_deref() == Some(USE_NONCE))
        .then(|| nonce_in(response))?
}

fn nonce_in(response: &HeaderMap) -> Option<String> {
    let nonce = response.get(DPOP_NONCE)?.to_str().ok()?;
    (!nonce.is_empty() && nonce.len() <= NONCE_MAX_BYTES).then(|| nonce.to_owned())
}

#[cfg(test)]
mod tests {
    use http::Method;
    use http::header::WWW_AUTHENTICATE;
    use serde_json::Value;
    use url::Url;

    use super::*;
    use crate::auth::{DpopRequest, DpopVerifier};

    fn token(text: &'static str) -> AccessToken {
        let stored = DpopKey::generate().expect("a key");
        AccessToken {
            value: HeaderValue::from_static(text),
            key: Some(Arc::new(DpopKey::read(&stored).expect("the key"))),
        }
    }

    fn claims(request: &OutgoingRequest) -> Value {
        let proof = request.headers[&DPOP].to_str().expect("text");
        let claims = proof.split('.').nth(1).expect("claims");
        let claims = URL_SAFE_NO_PAD.decode(claims).expect("base64url");
        serde_json::from_slice(&claims).expect("JSON")
    }

    /// RFC 9449, section 4.3, as a server checks it.
    #[test]
    fn a_server_accepts_the_signature_for_this_request_only() {
        let token = token("DPoP abc");
        let url: Url = "https://api.example/mcp?x=1#y".parse().expect("a URL");
        let mut request = OutgoingRequest::new(Method::POST, url);
        token.apply(&mut request).expect("a signed request");
        assert_eq!(request.headers["authorization"], "DPoP abc");
        let shown = DpopRequest {
            proof: request.headers[&DPOP].to_str().ok(),
            method: "POST",
            url: "https://api.example/mcp",
            token: Some("abc"),
        };
        let verifier = DpopVerifier::default();
        let now = unix_seconds();
        let proof = verifier.verify(&shown, now).expect("a valid proof");
        let key = token.key.as_ref().expect("a key");
        assert_eq!(proof.thumbprint, key.thumbprint());
        for other in [
            DpopRequest {
                method: "GET",
                ..shown.clone()
            },
            DpopRequest {
                url: "https://api.example/other",
                ..shown.clone()
            },
            DpopRequest {
                token: Some("abd"),
                ..shown.clone()
            },
        ] {
            assert!(verifier.verify(&other, now).is_err(), "{other:?}");
        }
        let first = claims(&request);
        token.apply(&mut request).expect("a signed request");
        assert_ne!(first["jti"], claims(&request)["jti"]);
    }

    /// RFC 9449, section 9.
    #[test]
    fn a_demanded_nonce_is_used_from_then_on_and_demanded_once() {
        let token = token("DPoP abc");
        let mut response = HeaderMap::new();
        assert!(!token.takes_nonce(&response));
        response.insert(DPOP_NONCE, HeaderValue::from_static("n1"));
        assert!(!token.takes_nonce(&response), "it is not demanded");
        let challenge = HeaderValue::from_static(r#"DPoP error="use_dpop_nonce", algs="ES256""#);
        response.insert(WWW_AUTHENTICATE, challenge);
        assert!(token.takes_nonce(&response));
        let url: Url = "https://api.example/".parse().expect("a URL");
        let mut request = OutgoingRequest::new(Method::GET, url);
        token.apply(&mut request).expect("a signed request");
        assert_eq!(claims(&request)["nonce"], "n1");
        assert!(!token.takes_nonce(&response), "the same nonce again");
        let long = "n".repeat(NONCE_MAX_BYTES + 1);
        response.insert(DPOP_NONCE, HeaderValue::try_from(long).expect("text"));
        assert!(!token.takes_nonce(&response), "it is too long");
    }

    #[test]
    fn a_stored_key_that_is_damaged_is_an_error_and_debug_output_hides_it() {
        let stored = DpopKey::generate().expect("a key");
        for damaged in ["", "!", &stored[1..], &stored[..stored.len() - 8]] {
            assert!(DpopKey::read(damaged).is_err(), "{damaged}");
        }
        let key = DpopKey::read(&stored).expect("the key");
        assert_eq!(format!("{key:?}"), "DpopKey { .. }");
    }
}

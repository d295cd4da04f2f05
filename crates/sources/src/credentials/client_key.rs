//! Client authentication with a signed assertion instead of a secret (RFC 7523, section 2.2: `private_key_jwt`).

use std::path::PathBuf;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use url::form_urlencoded::Serializer;

use crate::environment::{read_file, unix_seconds};
use crate::seal::random_bytes;

/// Maximum size of a key file, in bytes.
const FILE_MAX_BYTES: u64 = 64 * 1024;
/// Validity of an assertion, in seconds.
const VALID_SECONDS: u64 = 60;
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Private key of this server at an issuer that knows its public key.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientKeyConfig {
    /// PEM file with the key in PKCS #8: P-256 (ES256), Ed25519 (EdDSA) or RSA (RS256). It is read for each request.
    #[schemars(extend("x-path" = "file"))]
    pub file: PathBuf,
    /// ID of the key at the issuer (`kid`). Default: none.
    pub key_id: Option<String>,
    /// Name of the issuer, as in its metadata. Default: `token_url`, which most issuers accept as well.
    pub audience: Option<String>,
}

/// Reason why a request cannot be signed. The messages hold nothing of the key.
#[derive(Debug, thiserror::Error)]
pub enum ClientKeyError {
    #[error("it cannot be read")]
    File(#[from] std::io::Error),
    #[error("it is not a PEM file with a private key")]
    Pem,
    #[error("its key is not P-256, Ed25519 or RSA in PKCS #8")]
    Kind,
}

/// A key that signs.
enum Signer {
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl Signer {
    fn read(pem: &[u8]) -> Result<Self, ClientKeyError> {
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| ClientKeyError::Pem)?;
        let PrivateKeyDer::Pkcs8(key) = key else {
            return Err(ClientKeyError::Kind);
        };
        let der = key.secret_pkcs8_der();
        if let Ok(pair) = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der) {
            return Ok(Self::Ecdsa(pair));
        }
        if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
            return Ok(Self::Ed25519(pair));
        }
        RsaKeyPair::from_pkcs8(der)
            .map(Self::Rsa)
            .map_err(|_| ClientKeyError::Kind)
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Ecdsa(_) => "ES256",
            Self::Ed25519(_) => "EdDSA",
            Self::Rsa(_) => "RS256",
        }
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, ClientKeyError> {
        let random = SystemRandom::new();
        match self {
            Self::Ecdsa(pair) => pair
                .sign(&random, message)
                .map(|signature| signature.as_ref().to_vec()),
            Self::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
                    .map(|()| signature)
            }
        }
        .map_err(|_| ClientKeyError::Kind)
    }
}

impl ClientKeyConfig {
    /// Adds the client's assertion to a token request.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or has no usable key.
    pub(super) fn sign(
        &self,
        client_id: &str,
        token_url: &str,
        form: &mut Serializer<'_, String>,
    ) -> Result<(), ClientKeyError> {
        let assertion = self.assertion(client_id, token_url, unix_seconds())?;
        form.append_pair("client_assertion_type", ASSERTION_TYPE);
        form.append_pair("client_assertion", &assertion);
        Ok(())
    }

    fn assertion(
        &self,
        client_id: &str,
        token_url: &str,
        now: u64,
    ) -> Result<String, ClientKeyError> {
        let signer = self.signer()?;
        let mut header = json!({"alg": signer.algorithm(), "typ": "JWT"});
        if let Some(id) = &self.key_id {
            header["kid"] = id.as_str().into();
        }
        let claims = json!({
            "iss": client_id, "sub": client_id, "aud": self.audience.as_deref().unwrap_or(token_url),
            "iat": now, "exp": now + VALID_SECONDS, "jti": URL_SAFE_NO_PAD.encode(random_bytes::<16>()),
        });
        let encoded = |text: String| URL_SAFE_NO_PAD.encode(text);
        let message = format!(
            "{}.{}",
            encoded(header.to_string()),
            encoded(claims.to_string())
        );
        let signature = URL_SAFE_NO_PAD.encode(signer.sign(message.as_bytes())?);
        Ok(format!("{message}.{signature}"))
    }

    /// Checks that the key can be used.
    pub(super) fn check(&self) -> Result<(), ClientKeyError> {
        self.signer().map(drop)
    }

    fn signer(&self) -> Result<Signer, ClientKeyError> {
        Signer::read(&read_file(&self.file, FILE_MAX_BYTES)?)
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::encoding::AsDer as _;
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED, ED25519, KeyPair as _, RSA_PKCS1_2048_8192_SHA256,
        UnparsedPublicKey, VerificationAlgorithm,
    };
    use base64::engine::general_purpose::STANDARD;
    use serde_json::Value;

    use super::*;

    fn pem(der: &[u8]) -> String {
        let text = STANDARD.encode(der);
        format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n")
    }

    /// Checks the assertion of a key, and returns its header and its claims.
    fn checked(
        der: &[u8],
        algorithm: &'static dyn VerificationAlgorithm,
        public: &[u8],
    ) -> (Value, Value) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("key.pem");
        std::fs::write(&file, pem(der)).expect("written");
        let config = ClientKeyConfig {
            file,
            key_id: Some("k1".to_owned()),
            audience: None,
        };
        config.check().expect("usable");
        let text = config.assertion("me", "https://as.example/token", 100);
        let text = text.expect("signed");
        let (message, signature) = text.rsplit_once('.').expect("a signature");
        let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).expect("base64");
        UnparsedPublicKey::new(algorithm, public)
            .verify(message.as_bytes(), &decoded(signature))
            .expect("a valid signature");
        let (header, claims) = message.split_once('.').expect("two parts");
        let object = |part| serde_json::from_slice(&decoded(part)).expect("JSON");
        (object(header), object(claims))
    }

    #[test]
    fn requests_are_signed_with_each_kind_of_key() {
        let ecdsa = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
        let der = ecdsa.to_pkcs8v1().expect("DER");
        let public = ecdsa.public_key().as_ref();
        let (header, claims) = checked(der.as_ref(), &ECDSA_P256_SHA256_FIXED, public);
        assert_eq!(header, json!({"alg": "ES256", "typ": "JWT", "kid": "k1"}));
        assert_eq!(claims["iss"], "me");
        assert_eq!(claims["sub"], "me");
        assert_eq!(claims["aud"], "https://as.example/token");
        assert_eq!(claims["exp"], 160);

        let ed25519 = Ed25519KeyPair::generate().expect("a key");
        let der = ed25519.to_pkcs8v1().expect("DER");
        let (header, _) = checked(der.as_ref(), &ED25519, ed25519.public_key().as_ref());
        assert_eq!(header["alg"], "EdDSA");

        let rsa = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
        let der = rsa.as_der().expect("DER");
        let public = rsa.public_key().as_ref();
        let (header, _) = checked(der.as_ref(), &RSA_PKCS1_2048_8192_SHA256, public);
        assert_eq!(header["alg"], "RS256");
    }

    #[test]
    fn a_file_without_a_usable_key_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("key.pem");
        let config = ClientKeyConfig {
            file: file.clone(),
            ..ClientKeyConfig::default()
        };
        assert!(matches!(config.check(), Err(ClientKeyError::File(_))));
        for (text, is_pem) in [("no key", false), (&*pem(b"no key"), true)] {
            std::fs::write(&file, text).expect("written");
            let error = config.check().expect_err("refused");
            assert_eq!(matches!(error, ClientKeyError::Kind), is_pem, "{error}");
        }
    }
}

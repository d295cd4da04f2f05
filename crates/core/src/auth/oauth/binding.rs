//! Access tokens that are bound to a key of the client (RFC 7800), so that a stolen token cannot be used.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use data_encoding::HEXLOWER;
use serde_json::{Map, Value};

use super::dpop::{DpopProof, DpopRequest, DpopVerifier};
use super::token::TokenError;
use super::verification::refused;
use crate::auth::{AuthError, ClientCertificate, Credentials};

/// What a request shows besides its access token.
#[derive(Clone, Debug, Default)]
pub(super) struct Possession<'r> {
    /// SHA-256 of the client certificate of the connection, in hexadecimal digits.
    fingerprint: Option<Cow<'r, str>>,
    /// The DPoP proof of a token of the scheme `DPoP`. `None` for the scheme `Bearer`.
    dpop: Option<DpopShown<'r>>,
}

/// A DPoP proof with the parts of the request that it has to name.
#[derive(Clone, Debug)]
struct DpopShown<'r> {
    proof: Option<Cow<'r, str>>,
    method: Cow<'r, str>,
    url: Cow<'r, str>,
    token: Cow<'r, str>,
}

impl<'r> Possession<'r> {
    pub(super) fn of(presented: &Credentials<'r>) -> Self {
        let fingerprint = presented.certificate().map(ClientCertificate::fingerprint);
        Self {
            fingerprint: fingerprint.map(Cow::Borrowed),
            dpop: presented.dpop().map(|(token, proof)| DpopShown {
                proof: proof.map(Cow::Borrowed),
                method: presented.method().into(),
                url: presented.url().into(),
                token: token.into(),
            }),
        }
    }

    pub(super) fn into_owned(self) -> Possession<'static> {
        fn owned(text: Cow<'_, str>) -> Cow<'static, str> {
            Cow::Owned(text.into_owned())
        }
        Possession {
            fingerprint: self.fingerprint.map(owned),
            dpop: self.dpop.map(|shown| DpopShown {
                proof: shown.proof.map(owned),
                method: owned(shown.method),
                url: owned(shown.url),
                token: owned(shown.token),
            }),
        }
    }

    /// Checks that the client has the key to which a token is bound by its claim `cnf`. Returns the DPoP proof whose use
    /// is still to be recorded, if there is one.
    ///
    /// A binding of an unknown kind cannot be checked, and a token that has one was not issued for use without it.
    ///
    /// # Errors
    ///
    /// The client does not have the key, or the kind of the binding is not supported.
    pub(super) fn check(
        &self,
        claims: &Map<String, Value>,
        verifier: &DpopVerifier,
        now: u64,
    ) -> Result<Option<DpopProof>, AuthError> {
        let fault = |text| Err(refused(TokenError(text)));
        let mut proof = None;
        match claims.get("cnf") {
            None => {}
            Some(Value::Object(members)) => {
                for (name, value) in members {
                    match (name.as_str(), value.as_str()) {
                        ("x5t#S256", Some(digest)) => self.check_certificate(digest)?,
                        ("jkt", Some(thumbprint)) => {
                            proof = Some(self.check_dpop(thumbprint, verifier, now)?);
                        }
                        _ => {
                            return fault(
                                "the token is bound in a way that this server does not check",
                            );
                        }
                    }
                }
            }
            Some(_) => return fault("the token's cnf is not an object"),
        }
        if self.dpop.is_some() && proof.is_none() {
            return fault("the token is not bound to a key; send it with the scheme Bearer");
        }
        Ok(proof)
    }

    /// RFC 8705, section 3.1.
    fn check_certificate(&self, digest: &str) -> Result<(), AuthError> {
        let digest = URL_SAFE_NO_PAD.decode(digest).unwrap_or_default();
        let fault = |text| Err(refused(TokenError(text)));
        match self.fingerprint.as_deref() {
            None => {
                fault("the token is bound to a client certificate, and the connection has none")
            }
            Some(fingerprint) if HEXLOWER.encode(&digest) == fingerprint => Ok(()),
            Some(_) => fault("the token is bound to another client certificate"),
        }
    }

    /// RFC 9449, section 7.1.
    fn check_dpop(
        &self,
        thumbprint: &str,
        verifier: &DpopVerifier,
        now: u64,
    ) -> Result<DpopProof, AuthError> {
        let Some(shown) = &self.dpop else {
            return Err(refused(TokenError(
                "the token is bound to a key (DPoP); send it with the scheme DPoP and a proof",
            )));
        };
        let request = DpopRequest {
            proof: shown.proof.as_deref(),
            method: &shown.method,
            url: &shown.url,
            token: Some(&shown.token),
        };
        let proof = verifier.verify(&request, now)?;
        if proof.thumbprint != thumbprint {
            return Err(refused(TokenError(
                "the token is bound to another key than that of the DPoP proof",
            )));
        }
        Ok(proof)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn judged(confirmation: Value, fingerprint: Option<&str>) -> Result<(), String> {
        let claims = Map::from_iter([("cnf".to_owned(), confirmation)]);
        let possession = Possession {
            fingerprint: fingerprint.map(Cow::Borrowed),
            dpop: None,
        };
        let checked = possession.check(&claims, &DpopVerifier::default(), 0);
        checked.map(|_| ()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_token_counts_with_the_certificate_that_it_is_bound_to() {
        let fingerprint = HEXLOWER.encode(&[7; 32]);
        let bound = json!({"x5t#S256": URL_SAFE_NO_PAD.encode([7; 32])});
        let unbound = Possession::default().check(&Map::new(), &DpopVerifier::default(), 0);
        assert!(unbound.is_ok());
        assert!(judged(bound.clone(), Some(&fingerprint)).is_ok());
        for (confirmation, shown) in [
            (bound.clone(), None),
            (bound, Some(HEXLOWER.encode(&[8; 32]))),
            (json!({"x5t#S256": ""}), Some(fingerprint.clone())),
            (json!({"x5t#S256": 7}), Some(fingerprint.clone())),
            (json!({"jkt": "a"}), Some(fingerprint.clone())),
            (json!({"jkt": 7}), Some(fingerprint.clone())),
            (json!({"kid": "a"}), Some(fingerprint.clone())),
            (json!("a"), Some(fingerprint.clone())),
            (Value::Null, Some(fingerprint)),
        ] {
            let judged = judged(confirmation.clone(), shown.as_deref());
            assert!(judged.is_err(), "{confirmation}");
        }
    }
}

//! Access tokens that are bound to a key of the client (RFC 7800): whoever steals such a token cannot use it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use data_encoding::HEXLOWER;
use serde_json::{Map, Value};

use super::refused;
use super::token::Fault;
use crate::auth::AuthError;

/// Checks that the client of a token with the claim `cnf` has its key.
///
/// `fingerprint` is the SHA-256 of the client certificate of the connection, in hexadecimal digits. A binding of another
/// kind cannot be checked, and a token that has one was not issued for use without it.
///
/// # Errors
///
/// The client does not have the key, or the kind of the binding is not supported.
pub(super) fn check(
    claims: &Map<String, Value>,
    fingerprint: Option<&str>,
) -> Result<(), AuthError> {
    let Some(confirmation) = claims.get("cnf") else {
        return Ok(());
    };
    let fault = |text| Err(refused(Fault(text)));
    let Some(members) = confirmation.as_object() else {
        return fault("the token's cnf is not an object");
    };
    for (name, value) in members {
        match (name.as_str(), value.as_str()) {
            // RFC 8705, section 3.1.
            ("x5t#S256", Some(digest)) => {
                let digest = URL_SAFE_NO_PAD.decode(digest).unwrap_or_default();
                let Some(fingerprint) = fingerprint else {
                    return fault(
                        "the token is bound to a client certificate, and the connection has none",
                    );
                };
                if HEXLOWER.encode(&digest) != fingerprint {
                    return fault("the token is bound to another client certificate");
                }
            }
            ("jkt", _) => {
                return fault(
                    "the token is bound to a key (DPoP), which this server does not check; request a token without DPoP",
                );
            }
            _ => return fault("the token is bound in a way that this server does not check"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn judged(confirmation: Value, fingerprint: Option<&str>) -> Result<(), String> {
        let claims = Map::from_iter([("cnf".to_owned(), confirmation)]);
        check(&claims, fingerprint).map_err(|error| error.to_string())
    }

    #[test]
    fn a_token_counts_with_the_certificate_that_it_is_bound_to() {
        let fingerprint = HEXLOWER.encode(&[7; 32]);
        let bound = json!({"x5t#S256": URL_SAFE_NO_PAD.encode([7; 32])});
        assert!(check(&Map::new(), None).is_ok());
        assert!(judged(bound.clone(), Some(&fingerprint)).is_ok());
        for (confirmation, shown) in [
            (bound.clone(), None),
            (bound, Some(HEXLOWER.encode(&[8; 32]))),
            (json!({"x5t#S256": ""}), Some(fingerprint.clone())),
            (json!({"x5t#S256": 7}), Some(fingerprint.clone())),
            (json!({"jkt": "a"}), Some(fingerprint.clone())),
            (json!({"kid": "a"}), Some(fingerprint.clone())),
            (json!("a"), Some(fingerprint.clone())),
            (Value::Null, Some(fingerprint)),
        ] {
            let judged = judged(confirmation.clone(), shown.as_deref());
            assert!(judged.is_err(), "{confirmation}");
        }
    }
}

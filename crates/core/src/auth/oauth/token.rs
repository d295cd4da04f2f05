//! Access token: a compact JWS (RFC 7515) with the claims of RFC 9068.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde_json::{Map, Value};

use super::keys::{self, KeySet};
use super::strict_json;

/// Maximum length of a token.
pub(super) const TOKEN_MAX_BYTES: usize = 16 * 1024;
/// Maximum length of a subject, in bytes.
const SUBJECT_MAX_BYTES: usize = 1024;

/// Reason for which a token is invalid. The client receives it; it contains no part of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenError(pub(super) &'static str);

/// A parsed, unverified token.
#[derive(Debug)]
pub(super) struct Token<'t> {
    /// The signed part.
    message: &'t str,
    signature: Vec<u8>,
    algorithm: Algorithm,
    key_id: Option<String>,
    claims: Map<String, Value>,
}

/// Required values of a token's claims.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClaimRequirements<'d> {
    /// Accepted issuers: one name, or its variants.
    pub(super) issuers: &'d [String],
    /// Accepted audiences.
    pub(super) audiences: &'d [String],
    /// Claim with the audience.
    pub(super) audience_claim: &'d str,
    /// Unix time in seconds.
    pub(super) now: u64,
    /// Tolerated clock difference, in seconds.
    pub(super) leeway: u64,
}

/// Accepted values of `typ`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Types {
    names: &'static [&'static str],
    /// True if a token without `typ` is accepted.
    is_optional: bool,
    /// Reason for which others are rejected.
    fault: TokenError,
}

/// Access tokens (RFC 9068, section 2.1). Many issuers leave `typ` out.
const ACCESS_TOKEN: Types = Types {
    names: &["jwt", "at+jwt"],
    is_optional: true,
    fault: TokenError("the token is not an access token"),
};

/// Identity assertions (ID-JAG).
pub(super) const IDENTITY_ASSERTION: Types = Types {
    names: &["oauth-id-jag+jwt"],
    is_optional: false,
    fault: TokenError("typ of the assertion is not oauth-id-jag+jwt"),
};

impl<'t> Token<'t> {
    /// Returns true if the text has the form of a JWS, so that other parsers need not try.
    pub(super) fn is_one(text: &str) -> bool {
        text.bytes().filter(|b| *b == b'.').count() == 2
    }

    /// Reads an access token without believing anything in it.
    pub(super) fn read(text: &'t str) -> Result<Self, TokenError> {
        Self::read_of_type(text, ACCESS_TOKEN)
    }

    /// Reads a token of a type.
    pub(super) fn read_of_type(text: &'t str, types: Types) -> Result<Self, TokenError> {
        if TOKEN_MAX_BYTES < text.len() {
            return Err(TokenError("the token is too long"));
        }
        let (message, signature) = text.rsplit_once('.').ok_or(FORM)?;
        let (header, claims) = message.split_once('.').ok_or(FORM)?;
        let (algorithm, key_id) = read_header(header, types)?;
        let claims = object(claims)?;
        // Key references and embedded keys (jku, x5u, jwk, x5c) are ignored: only the issuer's own keys are trusted.
        Ok(Self {
            message,
            signature: URL_SAFE_NO_PAD.decode(signature).map_err(|_| FORM)?,
            algorithm,
            key_id,
            claims,
        })
    }

    /// Returns the issuer that the payload of a JWS names, without a look at its header or signature.
    pub(super) fn unverified_issuer(text: &str) -> Option<String> {
        let (message, _) = text.rsplit_once('.')?;
        let (_, claims) = message.split_once('.')?;
        match object(claims).ok()?.remove("iss")? {
            Value::String(issuer) => Some(issuer),
            _ => None,
        }
    }

    /// Builds a token from the members of an introspection response, which the issuer vouches for.
    pub(super) fn introspected(claims: Map<String, Value>) -> Self {
        Self {
            message: "",
            signature: Vec::new(),
            algorithm: Algorithm::EdDSA,
            key_id: None,
            claims,
        }
    }

    /// Returns the issuer that the token claims.
    pub(super) fn issuer(&self) -> Option<&str> {
        self.claims.get("iss").and_then(Value::as_str)
    }

    /// Returns the key ID that the token claims.
    pub(super) fn key_id(&self) -> Option<&str> {
        self.key_id.as_deref()
    }

    /// Checks the signature.
    pub(super) fn check_signature(&self, keys: &KeySet) -> Result<(), TokenError> {
        let candidates = keys.candidates(self.key_id(), self.algorithm);
        if candidates.is_empty() {
            let known = self.key_id().is_some_and(|id| keys.has(id));
            return Err(if known { ALGORITHM } else { UNKNOWN_KEY });
        }
        let good = |key: &&keys::Key| {
            key.verifies(self.algorithm, self.message.as_bytes(), &self.signature)
        };
        if candidates.iter().any(good) {
            Ok(())
        } else {
            Err(TokenError("the signature of the token is wrong"))
        }
    }

    /// Returns true if one of these keys signed the JWS, without checking its claims.
    #[cfg(test)]
    pub(super) fn verifies(text: &str, keys: &KeySet) -> bool {
        let read = || {
            let (message, signature) = text.rsplit_once('.')?;
            let (header, payload) = message.split_once('.')?;
            URL_SAFE_NO_PAD.decode(payload).ok()?;
            let (algorithm, key_id) = read_header(header, ACCESS_TOKEN).ok()?;
            let token = Token {
                message,
                signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
                algorithm,
                key_id,
                claims: Map::new(),
            };
            token.check_signature(keys).ok()
        };
        read().is_some()
    }

    /// Checks what the token says of itself. Call it after its signature was checked.
    pub(super) fn check_claims(&self, demands: ClaimRequirements<'_>) -> Result<(), TokenError> {
        let issuer = self.issuer().ok_or(TokenError("the token has no issuer"))?;
        if !demands.issuers.iter().any(|known| known == issuer) {
            return Err(TokenError("the token is of another issuer"));
        }
        let ClaimRequirements { now, leeway, .. } = demands;
        let expires = self
            .time("exp")?
            .ok_or(TokenError("the token has no expiry"))?;
        if expires.saturating_add(leeway) <= now {
            return Err(EXPIRED);
        }
        let latest = now.saturating_add(leeway);
        if self.time("nbf")?.is_some_and(|begins| latest < begins) {
            return Err(TokenError("the token is not valid yet"));
        }
        if self.time("iat")?.is_some_and(|issued| latest < issued) {
            return Err(TokenError("the token was issued in the future"));
        }
        self.check_audience(demands)?;
        self.subject()?;
        Ok(())
    }

    fn check_audience(&self, demands: ClaimRequirements<'_>) -> Result<(), TokenError> {
        const FOREIGN: TokenError = TokenError("the token was issued for another audience");
        const NONE: TokenError = TokenError("the token has no audience");
        let is_ours = |audience: &str| demands.audiences.iter().any(|known| known == audience);
        match self.claims.get(demands.audience_claim) {
            Some(Value::String(audience)) if is_ours(audience) => Ok(()),
            Some(Value::String(_)) => Err(FOREIGN),
            Some(Value::Array(list)) if !list.is_empty() => {
                let mut found = false;
                for audience in list {
                    // A list with an element that is not a string is rejected as a whole.
                    found |= is_ours(audience.as_str().ok_or(NONE)?);
                }
                if found { Ok(()) } else { Err(FOREIGN) }
            }
            _ => Err(NONE),
        }
    }

    /// Subject.
    pub(super) fn subject(&self) -> Result<&str, TokenError> {
        match self.claims.get("sub") {
            Some(Value::String(subject))
                if (1..=SUBJECT_MAX_BYTES).contains(&subject.len())
                    && !subject.chars().any(char::is_control) =>
            {
                Ok(subject)
            }
            _ => Err(TokenError("the token has no subject")),
        }
    }

    /// Returns the expiry, in seconds of Unix time.
    pub(super) fn expires(&self) -> u64 {
        self.time("exp").ok().flatten().unwrap_or(0)
    }

    /// Reads a claim that is a time. A value of another type makes the token invalid.
    fn time(&self, name: &str) -> Result<Option<u64>, TokenError> {
        const NO_TIME: TokenError = TokenError("a time in the token is not a number");
        /// Larger JSON numbers are not exact, and no valid time is that large.
        const LATEST: f64 = 9_007_199_254_740_992.0;
        match self.claims.get(name) {
            None => Ok(None),
            Some(Value::Number(number)) => {
                let seconds = number.as_f64().ok_or(NO_TIME)?;
                if !(0.0..=LATEST).contains(&seconds) {
                    return Err(NO_TIME);
                }
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "it is within what fits"
                )]
                Ok(Some(seconds as u64))
            }
            Some(_) => Err(NO_TIME),
        }
    }

    /// Returns the claims.
    pub(super) fn claims(&self) -> &Map<String, Value> {
        &self.claims
    }

    /// Returns the claims, consuming the token.
    pub(super) fn into_claims(self) -> Map<String, Value> {
        self.claims
    }
}

/// Reads a header: the algorithm that it names, and the id of the key.
fn read_header(part: &str, types: Types) -> Result<(Algorithm, Option<String>), TokenError> {
    let header = object(part)?;
    // RFC 7515, 4.1.11: a token with an unknown critical extension must be rejected. No extension is supported.
    if header.contains_key("crit") || header.contains_key("b64") {
        return Err(TokenError(
            "the token demands an extension that is not known",
        ));
    }
    let Some(Value::String(name)) = header.get("alg") else {
        return Err(ALGORITHM);
    };
    let algorithm = keys::algorithm(name).ok_or(ALGORITHM)?;
    let key_id = match header.get("kid") {
        None => None,
        Some(Value::String(id)) => Some(id.clone()),
        Some(_) => return Err(FORM),
    };
    // RFC 8725, 3.11: a token of another type with the same key must be rejected.
    let is_of_type = match header.get("typ") {
        None => types.is_optional,
        Some(Value::String(kind)) => {
            let kind = kind.to_ascii_lowercase();
            let kind = kind.strip_prefix("application/").unwrap_or(&kind);
            types.names.contains(&kind)
        }
        Some(_) => false,
    };
    if !is_of_type {
        return Err(types.fault);
    }
    Ok((algorithm, key_id))
}

const FORM: TokenError = TokenError("the token is malformed");
const ALGORITHM: TokenError =
    TokenError("the token is signed with an algorithm that is not accepted");
pub(super) const EXPIRED: TokenError = TokenError("the token has expired");
/// The one fault that a look at the issuer's newest keys may mend.
pub(super) const UNKNOWN_KEY: TokenError =
    TokenError("the token is signed with a key that is not known");

fn object(part: &str) -> Result<Map<String, Value>, TokenError> {
    let text = URL_SAFE_NO_PAD.decode(part).map_err(|_| FORM)?;
    strict_json::object(&text).ok_or(FORM)
}

//! Key sets of an issuer (RFC 7517).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::{Map, Value};

use super::strict_json;

/// Maximum size of a key set, in bytes.
pub(super) const SET_MAX_BYTES: usize = 256 * 1024;
/// Maximum number of keys in a set.
const KEYS_MAX: usize = 64;

/// All keys of an issuer that can verify a signature.
#[derive(Debug, Default)]
pub(super) struct KeySet {
    keys: Vec<Key>,
}

/// A key and its algorithms. The token does not choose the algorithm.
pub(super) struct Key {
    id: Option<Box<str>>,
    algorithms: &'static [Algorithm],
    key: DecodingKey,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("id", &self.id)
            .field("algorithms", &self.algorithms)
            .finish_non_exhaustive()
    }
}

/// Reason for which a document is not a key set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum KeySetError {
    #[error("it is not a JSON object with a list of keys")]
    Form,
    #[error("it has more than 64 keys")]
    TooMany,
    #[error("none of its keys can verify a signature by RS256, PS256, ES256 or EdDSA")]
    NoKey,
}

impl KeySet {
    /// Parses a key set. Keys that cannot be used are skipped: other uses, shared secrets, and keys that are too
    /// short.
    pub(super) fn read(text: &[u8]) -> Result<Self, KeySetError> {
        if SET_MAX_BYTES < text.len() {
            return Err(KeySetError::Form);
        }
        let set = strict_json::object(text).ok_or(KeySetError::Form)?;
        let Some(Value::Array(keys)) = set.get("keys") else {
            return Err(KeySetError::Form);
        };
        if KEYS_MAX < keys.len() {
            return Err(KeySetError::TooMany);
        }
        let keys: Vec<_> = keys
            .iter()
            .filter_map(|key| Key::read(key.as_object()?))
            .collect();
        if keys.is_empty() {
            return Err(KeySetError::NoKey);
        }
        Ok(Self { keys })
    }

    /// Returns the number of keys.
    #[cfg(feature = "cli")]
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns the keys that may have signed a token. A token without a key ID matches only a set with one key.
    pub(super) fn candidates(&self, id: Option<&str>, algorithm: Algorithm) -> Vec<&Key> {
        let fits = |key: &&Key| key.is_for(algorithm);
        match id {
            Some(id) => {
                let named = self.keys.iter().filter(|key| key.id.as_deref() == Some(id));
                named.filter(fits).collect()
            }
            None => {
                let all: Vec<_> = self.keys.iter().filter(fits).collect();
                if all.len() == 1 { all } else { Vec::new() }
            }
        }
    }

    /// Returns true if a key has this ID, regardless of its use.
    pub(super) fn has(&self, id: &str) -> bool {
        self.keys.iter().any(|key| key.id.as_deref() == Some(id))
    }
}

impl Key {
    /// Returns true if the key can verify signatures of an algorithm.
    pub(super) fn is_for(&self, algorithm: Algorithm) -> bool {
        self.algorithms.contains(&algorithm)
    }

    /// Reads a public key. `None` if it cannot be used.
    pub(super) fn read(key: &Map<String, Value>) -> Option<Self> {
        let text = |name: &str| key.get(name).and_then(Value::as_str);
        if key.get("use").is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        if let Some(operations) = key.get("key_ops")
            && !operations.as_array()?.iter().any(|o| o == "verify")
        {
            return None;
        }
        // A published private key is compromised.
        if key.contains_key("d") {
            return None;
        }
        let id = match key.get("kid") {
            None => None,
            Some(id) => Some(Box::from(id.as_str()?)),
        };
        let algorithm = match key.get("alg") {
            None => None,
            Some(name) => Some(algorithm(name.as_str()?)?),
        };
        let (key, possible): (_, &'static [Algorithm]) = match text("kty")? {
            "RSA" => {
                let (modulus, exponent) = (bytes(text("n")?)?, bytes(text("e")?)?);
                if !(2048..=8192).contains(&bits(&modulus)) || has_roca_form(&modulus) {
                    return None;
                }
                let key = DecodingKey::from_rsa_raw_components(&modulus, &exponent);
                (key, &[Algorithm::RS256, Algorithm::PS256])
            }
            "EC" if text("crv")? == "P-256" => {
                let (x, y) = (text("x")?, text("y")?);
                if bytes(x)?.len() != 32 || bytes(y)?.len() != 32 {
                    return None;
                }
                let key = DecodingKey::from_ec_components(x, y).ok()?;
                (key, &[Algorithm::ES256])
            }
            "OKP" if text("crv")? == "Ed25519" => {
                let x = text("x")?;
                if bytes(x)?.len() != 32 {
                    return None;
                }
                (
                    DecodingKey::from_ed_components(x).ok()?,
                    &[Algorithm::EdDSA],
                )
            }
            _ => return None,
        };
        let algorithms = match algorithm {
            None => possible,
            Some(algorithm) => {
                let at = possible.iter().position(|a| *a == algorithm)?;
                &possible[at..=at]
            }
        };
        Some(Self {
            id,
            algorithms,
            key,
        })
    }

    /// Returns true if the signature is valid.
    pub(super) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        // Signatures of fixed length are checked here, because libraries differ in what they accept.
        let fixed = matches!(algorithm, Algorithm::ES256 | Algorithm::EdDSA);
        if fixed && signature.len() != 64 {
            return false;
        }
        let verifier = (DEFAULT_PROVIDER.verifier_factory)(&algorithm, &self.key);
        verifier.is_ok_and(|verifier| verifier.verify(message, &signature.to_vec()).is_ok())
    }
}

/// Returns a supported algorithm.
pub(super) fn algorithm(name: &str) -> Option<Algorithm> {
    match name {
        "RS256" => Some(Algorithm::RS256),
        "PS256" => Some(Algorithm::PS256),
        "ES256" => Some(Algorithm::ES256),
        "EdDSA" | "Ed25519" => Some(Algorithm::EdDSA),
        _ => None,
    }
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// Returns the length of a number in bits, without leading zeros.
fn bits(number: &[u8]) -> usize {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    match number.get(zeros) {
        Some(first) => 8 * (number.len() - zeros) - first.leading_zeros() as usize,
        None => 0,
    }
}

/// Detects ROCA keys (CVE-2017-15361): modulo each small prime the modulus is a power of 65537. Such a modulus can be
/// factored.
fn has_roca_form(modulus: &[u8]) -> bool {
    const PRIMES: [u32; 38] = [
        3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89,
        97, 101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167,
    ];
    PRIMES.iter().all(|prime| {
        let rest = modulus
            .iter()
            .fold(0, |rest, byte| (rest * 256 + u32::from(*byte)) % prime);
        let mut power = 1;
        (0..*prime).any(|_| {
            let found = power == rest;
            power = power * 65537 % prime;
            found
        })
    })
}

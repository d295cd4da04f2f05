//! Nonces for DPoP proofs (RFC 9449, section 8): signed times, so that nothing is stored and replicas accept each
//! other's.

use std::sync::Arc;

use super::{KeyRing, Purpose};
use crate::auth::DpopNonces;

/// Validity of a nonce, in seconds.
const NONCE_SECONDS: u64 = 300;
const PURPOSE: Purpose<'_> = Purpose {
    kind: "dpop-nonce-1",
    endpoint: "",
};

/// Nonces that the key ring signs.
#[derive(Debug)]
pub struct SignedNonces(Arc<KeyRing>);

impl SignedNonces {
    pub fn new(ring: Arc<KeyRing>) -> Self {
        Self(ring)
    }
}

impl DpopNonces for SignedNonces {
    fn issue(&self, now: u64) -> String {
        self.0.sign(PURPOSE, now.to_string().as_bytes())
    }

    fn is_valid(&self, nonce: &str, now: u64) -> bool {
        let issued = self.0.verify(PURPOSE, nonce.as_bytes());
        let issued = issued.and_then(|text| String::from_utf8(text).ok()?.parse().ok());
        // A replica's clock may be ahead.
        issued.is_some_and(|issued: u64| now.abs_diff(issued) <= NONCE_SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::SealConfig;

    #[test]
    fn a_nonce_is_valid_for_five_minutes_and_with_its_keys() {
        let ring = |key: &str| {
            let keys = vec![key.repeat(32).into()];
            SignedNonces::new(Arc::new(KeyRing::new(&SealConfig { keys }).expect("a key")))
        };
        let (own, replica, other) = (ring("a"), ring("a"), ring("b"));
        let nonce = own.issue(1000);
        assert!(
            nonce
                .bytes()
                .all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\')
        );
        assert!(replica.is_valid(&nonce, 1300));
        assert!(!replica.is_valid(&nonce, 1301));
        assert!(!other.is_valid(&nonce, 1000));
        assert!(!own.is_valid("1000", 1000));
        assert!(!own.is_valid("", 1000));
    }
}

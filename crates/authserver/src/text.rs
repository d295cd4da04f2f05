//! Random text.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::seal::random_bytes;

/// 256 random bits in base64url.
pub(super) fn random_text() -> String {
    URL_SAFE_NO_PAD.encode(random_bytes::<32>())
}

//! Random text, and digests of text.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::seal::random_bytes;

/// 256 random bits in base64url.
pub(super) fn random_text() -> String {
    URL_SAFE_NO_PAD.encode(random_bytes::<32>())
}

pub(super) fn text_digest(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes()))
}

//! Digests of stable content.

use aws_lc_rs::digest::{self as sha, Context, SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use data_encoding::HEXLOWER;

/// SHA-256.
pub fn sha256(bytes: impl AsRef<[u8]>) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(sha::digest(&SHA256, bytes.as_ref()).as_ref());
    hash
}

/// SHA-256 in hexadecimal, in small letters.
pub fn sha256_hex(bytes: impl AsRef<[u8]>) -> String {
    HEXLOWER.encode(&sha256(bytes))
}

/// SHA-256 in base64url without padding, as in OAuth.
pub fn sha256_base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(sha256(bytes))
}

/// SHA-256 of several parts. Where one ends and the next begins matters.
pub fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

/// The first half of it: enough to tell things apart of which one party has chosen all.
pub fn short_digest(parts: &[&[u8]]) -> [u8; 16] {
    let mut short = [0; 16];
    short.copy_from_slice(&digest(parts)[..16]);
    short
}

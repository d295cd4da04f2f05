//! Digests of stable content.

use aws_lc_rs::digest::{Context, SHA256};

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

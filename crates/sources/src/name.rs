//! Generated tool names.

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;

/// Maximum length that every model provider accepts.
pub(super) const NAME_CHARACTERS_MAX: usize = 64;

/// Converts a string to a name: each run of invalid characters becomes one `_`.
pub(super) fn sanitized(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || c == '-' {
            name.push(c);
        } else if !name.ends_with('_') {
            name.push('_');
        }
    }
    name.trim_matches('_').to_owned()
}

/// Shortens a name to at most `max` characters. A longer name keeps its beginning and ends in a digest of the whole,
/// so the result is stable across processes.
pub(super) fn shortened(name: &str, max: usize) -> String {
    const DIGITS: usize = 8;
    let max = max.max(DIGITS + 2);
    if name.len() <= max {
        return name.to_owned();
    }
    let hash = digest(&SHA256, name.as_bytes());
    let mut end = max - DIGITS - 1;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let mut short = name[..end].trim_end_matches('_').to_owned();
    short.push('_');
    HEXLOWER.encode_append(&hash.as_ref()[..DIGITS / 2], &mut short);
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_of_what_names_can_have() {
        for (text, name) in [
            ("listPets", "listPets"),
            ("pets/list", "pets_list"),
            ("repos/{owner}/{repo}: get", "repos_owner_repo_get"),
            ("v1.charges.create", "v1_charges_create"),
            ("__x__", "x"),
            ("größe", "gr_e"),
            ("日本", ""),
        ] {
            assert_eq!(sanitized(text), name);
        }
    }

    #[test]
    fn long_names_are_shortened_alike_everywhere_and_stay_apart() {
        let long = "a".repeat(100);
        let other = format!("{}b", "a".repeat(99));
        let short = shortened(&long, 64);
        assert_eq!(short.len(), 64);
        assert_eq!(short, shortened(&long, 64));
        assert_ne!(short, shortened(&other, 64));
        assert_eq!(shortened("short", 64), "short");
        assert_eq!(shortened(&"a".repeat(64), 64).len(), 64);
        assert!(
            short.ends_with(
                "_2816597888e4a0d3a36b82b83316ab32680eb8f00f8cd3b904d681246d285a0e"
                    .get(..9)
                    .expect("ASCII")
            )
        );
    }
}

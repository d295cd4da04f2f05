//! Generated tool names.

use data_encoding::HEXLOWER;

use crate::protocol::floor_char_boundary;
use crate::seal::sha256;

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
    let max = max.max(DIGITS + 2);
    match name.len() <= max {
        true => name.to_owned(),
        false => marked(name, max, name),
    }
}

/// Number of digits of a digest in a name.
const DIGITS: usize = 8;

/// Appends a digest of `whole` to a name, of which so much is kept that the result has at most `max` characters.
fn marked(name: &str, max: usize, whole: &str) -> String {
    let hash = sha256(whole);
    let end = floor_char_boundary(name, max - DIGITS - 1);
    let mut short = name[..end].trim_end_matches('_').to_owned();
    short.push('_');
    HEXLOWER.encode_append(&hash[..DIGITS / 2], &mut short);
    short
}

/// Replaces the characters that the name of a tool must not have by `_`. Such a name ends in a digest of the whole, so
/// that it differs from other names.
pub(super) fn tool_name(name: String) -> String {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.chars().all(is_valid) {
        return name;
    }
    let valid = |c| if is_valid(c) { c } else { '_' };
    let replaced: String = name.chars().map(valid).collect();
    marked(&replaced, NAME_CHARACTERS_MAX, &name)
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
    fn names_of_tools_keep_the_characters_that_they_can_have() {
        assert_eq!(tool_name("a__get-b.c_1".to_owned()), "a__get-b.c_1");
        let names = ["a__get b", "a__get/b", "a__日本", "a__ "];
        let valid = names.map(|name| tool_name(name.to_owned()));
        for (name, valid) in names.iter().zip(&valid) {
            assert!(valid.starts_with("a_"), "{name}: {valid}");
            assert_eq!(&tool_name(valid.clone()), valid);
        }
        assert!(valid[0].starts_with("a__get_b_"), "{}", valid[0]);
        assert_ne!(valid[0], valid[1]);
        assert_eq!(tool_name(format!("a {}", "b".repeat(200))).len(), 64);
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

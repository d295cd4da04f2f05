//! Patterns with the wildcard `*`.

/// Returns true if a string matches a pattern, in which `*` matches any sequence. Takes linear time for each star.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_texts() {
        for (pattern, text, expected) in [
            ("/pets", "/pets", true),
            ("/pets", "/pets/1", false),
            ("/pets/*", "/pets/{id}/toys", true),
            ("*", "", true),
            ("*Pet*", "createPets", true),
            ("create*s", "createPets", true),
            ("a*a", "a", false),
            ("a*b*c", "a-c-b", false),
            ("a**b", "ab", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}

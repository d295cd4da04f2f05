//! What the tools of a component are called.

use std::collections::HashMap;

use crate::source::name::sanitized;

/// A name for each function, in their order: its own, behind that of its interface if it is of one. Functions whose names
/// would be the same say the whole of their interfaces' names instead, each of them, so that the order decides nothing.
pub(super) fn tool_names<'f>(
    functions: impl Iterator<Item = (Option<&'f str>, &'f str)>,
) -> Vec<String> {
    let functions: Vec<_> = functions.collect();
    let short: Vec<String> = functions
        .iter()
        .map(|(interface, name)| match interface {
            Some(interface) => sanitized(&format!("{} {name}", local(interface))),
            None => sanitized(name),
        })
        .collect();
    let mut count: HashMap<&str, usize> = HashMap::new();
    for name in &short {
        *count.entry(name).or_default() += 1;
    }
    functions
        .iter()
        .zip(&short)
        .map(|((interface, name), short)| match interface {
            Some(interface) if count[&**short] > 1 => sanitized(&format!("{interface} {name}")),
            _ => short.clone(),
        })
        .collect()
}

/// `urls` of `docs:text/urls@0.1.0`.
fn local(interface: &str) -> &str {
    let without_version = interface.split('@').next().unwrap_or_default();
    without_version.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_as_much_as_tells_them_apart() {
        let functions = [
            (None, "count"),
            (Some("docs:text/urls@0.1.0"), "slug"),
            (Some("docs:text/urls@0.2.0"), "slug"),
            (Some("docs:text/urls@0.1.0"), "join-all"),
            (Some("plain"), "count"),
            (None, "plain-count"),
        ];
        let expected = [
            "count",
            "docs_text_urls_0_1_0_slug",
            "docs_text_urls_0_2_0_slug",
            "urls_join-all",
            "plain_count",
            "plain-count",
        ];
        assert_eq!(tool_names(functions.into_iter()), expected);
        let mut expected = expected;
        expected.reverse();
        assert_eq!(tool_names(functions.into_iter().rev()), expected);
    }
}

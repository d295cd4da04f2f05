//! Tool names of a component's functions.

use std::collections::HashMap;

use crate::source::name::sanitized;

/// Returns a name for each function, in their order: its own, prefixed with the local name of its interface, if any.
/// If names collide, all of the functions concerned use the full interface name, so the result does not depend on the
/// order.
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

/// Returns the local name of an interface: `urls` for `docs:text/urls@0.1.0`.
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

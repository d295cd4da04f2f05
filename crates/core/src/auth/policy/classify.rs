//! Classifies a tool as reading or writing: by configuration, else by its own hint, else by its name. Default:
//! writing.

use super::Access;
use super::names::Names;

/// Class of a tool, and its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Classified {
    /// The class.
    pub access: Access,
    /// Origin of the class, for explanations.
    pub reason: &'static str,
}

/// Verbs of tools that only read.
const READS: [&str; 24] = [
    "check", "compare", "count", "describe", "diff", "echo", "explain", "fetch", "find", "get",
    "has", "inspect", "is", "list", "lookup", "peek", "preview", "query", "read", "search", "show",
    "status", "validate", "view",
];

/// Verbs of tools that change data, at any place in a name.
const WRITES: [&str; 34] = [
    "add", "apply", "approve", "archive", "assign", "cancel", "clear", "close", "commit", "copy",
    "create", "delete", "deploy", "disable", "drop", "edit", "enable", "execute", "insert", "kill",
    "merge", "move", "patch", "post", "publish", "push", "put", "remove", "rename", "run", "send",
    "set", "update", "write",
];

/// Classifies a tool. `said` is its own hint.
pub(super) fn classify(
    name: &str,
    said: Option<bool>,
    read: &Names,
    write: &Names,
    strict: bool,
) -> Classified {
    let is = |access, reason| Classified { access, reason };
    // A tool in both lists counts as writing.
    if write.is_match(name) {
        return is(Access::Write, "policy.write names it");
    }
    if read.is_match(name) {
        return is(Access::Read, "policy.read names it");
    }
    match said {
        Some(true) => return is(Access::Read, "its annotations declare it read-only"),
        Some(false) => {
            return is(
                Access::Write,
                "its annotations declare that it changes something",
            );
        }
        None if strict => {
            return is(
                Access::Write,
                "its annotations declare nothing, and policy.strict_classification is on",
            );
        }
        None => {}
    }
    let words = words(name);
    if words.iter().any(|word| WRITES.contains(&word.as_str())) {
        is(Access::Write, "its name sounds like it")
    } else if words.iter().any(|word| READS.contains(&word.as_str())) {
        is(Access::Read, "its name sounds like it")
    } else {
        is(Access::Write, "unknown, so the stricter class applies")
    }
}

/// Splits `snake_case`, `kebab-case`, `dotted.case` and `camelCase` into words.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = '_';
    for c in name.chars() {
        let begins = c.is_ascii_uppercase() && !before.is_ascii_uppercase();
        if !c.is_ascii_alphanumeric() || begins {
            words.push(String::new());
        }
        if c.is_ascii_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.push(c.to_ascii_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pattern: &str) -> Names {
        let patterns = [pattern.to_owned()];
        let names = Names::read("policy.read", &patterns);
        names.expect("a pattern").expect("some")
    }

    #[test]
    fn settings_outdo_hints_and_these_outdo_names_and_doubt_is_a_change() {
        let (read, write, none) = (set("x_*"), set("x_y"), Names::default());
        for (name, said, strict, access) in [
            ("x_delete", Some(false), true, Access::Read),
            ("x_y", Some(true), false, Access::Write),
            ("delete_all", Some(true), false, Access::Read),
            ("get_all", Some(false), false, Access::Write),
            ("get_all", None, false, Access::Read),
            ("get_all", None, true, Access::Write),
            ("getAll", None, false, Access::Read),
            ("files.list", None, false, Access::Read),
            ("get_and_delete", None, false, Access::Write),
            ("readWrite", None, false, Access::Write),
            ("getter", None, false, Access::Write),
            ("frobnicate", None, false, Access::Write),
            ("HTTPGet", None, false, Access::Write),
            ("", None, false, Access::Write),
        ] {
            let found = classify(name, said, &read, &write, strict);
            assert_eq!(found.access, access, "{name}: {}", found.reason);
        }
        assert_eq!(
            classify("list", None, &none, &none, false).access,
            Access::Read
        );
    }
}

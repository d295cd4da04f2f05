//! Equivalent forms of a resource URI.
//!
//! A rule is about a resource, but each server interprets a URI in its own way. Servers differ in how often they
//! decode escapes, and in the meaning of empty segments, dots and backslashes. Rules are therefore matched with every
//! plausible form.

use std::collections::BTreeSet;

use percent_encoding::percent_decode_str;

/// Maximum number of decodings. URIs with deeper nested escapes are rejected.
const DECODINGS_MAX: usize = 8;

/// Forms of a URI.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Forms {
    /// Resources that the URI may name, all of which must be allowed.
    pub(super) meant: BTreeSet<String>,
    /// Further forms that lenient parsers accept. The policy must not deny any of them.
    pub(super) lenient: BTreeSet<String>,
}

/// Computes the forms of a URI. Returns `None` if escapes are nested too deeply.
pub(super) fn forms(uri: &str) -> Option<Forms> {
    let mut forms = Forms::default();
    let mut text = uri.to_owned();
    for _ in 0..DECODINGS_MAX {
        forms.add(&text);
        let decoded = percent_decode_str(&text).decode_utf8_lossy().into_owned();
        if decoded == text {
            return Some(forms);
        }
        text = decoded;
    }
    None
}

impl Forms {
    fn add(&mut self, text: &str) {
        let parts = Parts::of(text);
        self.meant.insert(parts.with_path(&parts.resolved(false)));
        if parts.path.split('/').any(|segment| segment == "..") {
            self.meant.insert(parts.with_path(&parts.resolved(true)));
        }
        self.be_lenient(&parts);
        self.add_before_query(&parts);
        // URL parsers of browsers drop these characters.
        let is_left_out = |c: char| matches!(c, '\t' | '\n' | '\r');
        let trimmed = text.trim_matches(|c: char| c <= ' ');
        if trimmed.len() < text.len() || text.contains(is_left_out) {
            let plain: String = trimmed.chars().filter(|c| !is_left_out(*c)).collect();
            self.be_lenient(&Parts::of(&plain));
        }
    }

    /// Adds the forms whose dot segments are resolved as parsers of URIs do, for whom a query or a fragment ends the path.
    fn add_before_query(&mut self, parts: &Parts) {
        let Some(end) = parts.path.find(['?', '#']) else {
            return;
        };
        let (path, rest) = parts.path.split_at(end);
        if !path.split('/').any(|segment| matches!(segment, "." | "..")) {
            return;
        }
        let before = Parts {
            path: path.to_owned(),
            ..parts.clone()
        };
        for collapsed in [false, true] {
            let path = format!("{}{rest}", before.resolved(collapsed));
            self.meant.insert(parts.with_path(&path));
            self.be_lenient(&Parts {
                path,
                ..parts.clone()
            });
        }
    }

    fn be_lenient(&mut self, parts: &Parts) {
        let mut all = vec![parts.clone()];
        if let Some(authority) = &parts.authority {
            let host = authority
                .rsplit_once('@')
                .map_or(&**authority, |(_, host)| host);
            let host = match &*parts.scheme {
                "http" | "ws" => without_port(host, "80"),
                "https" | "wss" => without_port(host, "443"),
                "file" if matches!(host, "localhost" | "127.0.0.1" | "[::1]") => "",
                _ => without_port(host, ""),
            };
            let host = host.trim_end_matches('.');
            if host != authority {
                all.push(Parts {
                    authority: Some(host.to_owned()),
                    ..parts.clone()
                });
            }
        } else if parts.scheme == "file" {
            all.push(Parts {
                authority: Some(String::new()),
                path: format!("/{}", parts.path),
                ..parts.clone()
            });
        }
        for parts in all {
            let path = parts.resolved(true);
            // Some file systems ignore trailing dots and spaces of a name.
            let trimmed: Vec<_> = path
                .split('/')
                .map(|segment| segment.trim_end_matches(['.', ' ']))
                .collect();
            let paths = [trimmed.join("/"), path];
            for path in &paths {
                // Servers do not receive a fragment, and `file` URIs have no query.
                let end = match &*parts.scheme {
                    "file" => path.find(['?', '#']),
                    _ => path.find('#'),
                };
                let short = &path[..end.unwrap_or(path.len())];
                for path in [
                    path,
                    short,
                    path.trim_end_matches('/'),
                    short.trim_end_matches('/'),
                ] {
                    self.lenient.insert(parts.with_path(path));
                }
            }
        }
    }
}

/// Returns a host without an empty port, and without a default one, which may begin with zeros.
fn without_port<'h>(host: &'h str, default: &str) -> &'h str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.is_empty() || is_port(port, default) => name,
        _ => host,
    }
}

fn is_port(text: &str, port: &str) -> bool {
    !port.is_empty() && text.trim_start_matches('0') == port
}

/// The parts of a URI, with scheme and authority in lower case and backslashes replaced.
#[derive(Clone, Debug)]
struct Parts {
    /// Empty if the URI has none.
    scheme: String,
    authority: Option<String>,
    path: String,
}

impl Parts {
    fn of(text: &str) -> Self {
        let text = text.replace('\\', "/");
        let is_scheme = |scheme: &str| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
        };
        let (scheme, rest) = match text.split_once(':') {
            Some((scheme, rest)) if is_scheme(scheme) => (scheme.to_ascii_lowercase(), rest),
            _ => (String::new(), &*text),
        };
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => {
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                let (authority, path) = rest.split_at(end);
                (Some(authority.to_lowercase()), path)
            }
            None => (None, rest),
        };
        Self {
            scheme,
            authority,
            path: path.to_owned(),
        }
    }

    /// Resolves dot segments. With `collapsed`, empty segments are dropped, as in a file system; otherwise they are
    /// kept, as in a URI.
    fn resolved(&self, collapsed: bool) -> String {
        if self.path.is_empty() {
            return String::new();
        }
        let (root, path) = match self.path.strip_prefix('/') {
            Some(path) => ("/", path),
            None => ("", &*self.path),
        };
        let mut segments: Vec<&str> = Vec::new();
        let mut ends_in_folder = false;
        for segment in path.split('/') {
            ends_in_folder = matches!(segment, "" | "." | "..");
            match segment {
                "." => {}
                ".." => {
                    segments.pop();
                }
                "" if collapsed => {}
                segment => segments.push(segment),
            }
        }
        let mut resolved = format!("{root}{}", segments.join("/"));
        if ends_in_folder && !segments.is_empty() && !resolved.ends_with('/') {
            resolved.push('/');
        }
        resolved
    }

    fn with_path(&self, path: &str) -> String {
        let colon = if self.scheme.is_empty() { "" } else { ":" };
        let scheme = &self.scheme;
        match &self.authority {
            Some(authority) => format!("{scheme}{colon}//{authority}{path}"),
            None => format!("{scheme}{colon}{path}"),
        }
    }
}

/// Returns a pattern with scheme and host in lower case, or `None` if it is canonical already.
pub(super) fn canonical_pattern(pattern: &str) -> Option<String> {
    let (scheme, rest) = pattern.split_once("://")?;
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let canonical = format!(
        "{}://{}{path}",
        scheme.to_lowercase(),
        authority.to_lowercase()
    );
    (canonical != pattern).then_some(canonical)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(uri: &str) -> Vec<String> {
        forms(uri).expect("forms").meant.into_iter().collect()
    }

    #[test]
    fn what_is_canonical_means_itself() {
        for uri in [
            "file:///a/b",
            "file:///a/",
            "https://h.example/a?b=c/d#e",
            "memo:a/b",
            "urn:isbn:1",
            "plain",
            "https://h.example",
            "git://h//a",
        ] {
            assert_eq!(meant(uri), [uri]);
        }
    }

    #[test]
    fn a_uri_is_read_in_all_ways_in_which_somebody_reads_it() {
        for (uri, expected) in [
            ("FILE:///a/./b", &["file:///a/b"][..]),
            ("file:///a/..", &["file:///"]),
            ("file:///../a", &["file:///a"]),
            ("memo:a/../b", &["memo:b"]),
            ("file:///a//../b", &["file:///a/b", "file:///b"]),
            ("https://H.Example/A", &["https://h.example/A"]),
            ("file:///a\\..\\b", &["file:///b"]),
        ] {
            assert_eq!(meant(uri), expected, "{uri}");
        }
    }

    #[test]
    fn a_path_ends_before_a_query_or_a_fragment() {
        for (uri, expected) in [
            ("https://h/a/..?q", "https://h/?q"),
            ("https://h/a/b/%2e%2e#f", "https://h/a/#f"),
            ("https://h/a/./b?c/../d", "https://h/a/b?c/../d"),
            ("https://h/a//../b/..?q", "https://h/?q"),
        ] {
            let meant = meant(uri);
            assert!(meant.contains(&expected.to_owned()), "{uri}: {meant:?}");
        }
        for (uri, expected) in [
            ("https://h/a#f", "https://h/a"),
            ("file:///a/b/..?q", "file:///a"),
            ("https://h:/a", "https://h/a"),
            ("https://h:00443/a", "https://h/a"),
            ("x://h:/a", "x://h/a"),
        ] {
            let forms = forms(uri).expect("forms").lenient;
            assert!(forms.contains(expected), "{uri}: {forms:?}");
        }
        let other = forms("https://h:80/a").expect("forms").lenient;
        assert!(!other.contains("https://h/a"), "{other:?}");
    }

    #[test]
    fn escapes_within_escapes_come_to_an_end() {
        let nested = |depth: usize| format!("file:///%{}41", "25".repeat(depth));
        assert!(meant(&nested(5)).contains(&"file:///A".to_owned()));
        assert_eq!(forms(&nested(DECODINGS_MAX)), None);
    }

    proptest::proptest! {
        #[test]
        fn no_text_is_too_strange(uri in "[ -~\u{e9}\t]{0,40}|[a:/.%25\\\\@]{0,30}") {
            if let Some(forms) = forms(&uri) {
                proptest::prop_assert!(forms.lenient.len() <= 64 * DECODINGS_MAX);
            }
        }
    }
}

//! Parser for `robots.txt` (RFC 9309).

use memchr::memmem;

/// Maximum size of a file, in bytes; RFC 9309, 2.5 requires at least 500 KiB. The rest is ignored.
pub(super) const ROBOTS_BYTES_MAX: usize = 512 * 1024;
/// Maximum number of rules for one crawler. Further rules are ignored, like those beyond the size limit.
const RULES_MAX: usize = 10_000;

/// The rules of a site for one crawler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Robots {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    allow: bool,
    /// Normalized pattern; `*` matches anything, and a final `$` matches the end.
    pattern: Box<[u8]>,
}

impl Robots {
    /// Parses a file for the crawler `product`. Lines that are not rules are ignored.
    pub(super) fn parse(file: &[u8], product: &str) -> Self {
        let file = &file[..file.len().min(ROBOTS_BYTES_MAX)];
        let file = file.strip_prefix(b"\xef\xbb\xbf").unwrap_or(file);
        let mut ours: Option<Vec<Rule>> = None;
        let mut everybodys = Vec::new();
        // State of the current group: one or more `User-agent` lines, followed by rules.
        let (mut to_us, mut to_everybody, mut in_rules) = (false, false, false);
        for (key, value) in file.split(|b| matches!(b, b'\n' | b'\r')).filter_map(entry) {
            if key.eq_ignore_ascii_case(b"user-agent") {
                if in_rules {
                    (to_us, to_everybody, in_rules) = (false, false, false);
                }
                // Only the leading letters, hyphens and underscores of a name count. A version can follow.
                if value.first() == Some(&b'*') {
                    to_everybody = true;
                } else if !product.is_empty()
                    && token(value).eq_ignore_ascii_case(product.as_bytes())
                {
                    to_us = true;
                    ours.get_or_insert_default();
                }
                continue;
            }
            let allow = key.eq_ignore_ascii_case(b"allow");
            if !allow && !key.eq_ignore_ascii_case(b"disallow") {
                continue;
            }
            in_rules = true;
            // A rule without a path has no effect.
            if !matches!(value.first(), Some(b'/' | b'*')) {
                continue;
            }
            let rule = || Rule {
                allow,
                pattern: normal(value).into(),
            };
            if to_us && let Some(ours) = &mut ours {
                if ours.len() < RULES_MAX {
                    ours.push(rule());
                }
            } else if to_everybody && everybodys.len() < RULES_MAX {
                everybodys.push(rule());
            }
        }
        Self {
            rules: ours.unwrap_or(everybodys),
        }
    }

    /// Estimates its memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let patterns: usize = self.rules.iter().map(|rule| rule.pattern.len()).sum();
        patterns + self.rules.len() * size_of::<Rule>()
    }

    /// Returns true if a path with its query is allowed. The longest matching pattern decides; of two equally long
    /// ones, the one that allows (2.2.2).
    pub(super) fn allow(&self, path: &str) -> bool {
        if path == "/robots.txt" {
            return true;
        }
        let path = normal(path.as_bytes());
        let fitting = self.rules.iter().filter(|rule| fits(&rule.pattern, &path));
        fitting
            .max_by_key(|rule| (rule.pattern.len(), rule.allow))
            .is_none_or(|rule| rule.allow)
    }
}

/// Returns the key and the value of a line, without its comment.
fn entry(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.split(|b| *b == b'#').next()?;
    let colon = line.iter().position(|b| *b == b':')?;
    Some((line[..colon].trim_ascii(), line[colon + 1..].trim_ascii()))
}

fn token(name: &[u8]) -> &[u8] {
    let is_part = |b: &u8| b.is_ascii_alphabetic() || matches!(b, b'-' | b'_');
    let end = name.iter().position(|b| !is_part(b)).unwrap_or(name.len());
    &name[..end]
}

/// Returns the product name of a `User-Agent`, which `robots.txt` is matched against.
pub(super) fn product(user_agent: &str) -> &str {
    let length = token(user_agent.as_bytes()).len();
    &user_agent[..length]
}

/// Normalizes a path for comparison: unnecessary escapes are decoded, and necessary ones are in upper case.
fn normal(path: &[u8]) -> Vec<u8> {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut plain = Vec::with_capacity(path.len());
    let escape = |plain: &mut Vec<u8>, byte: u8| {
        plain.extend([
            b'%',
            HEX[usize::from(byte >> 4)],
            HEX[usize::from(byte & 15)],
        ]);
    };
    let mut rest = path;
    while let [first, behind @ ..] = rest {
        rest = behind;
        let escaped = match (first, behind) {
            (b'%', [high, low, ..]) => digit(*high).zip(digit(*low)),
            _ => None,
        };
        if let Some((high, low)) = escaped {
            rest = &behind[2..];
            let byte = high << 4 | low;
            if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
                plain.push(byte);
            } else {
                escape(&mut plain, byte);
            }
        } else if first.is_ascii() && *first != b'%' {
            plain.push(*first);
        } else {
            escape(&mut plain, *first);
        }
    }
    plain
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

/// Returns true if a pattern matches the beginning of a path. Each part between two `*` matches at its first
/// occurrence, which needs no backtracking, so the time is linear.
fn fits(pattern: &[u8], path: &[u8]) -> bool {
    let (pattern, to_end) = match pattern.strip_suffix(b"$") {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let mut parts = pattern.split(|b| *b == b'*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = path.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return !to_end || rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if to_end && parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match memmem::find(rest, part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn allows(file: &str, path: &str) -> bool {
        Robots::parse(file.as_bytes(), "Ship").allow(path)
    }

    #[test]
    fn the_group_that_names_us_counts_and_no_other() {
        let file = "User-agent: *\nDisallow: /all\n\nUser-agent: other\nDisallow: /\n\n\
                    user-AGENT: ship/2.0\r\nuser-agent: third\r\nDisallow: /ours # why not\r\n\
                    User-agent: Ship\rDisallow: /more";
        assert!(allows(file, "/all"));
        assert!(allows(file, "/"));
        assert!(!allows(file, "/ours"));
        assert!(!allows(file, "/more/of/it"));
        let third = Robots::parse(file.as_bytes(), "third");
        assert!(!third.allow("/ours") && third.allow("/more"));
        let unknown = Robots::parse(file.as_bytes(), "unknown");
        assert!(!unknown.allow("/all") && unknown.allow("/ours"));
    }

    #[test]
    fn the_longest_pattern_decides_and_leave_before_refusal() {
        let file = "user-agent: ship\nallow: /example/page/\ndisallow: /example/page/disallowed.gif\n\
                    disallow: /same\nallow: /same\nallow: /p\ndisallow: /\n";
        assert!(allows(file, "/example/page/"));
        assert!(!allows(file, "/example/page/disallowed.gif"));
        assert!(!allows(file, "/example/other"));
        assert!(allows(file, "/same"));
        assert!(allows(file, "/page"));
        assert!(!allows(file, "/folder/page"));
        assert!(allows(file, "/robots.txt"), "it is always open");
    }

    #[test]
    fn patterns_fit_as_the_rfc_and_its_readers_have_it() {
        for (pattern, fitting, not_fitting) in [
            (
                "/fish",
                &["/fish", "/fish.html", "/fish/salmon", "/fishheads?x"][..],
                &["/Fish", "/catfish", "/?id=fish"][..],
            ),
            ("/fish*", &["/fish", "/fishheads"], &["/catfish"]),
            ("/fish/", &["/fish/", "/fish/a"], &["/fish", "/fish.html"]),
            (
                "/*.php",
                &["/index.php", "/folder/a.php?p", "/a.php/b"],
                &["/", "/windows.PHP"],
            ),
            (
                "/*.php$",
                &["/a.php", "/b/a.php"],
                &["/a.php?p", "/a.php5", "/a.php/"],
            ),
            (
                "/fish*.php",
                &["/fish.php", "/fishheads/cat.php?p"],
                &["/Fish.PHP"],
            ),
            ("/$", &["/"], &["/a"]),
            ("*/end$", &["/end", "/a/end"], &["/end/"]),
            ("/a*a$", &["/aa", "/aba"], &["/a"]),
            (
                "/foo/bar?baz=http://foo.bar",
                &["/foo/bar?baz=http://foo.bar"],
                &["/foo/bar"],
            ),
            (
                "/foo/bar/ツ",
                &["/foo/bar/%E3%83%84", "/foo/bar/%e3%83%84"],
                &["/foo/bar/"],
            ),
            ("/foo/%62%61%7A", &["/foo/baz"], &["/foo/%62%61"]),
            ("/a%2fb", &["/a%2Fb"], &["/a/b"]),
            ("/a%", &["/a%", "/a%zz"], &["/a"]),
        ] {
            let file = format!("user-agent: *\ndisallow: {pattern}");
            for path in fitting {
                assert!(!allows(&file, path), "{pattern} does not fit {path}");
            }
            for path in not_fitting {
                assert!(allows(&file, path), "{pattern} fits {path}");
            }
        }
    }

    #[test]
    fn what_is_no_rule_says_nothing() {
        for file in [
            "",
            "Disallow: /",
            "user-agent: *\ndisallow:",
            "user-agent: *\ndisallow: # /",
            "user-agent: *\ndisallow /",
            "user-agent: *\ndisallow: private",
            "user-agent: *\ndisallow: /\nuser-agent: ship\n",
            "user-agent:\ndisallow: /",
            "<html><body>404: not found</body></html>",
            "\u{0}\u{0}: \u{0}",
        ] {
            assert!(allows(file, "/a"), "{file:?}");
        }
        let between = "user-agent: ship\ncrawl-delay: 3\nsitemap: https://a.example/s.xml\nnonsense\ndisallow: /";
        assert!(!allows(between, "/a"));
        assert!(!allows("\u{feff}user-agent: *\ndisallow: /", "/a"));
    }

    #[test]
    fn what_stands_behind_the_limits_is_not_read() {
        let long = format!(
            "user-agent: *\n{}disallow: /",
            "#\n".repeat(ROBOTS_BYTES_MAX / 2)
        );
        assert!(allows(&long, "/a"));
        let many = format!(
            "user-agent: *\n{}disallow: /",
            "allow: /b\n".repeat(RULES_MAX)
        );
        assert!(allows(&many, "/a"));
    }

    #[test]
    fn a_product_is_what_a_user_agent_begins_with() {
        assert_eq!(product("My-Bot/1.0 (Autonomous)"), "My-Bot");
        assert_eq!(product("3com"), "");
    }

    /// Tries all there is.
    fn fits_naively(pattern: &[u8], path: &[u8]) -> bool {
        match pattern {
            [] => true,
            b"$" => path.is_empty(),
            [b'*', rest @ ..] => (0..=path.len()).any(|n| fits_naively(rest, &path[n..])),
            [first, rest @ ..] => path.first() == Some(first) && fits_naively(rest, &path[1..]),
        }
    }

    proptest! {
        #[test]
        fn fitting_is_what_trying_everything_comes_to(pattern in "/[ab*]{0,6}\\$?", path in "/[ab]{0,9}") {
            prop_assert_eq!(
                fits(pattern.as_bytes(), path.as_bytes()),
                fits_naively(pattern.as_bytes(), path.as_bytes()),
                "{} {}", pattern, path
            );
        }

        #[test]
        fn any_file_can_be_read(file in prop::collection::vec(any::<u8>(), 0..500), path in "/.{0,30}") {
            Robots::parse(&file, "Ship").allow(&path);
        }

        #[test]
        fn the_normal_form_is_one(path in prop::collection::vec(any::<u8>(), 0..60)) {
            let once = normal(&path);
            prop_assert_eq!(normal(&once), once);
        }
    }
}

//! Stable codes of findings. docs/codes.md explains each of them.

/// Codes by area and name of the check. `*` matches every name.
const CODES: &[(&str, &str, &str)] = &[
    ("configuration", "settings", "LS-CONFIG-20"),
    ("configuration", "server", "LS-CONFIG-21"),
    ("configuration", "sources", "LS-CONFIG-22"),
    ("machine", "socket", "LS-LISTEN-21"),
    ("machine", "http.unix_socket", "LS-LISTEN-21"),
    ("machine", "open files", "LS-MACHINE-01"),
    ("machine", "CPU", "LS-MACHINE-02"),
    ("machine", "memory", "LS-MACHINE-03"),
    ("machine", "memory limit", "LS-MACHINE-04"),
    ("machine", "callers", "LS-AUTH-20"),
    ("machine", "seal keys", "LS-SEAL-20"),
    ("machine", "certificate", "LS-TLS-20"),
    ("machine", "expiry", "LS-TLS-28"),
    ("machine", "clock", "LS-MACHINE-05"),
    ("machine", "tokens.folder", "LS-TOKENS-20"),
    ("machine", "upstreams_folder", "LS-SOURCE-21"),
    ("machine", "port", "LS-LISTEN-20"),
    ("machine", "admin port", "LS-LISTEN-20"),
    ("programs", "*", "LS-SOURCE-20"),
    ("documentation", "parameters", "LS-DOCS-02"),
    ("documentation", "listing", "LS-DOCS-03"),
    ("documentation", "model APIs", "LS-DOCS-04"),
    ("documentation", "*", "LS-DOCS-01"),
    ("issuer", "clock", "LS-AUTH-22"),
    ("issuer", "*", "LS-AUTH-21"),
    ("introspection", "*", "LS-AUTH-23"),
    ("collector", "settings", "LS-EXPORT-01"),
    ("collector", "*", "LS-EXPORT-02"),
    ("state", "store", "LS-STATE-20"),
    ("state", "server", "LS-STATE-21"),
    ("network", "name", "LS-NET-01"),
    ("network", "connection", "LS-NET-02"),
    ("network", "clock", "LS-NET-03"),
    ("tls", "encryption", "LS-TLS-21"),
    ("tls", "handshake", "LS-TLS-22"),
    ("tls", "versions", "LS-TLS-23"),
    ("tls", "old versions", "LS-TLS-24"),
    ("tls", "chain", "LS-TLS-25"),
    ("tls", "expiry", "LS-TLS-26"),
    ("access", "http", "LS-TLS-27"),
    ("access", "endpoint", "LS-NET-04"),
    ("health", "pages", "LS-NET-05"),
    ("authorization", "authentication", "LS-AUTH-30"),
    ("authorization", "challenge", "LS-AUTH-31"),
    ("authorization", "metadata", "LS-AUTH-32"),
    ("authorization", "issuers", "LS-AUTH-33"),
    ("authorization", "resource", "LS-AUTH-34"),
    ("authorization", "issuer", "LS-AUTH-35"),
    ("login", "registration", "LS-AUTH-36"),
    ("login", "login page", "LS-AUTH-37"),
    ("protocol", "sessions", "LS-PROTO-01"),
    ("protocol", "stateless", "LS-PROTO-02"),
    ("protocol", "negotiation", "LS-PROTO-03"),
    ("protocol", "Accept", "LS-PROTO-04"),
    ("protocol", "trailing slash", "LS-PROTO-05"),
    ("protocol", "content type", "LS-PROTO-06"),
    ("protocol", "large messages", "LS-PROTO-07"),
    ("guards", "Host", "LS-GUARD-01"),
    ("guards", "Origin", "LS-GUARD-02"),
    ("guards", "preflight", "LS-GUARD-03"),
    ("sessions", "notification", "LS-SESSION-01"),
    ("sessions", "replicas", "LS-SESSION-02"),
    ("sessions", "unknown session", "LS-SESSION-03"),
    ("sessions", "end", "LS-SESSION-04"),
    ("streams", "subscriptions/listen", "LS-STREAM-01"),
    ("streams", "compression", "LS-STREAM-02"),
    ("streams", "GET", "LS-STREAM-03"),
    ("streams", "headers", "LS-STREAM-04"),
    ("streams", "cut-off", "LS-STREAM-05"),
];

/// Returns the code of a check.
pub(super) fn code(area: &str, check: &str) -> Option<&'static str> {
    let mut found = CODES
        .iter()
        .filter(|(of, name, _)| *of == area && (*name == check || *name == "*"));
    found.next().map(|(.., code)| *code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_is_documented() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/codes.md");
        let documented = std::fs::read_to_string(path).expect("docs/codes.md");
        for (area, check, code) in CODES {
            let row = documented
                .lines()
                .find(|line| line.starts_with(&format!("| `{code}` |")));
            let row = row.unwrap_or_else(|| panic!("{code} is not in docs/codes.md"));
            let name = if *check == "*" { "" } else { check };
            assert!(
                row.contains(&format!("{area}: {name}")),
                "{code}: {area}: {check} is not in {row}"
            );
        }
    }

    #[test]
    fn each_code_of_the_start_is_documented() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let read = |path: &str| std::fs::read_to_string(format!("{folder}/{path}")).expect(path);
        let (source, documented) = (read("crates/app/src/app/error.rs"), read("docs/codes.md"));
        let codes: Vec<_> = source
            .split('"')
            .filter(|text| text.starts_with("LS-") && !text.contains(' '))
            .collect();
        assert!(codes.len() > 30);
        for code in codes {
            assert!(documented.contains(&format!("| `{code}` |")), "{code}");
        }
    }

    #[test]
    fn names_of_a_machine_have_the_code_of_their_area() {
        assert_eq!(code("issuer", "https://id.example.com"), Some("LS-AUTH-21"));
        assert_eq!(code("issuer", "clock"), Some("LS-AUTH-22"));
        assert_eq!(code("other", "clock"), None);
    }
}

//! Parameters of `WWW-Authenticate` (RFC 9110, 11.6.1), as far as a client of MCP servers reads them.

/// The value of a parameter of a challenge: `name="value"` or `name=value`.
pub fn challenge_parameter(challenge: &str, name: &str) -> Option<String> {
    let mut rest = challenge;
    while let Some(at) = rest.find('=') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        let key = before.rsplit([' ', ',', '\t']).next().unwrap_or_default();
        let (value, behind) = match after.strip_prefix('"') {
            Some(quoted) => {
                let end = quoted.find('"')?;
                (&quoted[..end], &quoted[end + 1..])
            }
            None => after.split_at(after.find([',', ' ']).unwrap_or(after.len())),
        };
        if key.eq_ignore_ascii_case(name) {
            return Some(value.to_owned());
        }
        rest = behind;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::challenge_parameter;

    #[test]
    fn parameters_are_found_quoted_or_not() {
        let challenge = r#"Bearer error="insufficient_scope, scope=no", scope="r w", realm=x"#;
        let read = |name| challenge_parameter(challenge, name);
        assert_eq!(
            read("error").as_deref(),
            Some("insufficient_scope, scope=no")
        );
        assert_eq!(read("Scope").as_deref(), Some("r w"));
        assert_eq!(read("realm").as_deref(), Some("x"));
        assert_eq!(read("resource_metadata"), None);
        assert_eq!(challenge_parameter("Bearer scope=\"open", "scope"), None);
    }
}

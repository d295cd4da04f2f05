//! Parser for challenges in `WWW-Authenticate`.

use http::HeaderMap;
use http::header::WWW_AUTHENTICATE;

use crate::net::challenge_parameter;

/// The scopes that a challenge asks for, if its error is `insufficient_scope` (RFC 6750, 3.1). Empty if it names none.
pub(super) fn insufficient_scope(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(WWW_AUTHENTICATE).iter();
    let mut values = values.filter_map(|value| value.to_str().ok());
    values.find_map(|value| {
        let error = challenge_parameter(value, "error")?;
        (error == "insufficient_scope")
            .then(|| challenge_parameter(value, "scope").unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scope_of_a_challenge_counts_where_scope_is_what_is_missing() {
        let scope = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(WWW_AUTHENTICATE, http::HeaderValue::from_static(text));
            insufficient_scope(&headers)
        };
        let reported =
            r#"Bearer error="insufficient_scope", scope="files:read files:write", realm="x""#;
        assert_eq!(scope(reported).as_deref(), Some("files:read files:write"));
        assert_eq!(
            scope("Bearer error=insufficient_scope").as_deref(),
            Some("")
        );
        assert_eq!(scope(r#"Bearer error="invalid_token", scope="a""#), None);
        assert_eq!(scope("Basic"), None);
    }
}

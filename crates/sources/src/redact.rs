//! Redacts credentials in responses (ELI-08). Some servers echo what they received, and callers must not learn it.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use memchr::memmem::Finder;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;
use url::form_urlencoded::byte_serialize;

use crate::net::FetchedResponse;
use crate::telemetry::is_named_like_a_secret;

/// Minimum length of a secret to redact, in bytes. Shorter ones would match unrelated text.
const SECRET_MIN_BYTES: usize = 8;
/// Replacement for a secret.
const CONCEALED: &[u8] = b"***";

/// Redacts secrets in a response, including their URL, form and JSON encodings. Values below the minimum length are
/// left unchanged.
pub(super) fn conceal<'s>(
    secrets: impl IntoIterator<Item = Cow<'s, str>>,
    answer: &mut FetchedResponse,
) {
    for form in all_forms(secrets) {
        let secret = Finder::new(&form);
        if secret.find(&answer.body).is_some() {
            answer.body = without(&answer.body, &secret).into();
        }
        take_out(&secret, &mut answer.headers);
    }
}

/// Redacts secrets in the headers of a response, as [`conceal`] does.
pub(super) fn conceal_in_headers<'s>(
    secrets: impl IntoIterator<Item = Cow<'s, str>>,
    headers: &mut HeaderMap,
) {
    for form in all_forms(secrets) {
        take_out(&Finder::new(&form), headers);
    }
}

/// Returns a URL without its query, which can contain secrets.
pub(super) fn without_query(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

/// Returns the secrets in a header value: the part after the authentication scheme and, for Basic, also the password.
pub(super) fn secrets_in(value: Option<&HeaderValue>) -> Vec<Cow<'_, str>> {
    let bare = bare(value);
    let decoded = STANDARD.decode(bare).ok();
    let pair = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    let password = pair.and_then(|pair| Some(pair.split_once(':')?.1.to_owned()));
    std::iter::once(Cow::Borrowed(bare))
        .chain(password.map(Cow::Owned))
        .collect()
}

/// Returns the secrets of a request that are known by their names: sensitive headers, and values in the query of its URL.
/// Other configured values, such as the name of a tenant, can be in any text.
pub(super) fn secrets_of(headers: &HeaderMap, url: &Url) -> Vec<String> {
    // Many APIs take their API key in a parameter of this name.
    let is_secret = |name: &str| is_named_like_a_secret(name) || name.eq_ignore_ascii_case("key");
    let query = url.query_pairs().filter(|(name, _)| is_secret(name));
    let query = query.map(|(_, value)| value.into_owned());
    let headers = secrets_of_headers(headers).map(Cow::into_owned);
    headers.chain(query).collect()
}

/// Returns the secrets in sensitive headers that are named like ones with a secret.
pub(super) fn secrets_of_headers(headers: &HeaderMap) -> impl Iterator<Item = Cow<'_, str>> {
    let headers = headers
        .iter()
        .filter(|(name, value)| value.is_sensitive() && is_named_like_a_secret(name.as_str()));
    headers.flat_map(|(_, value)| secrets_in(Some(value)))
}

/// Returns the secrets that credentials have added to a prepared request: sensitive headers, and values in the query of
/// its URL.
pub(super) fn added_secrets(
    (prepared, prepared_url): (&HeaderMap, &Url),
    (headers, url): (&HeaderMap, &Url),
) -> Vec<String> {
    let is_new = |name: &HeaderName, value: &HeaderValue| {
        prepared.get_all(name).iter().all(|known| known != value)
    };
    let headers = headers
        .iter()
        .filter(|(name, value)| value.is_sensitive() && is_new(name, value));
    let headers = headers.flat_map(|(_, value)| secrets_in(Some(value)));
    let query = url
        .query_pairs()
        .filter(|pair| prepared_url.query_pairs().all(|known| known != *pair));
    let query = query.map(|(_, value)| value.into_owned());
    headers.map(Cow::into_owned).chain(query).collect()
}

/// Returns the credentials of a header value without the authentication scheme.
pub(super) fn bare(value: Option<&HeaderValue>) -> &str {
    let text = value.and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
    let text = text.unwrap_or_default();
    let bare = ["Bearer ", "Basic ", "DPoP "]
        .iter()
        .find_map(|kind| text.strip_prefix(kind));
    bare.unwrap_or(text)
}

/// Returns the encodings of the secrets, without those below the minimum length.
fn all_forms<'s>(secrets: impl IntoIterator<Item = Cow<'s, str>>) -> impl Iterator<Item = String> {
    let secrets = secrets.into_iter();
    let secrets = secrets.filter(|secret| SECRET_MIN_BYTES <= secret.len());
    secrets.flat_map(|secret| forms(&secret))
}

/// Returns the encodings in which a secret can appear, longest first.
fn forms(secret: &str) -> Vec<String> {
    let json = serde_json::to_string(secret).unwrap_or_default();
    let json = json
        .get(1..json.len().saturating_sub(1))
        .unwrap_or_default();
    let mut forms = vec![
        utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string(),
        byte_serialize(secret.as_bytes()).collect(),
        // Some encoders escape the slash so that JSON can be embedded in HTML.
        json.replace('/', "\\/"),
        json.to_owned(),
        secret.to_owned(),
    ];
    let in_lower_case: Vec<String> = forms[..2]
        .iter()
        .map(|form| with_lower_case_digits(form))
        .collect();
    forms.extend(in_lower_case);
    forms.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    forms.dedup();
    forms
}

/// Converts the digits of percent escapes to lower case, which is equivalent (RFC 3986, 2.1).
fn with_lower_case_digits(form: &str) -> String {
    let mut parts = form.split('%');
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        all.push('%');
        all.push_str(&digits.to_ascii_lowercase());
        all.push_str(rest);
    }
    all
}

fn take_out(secret: &Finder<'_>, headers: &mut HeaderMap) {
    for value in headers.values_mut() {
        if secret.find(value.as_bytes()).is_some()
            && let Ok(clean) = HeaderValue::from_bytes(&without(value.as_bytes(), secret))
        {
            *value = clean;
        }
    }
}

fn without(text: &[u8], secret: &Finder<'_>) -> Vec<u8> {
    let mut clean = Vec::with_capacity(text.len());
    let mut rest = 0;
    for at in secret.find_iter(text) {
        clean.extend_from_slice(&text[rest..at]);
        clean.extend_from_slice(CONCEALED);
        rest = at + secret.needle().len();
    }
    clean.extend_from_slice(&text[rest..]);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_found_however_they_are_written() {
        let forms = forms("a/b+c=\"d&1");
        for form in [
            "a/b+c=\"d&1",
            "a%2Fb%2Bc%3D%22d%261",
            "a%2fb%2bc%3d%22d%261",
            "a/b+c=\\\"d&1",
            "a\\/b+c=\\\"d&1",
        ] {
            assert!(forms.iter().any(|f| f == form), "{form} of {forms:?}");
        }
        assert_eq!(super::forms("abcdefgh"), ["abcdefgh"]);
        let quoted = super::forms("\"abcdef\"");
        assert!(quoted.contains(&r#"\"abcdef\""#.to_owned()), "{quoted:?}");
    }

    fn sensitive(text: &'static str) -> HeaderValue {
        let mut value = HeaderValue::from_static(text);
        value.set_sensitive(true);
        value
    }

    fn url(text: &str) -> Url {
        text.parse().expect("a URL")
    }

    #[test]
    fn secrets_of_a_request_are_known_by_their_names() {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", sensitive("Bearer canary-of-the-api"));
        headers.insert("x-api-key", sensitive("canary-as-a-key"));
        headers.insert("x-tenant", sensitive("production"));
        headers.insert("mcp-protocol-version", sensitive("2026-07-28"));
        headers.insert("accept", HeaderValue::from_static("application/json"));
        let url = url(
            "https://a.example/mcp?key=canary%20in%20the%20query&version=2025-06-18&access_token=canary-token",
        );
        let mut secrets = secrets_of(&headers, &url);
        secrets.sort();
        assert_eq!(
            secrets,
            [
                "canary in the query",
                "canary-as-a-key",
                "canary-of-the-api",
                "canary-token",
            ]
        );
    }

    #[test]
    fn secrets_that_credentials_have_added_have_any_name() {
        let prepared_url = url("https://a.example/mcp?version=2025-06-18");
        let mut prepared = HeaderMap::new();
        prepared.insert("x-tenant", sensitive("production"));
        prepared.insert("x-login", sensitive("canary-of-a-former-login"));
        let mut headers = prepared.clone();
        headers.insert("x-login", sensitive("canary-of-the-login"));
        headers.insert("x-user", HeaderValue::from_static("ada@example.com"));
        let url = url("https://a.example/mcp?version=2025-06-18&k=canary-in-the-query");
        let added = added_secrets((&prepared, &prepared_url), (&headers, &url));
        assert_eq!(added, ["canary-of-the-login", "canary-in-the-query"]);
    }

    #[test]
    fn secrets_are_redacted_in_headers_alone_too() {
        let mut headers = HeaderMap::new();
        let challenge = r#"Bearer error="invalid_token", error_description="canary/token""#;
        headers.insert("www-authenticate", HeaderValue::from_static(challenge));
        headers.insert("retry-after", HeaderValue::from_static("5"));
        let secrets = ["canary/token", "5"].map(Cow::from);
        conceal_in_headers(secrets, &mut headers);
        assert_eq!(
            headers["www-authenticate"],
            r#"Bearer error="invalid_token", error_description="***""#
        );
        assert_eq!(headers["retry-after"], "5", "too short");
    }

    #[test]
    fn of_a_name_and_a_password_the_password_is_one_too() {
        let value = HeaderValue::from_static("Basic dTpjYW5hcnktb2YtdGhlLWFwaQ==");
        let expected = ["dTpjYW5hcnktb2YtdGhlLWFwaQ==", "canary-of-the-api"];
        assert_eq!(secrets_in(Some(&value)), expected);
        let value = HeaderValue::from_static("Bearer token");
        assert_eq!(secrets_in(Some(&value)), ["token"]);
    }
}

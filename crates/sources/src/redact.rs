//! Redacts credentials in responses (ELI-08). Some servers echo what they received, and callers must not learn it.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue};
use memchr::memmem::Finder;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;
use url::form_urlencoded::byte_serialize;

use crate::net::FetchedResponse;

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
    for secret in secrets {
        if secret.len() < SECRET_MIN_BYTES {
            continue;
        }
        for form in forms(&secret) {
            take_out(&Finder::new(&form), answer);
        }
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

/// Returns the secrets of a request: its sensitive headers, and the values in the query of its URL.
pub(super) fn secrets_of(headers: &HeaderMap, url: &Url) -> Vec<String> {
    let headers = headers.values().filter(|value| value.is_sensitive());
    let headers = headers.flat_map(|value| secrets_in(Some(value)));
    let query = url.query_pairs().map(|(_, value)| value.into_owned());
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

/// Returns the encodings in which a secret can appear, longest first.
fn forms(secret: &str) -> Vec<String> {
    let json = serde_json::to_string(secret).unwrap_or_default();
    let json = json.trim_matches('"');
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

fn take_out(secret: &Finder<'_>, answer: &mut FetchedResponse) {
    if secret.find(&answer.body).is_some() {
        answer.body = without(&answer.body, secret).into();
    }
    for value in answer.headers.values_mut() {
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
    }

    #[test]
    fn secrets_of_a_request_are_its_sensitive_headers_and_its_query() {
        let mut headers = HeaderMap::new();
        let mut token = HeaderValue::from_static("Bearer canary-of-the-api");
        token.set_sensitive(true);
        headers.insert("authorization", token);
        headers.insert("accept", HeaderValue::from_static("application/json"));
        let url = "https://a.example/mcp?key=canary%20in%20the%20query";
        let secrets = secrets_of(&headers, &url.parse().expect("a URL"));
        assert_eq!(secrets, ["canary-of-the-api", "canary in the query"]);
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

//! AWS Signature Version 4 in the `Authorization` header, as S3 and compatible stores expect it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::SystemTime;

use aws_lc_rs::hmac;
use data_encoding::HEXLOWER;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::environment::Secret;
use crate::net::OutgoingRequest;
use crate::seal::sha256_hex;
use crate::source::credentials::sensitive;

/// Credentials that sign a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) id: String,
    pub(super) secret: Secret,
    /// Session token of temporary credentials.
    pub(super) session: Option<Secret>,
}

/// Reason why a request cannot be signed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SignError {
    #[error("the clock of this machine shows no time that can be signed")]
    Clock,
    #[error("the keys have characters that no header can hold")]
    NotText,
}

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SHA256_HEADER: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const DATE_HEADER: HeaderName = HeaderName::from_static("x-amz-date");
const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-amz-security-token");
/// Characters that are not encoded: the unreserved ones of RFC 3986.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Signs a request with all headers that it has so far.
pub(super) fn sign(
    request: &mut OutgoingRequest,
    keys: &Keys,
    region: &str,
    now: SystemTime,
) -> Result<(), SignError> {
    let now = jiff::Timestamp::try_from(now).map_err(|_| SignError::Clock)?;
    let now = now.to_zoned(jiff::tz::TimeZone::UTC);
    let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
    let date = now.strftime("%Y%m%d").to_string();
    let body = sha256_hex(&request.body);
    let text = |text: &str| HeaderValue::from_str(text).map_err(|_| SignError::NotText);
    let secret = |text: &str| sensitive(text).map_err(|_| SignError::NotText);
    request.headers.insert(SHA256_HEADER, text(&body)?);
    request.headers.insert(DATE_HEADER, text(&time)?);
    if let Some(session) = &keys.session {
        request
            .headers
            .insert(TOKEN_HEADER, secret(session.expose())?);
    }
    let (names, canonical) = canonical(request, &body);
    let scope = format!("{date}/{region}/s3/aws4_request");
    let hash = sha256_hex(canonical);
    let string_to_sign = format!("{ALGORITHM}\n{time}\n{scope}\n{hash}");
    let mut key = format!("AWS4{}", keys.secret.expose()).into_bytes();
    for part in [&*date, region, "s3", "aws4_request"] {
        key = mac(&key, part);
    }
    let signature = HEXLOWER.encode(&mac(&key, &string_to_sign));
    let value = secret(&format!(
        "{ALGORITHM} Credential={}/{scope},SignedHeaders={names},Signature={signature}",
        keys.id
    ))?;
    request.headers.insert(AUTHORIZATION, value);
    Ok(())
}

/// Returns the names of the signed headers, and the canonical request.
fn canonical(request: &OutgoingRequest, body: &str) -> (String, String) {
    let mut headers = BTreeMap::new();
    for (name, value) in &request.headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
        headers.insert(name.as_str(), value);
    }
    headers.insert("host", host(request));
    let names = headers.keys().copied().collect::<Vec<_>>().join(";");
    let encode = |text: &str| utf8_percent_encode(text, ENCODED).to_string();
    let path = request.url.path().split('/').map(|segment| {
        let plain = percent_decode_str(segment).decode_utf8_lossy();
        encode(&plain)
    });
    let path = path.collect::<Vec<_>>().join("/");
    let mut query: Vec<(String, String)> = request
        .url
        .query_pairs()
        .map(|(name, value)| (encode(&name), encode(&value)))
        .collect();
    query.sort();
    let query = query.iter().map(|(name, value)| format!("{name}={value}"));
    let query = query.collect::<Vec<_>>().join("&");
    let mut canonical = format!("{}\n{path}\n{query}\n", request.method);
    for (name, value) in &headers {
        // Writing to a `String` cannot fail.
        let _ = writeln!(canonical, "{name}:{value}");
    }
    let _ = write!(canonical, "\n{names}\n{body}");
    (names, canonical)
}

/// Returns the host as the client sends it: without the default port of the scheme.
fn host(request: &OutgoingRequest) -> String {
    let host = request.url.host_str().unwrap_or_default();
    match request.url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Method;

    use super::*;

    /// The examples of "Authenticating Requests: Using the Authorization Header" in the reference of Amazon S3.
    #[test]
    fn requests_are_signed_as_amazons_examples_are() {
        let keys = Keys {
            id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned().into(),
            session: None,
        };
        // 2013-05-24T00:00:00Z
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_369_353_600);
        let url = |rest: &str| {
            let url = format!("https://examplebucket.s3.amazonaws.com{rest}");
            url.parse().expect("a URL")
        };
        let header = |name: &'static str| HeaderName::from_static(name);
        let value = HeaderValue::from_static;
        let mut put = OutgoingRequest::new(Method::PUT, url("/test$file.text"))
            .header(header("date"), value("Fri, 24 May 2013 00:00:00 GMT"))
            .header(header("x-amz-storage-class"), value("REDUCED_REDUNDANCY"));
        put.body = "Welcome to Amazon S3.".into();
        for (request, signature) in [
            (
                OutgoingRequest::get(url("/test.txt")).header(header("range"), value("bytes=0-9")),
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
            (
                put,
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            ),
            (
                OutgoingRequest::get(url("/?lifecycle")),
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
            (
                OutgoingRequest::get(url("/?max-keys=2&prefix=J")),
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ] {
            let mut request = request;
            sign(&mut request, &keys, "us-east-1", now).expect("signed");
            let authorization = request.headers[AUTHORIZATION].to_str().expect("text");
            assert!(authorization.ends_with(signature), "{authorization}");
            assert!(
                authorization.contains("Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/"),
                "{authorization}"
            );
            assert!(!format!("{request:?}{keys:?}").contains("wJalr"));
        }
    }

    #[test]
    fn keys_that_are_good_for_a_while_are_sent_and_signed_with_their_token() {
        let keys = Keys {
            id: "id".to_owned(),
            secret: "secret".to_owned().into(),
            session: Some("token".to_owned().into()),
        };
        let url = "http://127.0.0.1:9000/bucket/a%20b".parse().expect("a URL");
        let mut request = OutgoingRequest::get(url);
        sign(&mut request, &keys, "eu-west-1", SystemTime::now()).expect("signed");
        let (names, canonical) = canonical(&request, "x");
        assert!(names.contains("x-amz-security-token"), "{names}");
        assert!(canonical.contains("\nhost:127.0.0.1:9000\n"), "{canonical}");
        assert!(canonical.contains("\n/bucket/a%20b\n"), "{canonical}");
    }
}

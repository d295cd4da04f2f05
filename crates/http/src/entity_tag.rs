//! Entity tags of documents (RFC 9110, sections 8.8.3 and 13.1.2), so that clients fetch only what has changed.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::net::Body;

/// Returns the entity tag of a document. It is weak, since a document may be sent compressed.
fn tag_of(document: &[u8]) -> String {
    let digest = digest(&SHA256, document);
    format!("W/\"{}\"", URL_SAFE_NO_PAD.encode(&digest.as_ref()[..16]))
}

/// Returns true if `If-None-Match` names a tag, or any.
fn is_known(request: &HeaderMap, tag: &str) -> bool {
    let opaque = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let mut values = request
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    values.any(|known| known.trim() == "*" || opaque(known) == opaque(tag))
}

/// Adds the entity tag of a document to the response with it. If the client has the document already, the response is 304
/// without a body.
pub fn with_entity_tag(
    request: &HeaderMap,
    document: &Bytes,
    mut response: Response<Body>,
) -> Response<Body> {
    let tag = tag_of(document);
    if is_known(request, &tag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = Body::empty();
    }
    if let Ok(tag) = HeaderValue::try_from(tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_has_the_document_gets_it_not_again() {
        let document = Bytes::from_static(b"{}");
        let respond = |known: Option<&str>| {
            let mut request = HeaderMap::new();
            if let Some(known) = known {
                request.insert(IF_NONE_MATCH, known.parse().expect("a value"));
            }
            let response = Response::new(Body::from(document.clone()));
            with_entity_tag(&request, &document, response)
        };
        let first = respond(None);
        assert_eq!(first.status(), StatusCode::OK);
        let tag = first.headers()[ETAG].to_str().expect("ASCII").to_owned();
        assert!(tag.starts_with("W/\""), "{tag}");
        let strong = tag.trim_start_matches("W/").to_owned();
        for known in [&*tag, &strong, &format!("\"a\", {tag}"), "*"] {
            assert_eq!(
                respond(Some(known)).status(),
                StatusCode::NOT_MODIFIED,
                "{known}"
            );
        }
        for other in ["\"a\"", "W/\"\"", "a"] {
            assert_eq!(respond(Some(other)).status(), StatusCode::OK, "{other}");
        }
    }
}

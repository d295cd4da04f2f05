//! Response compression, for clients that accept it.

use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue, Response};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tokio::runtime::Handle;

use super::rejection::HttpError;
use super::router::Router;
use crate::limit::Limits;
use crate::net::{Body, NoThread, Peer, try_spawn_blocking};

/// Minimum size in bytes; a smaller body fits into one packet.
const LEAST_BYTES: u64 = 1024;
/// Maximum size that a worker compresses, in bytes; a larger body would block it for over a millisecond or two.
const ON_WORKER_BYTES: usize = 256 * 1024;

/// Returns true if a client accepts gzip (RFC 9110, 12.5.3).
pub(super) fn takes_gzip(headers: &HeaderMap) -> bool {
    let mut any = None;
    let mut named = None;
    for value in headers.get_all(ACCEPT_ENCODING) {
        for coding in value.to_str().unwrap_or_default().split(',') {
            let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
            let weight = weight.trim().trim_start_matches(['q', 'Q']).trim_start();
            let weight = weight.strip_prefix('=').map_or("1", str::trim);
            let is_taken = weight.parse().is_ok_and(|weight: f32| 0.0 < weight);
            match &*name.trim().to_ascii_lowercase() {
                "gzip" | "x-gzip" => named = Some(is_taken),
                "*" => any = Some(is_taken),
                _ => {}
            }
        }
    }
    named.or(any).unwrap_or(false)
}

/// Returns true if a response is complete, large and of a text type. Those of a text type depend on `Accept-Encoding`, and say
/// so to caches, whether or not the client accepts gzip (RFC 9110, 12.5.5).
pub(super) fn is_worthwhile(response: &mut Response<Body>) -> bool {
    let headers = response.headers();
    let is_text = headers.get(CONTENT_TYPE).is_some_and(|media| {
        let media = media.to_str().unwrap_or_default();
        // Compression would buffer streams and delay their events.
        media.starts_with("application/json")
            || media.starts_with("application/problem+json")
            || media.starts_with("text/") && !media.starts_with("text/event-stream")
    });
    // A body of unknown size is still being produced.
    let bytes = response.body().size_hint().exact();
    let Some(bytes) = bytes.filter(|_| is_text && !headers.contains_key(CONTENT_ENCODING)) else {
        return false;
    };
    response
        .headers_mut()
        .append(VARY, HeaderValue::from_static("accept-encoding"));
    LEAST_BYTES <= bytes
}

/// Compresses a response. The compressed body counts as unread until it is sent; if the limits deny that, the response stays
/// uncompressed.
pub(super) async fn compressed(
    router: Arc<Router>,
    client: Peer,
    mut response: Response<Body>,
) -> Response<Body> {
    let body = std::mem::take(response.body_mut());
    #[expect(clippy::disallowed_methods, reason = "it has said how long it is")]
    let Ok(body) = body.collect().await else {
        return HttpError::Internal.into_problem();
    };
    let plain = body.to_bytes();
    let squeezed = if plain.len() <= ON_WORKER_BYTES {
        gzip(&plain)
    } else {
        let plain = plain.clone();
        let elsewhere = try_spawn_blocking(&Handle::current(), move || gzip(&plain));
        match elsewhere {
            Ok(elsewhere) => elsewhere.await.unwrap_or(None),
            Err(NoThread) => None,
        }
    };
    let squeezed = squeezed.filter(|squeezed| squeezed.len() < plain.len());
    let limits = &router.endpoint.server.limits;
    let share = Limits::share_of_address(client.address);
    let squeezed = squeezed.and_then(|squeezed| limits.hold_response(share, squeezed).ok());
    let Some(squeezed) = squeezed else {
        *response.body_mut() = plain.into();
        return response;
    };
    *response.body_mut() = squeezed.into();
    let headers = response.headers_mut();
    headers.remove(CONTENT_LENGTH);
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response
}

fn gzip(plain: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 4), Compression::fast());
    encoder.write_all(plain).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_say_what_they_take() {
        for (said, takes) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("x-gzip", true),
            ("*", true),
            ("*;q=0.1", true),
            ("gzip; q = 1.0", true),
            ("gzip;q=0", false),
            ("gzip;q=0.000, *", false),
            ("*;q=0", false),
            ("br, identity", false),
            ("gzipped", false),
            ("gzip;q=much", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(said));
            assert_eq!(takes_gzip(&headers), takes, "{said}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}

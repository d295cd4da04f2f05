//! Public keys of the assertions about callers that sources send to their APIs.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response};

use super::responses::allowing;
use crate::net::Body;
use crate::source::{ASSERTION_KEYS_PATH, AssertionSigner};
use crate::transport::http::{PublicPaths, RouteFuture};

/// The path of the keys.
#[derive(Debug)]
pub(super) struct AssertionKeys(pub(super) AssertionSigner);

impl PublicPaths for AssertionKeys {
    fn has(&self, path: &str) -> bool {
        path == ASSERTION_KEYS_PATH
    }

    fn respond(&self, _: &str, request: Request<Bytes>) -> RouteFuture {
        let response = match *request.method() {
            Method::GET | Method::HEAD => keys(self.0.public_keys()),
            _ => allowing("GET, HEAD", Response::new(Body::empty())),
        };
        Box::pin(std::future::ready(response))
    }
}

fn keys(keys: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(keys.to_owned()));
    let headers = response.headers_mut();
    let media = HeaderValue::from_static("application/jwk-set+json");
    headers.insert(CONTENT_TYPE, media);
    let age = HeaderValue::from_static("public, max-age=300");
    headers.insert(CACHE_CONTROL, age);
    response
}

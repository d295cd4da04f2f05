//! Responses of the paths that the application adds beside the endpoints.

use http::header::ALLOW;
use http::{HeaderValue, Response, StatusCode};

use crate::net::Body;

/// Creates a response without a body.
pub(super) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Turns a response into the one to a method that the path does not have.
pub(super) fn allowing(methods: &'static str, mut response: Response<Body>) -> Response<Body> {
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    let methods = HeaderValue::from_static(methods);
    response.headers_mut().insert(ALLOW, methods);
    response
}

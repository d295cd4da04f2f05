//! Pages that need no authentication: probes, OAuth metadata, and the playground.

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    CACHE_CONTROL, CONTENT_TYPE,
};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};

use super::context::Origin;
use super::playground;
use super::rejection::{HttpError, Rejection};
use super::route::{Open, Route};
use crate::net::{Body, Peer};

const METADATA_METHODS: &str = "GET, HEAD";

impl Origin<'_> {
    /// Responds to a request for a page that needs no authentication.
    pub(super) fn open_page(
        &self,
        page: Open,
        route: &Route,
        head: &Parts,
    ) -> Result<Response<Body>, Rejection> {
        let has_method = route.has(&head.method);
        match page {
            // The problem document names the endpoint for messages.
            Open::Playground if !has_method => Err(HttpError::NotFound.into()),
            Open::Playground if self.router.endpoint.config.has_playground() => {
                Ok(playground::page(self.router.authenticator.issuers()))
            }
            Open::Playground => Err(HttpError::NoPlayground.into()),
            _ if !has_method => Err(HttpError::MethodNotAllowed(route.methods).into()),
            Open::Page(page) => {
                let is_local = |client: Peer| client.address.to_canonical().is_loopback();
                let near = self.client.is_some_and(is_local);
                Ok(page.respond(&self.router.endpoint.server, near))
            }
            Open::ResourceMetadata => self.resource_metadata(head),
            Open::Public => Err(HttpError::NotFound.into()),
        }
    }

    /// Protected resource metadata for OAuth clients without a credential (AUTH-01), for any of the metadata pages.
    fn resource_metadata(&self, head: &Parts) -> Result<Response<Body>, Rejection> {
        let seen = self.seen(&head.headers, &head.uri);
        let document = self
            .router
            .authenticator
            .document(seen)
            .ok_or(HttpError::NotFound)?;
        let mut response = Response::new(Body::empty());
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        if head.method == Method::OPTIONS {
            headers.insert(
                ACCESS_CONTROL_ALLOW_METHODS,
                HeaderValue::from_static(METADATA_METHODS),
            );
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("*"));
            *response.status_mut() = StatusCode::NO_CONTENT;
            return Ok(response);
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // Without a public URL, the headers of a request determine the document, and a cache would hand it to others.
        let caching = match self.router.authenticator.has_public_url() {
            true => "max-age=3600",
            false => "no-store",
        };
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(caching));
        *response.body_mut() = Body::from(Bytes::from(document));
        Ok(response)
    }
}

//! `/accounts`: the logins of the caller at the APIs of sources (`auth.per_user`), for clients and scripts.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use longshore_authserver::read_parameters;
use serde_json::{Value, json};

use super::responses::{allowing, empty};
use crate::auth::Principal;
use crate::net::Body;
use crate::source::{AccountError, Accounts, LoginError};
use crate::transport::http::{RouteFuture, RouteHandler, problem, problem_response};

/// Path of the list.
pub(super) const PATH: &str = "/accounts";

/// Lists the logins of the authenticated caller, and ends one.
pub(super) struct AccountList {
    pub(super) accounts: Accounts,
    /// True if a source had logins of users at the start. Otherwise the path exists as long as any source has.
    pub(super) is_expected: bool,
}

impl RouteHandler for AccountList {
    fn call(&self, request: Request<Bytes>) -> RouteFuture {
        if !self.is_expected && !self.accounts.are_any() {
            let text = "no source has logins of users (auth.per_user)";
            return Box::pin(std::future::ready(refused(StatusCode::NOT_FOUND, text)));
        }
        let accounts = self.accounts.clone();
        Box::pin(async move { respond(&accounts, &request).await })
    }
}

async fn respond(accounts: &Accounts, request: &Request<Bytes>) -> Response<Body> {
    let Some(caller) = request.extensions().get::<Arc<Principal>>() else {
        return refused(StatusCode::UNAUTHORIZED, "the request has no caller");
    };
    match *request.method() {
        Method::GET | Method::HEAD => match accounts.of(caller).await {
            Ok(list) => json(StatusCode::OK, &json!({ "accounts": list })),
            Err(error) => failed(&error),
        },
        Method::DELETE => {
            let query = request.uri().query().unwrap_or_default();
            let parameters = read_parameters(query.as_bytes()).unwrap_or_default();
            let Some(source) = parameters.get("source") else {
                let text = "name the source whose login is to end: DELETE /accounts?source=NAME";
                return refused(StatusCode::BAD_REQUEST, text);
            };
            match accounts.end(caller, source).await {
                Ok(()) => uncached(StatusCode::NO_CONTENT),
                Err(error) => failed(&error),
            }
        }
        _ => {
            let text = "the path has GET and DELETE";
            let response = refused(StatusCode::METHOD_NOT_ALLOWED, text);
            allowing("GET, HEAD, DELETE", response)
        }
    }
}

fn failed(error: &AccountError) -> Response<Body> {
    let status = match error {
        AccountError::Gone => {
            return refused(
                StatusCode::NOT_FOUND,
                "no source of that name has logins of users",
            );
        }
        AccountError::Login(LoginError::NoLogin) => {
            return refused(StatusCode::NOT_FOUND, "you have not logged in there");
        }
        AccountError::NotRecognized(_) => StatusCode::FORBIDDEN,
        _ => StatusCode::BAD_GATEWAY,
    };
    refused(status, &error.to_string())
}

fn uncached(status: StatusCode) -> Response<Body> {
    let mut response = empty(status);
    let value = HeaderValue::from_static("no-store");
    response.headers_mut().insert(CACHE_CONTROL, value);
    response
}

fn json(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = uncached(status);
    *response.body_mut() = Body::from(value.to_string());
    let media = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, media);
    response
}

fn refused(status: StatusCode, detail: &str) -> Response<Body> {
    problem_response(status, &problem(status, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_path_is_there_once_a_source_has_logins() {
        for (is_expected, status) in [
            (false, StatusCode::NOT_FOUND),
            (true, StatusCode::UNAUTHORIZED),
        ] {
            let list = AccountList {
                accounts: Accounts::default(),
                is_expected,
            };
            let response = list.call(Request::new(Bytes::new())).await;
            assert_eq!(response.status(), status);
        }
    }
}

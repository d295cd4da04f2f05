//! A path of the application beside the MCP endpoint, such as a webhook.
//!
//! ```sh
//! cargo run --example route
//!
//! curl -X POST http://127.0.0.1:3000/hooks/deploy -d 'v1.4.2'
//! longshore call http://127.0.0.1:3000/mcp deployed_version
//! ```
//!
//! The path has the same checks as `/mcp`: `Host`, `Origin`, sizes and, if it is configured, authentication.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use longshore::net::Body;
use longshore::{App, tool};

/// The latest deployed version, which the webhook and the tool share.
#[derive(Clone, Default)]
struct Deployed(Arc<Mutex<Option<String>>>);

impl Deployed {
    fn get(&self) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, version: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(version);
    }
}

/// Returns the version that is deployed.
#[tool(read_only)]
async fn deployed_version(#[state] deployed: &Deployed) -> String {
    deployed.get().unwrap_or_else(|| "none yet".to_owned())
}

/// Responds to the webhook.
fn record(deployed: &Deployed, request: &Request<Bytes>) -> Response<Body> {
    let version = std::str::from_utf8(request.body()).map(str::trim);
    let (status, text) = match (request.method(), version) {
        (&Method::POST, Ok(version)) if !version.is_empty() => {
            deployed.set(version.to_owned());
            (StatusCode::ACCEPTED, "recorded\n")
        }
        (&Method::POST, _) => (StatusCode::BAD_REQUEST, "the body must be a version\n"),
        _ => (StatusCode::METHOD_NOT_ALLOWED, "use POST\n"),
    };
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}

fn app(deployed: Deployed) -> App {
    let recorded = deployed.clone();
    App::new().provide(deployed).tool(deployed_version).route(
        "/hooks/deploy",
        move |request: Request<Bytes>| {
            let response = record(&recorded, &request);
            async { response }
        },
    )
}

fn main() -> longshore::Result {
    app(Deployed::default()).run()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn the_tool_returns_what_the_webhook_recorded() -> longshore::Result {
        let version = Deployed::default();
        let server = app(version.clone()).harness()?;
        assert_eq!(
            server.call("deployed_version", json!({})).await?.text(),
            "none yet"
        );
        let request = |method, body: &'static str| {
            let request = Request::builder().method(method).uri("/hooks/deploy");
            request.body(Bytes::from_static(body.as_bytes()))
        };
        let response = record(&version, &request(Method::GET, "")?);
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        let response = record(&version, &request(Method::POST, " v1.4.2\n")?);
        assert_eq!(response.status(), StatusCode::ACCEPTED);
        assert_eq!(
            server.call("deployed_version", json!({})).await?.text(),
            "v1.4.2"
        );
        Ok(())
    }
}

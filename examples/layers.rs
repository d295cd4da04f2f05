//! A server with `tower` layers around it and a method of its own.
//!
//! ```sh
//! cargo run --example layers
//! curl -i http://127.0.0.1:3000/mcp -H 'content-type: application/json' \
//!     -d '{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
//! ```
//!
//! The answer to a request without a session is a refusal; the header `x-served-by` is on it nevertheless, and the
//! server prints how long it took.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use http::{HeaderName, HeaderValue, Request};
use longshore::protocol::ErrorObject;
use longshore::{App, CallContext, tool};
use serde_json::{Value, json};
use tower::{Layer, Service};
use tower_http::set_header::SetResponseHeaderLayer;

/// Adds two numbers.
#[tool(read_only, idempotent)]
async fn add(a: i64, b: i64) -> Result<i64, &'static str> {
    a.checked_add(b).ok_or("the sum does not fit 64 bits")
}

/// The method `com.example/load`. Names with a prefix of one's own never clash with the specification's.
async fn load(_context: Arc<CallContext>, _params: Value) -> Result<Value, ErrorObject> {
    Ok(json!({ "load": 0.25 }))
}

fn main() -> longshore::Result {
    let name = HeaderName::from_static("x-served-by");
    let value = HeaderValue::from_static("longshore");
    App::new()
        .tool(add)
        .method("com.example/load", load)
        .layer(Timing)
        .layer(SetResponseHeaderLayer::overriding(name, value))
        .run()
}

/// A layer written by hand: says how long each request took.
#[derive(Clone, Copy, Debug)]
struct Timing;

impl<S> Layer<S> for Timing {
    type Service = Timed<S>;

    fn layer(&self, inner: S) -> Timed<S> {
        Timed { inner }
    }
}

#[derive(Clone, Debug)]
struct Timed<S> {
    inner: S,
}

impl<S, B> Service<Request<B>> for Timed<S>
where
    S: Service<Request<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let begin = Instant::now();
        let request_line = format!("{} {}", request.method(), request.uri());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            eprintln!("{request_line} took {:?}", begin.elapsed());
            answer
        })
    }
}

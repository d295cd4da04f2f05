//! A server with `tower` layers around it and a method of its own.
//!
//! ```sh
//! cargo run --example layers
//!
//! curl -i http://127.0.0.1:3000/mcp \
//!     -H 'Content-Type: application/json' \
//!     -H 'MCP-Protocol-Version: 2026-07-28' \
//!     -H 'Mcp-Method: com.example/load' \
//!     -d '{"jsonrpc": "2.0", "id": 1, "method": "com.example/load", "params": {"_meta": {
//!           "io.modelcontextprotocol/protocolVersion": "2026-07-28",
//!           "io.modelcontextprotocol/clientCapabilities": {}}}}'
//! ```
//!
//! The response has the headers `x-served-by` and `server-timing`, one from each layer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use http::{HeaderName, HeaderValue, Request, Response};
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

/// A layer written by hand: says in a header how long each request took.
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

impl<S, Q, R> Service<Request<Q>> for Timed<S>
where
    S: Service<Request<Q>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let begin = Instant::now();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let mut answer = answer.await?;
            let milliseconds = begin.elapsed().as_secs_f64() * 1000.0;
            if let Ok(timing) = HeaderValue::try_from(format!("total;dur={milliseconds:.3}")) {
                answer.headers_mut().insert("server-timing", timing);
            }
            Ok(answer)
        })
    }
}

//! Bare hyper server, the baseline of comparisons.
//!
//! It reads each request completely and returns a fixed body. It uses hyper's defaults without the timer for reading
//! headers, and one `current_thread` runtime. There is no JSON and no routing.

use std::convert::Infallible;
use std::error::Error;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};

/// Serve bare hyper.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Port to listen on, on 127.0.0.1
    #[arg(long)]
    port: u16,
    /// Speak HTTP/2 (prior knowledge) instead of HTTP/1.1
    #[arg(long)]
    http2: bool,
    /// Size of the response, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 2, value_parser = clap::value_parser!(u32).range(..=16 << 20))]
    body_size: u32,
    /// File whose content is the response
    #[arg(long, value_name = "FILE", conflicts_with = "body_size")]
    body_file: Option<PathBuf>,
}

/// Serves until the process ends.
pub(super) async fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let body = match arguments.body_file {
        Some(file) => Bytes::from(fs::read(file)?),
        None => Bytes::from(vec![b'x'; usize::try_from(arguments.body_size)?]),
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, arguments.port)).await?;
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let body = body.clone();
        if arguments.http2 {
            tokio::spawn(serve_http2(socket, body));
        } else {
            tokio::spawn(serve_http1(socket, body));
        }
    }
}

async fn serve_http1(socket: TcpStream, body: Bytes) {
    let service = service_fn(move |request| respond(request, body.clone()));
    // A connection fails when its client goes away, which is how every run ends.
    drop(
        http1::Builder::new()
            .header_read_timeout(None)
            .serve_connection(TokioIo::new(socket), service)
            .await,
    );
}

async fn serve_http2(socket: TcpStream, body: Bytes) {
    let service = service_fn(move |request| respond(request, body.clone()));
    drop(
        http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(socket), service)
            .await,
    );
}

async fn respond(
    mut request: Request<Incoming>,
    body: Bytes,
) -> Result<Response<Full<Bytes>>, Infallible> {
    while let Some(Ok(_)) = request.body_mut().frame().await {}
    let mut response = Response::new(Full::new(body));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

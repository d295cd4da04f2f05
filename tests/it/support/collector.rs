//! A collector for tests, and what it was sent.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use longshore::telemetry::ExportProtocol;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio::net::TcpListener;

use super::Serve;

/// A collector that keeps what it is sent.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Received>>,
}

#[derive(Default)]
pub(crate) struct Received {
    pub(crate) spans: Vec<Span>,
    pub(crate) metrics: BTreeMap<String, Metric>,
    pub(crate) resources: Vec<Resource>,
    /// Resources by signal.
    pub(crate) by_signal: BTreeMap<&'static str, Vec<Resource>>,
    pub(crate) log_lines: Vec<String>,
    pub(crate) headers: Vec<HeaderMap>,
    /// Number of exports of spans that were not taken.
    refused: usize,
}

/// Behaviour of the collector.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Takes,
    /// It never acknowledges spans.
    HoldsSpans,
    /// It rejects two items of each export.
    RejectsTwo,
    /// It is not available for the first four exports of spans.
    IsStarting,
}

impl Collector {
    pub(crate) fn start(protocol: ExportProtocol) -> Self {
        Self::with(protocol, Manner::Takes)
    }

    pub(crate) fn with(protocol: ExportProtocol, manner: Manner) -> Self {
        let received = Arc::new(Mutex::new(Received::default()));
        let (tell, address) = std::sync::mpsc::channel();
        let keep = Arc::clone(&received);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
                let _ = tell.send(listener.local_addr().expect("an address"));
                while let Ok((stream, _)) = listener.accept().await {
                    let keep = Arc::clone(&keep);
                    let service =
                        service_fn(move |request| receive(request, manner, Arc::clone(&keep)));
                    let io = TokioIo::new(stream);
                    tokio::spawn(async move {
                        let _ = match protocol {
                            ExportProtocol::Grpc => {
                                let server = http2::Builder::new(TokioExecutor::new());
                                server.serve_connection(io, service).await
                            }
                            _ => http1::Builder::new().serve_connection(io, service).await,
                        };
                    });
                }
            });
        });
        Self {
            address: address.recv().expect("it listens"),
            received,
        }
    }

    /// Settings with which a server sends everything here.
    pub(crate) fn serve(&self, protocol: ExportProtocol) -> Serve {
        let endpoint = format!("http://{}", self.address);
        Serve::new().configured(move |c| {
            c.telemetry.endpoint = Some(endpoint);
            c.telemetry.protocol = protocol;
            c.toolsets.push("demo".to_owned());
        })
    }

    pub(crate) fn span_count(&self) -> usize {
        self.received.lock().expect("not poisoned").spans.len()
    }

    pub(crate) fn take(&self) -> Received {
        std::mem::take(&mut *self.received.lock().expect("not poisoned"))
    }
}

impl Received {
    fn resource(&mut self, signal: &'static str, resource: Option<Resource>) {
        self.resources.extend(resource.clone());
        self.by_signal.entry(signal).or_default().extend(resource);
    }
}

fn inflate(bytes: &[u8]) -> Bytes {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(bytes)
        .read_to_end(&mut plain)
        .expect("gzip");
    plain.into()
}

/// The response of a collector that is asked too early.
fn unavailable(is_grpc: bool) -> Response<http_body_util::combinators::BoxBody<Bytes, Infallible>> {
    let response = match is_grpc {
        // UNAVAILABLE
        true => Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-status", "14"),
        false => Response::builder().status(503),
    };
    let nothing = Full::new(Bytes::new()).boxed();
    response.body(nothing).expect("a response")
}

async fn receive(
    request: Request<Incoming>,
    manner: Manner,
    received: Arc<Mutex<Received>>,
) -> Result<Response<http_body_util::combinators::BoxBody<Bytes, Infallible>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    let is_grpc = head.headers["content-type"] == "application/grpc";
    // gRPC: a byte that says whether it is compressed, and four with its length.
    let (compressed, message) = if is_grpc {
        (body[0] == 1, body.slice(5..))
    } else {
        let coding = head.headers.get("content-encoding");
        (coding.is_some_and(|coding| coding == "gzip"), body)
    };
    let message = if compressed {
        inflate(&message)
    } else {
        message
    };
    let path = head.uri.path();
    let is_of_spans = path.ends_with("/v1/traces") || path.contains("TraceService");
    if is_of_spans && manner == Manner::HoldsSpans {
        std::future::pending::<()>().await;
    }
    let mut received = received.lock().expect("not poisoned");
    if is_of_spans && manner == Manner::IsStarting && received.refused < 4 {
        received.refused += 1;
        return Ok(unavailable(is_grpc));
    }
    if is_of_spans {
        let request = ExportTraceServiceRequest::decode(message).expect("spans");
        for resource in request.resource_spans {
            received.resource("traces", resource.resource);
            let scopes = resource.scope_spans.into_iter();
            received.spans.extend(scopes.flat_map(|scope| scope.spans));
        }
    } else if path.ends_with("/v1/metrics") || path.contains("MetricsService") {
        let request = ExportMetricsServiceRequest::decode(message).expect("metrics");
        for resource in request.resource_metrics {
            received.resource("metrics", resource.resource);
            let scopes = resource.scope_metrics.into_iter();
            let metrics = scopes.flat_map(|scope| scope.metrics);
            received.metrics = metrics
                .map(|metric| (metric.name.clone(), metric))
                .collect();
        }
    } else if path.ends_with("/v1/logs") || path.contains("LogsService") {
        let request = ExportLogsServiceRequest::decode(message).expect("log records");
        for resource in request.resource_logs {
            received.resource("logs", resource.resource);
            let scopes = resource.scope_logs.into_iter();
            let records = scopes.flat_map(|scope| scope.log_records);
            received
                .log_lines
                .extend(records.filter_map(|record| match record.body?.value? {
                    any_value::Value::StringValue(text) => Some(text),
                    _ => None,
                }));
        }
    }
    received.headers.push(head.headers);
    let answer = match manner {
        Manner::RejectsTwo => ExportTraceServiceResponse {
            partial_success: Some(ExportTracePartialSuccess {
                rejected_spans: 2,
                error_message: "too old".to_owned(),
            }),
        },
        _ => ExportTraceServiceResponse::default(),
    };
    let answer = answer.encode_to_vec();
    if !is_grpc {
        return Ok(Response::new(Full::new(answer.into()).boxed()));
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let length = u32::try_from(answer.len()).expect("short").to_be_bytes();
    let body = Full::new([&[0][..], &length, &answer].concat().into())
        .with_trailers(std::future::ready(Some(Ok(trailers))));
    let mut response = Response::new(body.boxed());
    let media = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", media);
    Ok(response)
}

pub(crate) fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let texts = attributes.iter().map(|attribute| {
        let value = attribute.value.as_ref().and_then(|v| v.value.clone());
        match value {
            Some(any_value::Value::StringValue(text)) => (attribute.key.clone(), text),
            Some(any_value::Value::IntValue(number)) => (attribute.key.clone(), number.to_string()),
            other => panic!("{}: {other:?}", attribute.key),
        }
    });
    texts.collect()
}

pub(crate) fn expected(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

/// The one span of a name.
#[track_caller]
pub(crate) fn span_named<'s>(spans: &'s [Span], name: &str) -> &'s Span {
    let mut found = spans.iter().filter(|span| span.name == name);
    let span = found.next().unwrap_or_else(|| {
        let names: Vec<_> = spans.iter().map(|span| &span.name).collect();
        panic!("no {name} in {names:?}")
    });
    assert!(found.next().is_none(), "{name} twice");
    span
}

pub(crate) const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

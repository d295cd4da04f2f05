//! Adapter that lets the OpenTelemetry crates use the program's HTTP client.

use std::fmt;
use std::future::Future;
use std::io::Write as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use tonic::transport::{Channel, Endpoint};
use url::Url;

use crate::net::{Client, ClientBuilder, Deadlines, Guard, Mutex, OutgoingRequest, with_causes};
use crate::telemetry::settings::Target;

/// Maximum size of a collector's response.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Error when creating a client for a collector.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error("the endpoint is not a valid URL")]
    Url(#[from] url::ParseError),
    #[error("the endpoint cannot be used")]
    Endpoint(#[from] tonic::transport::Error),
    #[error("a certificate or key for the collector: cannot read {path}")]
    Certificate {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Client(#[from] crate::net::ClientError),
    #[error("the exporter cannot be made")]
    Build(#[from] opentelemetry_otlp::ExporterBuildError),
}

/// Errors of the last export, which the OpenTelemetry exporters do not return.
#[derive(Clone, Default)]
pub(super) struct LastError(Arc<Mutex<ExportResult>>);

/// Result of an export.
#[derive(Debug, Default)]
pub(super) struct ExportResult {
    /// Reason for which the data were not accepted.
    pub(super) problem: Option<String>,
    /// Items that the collector rejected from an accepted export.
    pub(super) rejected: Option<Rejected>,
    /// Time that the collector asks to wait before the next export.
    pub(super) retry_after: Option<Duration>,
}

/// A partial success (OTLP, "Partial Success").
#[derive(Debug)]
pub(super) struct Rejected {
    /// Number of rejected spans, log records or data points.
    pub(super) items: u64,
    pub(super) why: String,
}

impl LastError {
    fn is(&self, problem: String) {
        self.0.lock().problem = Some(problem);
    }

    /// Records how long the collector asks to wait (OTLP, "OTLP/HTTP Throttling").
    pub(super) fn throttles(&self, headers: &HeaderMap) {
        let seconds = headers.get(RETRY_AFTER).and_then(|text| text.to_str().ok());
        let seconds = seconds.and_then(|text| text.trim().parse().ok());
        self.0.lock().retry_after = seconds.map(Duration::from_secs);
    }

    /// Records a partial success. Zero items with a text is a warning of the collector.
    pub(super) fn rejects(&self, items: i64, why: String) {
        let items = u64::try_from(items).unwrap_or_default();
        if 0 < items || !why.is_empty() {
            self.0.lock().rejected = Some(Rejected { items, why });
        }
    }

    /// Logged once.
    pub(super) fn take(&self) -> ExportResult {
        std::mem::take(&mut *self.0.lock())
    }
}

/// HTTP client for a collector.
pub(super) struct OverHttp {
    client: Client,
    trouble: LastError,
    timeout: Duration,
    compressed: bool,
}

impl fmt::Debug for OverHttp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OverHttp")
    }
}

/// Builds a client that may connect to the collector only.
fn builder(target: &Target) -> Result<ClientBuilder, ClientError> {
    let url = Url::parse(&target.endpoint)?;
    let builder = Client::builder(Guard::public().trust(&url))
        .deadlines(Deadlines::total(target.timeout))
        .max_body(ANSWER_BYTES_MAX);
    let read = |path: &Path| {
        std::fs::read(path).map_err(|source| ClientError::Certificate {
            path: path.display().to_string(),
            source,
        })
    };
    let builder = match &target.certificate {
        Some(path) => builder.roots(&read(path)?)?,
        None => builder,
    };
    Ok(match &target.identity {
        Some((certificate, key)) => builder.identity_files(certificate, key)?,
        None => builder,
    })
}

impl OverHttp {
    pub(super) fn new(target: &Target, trouble: &LastError) -> Result<Self, ClientError> {
        Ok(Self {
            client: builder(target)?.build()?,
            trouble: trouble.clone(),
            timeout: target.timeout,
            compressed: target.compressed,
        })
    }
}

/// Creates a gRPC channel, which connects on first use.
pub(super) fn channel(target: &Target) -> Result<Channel, ClientError> {
    let connector = builder(target)?.connector()?;
    let endpoint = Endpoint::from_shared(target.endpoint.clone())?.timeout(target.timeout);
    Ok(endpoint.connect_with_connector_lazy(connector))
}

fn compress(body: &[u8]) -> std::io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body)?;
    Ok(encoder.finish()?.into())
}

impl HttpClient for OverHttp {
    fn send_bytes<'a, 'f>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'f>>
    where
        'a: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let mut outgoing = OutgoingRequest::new(head.method, head.uri.to_string().parse()?);
            outgoing.headers = head.headers;
            outgoing.body = if self.compressed {
                let gzip = http::HeaderValue::from_static("gzip");
                outgoing
                    .headers
                    .insert(http::header::CONTENT_ENCODING, gzip);
                compress(&body)?
            } else {
                body
            };
            let fetched = self.client.fetch(outgoing.within(self.timeout)).await;
            let fetched = fetched.inspect_err(|error| self.trouble.is(with_causes(error)))?;
            if !fetched.status.is_success() {
                self.trouble
                    .is(format!("it responded with {}", fetched.status));
                self.trouble.throttles(&fetched.headers);
            } else if let Ok(answer) = ExportTraceServiceResponse::decode(fetched.body.clone())
                && let Some(partial) = answer.partial_success
            {
                // The partial success fields of all signals are encoded alike.
                self.trouble
                    .rejects(partial.rejected_spans, partial.error_message);
            }
            let mut response = Response::new(fetched.body);
            *response.status_mut() = fetched.status;
            *response.headers_mut() = fetched.headers;
            Ok(response)
        })
    }
}

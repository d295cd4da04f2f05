//! Exporters of each signal, with log messages on failure and recovery.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr as _;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::Request;
use opentelemetry::logs::LoggerProvider as _;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::HttpClient;
use opentelemetry_otlp::{
    LogExporter, RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig,
};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::{LogBatch, LogExporter as _, SdkLogger, SdkLoggerProvider};
use opentelemetry_sdk::resource::{ResourceDetector as _, TelemetryResourceDetector};
use opentelemetry_sdk::trace::SpanExporter as _;
use prost::Message as _;
use tonic::codec::CompressionEncoding;
use tonic::metadata::{MetadataKey, MetadataMap, MetadataValue};
use tonic::transport::Channel;

use super::Stopped;
use super::client::{ClientError, LastError, OverHttp, channel};
use super::health::Health;
use super::metrics;
use super::records::log_record;
use super::spans::span_data;
use crate::telemetry::config::{ExportProtocol, SpanNames};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::records::Record;
use crate::telemetry::settings::{AttributeLimits, ExportSettings, Target};
use crate::telemetry::trace::Span;

/// Span exporter.
pub(super) struct SpanSender {
    exporter: SpanExporter,
    health: Health,
    counted: Metrics,
    names: SpanNames,
    scope: InstrumentationScope,
    limits: AttributeLimits,
    timeout: Duration,
}

/// Log record exporter.
pub(super) struct RecordSender {
    exporter: LogExporter,
    health: Health,
    scope: InstrumentationScope,
    logger: SdkLogger,
    limits: AttributeLimits,
    timeout: Duration,
}

/// Metric exporter.
pub(super) struct MetricSender {
    exporter: MetricExporter,
    health: Health,
    counted: Metrics,
    resource: Attributes,
    timeout: Duration,
    started: SystemTime,
}

/// Resource attributes of the process.
pub(super) type Attributes = BTreeMap<String, String>;

enum MetricExporter {
    Http(Box<(OverHttp, Target)>),
    Grpc(Box<(MetricsServiceClient<Channel>, MetadataMap, LastError)>),
}

/// Returns the resource attributes: the configured ones, and versions of the exporters.
pub(super) fn resource(settings: &ExportSettings) -> Attributes {
    let mut attributes: Attributes = TelemetryResourceDetector
        .detect()
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    attributes.extend(settings.resource.clone());
    attributes
}

/// Returns the value of an attribute that the conventions define as an integer.
pub(super) fn integer(key: &str, value: &str) -> Option<i64> {
    value.parse().ok().filter(|_| key == "process.pid")
}

fn sdk_resource(attributes: &Attributes) -> Resource {
    let attributes = attributes
        .iter()
        .map(|(key, value)| match integer(key, value) {
            Some(number) => KeyValue::new(key.clone(), number),
            None => KeyValue::new(key.clone(), value.clone()),
        });
    Resource::builder_empty()
        .with_attributes(attributes)
        .build()
}

fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("longshore")
        .with_version(env!("CARGO_PKG_VERSION"))
        .build()
}

impl SpanSender {
    /// Returns `None` if spans are not exported or the exporter cannot be created. The reason is logged.
    pub(super) fn new(
        settings: &ExportSettings,
        resource: &Attributes,
        counted: &Metrics,
        names: SpanNames,
    ) -> Option<Self> {
        let target = settings.traces.as_ref()?;
        let health = Health::new("spans", target, counted);
        let timeout = settings.spans.timeout;
        let exporter = span_exporter(target, timeout, &health.trouble);
        let mut exporter = made(exporter, "spans")?;
        exporter.set_resource(&sdk_resource(resource));
        Some(Self {
            exporter,
            health,
            counted: counted.clone(),
            names,
            scope: scope(),
            limits: settings.span_limits,
            timeout,
        })
    }

    /// Exports the queued items. Returns true if there were any.
    #[expect(
        clippy::vec_box,
        reason = "they come boxed, since they are large and moved often"
    )]
    pub(super) async fn send(&mut self, spans: Vec<Box<Span>>, stopped: &Stopped) -> bool {
        if spans.is_empty() {
            return false;
        }
        self.health.wait(stopped).await;
        let count = spans.len();
        let names = self.counted.names();
        let spans = spans.into_iter().map(|span| {
            let mut span = span_data(*span, names, self.names, &self.scope);
            span.dropped_attributes_count = self.limits.apply(&mut span.attributes);
            span
        });
        let sending = self.exporter.export(spans.collect());
        let sending = in_time(self.timeout, stopped, sending);
        let sent = self.health.watch(sending).await;
        self.health.record(sent, count);
        true
    }
}

impl RecordSender {
    /// Returns `None` if log records are not exported or the exporter cannot be created. The reason is logged.
    pub(super) fn new(
        settings: &ExportSettings,
        resource: &Attributes,
        counted: &Metrics,
    ) -> Option<Self> {
        let target = settings.logs.as_ref()?;
        let health = Health::new("records", target, counted);
        let timeout = settings.records.timeout;
        let exporter = log_exporter(target, timeout, &health.trouble);
        let mut exporter = made(exporter, "log records")?;
        exporter.set_resource(&sdk_resource(resource));
        Some(Self {
            exporter,
            health,
            scope: scope(),
            logger: SdkLoggerProvider::builder().build().logger("longshore"),
            limits: settings.record_limits,
            timeout,
        })
    }

    pub(super) async fn send(&mut self, records: Vec<Record>, stopped: &Stopped) {
        if records.is_empty() {
            return;
        }
        self.health.wait(stopped).await;
        let count = records.len();
        let records: Vec<_> = records
            .into_iter()
            .map(|record| log_record(record, &self.logger, self.limits))
            .collect();
        let batch: Vec<_> = records.iter().map(|record| (record, &self.scope)).collect();
        let batch = LogBatch::new(&batch);
        let sending = in_time(self.timeout, stopped, self.exporter.export(batch));
        let sent = self.health.watch(sending).await;
        self.health.record(sent, count);
    }
}

impl MetricSender {
    /// Returns `None` if metrics are not exported or the exporter cannot be created. The reason is logged.
    pub(super) fn new(
        settings: &ExportSettings,
        resource: Attributes,
        counted: Metrics,
    ) -> Option<Self> {
        let target = settings.metrics.as_ref()?;
        let health = Health::new("metrics", target, &counted);
        let exporter = made(MetricExporter::new(target, &health.trouble), "metrics")?;
        Some(Self {
            exporter,
            health,
            counted,
            resource,
            timeout: settings.metric_timeout,
            started: SystemTime::now(),
        })
    }

    pub(super) async fn send(&mut self, stopped: &Stopped) {
        let families = self.counted.families();
        let request = metrics::request(&families, &self.resource, self.started);
        let sent = in_time(self.timeout, stopped, self.exporter.send(request)).await;
        // Metrics are cumulative, so the next export includes them.
        self.health.record(sent, 0);
    }
}

/// Time for an export during which the server stops, for example while it waits for its next attempt. The rest of the time
/// is for the data that are still queued.
const AFTER_STOP: Duration = Duration::from_millis(500);

/// Limits the duration of an export.
async fn in_time<E: Display>(
    within: Duration,
    stopped: &Stopped,
    sending: impl Future<Output = Result<(), E>>,
) -> Result<(), String> {
    let interrupted = async {
        let mut stopped = stopped.clone();
        if stopped.is() {
            return std::future::pending().await;
        }
        stopped.wait().await;
        tokio::time::sleep(AFTER_STOP).await;
    };
    tokio::select! {
        biased;
        sent = tokio::time::timeout(within, sending) => match sent {
            Ok(sent) => sent.map_err(|error| error.to_string()),
            Err(_) => Err(format!("it took longer than {within:?}")),
        },
        () = interrupted => Err("the server stopped before it was accepted".to_owned()),
    }
}

impl AttributeLimits {
    /// Cuts long values and drops surplus attributes. Returns the number of dropped attributes.
    fn apply(self, attributes: &mut Vec<KeyValue>) -> u32 {
        for attribute in attributes.iter_mut() {
            if let opentelemetry::Value::String(text) = &attribute.value
                && let Some(cut) = self.cut(text.as_str())
            {
                attribute.value = cut.to_owned().into();
            }
        }
        let dropped = attributes.len().saturating_sub(self.count);
        attributes.truncate(self.count);
        u32::try_from(dropped).unwrap_or(u32::MAX)
    }

    /// Returns the prefix of a value that is too long.
    pub(super) fn cut(self, text: &str) -> Option<&str> {
        let (end, _) = text.char_indices().nth(self.length)?;
        Some(&text[..end])
    }
}

/// Logs the error if an exporter cannot be created.
fn made<T>(exporter: Result<T, ClientError>, what: &str) -> Option<T> {
    exporter
        .inspect_err(|error| {
            let source = std::error::Error::source(error).map(ToString::to_string);
            tracing::error!(%error, source, "{what} are not exported");
        })
        .ok()
}

fn span_exporter(
    target: &Target,
    within: Duration,
    trouble: &LastError,
) -> Result<SpanExporter, ClientError> {
    let builder = SpanExporter::builder();
    Ok(match target.protocol {
        ExportProtocol::Http => over_http(builder.with_http(), target, within, trouble)?.build()?,
        ExportProtocol::Grpc => over_grpc(builder.with_tonic(), target, within)?.build()?,
    })
}

fn log_exporter(
    target: &Target,
    within: Duration,
    trouble: &LastError,
) -> Result<LogExporter, ClientError> {
    let builder = LogExporter::builder();
    Ok(match target.protocol {
        ExportProtocol::Http => over_http(builder.with_http(), target, within, trouble)?.build()?,
        ExportProtocol::Grpc => over_grpc(builder.with_tonic(), target, within)?.build()?,
    })
}

/// Retries for as long as an export may take. The exporters retry what OTLP allows to be retried, and wait for as long
/// as the collector asks.
fn retries() -> RetryPolicy {
    RetryPolicy::default()
        .with_max_retries(usize::MAX)
        .with_initial_delay(Duration::from_millis(300))
        .with_max_delay(Duration::from_secs(5))
        .with_max_jitter(Duration::from_millis(300))
}

/// Configures an exporter whose exports take at most `within`, retries included. The client and the channel limit each
/// request to the timeout of the target.
fn over_http<B: WithHttpConfig + WithExportConfig>(
    builder: B,
    target: &Target,
    within: Duration,
    trouble: &LastError,
) -> Result<B, ClientError> {
    Ok(builder
        .with_http_client(OverHttp::new(target, trouble)?)
        .with_endpoint(&target.endpoint)
        .with_timeout(within)
        .with_retry_policy(retries())
        .with_headers(target.headers.iter().cloned().collect())
        .with_protocol(opentelemetry_otlp::Protocol::HttpBinary))
}

fn over_grpc<B: WithTonicConfig + WithExportConfig>(
    builder: B,
    target: &Target,
    within: Duration,
) -> Result<B, ClientError> {
    let builder = builder
        .with_channel(channel(target)?)
        .with_timeout(within)
        .with_retry_policy(retries())
        .with_metadata(metadata(target));
    Ok(match target.compressed {
        true => builder.with_compression(opentelemetry_otlp::Compression::Gzip),
        false => builder,
    })
}

pub(super) fn metadata(target: &Target) -> MetadataMap {
    let mut metadata = MetadataMap::new();
    for (name, value) in &target.headers {
        let name = MetadataKey::from_str(&name.to_ascii_lowercase());
        if let (Ok(name), Ok(value)) = (name, MetadataValue::from_str(value)) {
            metadata.insert(name, value);
        }
    }
    metadata
}

/// A message for a collector over HTTP.
pub(super) fn post(target: &Target, message: Bytes) -> http::Result<Request<Bytes>> {
    let mut request = Request::post(&target.endpoint)
        .header(http::header::CONTENT_TYPE, "application/x-protobuf");
    for (name, value) in &target.headers {
        request = request.header(name, value);
    }
    request.body(message)
}

/// A message for a collector over gRPC.
pub(super) fn with<M>(message: M, metadata: MetadataMap) -> tonic::Request<M> {
    let mut request = tonic::Request::new(message);
    *request.metadata_mut() = metadata;
    request
}

impl MetricExporter {
    fn new(target: &Target, trouble: &LastError) -> Result<Self, ClientError> {
        Ok(match target.protocol {
            ExportProtocol::Http => {
                Self::Http(Box::new((OverHttp::new(target, trouble)?, target.clone())))
            }
            ExportProtocol::Grpc => {
                let mut client = MetricsServiceClient::new(channel(target)?);
                if target.compressed {
                    client = client.send_compressed(CompressionEncoding::Gzip);
                }
                Self::Grpc(Box::new((client, metadata(target), trouble.clone())))
            }
        })
    }

    async fn send(
        &mut self,
        message: opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        match self {
            Self::Http(way) => {
                let (client, target) = &**way;
                let request = post(target, message.encode_to_vec().into())?;
                let response = client.send_bytes(request).await?;
                if !response.status().is_success() {
                    return Err(
                        format!("the collector responded with {}", response.status()).into(),
                    );
                }
            }
            Self::Grpc(way) => {
                let (client, metadata, trouble) = &mut **way;
                let request = with(message, metadata.clone());
                let answer = client.export(request).await?.into_inner();
                if let Some(partial) = answer.partial_success {
                    trouble.rejects(partial.rejected_data_points, partial.error_message);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::sync::watch;
    use tokio::time::Instant;

    use super::*;

    type Sent = Result<(), &'static str>;

    #[tokio::test(start_paused = true)]
    async fn an_export_that_is_retried_ends_soon_after_a_stop() {
        const WITHIN: Duration = Duration::from_secs(30);
        let (stop, stopped) = watch::channel(false);
        let stopped = Stopped(stopped);
        let sent = in_time(WITHIN, &stopped, ready(Sent::Ok(()))).await;
        assert_eq!(sent, Ok(()));
        let begun = Instant::now();
        let stopping = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            stop.send(true).expect("a receiver");
        };
        let (sent, ()) = tokio::join!(in_time(WITHIN, &stopped, pending::<Sent>()), stopping);
        assert!(sent.is_err_and(|error| error.contains("stopped")));
        assert_eq!(begun.elapsed(), Duration::from_secs(1) + AFTER_STOP);
        // Those that begin after the stop have all the time that there is.
        let slow = async {
            tokio::time::sleep(2 * AFTER_STOP).await;
            Sent::Ok(())
        };
        assert_eq!(in_time(WITHIN, &stopped, slow).await, Ok(()));
    }
}

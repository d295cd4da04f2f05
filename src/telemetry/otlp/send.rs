//! One collector for each signal, and what is said of one that does not answer.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::str::FromStr as _;
use std::time::{Duration, SystemTime};

use http::Request;
use opentelemetry::logs::LoggerProvider as _;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::HttpClient;
use opentelemetry_otlp::{
    LogExporter, SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig,
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
use url::Url;

use super::client::{ClientError, OverHttp, Trouble, channel};
use super::metrics;
use super::records::log_record;
use super::spans::span_data;
use crate::telemetry::config::SpanNames;
use crate::telemetry::instruments::EXPORT_DROPPED;
use crate::telemetry::metrics::{Counter, Metrics};
use crate::telemetry::records::Record;
use crate::telemetry::settings::{AttributeLimits, ExportSettings, Protocol, Target};
use crate::telemetry::trace::Span;

/// Where everything goes.
pub(super) struct Collector {
    spans: Option<(SpanExporter, Health)>,
    records: Option<(LogExporter, Health)>,
    metrics: Option<(MetricExporter, Health)>,
    counted: Metrics,
    names: SpanNames,
    scope: InstrumentationScope,
    logger: SdkLogger,
    resource: BTreeMap<String, String>,
    span_limits: AttributeLimits,
    record_limits: AttributeLimits,
    /// How long sending may take: spans, records, metrics.
    timeouts: [Duration; 3],
    started: SystemTime,
}

/// Whether a collector takes what it is sent. A change is told once.
struct Health {
    signal: &'static str,
    endpoint: String,
    trouble: Trouble,
    failing: bool,
    dropped: Counter,
}

enum MetricExporter {
    Http(Box<(OverHttp, Target)>),
    Grpc(Box<(MetricsServiceClient<Channel>, MetadataMap)>),
}

impl Collector {
    pub(super) fn new(settings: &ExportSettings, counted: Metrics, names: SpanNames) -> Self {
        // The exporters say themselves which they are, and which version.
        let mut attributes: BTreeMap<String, String> = TelemetryResourceDetector
            .detect()
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect();
        attributes.extend(settings.resource.clone());
        let resource = Resource::builder_empty()
            .with_attributes(
                attributes
                    .iter()
                    .map(|(key, value)| KeyValue::new(key.clone(), value.clone())),
            )
            .build();
        let health = |signal, target: Option<&Target>, trouble| Health {
            signal,
            endpoint: target.map_or_else(String::new, |target| without_secrets(&target.endpoint)),
            trouble,
            failing: false,
            dropped: counted.counter(&EXPORT_DROPPED, &[("signal", signal)]),
        };
        let troubles: [Trouble; 3] = Default::default();
        let spans = open(settings.traces.as_ref(), "spans", |target| {
            let mut exporter = span_exporter(target, &troubles[0])?;
            exporter.set_resource(&resource);
            Ok(exporter)
        });
        let records = open(settings.logs.as_ref(), "log records", |target| {
            let mut exporter = log_exporter(target, &troubles[1])?;
            exporter.set_resource(&resource);
            Ok(exporter)
        });
        let metrics = open(settings.metrics.as_ref(), "metrics", |target| {
            MetricExporter::new(target, &troubles[2])
        });
        let [of_spans, of_records, of_metrics] = troubles;
        let of_spans = health("spans", settings.traces.as_ref(), of_spans);
        let of_records = health("records", settings.logs.as_ref(), of_records);
        let of_metrics = health("metrics", settings.metrics.as_ref(), of_metrics);
        Self {
            spans: spans.map(|exporter| (exporter, of_spans)),
            records: records.map(|exporter| (exporter, of_records)),
            metrics: metrics.map(|exporter| (exporter, of_metrics)),
            names,
            scope: InstrumentationScope::builder(env!("CARGO_PKG_NAME"))
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
            logger: SdkLoggerProvider::builder()
                .build()
                .logger(env!("CARGO_PKG_NAME")),
            resource: attributes,
            span_limits: settings.span_limits,
            record_limits: settings.record_limits,
            timeouts: [
                settings.spans.timeout,
                settings.records.timeout,
                settings.metric_timeout,
            ],
            started: SystemTime::now(),
            counted,
        }
    }

    #[expect(
        clippy::vec_box,
        reason = "they come boxed, since they are large and moved often"
    )]
    pub(super) async fn send_spans(&mut self, spans: Vec<Box<Span>>) {
        let Some((exporter, health)) = &mut self.spans else {
            return;
        };
        let count = spans.len();
        let names = self.counted.names();
        let spans = spans.into_iter().map(|span| {
            let mut span = span_data(*span, names, self.names, &self.scope);
            span.dropped_attributes_count = self.span_limits.apply(&mut span.attributes);
            span
        });
        let sent = in_time(self.timeouts[0], exporter.export(spans.collect())).await;
        health.tell(sent, count);
    }

    pub(super) async fn send_records(&mut self, records: Vec<Record>) {
        let Some((exporter, health)) = &mut self.records else {
            return;
        };
        let count = records.len();
        let records: Vec<_> = records
            .into_iter()
            .map(|record| log_record(record, &self.logger, self.record_limits))
            .collect();
        let batch: Vec<_> = records.iter().map(|record| (record, &self.scope)).collect();
        let sent = in_time(self.timeouts[1], exporter.export(LogBatch::new(&batch))).await;
        health.tell(sent, count);
    }

    pub(super) async fn send_metrics(&mut self) {
        let Some((exporter, health)) = &mut self.metrics else {
            return;
        };
        let families = self.counted.families();
        let request = metrics::request(&families, &self.resource, self.started);
        // What was counted stays counted: the next report has it too.
        let sent = in_time(self.timeouts[2], exporter.send(request)).await;
        health.tell(sent, 0);
    }
}

/// What comes of sending, which may not take for ever.
async fn in_time<E: Display>(
    within: Duration,
    sending: impl Future<Output = Result<(), E>>,
) -> Result<(), String> {
    match tokio::time::timeout(within, sending).await {
        Ok(sent) => sent.map_err(|error| error.to_string()),
        Err(_) => Err(format!("it took longer than {within:?}")),
    }
}

impl AttributeLimits {
    /// Cuts texts, and leaves out what is too much. Says how many were left out.
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

    /// The beginning of a text that is too long.
    pub(super) fn cut(self, text: &str) -> Option<&str> {
        let (end, _) = text.char_indices().nth(self.length)?;
        Some(&text[..end])
    }
}

/// Makes an exporter, or says why there is none.
fn open<T>(
    target: Option<&Target>,
    what: &str,
    make: impl FnOnce(&Target) -> Result<T, ClientError>,
) -> Option<T> {
    match make(target?) {
        Ok(exporter) => Some(exporter),
        Err(error) => {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            tracing::error!(%error, source, "{what} are not exported");
            None
        }
    }
}

/// An endpoint as the log may have it.
fn without_secrets(endpoint: &str) -> String {
    let Ok(mut url) = Url::parse(endpoint) else {
        return String::new();
    };
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.into()
}

fn span_exporter(target: &Target, trouble: &Trouble) -> Result<SpanExporter, ClientError> {
    let builder = SpanExporter::builder();
    Ok(match target.protocol {
        Protocol::Http => over_http(builder.with_http(), target, trouble)?.build()?,
        Protocol::Grpc => over_grpc(builder.with_tonic(), target)?.build()?,
    })
}

fn log_exporter(target: &Target, trouble: &Trouble) -> Result<LogExporter, ClientError> {
    let builder = LogExporter::builder();
    Ok(match target.protocol {
        Protocol::Http => over_http(builder.with_http(), target, trouble)?.build()?,
        Protocol::Grpc => over_grpc(builder.with_tonic(), target)?.build()?,
    })
}

fn over_http<B: WithHttpConfig + WithExportConfig>(
    builder: B,
    target: &Target,
    trouble: &Trouble,
) -> Result<B, ClientError> {
    Ok(builder
        .with_http_client(OverHttp::new(target, trouble)?)
        .with_endpoint(&target.endpoint)
        .with_timeout(target.timeout)
        .with_headers(headers(target))
        .with_protocol(opentelemetry_otlp::Protocol::HttpBinary))
}

fn over_grpc<B: WithTonicConfig + WithExportConfig>(
    builder: B,
    target: &Target,
) -> Result<B, ClientError> {
    let builder = builder
        .with_channel(channel(target)?)
        .with_timeout(target.timeout)
        .with_metadata(metadata(target));
    Ok(match target.compressed {
        true => builder.with_compression(opentelemetry_otlp::Compression::Gzip),
        false => builder,
    })
}

fn headers(target: &Target) -> HashMap<String, String> {
    target.headers.iter().cloned().collect()
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

impl MetricExporter {
    fn new(target: &Target, trouble: &Trouble) -> Result<Self, ClientError> {
        Ok(match target.protocol {
            Protocol::Http => {
                Self::Http(Box::new((OverHttp::new(target, trouble)?, target.clone())))
            }
            Protocol::Grpc => {
                let mut client = MetricsServiceClient::new(channel(target)?);
                if target.compressed {
                    client = client.send_compressed(CompressionEncoding::Gzip);
                }
                Self::Grpc(Box::new((client, metadata(target))))
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
                let mut request = Request::post(&target.endpoint)
                    .header(http::header::CONTENT_TYPE, "application/x-protobuf");
                for (name, value) in &target.headers {
                    request = request.header(name, value);
                }
                let request = request.body(message.encode_to_vec().into())?;
                let response = client.send_bytes(request).await?;
                if !response.status().is_success() {
                    return Err(format!("the collector answered {}", response.status()).into());
                }
            }
            Self::Grpc(way) => {
                let (client, metadata) = &mut **way;
                let mut request = tonic::Request::new(message);
                *request.metadata_mut() = metadata.clone();
                client.export(request).await?;
            }
        }
        Ok(())
    }
}

impl Health {
    fn tell<E: Display>(&mut self, sent: Result<(), E>, items: usize) {
        let was_failing = std::mem::replace(&mut self.failing, sent.is_err());
        let trouble = self.trouble.take();
        match sent {
            Ok(()) if was_failing => {
                tracing::info!(
                    signal = self.signal,
                    endpoint = self.endpoint,
                    "the collector answers again"
                );
            }
            Ok(()) => {}
            Err(error) => {
                self.dropped.add(items as u64);
                if !was_failing {
                    tracing::warn!(
                        signal = self.signal,
                        endpoint = self.endpoint,
                        error = trouble.unwrap_or_else(|| error.to_string()),
                        "the collector did not take what it was sent; it is tried again with what comes, and not reported again until it answers"
                    );
                }
            }
        }
    }
}

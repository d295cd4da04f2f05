//! One collector for each signal, and what is said of one that does not answer.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::str::FromStr as _;
use std::time::SystemTime;

use http::Request;
use opentelemetry::logs::LoggerProvider as _;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::HttpClient;
use opentelemetry_otlp::{
    LogExporter, SpanExporter, WithExportConfig as _, WithHttpConfig as _, WithTonicConfig as _,
};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::{LogBatch, LogExporter as _, SdkLogger, SdkLoggerProvider};
use opentelemetry_sdk::trace::SpanExporter as _;
use prost::Message as _;
use tonic::metadata::{MetadataKey, MetadataMap, MetadataValue};
use tonic::transport::Channel;

use super::client::{ClientError, OverHttp, channel};
use super::metrics;
use super::records::log_record;
use super::spans::span_data;
use crate::telemetry::config::SpanNames;
use crate::telemetry::instruments::EXPORT_DROPPED;
use crate::telemetry::metrics::{Counter, Metrics};
use crate::telemetry::records::Record;
use crate::telemetry::settings::{ExportSettings, Protocol, Target};
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
    started: SystemTime,
}

/// Whether a collector takes what it is sent. A change is told once.
struct Health {
    signal: &'static str,
    failing: bool,
    dropped: Counter,
}

enum MetricExporter {
    Http(Box<(OverHttp, Target)>),
    Grpc(Box<(MetricsServiceClient<Channel>, MetadataMap)>),
}

impl Collector {
    pub(super) fn new(settings: &ExportSettings, counted: Metrics, names: SpanNames) -> Self {
        let resource = Resource::builder_empty()
            .with_attributes(
                settings
                    .resource
                    .iter()
                    .map(|(key, value)| KeyValue::new(key.clone(), value.clone())),
            )
            .build();
        let health = |signal| Health {
            signal,
            failing: false,
            dropped: counted.counter(&EXPORT_DROPPED, &[("signal", signal)]),
        };
        let spans = open(settings.traces.as_ref(), "spans", |target| {
            let mut exporter = span_exporter(target)?;
            exporter.set_resource(&resource);
            Ok(exporter)
        });
        let records = open(settings.logs.as_ref(), "log records", |target| {
            let mut exporter = log_exporter(target)?;
            exporter.set_resource(&resource);
            Ok(exporter)
        });
        let metrics = open(settings.metrics.as_ref(), "metrics", MetricExporter::new);
        Self {
            spans: spans.map(|exporter| (exporter, health("spans"))),
            records: records.map(|exporter| (exporter, health("records"))),
            metrics: metrics.map(|exporter| (exporter, health("metrics"))),
            names,
            scope: InstrumentationScope::builder(env!("CARGO_PKG_NAME"))
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
            logger: SdkLoggerProvider::builder()
                .build()
                .logger(env!("CARGO_PKG_NAME")),
            resource: settings.resource.clone(),
            started: SystemTime::now(),
            counted,
        }
    }

    pub(super) async fn send_spans(&mut self, spans: Vec<Span>) {
        let Some((exporter, health)) = &mut self.spans else {
            return;
        };
        let count = spans.len();
        let names = self.counted.names();
        let spans = spans.into_iter().map(|span| {
            let operation = names.get(span.operation);
            span_data(span, &operation, self.names, &self.scope)
        });
        let sent = exporter.export(spans.collect()).await;
        health.tell(sent, count);
    }

    pub(super) async fn send_records(&mut self, records: Vec<Record>) {
        let Some((exporter, health)) = &mut self.records else {
            return;
        };
        let count = records.len();
        let records: Vec<_> = records
            .into_iter()
            .map(|record| log_record(record, &self.logger))
            .collect();
        let batch: Vec<_> = records.iter().map(|record| (record, &self.scope)).collect();
        let sent = exporter.export(LogBatch::new(&batch)).await;
        health.tell(sent, count);
    }

    pub(super) async fn send_metrics(&mut self) {
        let Some((exporter, health)) = &mut self.metrics else {
            return;
        };
        let families = self.counted.families();
        let request = metrics::request(&families, &self.resource, self.started);
        // What was counted stays counted: the next report has it too.
        health.tell(exporter.send(request).await, 0);
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

fn span_exporter(target: &Target) -> Result<SpanExporter, ClientError> {
    Ok(match target.protocol {
        Protocol::Http => SpanExporter::builder()
            .with_http()
            .with_http_client(OverHttp::new(target)?)
            .with_endpoint(&target.endpoint)
            .with_timeout(target.timeout)
            .with_headers(headers(target))
            .with_protocol(opentelemetry_otlp::Protocol::HttpBinary)
            .build()?,
        Protocol::Grpc => SpanExporter::builder()
            .with_tonic()
            .with_channel(channel(target)?)
            .with_timeout(target.timeout)
            .with_metadata(metadata(target))
            .build()?,
    })
}

fn log_exporter(target: &Target) -> Result<LogExporter, ClientError> {
    Ok(match target.protocol {
        Protocol::Http => LogExporter::builder()
            .with_http()
            .with_http_client(OverHttp::new(target)?)
            .with_endpoint(&target.endpoint)
            .with_timeout(target.timeout)
            .with_headers(headers(target))
            .with_protocol(opentelemetry_otlp::Protocol::HttpBinary)
            .build()?,
        Protocol::Grpc => LogExporter::builder()
            .with_tonic()
            .with_channel(channel(target)?)
            .with_timeout(target.timeout)
            .with_metadata(metadata(target))
            .build()?,
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
    fn new(target: &Target) -> Result<Self, ClientError> {
        Ok(match target.protocol {
            Protocol::Http => Self::Http(Box::new((OverHttp::new(target)?, target.clone()))),
            Protocol::Grpc => {
                let client = MetricsServiceClient::new(channel(target)?);
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
        match sent {
            Ok(()) if was_failing => {
                tracing::info!(signal = self.signal, "the collector answers again");
            }
            Ok(()) => {}
            Err(error) => {
                self.dropped.add(items as u64);
                if !was_failing {
                    tracing::warn!(
                        signal = self.signal,
                        %error,
                        "the collector did not take what it was sent; it is tried again with what comes, and not reported again until it answers"
                    );
                }
            }
        }
    }
}

//! Test messages to collectors, for configuration checks.

use std::error::Error;

use bytes::Bytes;
use opentelemetry_http::HttpClient as _;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;

use super::client::{LastError, OverHttp, channel};
use super::health::without_secrets;
use super::send::{metadata, post, with};
use crate::net::with_causes;
use crate::telemetry::config::ExportProtocol;
use crate::telemetry::export::{EndpointCheck, ExportCheck};
use crate::telemetry::settings::{ExportSettings, Target};

type Problem = Box<dyn Error + Send + Sync>;

/// Sends each signal's collector a message without anything in it.
pub async fn examine(settings: ExportSettings) -> ExportCheck {
    let mut reached = Vec::new();
    for (signal, target) in [
        ("traces", &settings.traces),
        ("metrics", &settings.metrics),
        ("logs", &settings.logs),
    ] {
        let Some(target) = target else { continue };
        reached.push(EndpointCheck {
            signal,
            endpoint: without_secrets(&target.endpoint)
                .unwrap_or_else(|| "the endpoint".to_owned()),
            answer: send(signal, target)
                .await
                .map_err(|error| with_causes(&*error)),
        });
    }
    ExportCheck {
        doubts: settings.doubts,
        reached,
    }
}

async fn send(signal: &str, target: &Target) -> Result<(), Problem> {
    if target.protocol == ExportProtocol::Http {
        // An empty body is a valid message with default values.
        let request = post(target, Bytes::new())?;
        let response = OverHttp::new(target, &LastError::default())?
            .send_bytes(request)
            .await?;
        if !response.status().is_success() {
            return Err(format!("it responded with {}", response.status()).into());
        }
        return Ok(());
    }
    let (channel, metadata) = (channel(target)?, metadata(target));
    match signal {
        "traces" => {
            let message = ExportTraceServiceRequest::default();
            TraceServiceClient::new(channel)
                .export(with(message, metadata))
                .await?;
        }
        "metrics" => {
            let message = ExportMetricsServiceRequest::default();
            MetricsServiceClient::new(channel)
                .export(with(message, metadata))
                .await?;
        }
        _ => {
            let message = ExportLogsServiceRequest::default();
            LogsServiceClient::new(channel)
                .export(with(message, metadata))
                .await?;
        }
    }
    Ok(())
}

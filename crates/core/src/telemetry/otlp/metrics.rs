//! Metrics as an OTLP message. The OpenTelemetry SDK cannot export foreign counters, so this module builds the
//! message itself.

use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::send::integer;
use crate::telemetry::snapshot::{Family, Kind, Label, Series, Value};

/// Builds the message with all metrics since `start`.
pub(super) fn request<'a>(
    families: &[Family],
    resource: impl IntoIterator<Item = (&'a String, &'a String)>,
    start: SystemTime,
) -> ExportMetricsServiceRequest {
    let (start, now) = (nanos(start), nanos(SystemTime::now()));
    let resource = Resource {
        attributes: resource
            .into_iter()
            .map(|(key, value)| resource_attribute(key, value))
            .collect(),
        ..Resource::default()
    };
    let families = families.iter().filter(|family| !family.series.is_empty());
    let scope = ScopeMetrics {
        scope: Some(InstrumentationScope {
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        }),
        metrics: families
            .map(|family| metric_of(family, start, now))
            .collect(),
        ..ScopeMetrics::default()
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource),
            scope_metrics: vec![scope],
            ..ResourceMetrics::default()
        }],
    }
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn resource_attribute(key: &str, value: &str) -> KeyValue {
    match integer(key, value) {
        Some(number) => attribute_of(key, any_value::Value::IntValue(number)),
        None => attribute(key, value),
    }
}

fn attribute(key: &str, value: &str) -> KeyValue {
    attribute_of(key, any_value::Value::StringValue(value.to_owned()))
}

fn attribute_of(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

fn attributes(labels: &[Label]) -> Vec<KeyValue> {
    labels
        .iter()
        .map(|(name, value)| attribute(name, value))
        .collect()
}

fn metric_of(family: &Family, start: u64, now: u64) -> Metric {
    let temporality = AggregationTemporality::Cumulative as i32;
    let numbers = || {
        family
            .series
            .iter()
            .filter_map(|series| number(series, start, now))
            .collect()
    };
    let data = match family.instrument.kind {
        Kind::Counter => metric::Data::Sum(Sum {
            data_points: numbers(),
            aggregation_temporality: temporality,
            is_monotonic: true,
        }),
        Kind::Gauge => metric::Data::Gauge(Gauge {
            data_points: numbers(),
        }),
        Kind::Histogram => metric::Data::Histogram(Histogram {
            data_points: family
                .series
                .iter()
                .filter_map(|series| distribution(series, start, now))
                .collect(),
            aggregation_temporality: temporality,
        }),
    };
    Metric {
        name: family.instrument.name.to_owned(),
        description: family.instrument.help.to_owned(),
        unit: family.instrument.unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn number(series: &Series, start: u64, now: u64) -> Option<NumberDataPoint> {
    let Value::Number(number) = series.value else {
        return None;
    };
    Some(NumberDataPoint {
        attributes: attributes(&series.labels),
        start_time_unix_nano: start,
        time_unix_nano: now,
        value: Some(number_data_point::Value::AsDouble(number)),
        ..NumberDataPoint::default()
    })
}

fn distribution(series: &Series, start: u64, now: u64) -> Option<HistogramDataPoint> {
    let Value::Distribution(distribution) = &series.value else {
        return None;
    };
    let bounds = distribution.bounds.iter();
    Some(HistogramDataPoint {
        attributes: attributes(&series.labels),
        start_time_unix_nano: start,
        time_unix_nano: now,
        count: distribution.count(),
        sum: Some(distribution.sum_seconds()),
        bucket_counts: distribution.counts.clone(),
        explicit_bounds: bounds.map(|bound| *bound as f64 / 1e9).collect(),
        ..HistogramDataPoint::default()
    })
}

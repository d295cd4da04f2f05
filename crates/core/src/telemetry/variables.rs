//! The standard environment variables of OpenTelemetry, and their effect.

/// Effect of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The effect that the specification describes.
    Has,
    /// No effect, for this reason.
    None(&'static str),
}

use Effect::{Has, None as Without};

const ONE_SDK: &str = "everything is set by single variables and the configuration file";
const NO_EVENTS: &str = "spans have no events, and at most one link";
const OUR_BUCKETS: &str = "counts are cumulative, in the buckets that the conventions name";
const OUR_PAGE: &str = "/metrics is served at the server's own port, or at http.admin.port";
const NO_ZIPKIN: &str = "traces are sent by OTLP alone";

/// All variables of the specification (SDK and OTLP exporter), except the settings of the exporter, which exist for all
/// signals and for each.
pub(crate) const VARIABLES: [(&str, Effect); 41] = [
    ("OTEL_SDK_DISABLED", Has),
    ("OTEL_SERVICE_NAME", Has),
    ("OTEL_RESOURCE_ATTRIBUTES", Has),
    ("OTEL_LOG_LEVEL", Without("log.level sets the level")),
    ("OTEL_PROPAGATORS", Has),
    ("OTEL_TRACES_SAMPLER", Has),
    ("OTEL_TRACES_SAMPLER_ARG", Has),
    ("OTEL_BSP_SCHEDULE_DELAY", Has),
    ("OTEL_BSP_EXPORT_TIMEOUT", Has),
    ("OTEL_BSP_MAX_QUEUE_SIZE", Has),
    ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", Has),
    ("OTEL_BLRP_SCHEDULE_DELAY", Has),
    ("OTEL_BLRP_EXPORT_TIMEOUT", Has),
    ("OTEL_BLRP_MAX_QUEUE_SIZE", Has),
    ("OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", Has),
    ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", Has),
    ("OTEL_ATTRIBUTE_COUNT_LIMIT", Has),
    ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", Has),
    ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", Has),
    ("OTEL_LOGRECORD_ATTRIBUTE_VALUE_LENGTH_LIMIT", Has),
    ("OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT", Has),
    ("OTEL_SPAN_EVENT_COUNT_LIMIT", Without(NO_EVENTS)),
    ("OTEL_SPAN_LINK_COUNT_LIMIT", Without(NO_EVENTS)),
    ("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", Without(NO_EVENTS)),
    ("OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", Without(NO_EVENTS)),
    ("OTEL_TRACES_EXPORTER", Has),
    ("OTEL_METRICS_EXPORTER", Has),
    ("OTEL_LOGS_EXPORTER", Has),
    ("OTEL_METRIC_EXPORT_INTERVAL", Has),
    ("OTEL_METRIC_EXPORT_TIMEOUT", Has),
    (
        "OTEL_METRICS_EXEMPLAR_FILTER",
        Without("histograms have no exemplars"),
    ),
    (
        "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
        Without(OUR_BUCKETS),
    ),
    (
        "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
        Without(OUR_BUCKETS),
    ),
    ("OTEL_EXPORTER_PROMETHEUS_HOST", Without(OUR_PAGE)),
    ("OTEL_EXPORTER_PROMETHEUS_PORT", Without(OUR_PAGE)),
    ("OTEL_EXPORTER_ZIPKIN_ENDPOINT", Without(NO_ZIPKIN)),
    ("OTEL_EXPORTER_ZIPKIN_TIMEOUT", Without(NO_ZIPKIN)),
    (
        "OTEL_EXPORTER_OTLP_SPAN_INSECURE",
        Without("it is called OTEL_EXPORTER_OTLP_TRACES_INSECURE"),
    ),
    (
        "OTEL_EXPORTER_OTLP_METRIC_INSECURE",
        Without("it is called OTEL_EXPORTER_OTLP_METRICS_INSECURE"),
    ),
    ("OTEL_CONFIG_FILE", Without(ONE_SDK)),
    ("OTEL_EXPERIMENTAL_CONFIG_FILE", Without(ONE_SDK)),
];

//! Prometheus text exposition format 0.0.4.

use std::fmt::Write as _;

use super::metrics::Instrument;
use super::snapshot::{Family, Kind, Label, Value};

/// The `Content-Type` of the page.
pub const MEDIA: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Renders all metrics as one page.
pub fn page(families: &[Family]) -> String {
    let mut page = String::new();
    for family in families.iter().filter(|family| !family.series.is_empty()) {
        write_family(&mut page, family);
    }
    page
}

/// Returns the Prometheus name of an instrument: underscores, a unit suffix, and `_total` for counters.
pub fn name(instrument: &Instrument) -> String {
    let mut name = instrument.name.replace('.', "_");
    match instrument.unit {
        "s" => name.push_str("_seconds"),
        "By" => name.push_str("_bytes"),
        _ => {}
    }
    if instrument.kind == Kind::Counter {
        name.push_str("_total");
    }
    name
}

fn write_family(page: &mut String, family: &Family) {
    let instrument = &family.instrument;
    let name = name(instrument);
    let kind = match instrument.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    // Writing to a string does not fail.
    let _ = writeln!(page, "# HELP {name} {}", instrument.help);
    let _ = writeln!(page, "# TYPE {name} {kind}");
    for series in &family.series {
        match &series.value {
            Value::Number(number) => {
                let _ = writeln!(page, "{name}{} {number}", Labels(&series.labels, None));
            }
            Value::Distribution(distribution) => {
                let mut below = 0;
                let bounds = distribution.bounds.iter().map(|b| *b as f64 / 1e9);
                for (count, bound) in distribution.counts.iter().zip(bounds) {
                    below += count;
                    let labels = Labels(&series.labels, Some(bound));
                    let _ = writeln!(page, "{name}_bucket{labels} {below}");
                }
                let count = distribution.count();
                let labels = Labels(&series.labels, Some(f64::INFINITY));
                let _ = writeln!(page, "{name}_bucket{labels} {count}");
                let labels = Labels(&series.labels, None);
                let _ = writeln!(page, "{name}_sum{labels} {}", distribution.sum_seconds());
                let _ = writeln!(page, "{name}_count{labels} {count}");
            }
        }
    }
}

/// Labels in braces, with the bucket bound of a histogram.
struct Labels<'a>(&'a [Label], Option<f64>);

impl std::fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() && self.1.is_none() {
            return Ok(());
        }
        f.write_char('{')?;
        let mut separator = "";
        for (name, value) in self.0 {
            write!(f, "{separator}{}=\"", name.replace('.', "_"))?;
            for c in value.chars() {
                match c {
                    '\\' => f.write_str("\\\\")?,
                    '"' => f.write_str("\\\"")?,
                    '\n' => f.write_str("\\n")?,
                    c => f.write_char(c)?,
                }
            }
            f.write_char('"')?;
            separator = ",";
        }
        match self.1 {
            Some(bound) if bound.is_finite() => write!(f, "{separator}le=\"{bound}\"")?,
            Some(_) => write!(f, "{separator}le=\"+Inf\"")?,
            None => {}
        }
        f.write_char('}')
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::telemetry::metrics::Metrics;

    #[test]
    fn counters_gauges_and_histograms_are_written_as_prometheus_reads_them() {
        let metrics = Metrics::default();
        let hits = Instrument::counter("test.hits", "{hit}", "Hits");
        metrics.counter(&hits, &[("a.b", "x\"\\\n")]).add(3);
        let age = Instrument::gauge("test.age", "s", "Age");
        metrics.read(&age, &[], || 1.5);
        let took = Instrument::timing("test.took", "Took");
        metrics.timing(&took, &[]).record(Duration::from_millis(15));
        let families: Vec<_> = metrics
            .families()
            .into_iter()
            .filter(|f| f.instrument.name.starts_with("test."))
            .collect();
        let page = page(&families);
        let lines: Vec<_> = page.lines().collect();
        assert_eq!(lines[0], "# HELP test_age_seconds Age");
        assert_eq!(lines[1], "# TYPE test_age_seconds gauge");
        assert_eq!(lines[2], "test_age_seconds 1.5");
        assert_eq!(lines[5], r#"test_hits_total{a_b="x\"\\\n"} 3"#);
        assert!(
            lines.contains(&r#"test_took_seconds_bucket{le="0.01"} 0"#),
            "{page}"
        );
        assert!(
            lines.contains(&r#"test_took_seconds_bucket{le="0.02"} 1"#),
            "{page}"
        );
        assert!(
            lines.contains(&r#"test_took_seconds_bucket{le="+Inf"} 1"#),
            "{page}"
        );
        assert!(lines.contains(&"test_took_seconds_sum 0.015"), "{page}");
        assert_eq!(lines.last(), Some(&"test_took_seconds_count 1"));
    }
}

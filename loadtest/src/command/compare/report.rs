//! What a comparison found, for people and for programs.

use serde_json::{Value, json};

use super::{Arguments, Case};
use crate::drive::Measured;
use crate::measure::{Spread, ratios};

/// One workload.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) case: Case,
    /// The length of an answer's body.
    pub(super) length: usize,
    pub(super) ours: Figures,
    pub(super) theirs: Figures,
    pub(super) half_load: Option<HalfLoad>,
}

impl Outcome {
    /// The figure that counts: ours to theirs, per second of processor time.
    fn ratio(&self) -> Option<Spread> {
        ratios(
            &self.ours.per_processor_second,
            &self.theirs.per_processor_second,
        )
    }
}

/// Both at half of their own peak.
#[derive(Debug)]
pub(super) struct HalfLoad {
    pub(super) ours: Figures,
    pub(super) theirs: Figures,
}

impl HalfLoad {
    fn ratio(&self) -> Option<Spread> {
        ratios(&self.ours.p50_us, &self.theirs.p50_us)
    }
}

/// One server, a figure for each round.
#[derive(Debug)]
pub(super) struct Figures {
    name: &'static str,
    per_second: Vec<f64>,
    per_processor_second: Vec<f64>,
    p50_us: Vec<f64>,
    p99_us: Vec<f64>,
    generator_share: Vec<f64>,
}

impl Figures {
    /// Of these rounds.
    pub(super) fn of(name: &'static str, rounds: &[Measured]) -> Self {
        let each = |figure: &dyn Fn(&Measured) -> f64| rounds.iter().map(figure).collect();
        Self {
            name,
            per_second: each(&Measured::per_second),
            per_processor_second: each(&|round| round.per_processor_second().unwrap_or(f64::NAN)),
            p50_us: each(&|round| round.latency.quantile(0.5).as_secs_f64() * 1e6),
            p99_us: each(&|round| round.latency.quantile(0.99).as_secs_f64() * 1e6),
            generator_share: each(&Measured::own_share),
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "server": self.name,
            "requests_per_second": self.per_second,
            "requests_per_processor_second": self.per_processor_second,
            "p50_us": self.p50_us,
            "p99_us": self.p99_us,
            "generator_share": self.generator_share,
        })
    }
}

/// Says what is done, and heads the table.
pub(super) fn print_header(arguments: &Arguments) {
    println!(
        "{} rounds of {} s in turn, servers on core {}, generator on core {}; medians\n",
        arguments.rounds, arguments.seconds, arguments.server_core, arguments.generator_core
    );
    println!(
        "{:<18} {:<16} {:>9} {:>11} {:>8} {:>8} {:>8} {:>4}  {:<21} {:>8} {:>8}  {:<21}",
        "workload",
        "server",
        "req/s",
        "req/s/cpu-s",
        "cpu us",
        "p50 us",
        "p99 us",
        "gen",
        "ratio (min-max)",
        "half p50",
        "half p99",
        "half p50 ratio"
    );
}

/// Two lines for one workload.
pub(super) fn print_row(outcome: &Outcome) {
    let half = outcome.half_load.as_ref();
    let ratio = shown(outcome.ratio());
    let half_ratio = half.map(|half| shown(half.ratio())).unwrap_or_default();
    print_line(
        &outcome.case.to_string(),
        &outcome.ours,
        half.map(|half| &half.ours),
        &ratio,
        &half_ratio,
    );
    let size = format!("  {} B", outcome.length);
    print_line(
        &size,
        &outcome.theirs,
        half.map(|half| &half.theirs),
        "",
        "",
    );
}

/// How to read it.
pub(super) fn print_footer() {
    println!(
        "\nratio: req/s/cpu-s of the product to bare hyper, median of the rounds' ratios. cpu us: the server's\n\
         processor time for a request. gen: how busy the generator's core was; above 95 % req/s and latency are\n\
         the generator's, while req/s/cpu-s stays the server's. half: at half of each server's own peak, latency\n\
         counted from when a request should have been sent."
    );
}

/// Everything, every round.
pub(super) fn to_json(outcomes: &[Outcome]) -> String {
    let spread = |spread: Option<Spread>| {
        spread.map(|s| json!({"median": s.median, "min": s.min, "max": s.max}))
    };
    let outcomes: Vec<Value> = outcomes
        .iter()
        .map(|outcome| {
            json!({
                "workload": outcome.case.to_string(),
                "answer_bytes": outcome.length,
                "ratio": spread(outcome.ratio()),
                "ours": outcome.ours.to_json(),
                "theirs": outcome.theirs.to_json(),
                "half_load": outcome.half_load.as_ref().map(|half| json!({
                    "p50_ratio": spread(half.ratio()),
                    "ours": half.ours.to_json(),
                    "theirs": half.theirs.to_json(),
                })),
            })
        })
        .collect();
    format!("{:#}\n", Value::from(outcomes))
}

fn print_line(
    title: &str,
    figures: &Figures,
    half: Option<&Figures>,
    ratio: &str,
    half_ratio: &str,
) {
    let half_p50 = half
        .map(|half| median(&half.p50_us))
        .map(|p50| format!("{p50:.0}"))
        .unwrap_or_default();
    let half_p99 = half
        .map(|half| median(&half.p99_us))
        .map(|p99| format!("{p99:.0}"))
        .unwrap_or_default();
    let per_processor_second = median(&figures.per_processor_second);
    println!(
        "{title:<18} {:<16} {:>9.0} {:>11.0} {:>8.2} {:>8.0} {:>8.0} {:>3.0}%  {ratio:<21} {half_p50:>8} {half_p99:>8}  {half_ratio:<21}",
        figures.name,
        median(&figures.per_second),
        per_processor_second,
        1e6 / per_processor_second,
        median(&figures.p50_us),
        median(&figures.p99_us),
        median(&figures.generator_share) * 100.0,
    );
}

fn median(figures: &[f64]) -> f64 {
    Spread::of(figures.iter().copied()).map_or(f64::NAN, |spread| spread.median)
}

fn shown(spread: Option<Spread>) -> String {
    spread.map_or_else(|| "not measured".to_owned(), |spread| spread.to_string())
}

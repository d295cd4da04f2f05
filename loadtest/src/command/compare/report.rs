//! Report of a comparison, for people and for programs.

use serde_json::{Value, json};

use super::{Arguments, Case};
use crate::drive::Measured;
use crate::measure::{Spread, median, ratios};

/// Result of one workload.
#[derive(Debug)]
pub(in crate::command) struct Outcome {
    pub(in crate::command) case: Case,
    /// Length of a response body.
    pub(in crate::command) length: usize,
    pub(in crate::command) ours: Figures,
    pub(in crate::command) theirs: Figures,
    pub(in crate::command) half_load: Option<HalfLoad>,
}

impl Outcome {
    /// Returns the main result: the ratio of requests per second of CPU time.
    fn ratio(&self) -> Option<Spread> {
        ratios(
            &self.ours.per_processor_second,
            &self.theirs.per_processor_second,
        )
    }
}

/// Both servers at half of their own peak.
#[derive(Debug)]
pub(in crate::command) struct HalfLoad {
    pub(in crate::command) ours: Figures,
    pub(in crate::command) theirs: Figures,
}

impl HalfLoad {
    fn ratio(&self) -> Option<Spread> {
        ratios(&self.ours.p50_us, &self.theirs.p50_us)
    }
}

/// Results of one server, one value for each round.
#[derive(Debug)]
pub(in crate::command) struct Figures {
    name: &'static str,
    per_second: Vec<f64>,
    per_processor_second: Vec<f64>,
    p50_us: Vec<f64>,
    p99_us: Vec<f64>,
    generator_share: Vec<f64>,
    waiting_share: Vec<f64>,
}

impl Figures {
    /// Collects the values of some rounds.
    pub(in crate::command) fn of(name: &'static str, rounds: &[Measured]) -> Self {
        let each = |figure: &dyn Fn(&Measured) -> f64| rounds.iter().map(figure).collect();
        Self {
            name,
            per_second: each(&Measured::per_second),
            per_processor_second: each(&|round| round.per_processor_second().unwrap_or(f64::NAN)),
            p50_us: each(&|round| round.latency.quantile(0.5).as_secs_f64() * 1e6),
            p99_us: each(&|round| round.latency.quantile(0.99).as_secs_f64() * 1e6),
            generator_share: each(&Measured::own_share),
            waiting_share: each(&Measured::waiting_share),
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
            "waiting_share": self.waiting_share,
        })
    }
}

/// Prints the description of the run and the table header.
pub(super) fn print_header(arguments: &Arguments) {
    println!(
        "{} rounds of {} s in turn, servers on core {}, generator on core {}; medians{}\n",
        arguments.rounds,
        arguments.seconds,
        arguments.server_core,
        arguments.generator_core,
        congestion_control()
    );
    print_columns();
}

/// Names the kernel's congestion control, which affects large responses: `bbr` sets timers for each of them.
fn congestion_control() -> String {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")
        .map(|name| format!("; congestion control {}", name.trim()))
        .unwrap_or_default()
}

/// Prints the table header.
pub(in crate::command) fn print_columns() {
    println!(
        "{:<18} {:<16} {:>9} {:>11} {:>7} {:>7} {:>7} {:>5} {:>5}  ratio (min-max)",
        "workload", "server", "req/s", "req/s/cpu-s", "cpu us", "p50 us", "p99 us", "gen", "wait"
    );
}

/// Prints two lines for one workload.
pub(in crate::command) fn print_row(outcome: &Outcome) {
    print_figures(
        &outcome.case.to_string(),
        &outcome.ours,
        &shown(outcome.ratio()),
    );
    print_figures(&format!("  {} B", outcome.length), &outcome.theirs, "");
}

/// Prints the second table, and how to read both.
pub(super) fn print_footer(outcomes: &[Outcome]) {
    println!(
        "\nratio: req/s/cpu-s of the product to bare hyper, median of the ratios of the rounds. cpu us: the"
    );
    println!(
        "server's CPU time for a request. gen: how busy the generator's core was. wait: how long server"
    );
    println!(
        "or generator stood in line for a core that something else used. With gen above 95 % or wait above a"
    );
    println!("few, req/s and latency are not the server's; req/s/cpu-s is, and the ratio.");
    if outcomes.iter().all(|outcome| outcome.half_load.is_none()) {
        return;
    }
    println!(
        "\nAt half of each server's own peak; latency from when a request should have been sent\n"
    );
    println!(
        "{:<18} {:<16} {:>9} {:>7} {:>7} {:>5}  ratio of p50 (min-max)",
        "workload", "server", "req/s", "p50 us", "p99 us", "wait"
    );
    for outcome in outcomes {
        let Some(half) = &outcome.half_load else {
            continue;
        };
        print_half_load(&outcome.case.to_string(), &half.ours, &shown(half.ratio()));
        print_half_load("", &half.theirs, "");
    }
}

/// Returns all results of all rounds as JSON.
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

fn print_figures(title: &str, figures: &Figures, ratio: &str) {
    let per_processor_second = median(&figures.per_processor_second);
    println!(
        "{title:<18} {:<16} {:>9.0} {per_processor_second:>11.0} {:>7.2} {:>7.0} {:>7.0} {:>4.0}% {:>4.0}%  {ratio}",
        figures.name,
        median(&figures.per_second),
        1e6 / per_processor_second,
        median(&figures.p50_us),
        median(&figures.p99_us),
        median(&figures.generator_share) * 100.0,
        median(&figures.waiting_share) * 100.0,
    );
}

fn print_half_load(title: &str, figures: &Figures, ratio: &str) {
    println!(
        "{title:<18} {:<16} {:>9.0} {:>7.0} {:>7.0} {:>4.0}%  {ratio}",
        figures.name,
        median(&figures.per_second),
        median(&figures.p50_us),
        median(&figures.p99_us),
        median(&figures.waiting_share) * 100.0,
    );
}

fn shown(spread: Option<Spread>) -> String {
    spread.map_or_else(|| "not measured".to_owned(), |spread| spread.to_string())
}

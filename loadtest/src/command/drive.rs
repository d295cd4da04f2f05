//! Drives a running server.

use std::error::Error;
use std::time::Duration;

use crate::drive::{Expected, Measured, Pace, Plan, Sessions, Until, run as drive};
use crate::target::Target;
use crate::workload::{Session, Workload};

/// Drive one running server.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The MCP endpoint; only loopback addresses are accepted
    #[arg(long, default_value = "http://127.0.0.1:3000/mcp")]
    url: Target,
    /// Requests to send
    #[arg(long, value_enum, default_value = "call")]
    workload: Workload,
    /// Keep-alive connections [default: 64, or 8 for list-500]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096), conflicts_with = "http2")]
    connections: Option<u32>,
    /// Use one HTTP/2 connection (prior knowledge)
    #[arg(long)]
    http2: bool,
    /// Concurrent streams of the HTTP/2 connection
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1000), requires = "http2")]
    streams: u32,
    /// Duration of the measurement
    #[arg(long, default_value_t = 5.0, value_parser = seconds, conflicts_with = "requests")]
    seconds: f64,
    /// Duration of the warm-up before the measurement
    #[arg(long, default_value_t = 0.3, value_parser = seconds)]
    warm_up: f64,
    /// Send this number of requests and count them all, without a warm-up
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    requests: Option<u64>,
    /// Requests per second (open loop: latency counts from when a request should have been sent)
    #[arg(long, value_parser = rate)]
    rate: Option<f64>,
    /// Process ID of the server, to measure its CPU time
    #[arg(long)]
    pid: Option<u32>,
    /// Accept any body of this many bytes, and open no sessions: for a baseline
    #[arg(long, value_name = "BYTES")]
    expect_bytes: Option<usize>,
}

/// Runs the command and prints the result.
pub(super) async fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let connections = arguments
        .connections
        .unwrap_or_else(|| arguments.workload.connections());
    let until = match arguments.requests {
        Some(count) => Until::Sent(count),
        None => Until::Elapsed(Duration::from_secs_f64(arguments.seconds)),
    };
    let mut plan = Plan {
        http2: arguments.http2,
        slots: match arguments.http2 {
            true => arguments.streams,
            false => connections,
        },
        pace: arguments.rate.map_or(Pace::AsAnswered, Pace::PerSecond),
        warm_up: Duration::from_secs_f64(arguments.warm_up),
        ..Plan::new(arguments.url, arguments.workload, until)
    };
    if let Some(length) = arguments.expect_bytes {
        plan.sessions = Sessions::Given(Session::default());
        plan.expected = Expected::Length(length);
    }
    let measured = drive(&plan, arguments.pid).await?;
    print(&measured);
    match measured.first_failure {
        Some(failure) => Err(failure.into()),
        None => Ok(()),
    }
}

fn print(measured: &Measured) {
    println!("responses            {:>12}", measured.answers());
    println!("failures             {:>12}", measured.failures);
    println!("responses/s          {:>12.0}", measured.per_second());
    if let Some(rate) = measured.per_processor_second() {
        println!("responses/CPU-s      {rate:>12.0}");
        println!("CPU us/response      {:>12.2}", 1e6 / rate);
    }
    for (name, quantile) in [
        ("p50 us", 0.5),
        ("p90 us", 0.9),
        ("p99 us", 0.99),
        ("max us", 1.0),
    ] {
        println!(
            "{name:<20} {:>12.0}",
            measured.latency.quantile(quantile).as_secs_f64() * 1e6
        );
    }
    println!(
        "generator busy       {:>11.0}%",
        measured.own_share() * 100.0
    );
    println!(
        "waited for a core    {:>11.0}%",
        measured.waiting_share() * 100.0
    );
}

/// Parses the duration of a measurement.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0.01 to 600".to_owned()),
    }
}

pub(super) fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (0.1..=1e7).contains(&rate) => Ok(rate),
        _ => Err("a number of requests a second from 0.1 to 10,000,000".to_owned()),
    }
}

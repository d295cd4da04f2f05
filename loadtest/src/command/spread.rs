//! Measures how evenly connections are distributed over the workers.
//!
//! Behind an ingress, a server has few and long-lived connections. If two of four are on the worker that also serves
//! the other two, half of the machine is idle.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use super::drive::{rate, seconds};
use super::product::Product;
use crate::drive::{Pace, Plan, Until, run as drive};
use crate::measure::Spread;
use crate::process::{Server, ThreadTime, thread_times};
use crate::target::Target;
use crate::workload::Workload;

/// Show how connections spread over workers.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The product's program [default: `longshore` beside this program, built first under `cargo run`]
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// Workers of the server
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=64))]
    workers: u32,
    /// Numbers of connections to try
    #[arg(long, value_delimiter = ',', default_value = "4,8,64", value_parser = clap::value_parser!(u32).range(1..=4096))]
    connections: Vec<u32>,
    /// Number of rounds for each case, with new connections
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Length of each round
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    /// Requests per second. The maximum rate would only show which worker shares a core with the generator
    #[arg(long, default_value_t = 10_000.0, value_parser = rate)]
    rate: f64,
}

/// Runs the measurement, and prints the workers' shares of the CPU time.
pub(super) async fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let product = Product::find(arguments.server.clone())?;
    let server = product.launch(Some(arguments.workers))?.start().await?;

    println!(
        "{:>11}  {:<23} shares of the workers, round by round",
        "connections", "most to least (min-max)"
    );
    for &connections in &arguments.connections {
        let mut rounds = Vec::new();
        for _ in 0..arguments.rounds {
            rounds.push(round(&server, connections, &arguments).await?);
        }
        let uneven =
            Spread::of(rounds.iter().map(|shares| most_to_least(shares))).ok_or("no rounds")?;
        let shares: Vec<String> = rounds.iter().map(|shares| percents(shares)).collect();
        println!(
            "{connections:>11}  {:<23} {}",
            format!("{uneven:.2}"),
            shares.join("  ")
        );
    }
    Ok(())
}

/// Measures the CPU time of each worker while `connections` are driven.
async fn round(
    server: &Server,
    connections: u32,
    arguments: &Arguments,
) -> Result<Vec<Duration>, Box<dyn Error>> {
    let target = Target::mcp(server.address());
    let until = Until::Elapsed(Duration::from_secs_f64(arguments.seconds));
    let plan = Plan {
        slots: connections,
        pace: Pace::PerSecond(arguments.rate),
        ..Plan::new(target, Workload::Call, until)
    };
    let before = workers(server)?;
    let measured = drive(&plan, None).await?;
    if let Some(failure) = measured.first_failure {
        return Err(failure.into());
    }
    let after = workers(server)?;
    Ok(before
        .iter()
        .zip(&after)
        .map(|(before, after)| after.time.used.saturating_sub(before.time.used))
        .collect())
}

fn workers(server: &Server) -> Result<Vec<ThreadTime>, Box<dyn Error>> {
    let mut threads = thread_times(server.pid())?;
    threads.retain(|thread| thread.name.starts_with(WORKER));
    if threads.len() < 2 {
        return Err(format!("the server has {} threads named {WORKER}…", threads.len()).into());
    }
    Ok(threads)
}

fn most_to_least(shares: &[Duration]) -> f64 {
    let seconds = |share: Option<&Duration>| share.map_or(0.0, Duration::as_secs_f64);
    seconds(shares.iter().max()) / seconds(shares.iter().min())
}

fn percents(shares: &[Duration]) -> String {
    let all: Duration = shares.iter().sum();
    let percents: Vec<String> = shares
        .iter()
        .map(|share| format!("{:.0}", 100.0 * share.as_secs_f64() / all.as_secs_f64()))
        .collect();
    percents.join("/")
}

/// Prefix of the worker threads' names; the kernel keeps fifteen bytes of them.
const WORKER: &str = "longshore-worke";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_told_in_percent_and_as_most_to_least() {
        let shares = [Duration::from_millis(300), Duration::from_millis(100)];
        assert_eq!(percents(&shares), "75/25");
        assert!((most_to_least(&shares) - 3.0).abs() < 1e-9);
        assert_eq!(
            most_to_least(&[Duration::from_millis(1), Duration::ZERO]),
            f64::INFINITY
        );
    }
}

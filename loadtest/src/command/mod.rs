//! Subcommands.

mod abuse;
mod baseline;
mod case;
mod compare;
mod cost;
mod count;
mod drive;
mod footprint;
mod full;
mod product;
mod serve_tools;
mod settings;
mod spread;

use std::error::Error;
use std::future::Future;

use clap::{Parser, Subcommand};

/// Drives an MCP server on this machine, and compares it with a bare hyper server.
#[derive(Debug, Parser)]
#[command(name = "longshore-loadtest", version)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compare the product with bare hyper: alternating rounds, on dedicated cores
    Compare(compare::Arguments),
    /// Compare the product with and without a setting: the cost of authentication, policy and limits
    Cost(cost::Arguments),
    /// Drive one running server, and print throughput and latency
    Drive(drive::Arguments),
    /// Measure cold start, idle memory and the size of the program
    Footprint(footprint::Arguments),
    /// Show the effect of a thousand abusive clients on a well-behaved one
    Abuse(abuse::Arguments),
    /// Show how connections are distributed over two workers
    Spread(spread::Arguments),
    /// Count the instructions of one request, under `valgrind --tool=callgrind`
    Count(count::Arguments),
    /// Serve many tools with the product's library, to measure listings
    ServeTools(serve_tools::Arguments),
    /// Serve bare hyper: reads the request, returns a fixed body
    Baseline(baseline::Arguments),
}

/// Runs a command until it has finished or is interrupted.
pub(crate) fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    match arguments.command {
        Command::Compare(arguments) => until_interrupted(compare::run(arguments)),
        Command::Cost(arguments) => until_interrupted(cost::run(arguments)),
        Command::Drive(arguments) => until_interrupted(drive::run(arguments)),
        Command::Footprint(arguments) => until_interrupted(footprint::run(arguments)),
        Command::Abuse(arguments) => until_interrupted(abuse::run(arguments)),
        Command::Spread(arguments) => until_interrupted(spread::run(arguments)),
        Command::Count(arguments) => until_interrupted(count::run(arguments)),
        Command::ServeTools(arguments) => serve_tools::run(&arguments),
        Command::Baseline(arguments) => until_interrupted(baseline::run(arguments)),
    }
}

/// Runs on this thread. When it is interrupted, the command is dropped, and with it the servers it started.
fn until_interrupted(
    command: impl Future<Output = Result<(), Box<dyn Error>>>,
) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut terminate =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::select! {
            result = command => result,
            _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
            _ = terminate.recv() => Err("terminated".into()),
        }
    })
}

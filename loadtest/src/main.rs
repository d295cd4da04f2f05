//! Load generator for MCP servers, which compares them with a bare hyper server.
//!
//! The modules, in reading order; each uses only those above it:
//!
//! - [`measure`]: statistics. A histogram of latencies, medians, ratios.
//! - [`process`]: servers as child processes, with their CPU time and memory use.
//! - [`wire`]: a small, fast HTTP client that prepares one request and sends it repeatedly.
//! - [`workload`]: the requests, and the expected responses.
//! - [`drive`]: one measured run of one workload against one server.
//! - [`command`]: the command line interface.
//!
//! Only loopback addresses are ever contacted ([`target`]).

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line program: its report is its output"
)]

mod measure;
mod process;
mod target;
mod wire;
mod workload;

mod drive;

mod command;

use std::process::ExitCode;

use clap::Parser;

/// The product's allocator, so that the baseline differs from it in nothing but the work it does.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match command::run(command::Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            let mut cause = error.source();
            while let Some(inner) = cause {
                eprintln!("  because: {inner}");
                cause = inner.source();
            }
            ExitCode::FAILURE
        }
    }
}

//! Drives an MCP server, and says how near it comes to a bare hyper server.
//!
//! The rooms, in reading order; each uses only those above it:
//!
//! - [`measure`]: the arithmetic. A histogram of latencies, medians, ratios.
//! - [`process`]: servers as child processes, the processor time and memory they use.
//! - [`wire`]: a small, fast HTTP client that keeps one request ready and sends it again and again.
//! - [`workload`]: what is sent, and what a right answer looks like.
//! - [`drive`]: one measured run of one workload against one server.
//! - [`command`]: what can be typed on the command line.
//!
//! Only loopback addresses are ever driven ([`target`]).

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

//! `longshore doctor`: what this machine and configuration will do, and what a client would meet at a deployed server.
//!
//! Each check is a [`Finding`]: what was seen, and if that is not right, what to change. Nothing is changed here; what a
//! check has to write, it takes away again.

mod documentation;
mod front;
mod machine;
mod reach;
mod remote;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use url::Url;

use super::config::print;
use super::{Failure, RunArgs, run};
use crate::app::AppError;
use crate::environment::Probe;
use remote::Remote;
pub(super) use remote::examining;
use report::{Finding, Report, Status};

/// What `doctor` is told.
#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// Examine a deployed server instead, ours or anyone's, at the URL of its MCP endpoint: https://mcp.example.com/mcp.
    /// A token for it is read from the variable LONGSHORE_TOKEN
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    /// With --url: how long to hold a stream open, to see who cuts it off, in seconds; 120 and more find the usual limits
    /// of balancers
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 20,
        requires = "url",
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    hold: u64,

    /// With --url: how long to wait for any one answer, in seconds
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 10,
        requires = "url",
        value_parser = clap::value_parser!(u64).range(1..=300)
    )]
    patience: u64,

    /// With --url: how many connections a session is taken to, to meet every replica
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8,
        requires = "url",
        value_parser = clap::value_parser!(u32).range(1..=64)
    )]
    connections: u32,

    /// With --url: a web origin whose pages are to call the server, such as https://app.example.com
    #[arg(long, value_name = "ORIGIN", requires = "url")]
    origin: Option<String>,

    /// With --url: accept certificates of the authorities in this file too, in PEM
    #[arg(long, value_name = "FILE", requires = "url")]
    ca: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Fail on warnings too
    #[arg(long)]
    strict: bool,

    #[command(flatten)]
    run: RunArgs,
}

/// Examines, and prints what was found. `false` if anything is to be mended.
pub(super) fn doctor(args: DoctorArgs) -> Result<bool, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(AppError::from)?;
    let mut report = Report::default();
    let examined = match args.url {
        Some(url) => {
            let roots = match &args.ca {
                Some(path) => std::fs::read(path).map_err(AppError::from)?,
                None => Vec::new(),
            };
            let url = Url::parse(&url).map_err(|error| {
                let problem = format!(
                    "--url is {url:?}, which is no URL: {error}; write it whole, such as https://mcp.example.com/mcp"
                );
                AppError::Arguments(problem)
            })?;
            let remote = Remote {
                url,
                token: Probe::real()
                    .variable("LONGSHORE_TOKEN")
                    .map(|token| token.to_owned().into()),
                hold: Duration::from_secs(args.hold),
                patience: Duration::from_secs(args.patience),
                connections: args.connections,
                origin: args.origin,
                roots,
            };
            runtime.block_on(remote::examine(remote, &mut report))
        }
        None => {
            here(args.run, &runtime, &mut report);
            Ok(())
        }
    };
    if let Err(problem) = examined {
        return Err(AppError::Arguments(problem).into());
    }
    runtime.shutdown_background();
    let text = if args.json {
        format!("{:#}\n", report.as_json())
    } else {
        report.as_text()
    };
    print(&text)?;
    let worst = report.worst();
    Ok(worst
        < if args.strict {
            Status::Warning
        } else {
            Status::Failure
        })
}

/// This machine, with the settings that `run` would have.
fn here(settings: RunArgs, runtime: &tokio::runtime::Runtime, report: &mut Report) {
    let probe = Probe::real();
    match run::load(settings) {
        Ok(loaded) => {
            machine::examine(&loaded, &probe, report);
            runtime.block_on(reach::examine(&loaded, &probe, report));
            // It may have to start upstream servers, which wait on threads of their own.
            let config = loaded.config.clone();
            runtime.block_on(documentation::examine(config, report));
        }
        Err(error) => report.add(
            Finding::failure("configuration", "settings", error.to_string())
                .advise("correct what is named, and ask again: `longshore config check`"),
        ),
    }
}

//! `longshore discover`: generates command tools from a program's help text.

use clap::Args;

use super::Failure;
use super::output::{self, print};
use super::run::runtime;
use crate::app::AppError;
use crate::source::{Discovery, discover};

#[derive(Debug, Args)]
pub(super) struct DiscoverArgs {
    /// The program: a name, or a path
    program: String,

    /// Subcommands at which to start
    subcommands: Vec<String>,

    /// Maximum depth of subcommands
    #[arg(long, value_name = "N", default_value_t = 2)]
    depth: usize,

    /// Timeout of each --help call, in seconds
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    timeout: u64,

    /// Environment variable that the program needs, such as HOME; may be repeated
    #[arg(long, value_name = "VARIABLE")]
    inherit: Vec<String>,
}

/// Prints the configuration, and remarks on standard error.
pub(super) fn run(args: DiscoverArgs) -> Result<(), Failure> {
    let program = args.program.clone();
    let discovery = Discovery {
        program: args.program,
        words: args.subcommands,
        depth: args.depth,
        timeout_seconds: args.timeout,
        inherit: args.inherit,
    };
    let runtime = runtime()?;
    let discovered = runtime.block_on(discover(&discovery)).map_err(|error| {
        Failure::from(AppError::Remote {
            server: program,
            problem: error.to_string(),
        })
    })?;
    for item in &discovered.left_out {
        output::remark(&format!("left out: {item}"));
    }
    for item in &discovered.unclear {
        output::remark(&format!("check: {item}"));
    }
    output::remark(&format!("tools: {}", discovered.tools));
    print(&discovered.configuration)
}

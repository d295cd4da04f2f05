//! `longshore discover`: a configuration of command tools, from what a program says of itself.

use clap::Args;

use super::Failure;
use super::config::print;
use super::output;
use crate::app::AppError;
use crate::source::{Discovery, discover};

#[derive(Debug, Args)]
pub(super) struct DiscoverArgs {
    /// The program: a name, or a path
    program: String,

    /// Subcommands that lead to where to begin
    subcommands: Vec<String>,

    /// How many levels of subcommands to look at
    #[arg(long, value_name = "N", default_value_t = 2)]
    depth: usize,

    /// How long each --help may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    timeout: u64,

    /// A variable of this shell that the program needs, such as HOME; may be repeated
    #[arg(long, value_name = "VARIABLE")]
    inherit: Vec<String>,
}

/// Prints the configuration; what is not in it is said on standard error.
pub(super) fn run(args: DiscoverArgs) -> Result<(), Failure> {
    let program = args.program.clone();
    let discovery = Discovery {
        program: args.program,
        words: args.subcommands,
        depth: args.depth,
        timeout_seconds: args.timeout.max(1),
        inherit: args.inherit,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(AppError::from)?;
    let discovered = runtime.block_on(discover(&discovery)).map_err(|error| {
        Failure::from(AppError::Remote {
            server: program,
            problem: error.to_string(),
        })
    })?;
    for told in &discovered.left_out {
        output::remark(&format!("left out: {told}"));
    }
    for told in &discovered.unclear {
        output::remark(&format!("look at: {told}"));
    }
    output::remark(&format!("tools: {}", discovered.tools));
    print(&discovered.configuration)
}

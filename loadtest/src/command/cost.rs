//! Compares the product with and without a setting, in turn and on a dedicated core.
//!
//! [`super::compare`] compares with bare hyper; this compares the product with itself. The same requests with the
//! same headers go to two servers that differ in one setting. The ratio is the cost of the setting.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum as _;

use super::case::Case;
use super::compare::{Contender, Figures, Outcome, report};
use super::drive::seconds;
use super::product::{ProductError, launch_with, this_program};
use super::settings::{ROLE_TOOLS, Setting};
use crate::drive::{Pace, Plan, Until};
use crate::process::{pin_this_process, require_taskset};
use crate::target::Target;
use crate::workload::Workload;

/// Compare the product with a setting and without it.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Costs to measure
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_enum, default_values_t = Cost::value_variants().to_vec())]
    of: Vec<Cost>,
    /// Number of rounds in which the two servers alternate
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Length of each round
    #[arg(long, default_value_t = 0.3, value_parser = seconds)]
    seconds: f64,
    /// The core of the servers
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    /// The core of the generator
    #[arg(long, default_value_t = 1)]
    generator_core: usize,
    /// Measure a debug build, to try the command out: its figures mean nothing
    #[arg(long, hide = true)]
    debug_build: bool,
}

/// A cost that a comparison determines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Cost {
    /// `tools/call` with API keys, compared with no authentication
    Key,
    /// `tools/call` with access tokens, compared with no authentication
    Token,
    /// `tools/list` with a rule that hides tools, compared with as many visible tools without a rule
    Filter,
    /// `tools/call` through a bucket of each kind, compared with API keys alone
    Buckets,
    /// `tools/list` by clients of a thousand roles, compared with clients of one
    Roles,
    /// `tools/call` with metrics, compared with one without instrumentation
    Metrics,
    /// `tools/call` with one in a hundred traced, compared with one without instrumentation
    Traces,
}

/// One of the two servers.
struct Side {
    name: &'static str,
    setting: Setting,
    tools: usize,
    credentials: Arc<[String]>,
}

impl Cost {
    fn workload(self) -> Workload {
        match self {
            Self::Key | Self::Token | Self::Buckets | Self::Metrics | Self::Traces => {
                Workload::Call
            }
            Self::Filter => Workload::List50,
            Self::Roles => Workload::ListRole,
        }
    }

    /// Returns the number of connections; with roles, one for each.
    fn connections(self) -> u32 {
        match self {
            Self::Roles => super::settings::ROLES,
            _ => self.workload().connections(),
        }
    }

    /// Returns the sides with and without the setting. Both get the same requests.
    fn sides(self) -> [Side; 2] {
        let side = |name, setting: Setting, tools, shown: Setting| Side {
            name,
            setting,
            tools,
            credentials: shown.credentials(),
        };
        match self {
            Self::Key => [
                side("with API keys", Setting::Key, 50, Setting::Key),
                side("without", Setting::Nothing, 50, Setting::Key),
            ],
            Self::Token => [
                side("with tokens", Setting::Token, 50, Setting::Token),
                side("without", Setting::Nothing, 50, Setting::Token),
            ],
            Self::Filter => [
                side("51 less one", Setting::Filter, 51, Setting::Nothing),
                side("50, no rules", Setting::Nothing, 50, Setting::Nothing),
            ],
            Self::Buckets => [
                side("with buckets", Setting::Buckets, 50, Setting::Key),
                side("with API keys", Setting::Key, 50, Setting::Key),
            ],
            Self::Metrics => [
                side("counted", Setting::Nothing, 50, Setting::Nothing),
                side("not watched", Setting::Uncounted, 50, Setting::Nothing),
            ],
            Self::Traces => [
                side("1 % traced", Setting::Traces, 50, Setting::Nothing),
                side("not watched", Setting::Uncounted, 50, Setting::Nothing),
            ],
            Self::Roles => [
                side(
                    "1000 roles",
                    Setting::Roles,
                    ROLE_TOOLS as usize,
                    Setting::Roles,
                ),
                side(
                    "one role",
                    Setting::Roles,
                    ROLE_TOOLS as usize,
                    Setting::Key,
                ),
            ],
        }
    }
}

/// Compares, and prints two rows for each cost.
pub(super) async fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    if cfg!(debug_assertions) && !arguments.debug_build {
        return Err(ProductError::DebugBuild.into());
    }
    require_taskset()?;
    let this_program = this_program()?;
    pin_this_process(arguments.generator_core)?;
    println!(
        "{} rounds of {} s in turn, servers on core {}, generator on core {}; medians\n",
        arguments.rounds, arguments.seconds, arguments.server_core, arguments.generator_core
    );
    report::print_columns();
    for cost in &arguments.of {
        let outcome = compare(*cost, &this_program, &arguments).await?;
        report::print_row(&outcome);
    }
    println!(
        "\nratio: req/s/cpu-s of the first to the second, median of the ratios of the rounds. What else is said of the\n\
         figures is what `compare` says of its own."
    );
    Ok(())
}

async fn compare(
    cost: Cost,
    this_program: &Path,
    arguments: &Arguments,
) -> Result<Outcome, Box<dyn Error>> {
    let case = Case {
        workload: cost.workload(),
        http2: false,
    };
    let until = Until::Elapsed(Duration::from_secs_f64(arguments.seconds));
    let mut contenders = Vec::new();
    for side in cost.sides() {
        let setting = clap::ValueEnum::to_possible_value(&side.setting);
        let setting = setting.map_or_else(String::new, |value| value.get_name().to_owned());
        let launch = launch_with(this_program, side.tools, &setting)?;
        // Loading a thousand rules about ten thousand tools takes a while.
        let launch = launch.on_core(arguments.server_core).slow_to_start();
        let server = launch.start().await?;
        contenders.push(Contender {
            name: side.name,
            plan: Plan {
                slots: cost.connections(),
                warm_up: super::compare::WARM_UP,
                credentials: side.credentials,
                ..Plan::new(Target::mcp(server.address()), case.workload, until)
            },
            server,
        });
    }
    let mut length = 0;
    for contender in &contenders {
        length = contender.probe(case).await?.length;
    }
    let mut rounds = [Vec::new(), Vec::new()];
    for _ in 0..arguments.rounds {
        for (contender, rounds) in contenders.iter().zip(&mut rounds) {
            rounds.push(contender.turn(case, Pace::AsAnswered).await?);
        }
    }
    let [ours, theirs] = rounds;
    Ok(Outcome {
        case,
        length,
        ours: Figures::of(contenders[0].name, &ours),
        theirs: Figures::of(contenders[1].name, &theirs),
        half_load: None,
    })
}

//! Compares the product and a bare hyper server, in turn and on a dedicated core.
//!
//! The measure is requests per second of the *server's CPU time*. Other processes on the machine take wall-clock time
//! from a server, but hardly any of its CPU time. The two are compared round by round, because the state of the
//! machine (clock, caches, other processes) affects both halves of a round alike. Many short rounds are better than
//! few long ones: a disturbance of a second spoils three of twenty rounds, and does not affect the median.

pub(super) mod report;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::report::HalfLoad;
pub(super) use self::report::{Figures, Outcome};
use super::case::{self, Case};
use super::drive::seconds;
use super::product::{Product, launch_baseline, launch_tools, this_program};
use crate::drive::{
    DriveError, Expected, Measured, Pace, Plan, Probe, Sessions, SlotError, Until, probe,
    run as drive,
};
use crate::measure::Spread;
use crate::process::{Server, pin_this_process, require_taskset};
use crate::target::Target;
use crate::workload::Session;

/// Compare the product with bare hyper.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The product's program [default: `longshore` beside this program, built first under `cargo run`]
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// Cases to compare; `-h2` after a name means over HTTP/2
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = case::ALL)]
    workloads: Vec<Case>,
    /// Number of rounds in which product and baseline alternate
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Length of each round
    #[arg(long, default_value_t = 0.3, value_parser = seconds)]
    seconds: f64,
    /// Number of rounds at half of the peak rate, for latency; 0 skips them
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(0..=100))]
    half_load_rounds: u32,
    /// Connections, or streams of one HTTP/2 connection [default: 64, or 8 for list-500]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: Option<u32>,
    /// The core of the servers
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    /// The core of the generator
    #[arg(long, default_value_t = 1)]
    generator_core: usize,
    /// Compare the baseline with itself, which shows the random error of the ratios
    #[arg(long, conflicts_with = "server")]
    noise: bool,
    /// Also write everything to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Reason why a round does not count.
#[derive(Debug, thiserror::Error)]
pub(super) enum TurnError {
    #[error("{case}: {name} could not be driven")]
    NotDriven {
        case: Case,
        name: &'static str,
        #[source]
        source: DriveError,
    },
    #[error("{case}: {failures} requests to {name} failed, the first one so")]
    Failed {
        case: Case,
        name: &'static str,
        failures: u64,
        #[source]
        first: SlotError,
    },
}

/// Compares, and prints a row for each workload.
pub(super) async fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    require_taskset()?;
    let product = if arguments.noise {
        None
    } else {
        Some(Product::find(arguments.server.clone())?)
    };
    let this_program = this_program()?;
    pin_this_process(arguments.generator_core)?;

    report::print_header(&arguments);
    let mut outcomes = Vec::new();
    for &case in &arguments.workloads {
        let outcome = compare(case, product.as_ref(), &this_program, &arguments).await?;
        report::print_row(&outcome);
        outcomes.push(outcome);
    }
    report::print_footer(&outcomes);
    if let Some(file) = &arguments.json {
        fs::write(file, report::to_json(&outcomes))?;
    }
    Ok(())
}

/// A server and its load.
#[derive(Debug)]
pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) server: Server,
    pub(super) plan: Plan,
}

impl Contender {
    /// Sends one request.
    pub(super) async fn probe(&self, case: Case) -> Result<Probe, TurnError> {
        let name = self.name;
        let seen = probe(&self.plan).await;
        seen.map_err(|source| TurnError::NotDriven { case, name, source })
    }

    pub(super) async fn turn(&self, case: Case, pace: Pace) -> Result<Measured, TurnError> {
        let name = self.name;
        let plan = Plan {
            pace,
            ..self.plan.clone()
        };
        let measured = drive(&plan, Some(self.server.pid())).await;
        let measured = measured.map_err(|source| TurnError::NotDriven { case, name, source })?;
        match measured.first_failure {
            None => Ok(measured),
            Some(first) => Err(TurnError::Failed {
                case,
                name,
                failures: measured.failures,
                first,
            }),
        }
    }
}

async fn compare(
    case: Case,
    product: Option<&Product>,
    this_program: &Path,
    arguments: &Arguments,
) -> Result<Outcome, Box<dyn Error>> {
    let until = Until::Elapsed(Duration::from_secs_f64(arguments.seconds));
    let usual = case.workload.connections();
    let plan = |server: &Server| Plan {
        http2: case.http2,
        slots: arguments.connections.unwrap_or(usual),
        warm_up: WARM_UP,
        ..Plan::new(Target::mcp(server.address()), case.workload, until)
    };
    // The baseline gets exactly the requests that the product gets, with a session ID of the product.
    let bare = async |name, length, session| {
        let server = launch_baseline(this_program, length, case.http2)?
            .on_core(arguments.server_core)
            .start()
            .await?;
        let plan = Plan {
            sessions: Sessions::Given(session),
            expected: Expected::Length(length),
            ..plan(&server)
        };
        Ok::<_, Box<dyn Error>>(Contender { name, server, plan })
    };

    let (ours, theirs, length) = match product {
        Some(product) => {
            let launch = match case.workload.tools() {
                Some(count) => launch_tools(this_program, count)?,
                None => product.launch(Some(1))?,
            };
            let server = launch.on_core(arguments.server_core).start().await?;
            let ours = Contender {
                name: "longshore",
                plan: plan(&server),
                server,
            };
            let seen = ours.probe(case).await?;
            let session = seen.session.unwrap_or_default();
            (
                ours,
                bare("bare hyper", seen.length, session).await?,
                seen.length,
            )
        }
        None => {
            let (length, session) = (case.workload.usual_answer(), Session::default());
            (
                bare("bare hyper again", length, session.clone()).await?,
                bare("bare hyper", length, session).await?,
                length,
            )
        }
    };

    let (mut our_rounds, mut their_rounds) = (Vec::new(), Vec::new());
    for _ in 0..arguments.rounds {
        our_rounds.push(ours.turn(case, Pace::AsAnswered).await?);
        their_rounds.push(theirs.turn(case, Pace::AsAnswered).await?);
    }
    let half_load = half_load(
        case,
        &ours,
        &theirs,
        [&our_rounds, &their_rounds],
        arguments.half_load_rounds,
    )
    .await?;
    let (ours, theirs) = (
        Figures::of(ours.name, &our_rounds),
        Figures::of(theirs.name, &their_rounds),
    );
    Ok(Outcome {
        case,
        length,
        ours,
        theirs,
        half_load,
    })
}

/// Runs both at half of their peak load, where latency is what a user would see.
async fn half_load(
    case: Case,
    ours: &Contender,
    theirs: &Contender,
    peaks: [&[Measured]; 2],
    rounds: u32,
) -> Result<Option<HalfLoad>, Box<dyn Error>> {
    let [our_pace, their_pace] =
        peaks.map(|rounds| Spread::of(rounds.iter().map(Measured::per_second)));
    let (Some(our_peak), Some(their_peak), 1..) = (our_pace, their_pace, rounds) else {
        return Ok(None);
    };
    let (mut our_rounds, mut their_rounds) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        our_rounds.push(
            ours.turn(case, Pace::PerSecond(our_peak.median / 2.0))
                .await?,
        );
        their_rounds.push(
            theirs
                .turn(case, Pace::PerSecond(their_peak.median / 2.0))
                .await?,
        );
    }
    Ok(Some(HalfLoad {
        ours: Figures::of(ours.name, &our_rounds),
        theirs: Figures::of(theirs.name, &their_rounds),
    }))
}

/// Load before each round, which is not counted.
pub(super) const WARM_UP: Duration = Duration::from_millis(200);

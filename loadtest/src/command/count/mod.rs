//! Counts the instructions of one request, or how much of its code is not in the instruction cache.
//!
//! On a busy machine, time varies by several percent, but the number of instructions hardly varies. Small changes are
//! therefore judged by it. A server runs under `valgrind --tool=callgrind` twice, the second time with twice as many
//! requests. The difference is the cost of the requests without startup, handshake and shutdown. Only the server's
//! own instructions count, not those of the kernel.

mod profile;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use self::profile::{Event, Profile};
use super::case::Case;
use super::product::{Product, launch_baseline, launch_tools, this_program};
use crate::drive::{Expected, Plan, Sessions, Until, probe, run as drive};
use crate::process::{Launch, Server, ServerError};
use crate::target::Target;
use crate::workload::Session;

/// Count the instructions of one request.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The product's program [default: `longshore` beside this program, built first under `cargo run`]
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// Cases to count; `-h2` after a name means over HTTP/2
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "call,call-stateless,ping,discover,initialize,list-50,echo-64k"
    )]
    workloads: Vec<Case>,
    /// Number of requests; the second run sends twice as many
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    requests: u32,
    /// Connections, or streams of one HTTP/2 connection
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    connections: u32,
    /// Also print where the product's instructions are spent
    #[arg(long)]
    by_function: bool,
    /// Number of functions to print
    #[arg(long, default_value_t = 25, requires = "by_function")]
    functions: usize,
    /// Do not count the baseline
    #[arg(long)]
    product_only: bool,
    /// Count what misses a simulated instruction cache of 32 KiB instead, in lines of 64 bytes
    #[arg(long)]
    cache_misses: bool,
    /// Print one JSON object instead: instructions of the product within tasks, by workload
    #[arg(long, conflicts_with_all = ["by_function"])]
    json: bool,
}

impl Arguments {
    fn event(&self) -> Event {
        match self.cache_misses {
            true => Event::CacheMisses,
            false => Event::Instructions,
        }
    }
}

/// Counts, and prints a row for each workload.
pub(super) async fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    require_valgrind()?;
    let product = Product::find(arguments.server.clone())?;
    let this_program = this_program()?;

    if !arguments.json {
        println!(
            "{} of one request, over {} connection(s). In brackets: within the connection's task,\n\
             without the runtime's waiting for sockets, which differs a little from run to run.\n",
            match arguments.event() {
                Event::Instructions => "User instructions",
                Event::CacheMisses => "Misses of the instruction cache",
            },
            arguments.connections
        );
        println!(
            "{:<18} {:>20} {:>20} {:>20}",
            "workload", "longshore", "bare hyper", "difference"
        );
    }
    let mut counted = serde_json::Map::new();
    for &case in &arguments.workloads {
        let (ours, seen) = count_product(case, &product, &this_program, &arguments).await?;
        counted.insert(case.to_string(), ours.in_tasks().round().into());
        if arguments.json {
            continue;
        }
        let mut baseline = None;
        if arguments.product_only {
            println!("{case:<18} {}", of_which(ours.total(), ours.in_tasks()));
        } else {
            let theirs = count_baseline(case, seen, &this_program, &arguments).await?;
            println!(
                "{case:<18} {} {} {}",
                of_which(ours.total(), ours.in_tasks()),
                of_which(theirs.total(), theirs.in_tasks()),
                of_which(
                    ours.total() - theirs.total(),
                    ours.in_tasks() - theirs.in_tasks()
                ),
            );
            baseline = Some(theirs);
        }
        if arguments.by_function {
            println!();
            ours.print(arguments.functions);
            if let Some(baseline) = baseline {
                println!("\n  and bare hyper");
                baseline.print(arguments.functions);
            }
        }
    }
    if arguments.json {
        println!("{:#}", serde_json::Value::Object(counted));
    }
    Ok(())
}

fn of_which(total: f64, in_tasks: f64) -> String {
    format!("{total:>10.0} ({in_tasks:>7.0})")
}

/// Properties of the product's responses that the baseline has to match.
struct Seen {
    length: usize,
    session: Session,
}

async fn count_product(
    case: Case,
    product: &Product,
    this_program: &Path,
    arguments: &Arguments,
) -> Result<(Profile, Seen), Box<dyn Error>> {
    let launch = || match case.workload.tools() {
        Some(count) => launch_tools(this_program, count),
        None => product.launch(Some(1)),
    };
    let plan = |server: &Server| plan(case, server, arguments);
    let server = launch()?.start().await?;
    let seen = probe(&plan(&server)).await?;
    drop(server);
    Ok((
        of_one_request(launch, plan, arguments).await?,
        Seen {
            length: seen.length,
            session: seen.session.unwrap_or_default(),
        },
    ))
}

async fn count_baseline(
    case: Case,
    seen: Seen,
    this_program: &Path,
    arguments: &Arguments,
) -> Result<Profile, Box<dyn Error>> {
    let launch = || launch_baseline(this_program, seen.length, case.http2);
    let plan = |server: &Server| Plan {
        sessions: Sessions::Given(seen.session.clone()),
        expected: Expected::Length(seen.length),
        ..plan(case, server, arguments)
    };
    of_one_request(launch, plan, arguments).await
}

async fn of_one_request(
    launch: impl Fn() -> Result<Launch, ServerError>,
    plan: impl Fn(&Server) -> Plan,
    arguments: &Arguments,
) -> Result<Profile, Box<dyn Error>> {
    let (requests, event) = (arguments.requests, arguments.event());
    let once = profile(launch()?, &plan, requests, event).await?;
    let twice = profile(launch()?, &plan, 2 * requests, event).await?;
    Ok(twice.less(once).each(requests))
}

fn plan(case: Case, server: &Server, arguments: &Arguments) -> Plan {
    Plan {
        http2: case.http2,
        slots: arguments.connections,
        warm_up: std::time::Duration::ZERO,
        ..Plan::new(Target::mcp(server.address()), case.workload, Until::Sent(0))
    }
}

/// Profiles a server from start to end, with a number of requests.
async fn profile(
    launch: Launch,
    plan: impl Fn(&Server) -> Plan,
    requests: u32,
    event: Event,
) -> Result<Profile, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("callgrind.out");
    let output = format!("--callgrind-out-file={}", file.display());
    let mut valgrind = vec![
        "valgrind",
        "--tool=callgrind",
        "--compress-strings=no",
        "--compress-pos=no",
        &output,
    ];
    if event == Event::CacheMisses {
        // Sizes are given, so that a count does not depend on the processor: bytes, ways, bytes of a line.
        valgrind.extend(["--cache-sim=yes", "--I1=32768,8,64", "--D1=49152,12,64"]);
    }
    let server = launch.through(valgrind).start().await?;
    let plan = Plan {
        until: Until::Sent(requests.into()),
        ..plan(&server)
    };
    let measured = drive(&plan, None).await?;
    if let Some(failure) = measured.first_failure {
        return Err(failure.into());
    }
    server.stop().await?;
    Ok(Profile::read(&std::fs::read_to_string(file)?, event)?)
}

fn require_valgrind() -> Result<(), Box<dyn Error>> {
    Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .map_err(|error| format!("`valgrind` is needed to count instructions: {error}"))?;
    Ok(())
}

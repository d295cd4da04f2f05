//! Measures the startup time and the size of the product.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::task::yield_now;
use tokio::time::sleep;

use super::full::Full;
use super::product::Product;
use crate::drive::SlotError;
use crate::measure::Spread;
use crate::process::{Launch, Server, resident_bytes};
use crate::target::Target;
use crate::wire::Wire;
use crate::workload::{Check, Workload, post};

/// Measure cold start, idle memory and the size of the program.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The product's program [default: `longshore` beside this program, built first under `cargo run`]
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// Number of starts
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    starts: u32,
    /// Workers of the server [default: its own]
    #[arg(long)]
    workers: Option<u32>,
}

/// Measures, and prints a short table.
pub(super) async fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let product = Product::find(arguments.server)?;
    let size = fs::metadata(product.program())?.len();

    let mut starts_ms = Vec::new();
    for _ in 0..arguments.starts {
        let began = Instant::now();
        let (server, wire) = connected(product.launch(arguments.workers)?, began).await?;
        call(wire, &server).await?;
        starts_ms.push(began.elapsed().as_secs_f64() * 1e3);
    }
    let starts_ms = Spread::of(starts_ms).ok_or("no starts")?;

    let full = Full::new()?;
    let mut full_starts_ms = Vec::new();
    for _ in 0..arguments.starts {
        let began = Instant::now();
        let launch = product.launch_configured(&full.settings(), arguments.workers)?;
        let mut server = launch.spawn()?;
        full.call(&mut server)?;
        full_starts_ms.push(began.elapsed().as_secs_f64() * 1e3);
    }
    let full_starts_ms = Spread::of(full_starts_ms).ok_or("no starts")?;
    let launch = product.launch_configured(&full.settings(), arguments.workers)?;
    let server = launch.start().await?;
    sleep(IDLE).await;
    let full_idle = resident_bytes(server.pid())?;
    drop(server);

    let server = product.launch(arguments.workers)?.start().await?;
    sleep(IDLE).await;
    let idle = resident_bytes(server.pid())?;
    call(Wire::http1(server.address()).await?, &server).await?;
    let after_call = resident_bytes(server.pid())?;
    sleep(SETTLED).await;
    let settled = resident_bytes(server.pid())?;

    println!(
        "exec to first answered tools/call, ms   {starts_ms:.1}   median (min-max) of {} starts",
        arguments.starts
    );
    println!("the same with much set, over TLS, ms     {full_starts_ms:.1}");
    println!(
        "resident, idle {} s after start, MiB     {:.1}",
        IDLE.as_secs(),
        mebibytes(idle)
    );
    println!(
        "resident, after the first call, MiB     {:.1}",
        mebibytes(after_call)
    );
    println!(
        "resident, {} s after that, MiB           {:.1}",
        SETTLED.as_secs(),
        mebibytes(settled)
    );
    println!(
        "resident, idle with many settings, MiB  {:.1}",
        mebibytes(full_idle)
    );
    println!(
        "program, MiB                            {:.1}",
        mebibytes(size)
    );
    Ok(())
}

/// Starts a server, and connects as soon as that is possible.
async fn connected(launch: Launch, began: Instant) -> Result<(Server, Wire), Box<dyn Error>> {
    let mut server = launch.spawn()?;
    loop {
        match Wire::http1(server.address()).await {
            Ok(wire) => return Ok((server, wire)),
            Err(error) if began.elapsed() > CONNECTED_WITHIN => return Err(error.into()),
            Err(_) => server.check_alive()?,
        }
        yield_now().await;
    }
}

/// Makes a call with a single request: the stateless protocol version needs no session.
async fn call(mut wire: Wire, server: &Server) -> Result<(), Box<dyn Error>> {
    wire.prepare(&post(
        Workload::CallStateless,
        &Target::mcp(server.address()),
        1,
        None,
    ))?;
    let answer = wire.exchange().await?;
    Check::message(Workload::CallStateless, 1)
        .check(&answer)
        .map_err(SlotError::from)?;
    Ok(())
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

const IDLE: Duration = Duration::from_secs(1);
/// Time after which the server has released the pages of its first requests.
const SETTLED: Duration = Duration::from_secs(2);
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);

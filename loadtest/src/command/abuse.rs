//! Measures the effect of abusive clients on a well-behaved one.
//!
//! For each kind of abuse, this reports the latency of the good client's calls without and with a number of bad
//! clients, and the server's memory. The good client sends requests at a fixed rate, so a delay counts for every call
//! that it makes late. The bad clients have their own thread, so that contention among them in this program is not
//! charged to the server.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::drive::seconds;
use super::product::Product;
use crate::drive::{Measured, Pace, Plan, Until, run as drive};
use crate::measure::median;
use crate::process::{Server, resident_bytes};
use crate::target::Target;
use crate::workload::Workload;

/// Show the effect of many abusive clients on a well-behaved one.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The product's program [default: `longshore` beside this program, built first under `cargo run`]
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// Workers of the server
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,
    /// Kinds of abuse by the bad clients
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Kind::value_variants().to_vec())]
    kinds: Vec<Kind>,
    /// Number of bad clients; each needs an open file (`ulimit -n`)
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    bad: u32,
    /// Number of measurements of each kind
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Length of each round
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
    /// Calls of the good client per second
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
}

/// Repeated behavior of a bad client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A head that never ends, a field each second
    Heads,
    /// A body that never ends, a byte each second
    Bodies,
    /// Calls with large responses that are never read
    Readers,
    /// Sends nothing
    Idle,
    /// Connections that are closed as soon as they are open
    Churn,
    /// HTTP/2 streams that are reset as soon as they are open
    Resets,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// Runs the measurement, and prints the good client's latencies.
pub(super) async fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let product = Product::find(arguments.server.clone())?;
    println!(
        "{:<8} {:>10} {:>10} {:>10} {:>10} {:>9} {:>9}",
        "kind", "quiet p50", "quiet p99", "p50 ms", "p99 ms", "failures", "MiB"
    );
    for &kind in &arguments.kinds {
        let server = product.launch(Some(arguments.workers))?.start().await?;
        let quiet = rounds(&server, &arguments).await?;
        let bad = BadClients::start(kind, server.address(), arguments.bad)?;
        // Time for all bad clients to connect.
        sleep(Duration::from_secs(1)).await;
        let abused = rounds(&server, &arguments).await?;
        let memory = resident_bytes(server.pid())?;
        drop(bad);
        println!(
            "{kind:<8} {:>10.2} {:>10.2} {:>10.2} {:>10.2} {:>9} {:>9.1}",
            quiet.p50,
            quiet.p99,
            abused.p50,
            abused.p99,
            abused.failures,
            memory as f64 / f64::from(1 << 20),
        );
    }
    Ok(())
}

/// Latency of the good client, in milliseconds: medians over the rounds.
struct Noticed {
    p50: f64,
    p99: f64,
    failures: u64,
}

async fn rounds(server: &Server, arguments: &Arguments) -> Result<Noticed, Box<dyn Error>> {
    let until = Until::Elapsed(Duration::from_secs_f64(arguments.seconds));
    let target = Target::mcp(server.address());
    let plan = Plan {
        slots: 8,
        pace: Pace::PerSecond(f64::from(arguments.rate)),
        warm_up: Duration::from_millis(100),
        ..Plan::new(target, Workload::CallStateless, until)
    };
    let (mut p50, mut p99, mut failures) = (Vec::new(), Vec::new(), 0);
    for _ in 0..arguments.rounds {
        let measured: Measured = drive(&plan, None).await?;
        let quantile = |q| measured.latency.quantile(q).as_secs_f64() * 1e3;
        p50.push(quantile(0.5));
        p99.push(quantile(0.99));
        failures += measured.failures;
    }
    Ok(Noticed {
        p50: median(&p50),
        p99: median(&p99),
        failures,
    })
}

/// Bad clients on a separate thread, stopped on drop.
struct BadClients {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl BadClients {
    fn start(kind: Kind, server: SocketAddr, count: u32) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            runtime.block_on(async {
                for _ in 0..count {
                    tokio::spawn(async move {
                        loop {
                            // The next attempt follows, however this one ended.
                            let _ = misbehave(kind, server).await;
                            sleep(Duration::from_millis(10)).await;
                        }
                    });
                }
                let _ = stopped.await;
            });
        };
        let thread = thread::Builder::new()
            .name("bad-clients".to_owned())
            .spawn(run)?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for BadClients {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread returns nothing, and a panic has already been printed.
            let _ = thread.join();
        }
    }
}

const HEAD: &str = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";

async fn misbehave(kind: Kind, server: SocketAddr) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut stream = TcpStream::connect(server).await?;
    match kind {
        Kind::Heads => {
            stream.write_all(HEAD.as_bytes()).await?;
            drip(stream, b"x: y\r\n").await?;
        }
        Kind::Bodies => {
            let head = format!("{HEAD}content-length: 1000000\r\n\r\n");
            stream.write_all(head.as_bytes()).await?;
            drip(stream, b" ").await?;
        }
        Kind::Readers => {
            let body = call(&"x".repeat(64 << 10));
            let request = format!(
                "{HEAD}mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: echo\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            // Sends as much as the socket accepts, without reading.
            while let Ok(sent) = tokio::time::timeout(
                Duration::from_secs(60),
                stream.write_all(request.as_bytes()),
            )
            .await
            {
                sent?;
            }
        }
        Kind::Idle => {
            stream.read_u8().await?;
        }
        Kind::Churn => {}
        Kind::Resets => {
            let (mut client, connection) = h2::client::handshake(stream).await?;
            let driving = tokio::spawn(connection);
            while let Ok(ready) = client.clone().ready().await {
                client = ready;
                let request = http::Request::post("http://localhost/mcp").body(())?;
                let (_, mut body) = client.send_request(request, false)?;
                body.send_reset(h2::Reason::CANCEL);
                tokio::task::yield_now().await;
            }
            driving.await??;
        }
    }
    Ok(())
}

/// Sends a little each second, for as long as the server accepts it.
async fn drip(mut stream: TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    loop {
        sleep(Duration::from_secs(1)).await;
        stream.write_all(bytes).await?;
    }
}

/// Returns a stateless call of `echo`.
fn call(message: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{{"message":"{message}"}},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_the_sorted_values() {
        assert!((median(&[5.0, 1.0, 3.0]) - 3.0).abs() < 1e-9);
        assert!(median(&[]).is_nan());
    }
}

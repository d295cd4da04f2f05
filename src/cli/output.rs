//! What people see: the greeting, the log, and complaints. All of it on standard error; standard output is for data.
#![expect(
    clippy::print_stderr,
    reason = "this is the one place that talks to people"
)]

use std::fmt::Display;
use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;

use tracing_subscriber::EnvFilter;

/// Sends the log to standard error: in colour to a terminal, as JSON in a container, plain elsewhere.
pub(super) fn start_logging() {
    let probe = crate::environment::Probe::real();
    let level = probe
        .variable("LONGSHORE_LOG")
        .or_else(|| probe.variable("RUST_LOG"));
    let filter = EnvFilter::builder().parse_lossy(level.unwrap_or("info"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    let terminal = io::stderr().is_terminal();
    if probe.is_in_container() && !terminal {
        log.json().flatten_event(true).init();
    } else {
        let colour = terminal && probe.variable("NO_COLOR").is_none();
        log.with_ansi(colour).with_target(false).init();
    }
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        let message = panic.payload_as_str().unwrap_or("no message");
        tracing::error!(place, message, "panicked");
    }));
}

/// Says where the server is and how to reach it, at a glance.
pub(super) fn greet(address: SocketAddr, toolsets: &str, tools: usize) {
    let url = format!("http://{address}/mcp");
    let version = env!("CARGO_PKG_VERSION");
    eprintln!(
        "\n  Longshore {version} serves {tools} tools ({toolsets}) at {url}\n\n  \
           try it    npx @modelcontextprotocol/inspector --cli {url} --transport http --method tools/list\n  \
           connect   {{\"mcpServers\": {{\"longshore\": {{\"type\": \"http\", \"url\": \"{url}\"}}}}}}\n  \
           health    http://{address}/health\n"
    );
}

/// Says why the program ends.
pub(super) fn complain(error: &dyn Display) {
    eprintln!("longshore: {error}");
}

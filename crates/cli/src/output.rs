//! Output: banner, log and errors for people on standard error, and data on standard output.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, reload};

use super::Failure;
use super::log::{self, Format, Lines};
use super::paint::are_colours_wanted;
use crate::app::{AppError, BoundServer, Hook};
use crate::environment::Probe;
use crate::net::is_panic_expected;
use crate::protocol::counted;
use longshore_app::config::{ConfigError, Conflict, LogConfig, LogFormat};

/// Reader of standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    People,
    /// A log collector: every line is JSON.
    Programs,
}

impl Audience {
    /// Detects the reader from the environment.
    pub(super) fn of(probe: &Probe) -> Self {
        if probe.is_orchestrated() && !probe.is_at_terminal() {
            Self::Programs
        } else {
            Self::People
        }
    }

    /// Detects the reader of a server's log before its configuration is loaded, by the configured or detected format.
    pub(super) fn of_log(probe: &Probe) -> Self {
        let set = ["LONGSHORE_LOG__FORMAT", "MCP_LOG_FORMAT"];
        let format = set.iter().find_map(|name| probe.variable(name));
        let detected = || {
            probe
                .environment()
                .log_format
                .as_ref()
                .map(|seen| seen.value)
        };
        match format.or_else(detected) {
            Some("json") => Self::Programs,
            Some(_) => Self::People,
            None => Self::of(probe),
        }
    }
}

/// Starts logging to standard error: coloured on a terminal, JSON if requested, plain text otherwise.
///
/// # Errors
///
/// The level is invalid.
pub(super) fn start_logging(config: &LogConfig, probe: &Probe) -> Result<Level, AppError> {
    let (filter, handle) = reload::Layer::new(filter(&config.level)?);
    let format = match config.format {
        LogFormat::Json => Format::Json,
        _ => Format::Text {
            colour: probe.is_at_terminal() && are_colours_wanted(probe),
        },
    };
    let lines = Lines::to(format, config.line_bytes, io::stderr());
    log::is_ours(lines.queue());
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .init();
    std::panic::set_hook(Box::new(|panic| {
        if is_panic_expected() {
            return;
        }
        let place = panic.location().map(ToString::to_string);
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let message = text.unwrap_or("no message");
        tracing::error!(place, error = message, "panicked");
    }));
    Ok(Level(handle))
}

/// Checks the settings of the log.
///
/// # Errors
///
/// The level is invalid.
pub(super) fn check_logging(config: &LogConfig) -> Result<(), AppError> {
    filter(&config.level).map(drop)
}

/// Starts logging for a command that is the client of a program: what that writes to standard error, and warnings.
pub(super) fn show_programs(config: &LogConfig) -> Result<(), AppError> {
    let mut config = config.clone();
    "warn,longshore_sources::client::stdio=info".clone_into(&mut config.level);
    start_logging(&config, Probe::real()).map(drop)
}

/// Log level, which can change at run time.
#[derive(Clone, Debug)]
pub(super) struct Level(reload::Handle<Targets, Registry>);

impl Level {
    /// Returns the hook that applies changed settings.
    pub(super) fn hook(self) -> Hook {
        Box::new(move |config| {
            let filter = filter(&config.log.level)?;
            let handle = self.0.clone();
            Ok(Box::new(move || {
                // This fails only after logging has ended.
                let _ = handle.reload(filter);
            }))
        })
    }
}

/// Parses the level. The HTTP/2 library logs a warning for each client error, which limits already count. Its
/// messages are enabled only if they are named, or at debug level and below.
///
/// A word that is not a level would be taken as a module name, and disable all other logs.
fn filter(level: &str) -> Result<Targets, AppError> {
    let refused = |problem: String| {
        AppError::from(ConfigError::Conflicts(vec![Conflict {
            problem: format!("log.level is {level:?}: {problem}"),
            advice: "write error, warn, info, debug, trace or off, also for a part: warn,longshore_http=debug"
                .to_owned(),
        }]))
    };
    let is_word = !level.contains(['=', ',', ':', '[']);
    if is_word && level.parse::<LevelFilter>().is_err() {
        return Err(refused("it is not a log level".to_owned()));
    }
    // Span filters of other programs have no effect here, and would disable all logs.
    if level.contains('[') {
        return Err(refused("parts are chosen by name, not by spans".to_owned()));
    }
    let filter: Targets = level
        .parse()
        .map_err(|error: ParseError| refused(error.to_string()))?;
    let most = filter
        .iter()
        .map(|(_, level)| level)
        .chain(filter.default_level())
        .max();
    let hears_much = most > Some(LevelFilter::INFO);
    Ok(if hears_much || level.contains("h2") {
        filter
    } else {
        filter.with_target("h2", LevelFilter::ERROR)
    })
}

/// Prints the banner: the server's address and how to connect.
pub(super) fn print_banner(bound: &BoundServer, address: SocketAddr) {
    let root = root_url(bound.scheme(), address);
    let page = match bound.playground_is_off_because() {
        Some(reason) => Page::Off(reason),
        None if bound.has_playground() => Page::Served,
        None => Page::Unwanted,
    };
    let metrics = bound.admin_address().map(|admin| root_url("http", admin));
    remark(&greeting(&root, address, &bound.offering(), page, metrics));
}

/// Returns the URL of the server on this machine.
pub(super) fn root_url(scheme: &str, address: SocketAddr) -> String {
    let ip = reachable(address.ip());
    format!("{scheme}://{}/", SocketAddr::new(ip, address.port()))
}

/// An unspecified address is replaced by loopback, because clients cannot connect to it.
pub(super) fn reachable(host: IpAddr) -> IpAddr {
    match host {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        host => host,
    }
}

/// Prints the banner of a Unix socket.
pub(super) fn greet_at_file(path: &std::path::Path, offering: &str) {
    let version = env!("CARGO_PKG_VERSION");
    let path = path.display();
    remark(&format_args!(
        "\n  Longshore {version} serves {offering} at {path}\n\n  \
           try it   curl --unix-socket {path} http://localhost/health\n  \
           stop     Ctrl-C\n"
    ));
}

/// Explains the stdio transport to a person who started the server in a terminal.
pub(super) fn greet_over_stdio(tools: usize) {
    if io::stdin().is_terminal() {
        let tools = counted(tools, "tool");
        remark(&format_args!(
            "longshore serves {tools} over standard input and output: it waits for lines of JSON, and ends with Ctrl-D"
        ));
    }
}

/// State of the playground page.
#[derive(Clone, Copy)]
enum Page {
    Served,
    /// Off by default, for this reason.
    Off(&'static str),
    /// Disabled by configuration.
    Unwanted,
}

fn greeting(
    root: &str,
    address: SocketAddr,
    offering: &str,
    page: Page,
    metrics: Option<String>,
) -> String {
    let version = env!("CARGO_PKG_VERSION");
    // Items that cannot be offered are printed below the address, which readers look for first.
    let (offering, missing) = match offering.find([';', ':']) {
        Some(at) => offering.split_at(at),
        None => (offering, ""),
    };
    let url = format!("{root}mcp");
    let everywhere = if address.ip().is_unspecified() {
        format!(
            "  listens  on every address of this machine, port {}\n",
            address.port()
        )
    } else {
        String::new()
    };
    let page = match page {
        Page::Served => format!("  browse   {root}\n"),
        Page::Off(reason) => format!(
            "  browse   off, because {reason}; http.playground = true serves a page for browsers\n"
        ),
        Page::Unwanted => String::new(),
    };
    let metrics = metrics.map_or_else(String::new, |admin| format!("  metrics  {admin}metrics\n"));
    format!(
        "\n  Longshore {version} serves {offering} at {url}{missing}\n\n\
         {everywhere}{page}  \
           try it   npx @modelcontextprotocol/inspector@latest --cli {url} --transport http --method tools/list\n  \
           connect  {{\"mcpServers\": {{\"longshore\": {{\"type\": \"http\", \"url\": \"{url}\"}}}}}}\n  \
           health   {root}health\n\
         {metrics}  \
           stop     Ctrl-C\n"
    )
}

/// Prints a remark beside the output of a command. A standard error that is closed is not an error.
pub(super) fn remark(text: &dyn Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes to standard output. A reader that closes the pipe early is not an error.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    match output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
    {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let problem = format!("cannot write to standard output: {error}");
            Err(AppError::Refused(problem).into())
        }
        _ => Ok(()),
    }
}

/// Prints the error that ends the program.
pub(super) fn complain(error: &dyn Display, audience: Audience) {
    match audience {
        Audience::People => remark(&format_args!("longshore: {error}")),
        // Bypasses the log, which may be off.
        Audience::Programs => {
            let line = serde_json::json!({
                "timestamp": format!("{:.6}", jiff::Timestamp::now()),
                "level": "ERROR",
                "message": error.to_string(),
                "target": "longshore",
            });
            remark(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(address: SocketAddr, tools: usize, page: Page) -> String {
        greeting(
            &root_url("http", address),
            address,
            &crate::app::Offering::of(&["demo"], &[]).in_words(tools),
            page,
            None,
        )
    }

    #[test]
    fn an_error_before_the_configuration_is_read_is_in_the_format_of_the_log() {
        let of =
            |variables: &[(&str, &str)]| Audience::of_log(&Probe::of(variables.iter().copied()));
        assert_eq!(of(&[]), Audience::People);
        assert_eq!(of(&[("container", "podman")]), Audience::Programs);
        assert_eq!(of(&[("LONGSHORE_LOG__FORMAT", "json")]), Audience::Programs);
        let text = [("container", "podman"), ("LONGSHORE_LOG__FORMAT", "text")];
        assert_eq!(of(&text), Audience::People);
        let terminal = Probe::of([("container", "podman")]).at_terminal();
        assert_eq!(Audience::of_log(&terminal), Audience::People);
    }

    #[test]
    fn metrics_are_shown_where_they_are() {
        let root = "http://127.0.0.1:3000/";
        let address = SocketAddr::from(([127, 0, 0, 1], 3000));
        let admin = Some("http://127.0.0.1:9464/".to_owned());
        let shown = greeting(root, address, "7 tools (demo)", Page::Unwanted, admin);
        assert!(
            shown.contains("\n  metrics  http://127.0.0.1:9464/metrics\n  stop"),
            "{shown}"
        );
    }

    #[test]
    fn the_library_of_http_2_is_heard_where_somebody_wants_to_hear_it() {
        let shown = |level: &str| filter(level).expect("a level").to_string();
        for level in ["info", "warn", "warn,longshore=info"] {
            assert!(shown(level).contains("h2=error"), "{level}");
        }
        for level in ["debug", "info,h2=warn", "warn,longshore=debug"] {
            assert!(!shown(level).contains("h2=error"), "{level}");
        }
        assert!(filter("loud=and=clear").is_err());
        assert!(filter("[call]=debug").is_err());
        let typo = filter("information").expect_err("no level").to_string();
        assert!(typo.contains("it is not a log level"), "{typo}");
        for word in ["hunter2", "info;debug"] {
            let refused = filter(word).expect_err("refused").to_string();
            assert!(refused.contains("it is not a log level"), "{refused}");
        }
        for part in ["longshore::audit", "warn,h2", "3"] {
            assert!(filter(part).is_ok(), "{part}");
        }
    }

    #[test]
    fn the_greeting_is_as_the_readme_shows_it() {
        let shown = shown(SocketAddr::from(([127, 0, 0, 1], 3000)), 7, Page::Served);
        let readme = include_str!("../../../README.md");
        assert!(readme.contains(shown.trim_matches('\n')), "{shown}");
    }

    #[test]
    fn the_address_that_is_shown_can_be_connected_to() {
        let everywhere = SocketAddr::from(([0, 0, 0, 0], 80));
        let everywhere = shown(everywhere, 1, Page::Off("it is public"));
        assert!(
            everywhere.contains("1 tool (demo) at http://127.0.0.1:80/mcp\n"),
            "{everywhere}"
        );
        assert!(
            everywhere.contains("every address of this machine, port 80\n")
                && everywhere
                    .contains("browse   off, because it is public; http.playground = true"),
            "{everywhere}"
        );
        let v6 = shown(SocketAddr::from(([0; 16], 80)), 2, Page::Unwanted);
        assert!(
            v6.contains("http://[::1]:80/mcp") && !v6.contains("0.0.0.0") && !v6.contains("browse"),
            "{v6}"
        );
    }
}

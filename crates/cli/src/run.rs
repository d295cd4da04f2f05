//! `longshore run`.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;

use clap::Args;
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use super::output::{self, Audience};
use super::{RunArgs, log};
#[cfg(target_os = "linux")]
use super::{page_release, reaper};
use crate::app::{App, AppError, MainError, Signals, stop_signal, survive_hangups};
use crate::environment::Probe;
#[cfg(target_os = "linux")]
use crate::net;
use crate::telemetry::{LOG_CUT, LOG_DROPPED};
use longshore_app::config::{Flags, Loaded, LogFormat, Transport, Watch, trust_ca_file};

/// Program that opens a URL in the default application.
pub(super) const OPENER: &str = if cfg!(target_os = "macos") {
    "open"
} else {
    "xdg-open"
};

/// Options of `run`.
#[derive(Debug, Default, Args)]
pub(super) struct RunCommand {
    /// For development: restart when the program file, or a setting that needs a restart, changes
    #[arg(long)]
    pub(super) reload: bool,

    /// Open the playground in a browser, with PROGRAM [default: xdg-open, on macOS open]
    #[arg(long, value_name = "PROGRAM", num_args = 0..=1, require_equals = true, default_missing_value = OPENER)]
    pub(super) inspect: Option<PathBuf>,

    #[command(flatten)]
    pub(super) settings: RunArgs,
}

/// Loads the settings. Without a toolset or source, the demo toolset is used.
pub(super) fn load(settings: impl Into<Flags>) -> Result<Arc<Loaded>, MainError> {
    let mut flags: Flags = settings.into();
    flags.toolsets_otherwise = vec!["demo".to_owned()];
    Ok(Loaded::read(&flags, Probe::real()).map_err(AppError::from)?)
}

/// The runtime of a command, on this thread.
pub(super) fn runtime() -> Result<Runtime, MainError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    Ok(runtime.map_err(AppError::from)?)
}

/// Variable that names a file with CA certificates.
pub(super) const CA_FILE: &str = "LONGSHORE_CA_FILE";

/// Trusts the CA certificates of the variable `LONGSHORE_CA_FILE`, for commands that read no configuration.
pub(super) fn trust_ca_of_variable() -> Result<(), MainError> {
    let file = Probe::real().variable(CA_FILE).map(Path::new);
    Ok(trust_ca_file(file).map_err(AppError::from)?)
}

/// Serves the configured items, or the demo toolset.
///
/// Errors before the log is configured use the detected log format.
pub(super) fn run(command: RunCommand, audience: &mut Audience) -> Result<(), MainError> {
    // Resolves the path early: after the file is replaced, /proc reports another name, and without /proc there is
    // none.
    let program = command.reload.then(std::env::current_exe).transpose();
    let program = program.map_err(AppError::from)?;
    *audience = Audience::of_log(Probe::real());
    let runtime = runtime()?;
    {
        let _entered = runtime.enter();
        survive_hangups();
    }
    let mut flags: Flags = command.settings.into();
    flags.playground = command.inspect.is_some();
    let loaded = load(flags)?;
    if loaded.config.log.format == LogFormat::Json {
        *audience = Audience::Programs;
    }
    let level = output::start_logging(&loaded.config.log, Probe::real())?;
    let over_http = loaded.config.transport == Transport::Http;
    if command.reload && !over_http {
        tracing::warn!("--reload is for HTTP: a client at standard input would lose its session");
    }
    let served = runtime.block_on(async {
        let program = program.clone().filter(|_| over_http);
        let restart = program.is_some().then(|| Arc::new(Notify::new()));
        let mut app = App::new().loaded(loaded).on_reload(level.hook());
        if let Some(restart) = &restart {
            app = app.restart_wanted(Arc::clone(restart));
        }
        let mut replaced = Watch::new(program);
        let bound = app.bind_unless_stopped(Signals::listen()).await?;
        let (signals, Some(bound)) = bound else {
            return Ok(false);
        };
        let metrics = bound.metrics();
        metrics.read(&LOG_DROPPED, &[], || log::dropped() as f64);
        metrics.read(&LOG_CUT, &[], || log::cut() as f64);
        if matches!(*audience, Audience::People) {
            // Warnings about missing items are printed before the banner.
            log::flush();
        }
        match (*audience, bound.address()) {
            (Audience::Programs, _) => bound.announce(),
            (Audience::People, Some(address)) => {
                output::print_banner(&bound, address);
            }
            (Audience::People, None) => match bound.unix_socket() {
                Some(path) => output::greet_at_file(path, &bound.offering()),
                None => output::greet_over_stdio(bound.tool_count()),
            },
        }
        if let (Some(opener), Some(address)) = (&command.inspect, bound.address()) {
            let page = output::root_url(bound.scheme(), address);
            if let Err(error) = open(opener, &page) {
                tracing::warn!(
                    program = %opener.display(),
                    %error,
                    page,
                    "the page could not be opened; open it yourself, or name a program with --inspect=PROGRAM"
                );
            }
        }
        #[cfg(target_os = "linux")]
        {
            net::spawn(reaper::reap());
            net::spawn(page_release::release_after_start());
        }
        let starts_again = std::cell::Cell::new(false);
        // A boxed future avoids compiling the server for each future type.
        let stop: Pin<Box<dyn Future<Output = ()> + '_>> = match &restart {
            None => Box::pin(stop_signal(signals)),
            Some(restart) => Box::pin(async {
                starts_again.set(true);
                tokio::select! {
                    () = stop_signal(signals) => starts_again.set(false),
                    () = restart.notified() => {}
                    () = replaced.changed() => tracing::info!("the program has changed"),
                }
            }),
        };
        Box::pin(bound.serve_until(stop)).await?;
        Ok::<_, AppError>(starts_again.get())
    });
    runtime.shutdown_background();
    // What is still running ends with this process; programs that it has started would go on.
    net::child::kill_all();
    match (served, program) {
        (Ok(true), Some(program)) => start_again(program),
        (Ok(_), _) => Ok(()),
        (Err(error), _) => Err(error.into()),
    }
}

/// Starts a program that opens a page. No shell is involved: the URL is one argument, and begins with its scheme.
pub(super) fn open(opener: &Path, page: &str) -> io::Result<()> {
    let mut child = std::process::Command::new(opener)
        .arg(page)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    // The program exits after it has contacted the browser, and must be reaped then.
    std::thread::spawn(move || child.wait());
    Ok(())
}

/// Replaces the process with the current program file and the same arguments.
fn start_again(program: PathBuf) -> Result<(), MainError> {
    tracing::info!("starting again");
    log::flush();
    let mut command = std::process::Command::new(program);
    command.args(std::env::args_os().skip(1));
    #[cfg(unix)]
    let failed = std::os::unix::process::CommandExt::exec(&mut command);
    #[cfg(not(unix))]
    let failed = match command.status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => error,
    };
    Err(AppError::from(failed).into())
}

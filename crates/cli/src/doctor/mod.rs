//! `longshore doctor`: diagnoses this machine and configuration, or a deployed server.
//!
//! Each check yields a [`Finding`](report::Finding): an observation, and advice if it is a problem. Nothing is changed;
//! files that a check writes are removed again.

mod codes;
mod documentation;
mod proxy_kind;
mod machine;
mod reach;
mod remote;
mod report;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use http::HeaderValue;
use url::Url;

use super::output::{self, print};
use super::{Failure, RunArgs, client, run};
use crate::app::AppError;
use crate::environment::Probe;
use longshore_app::config::trust_ca_file;
use remote::Remote;
pub(super) use remote::examining;
use report::{Check, Report, Status};

/// Options of `doctor`.
#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// Diagnose a deployed server, Longshore or another, by the URL of its MCP endpoint: https://mcp.example.com/mcp.
    /// A token for it is read from LONGSHORE_TOKEN
    #[arg(long, value_name = "URL", conflicts_with = "RunArgs")]
    url: Option<String>,

    /// With --url: how long to hold a stream open, in seconds, to detect idle timeouts; 120 or more finds the usual
    /// limits of load balancers
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 20,
        requires = "url",
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    hold: u64,

    /// With --url: timeout of each request, in seconds
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 10,
        requires = "url",
        value_parser = clap::value_parser!(u64).range(1..=300)
    )]
    patience: u64,

    /// With --url: number of connections to use for one session, to reach every replica
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8,
        requires = "url",
        value_parser = clap::value_parser!(u32).range(1..=64)
    )]
    connections: u32,

    /// With --url: web origin whose pages call the server, such as https://app.example.com
    #[arg(long, value_name = "ORIGIN", requires = "url", value_parser = origin)]
    origin: Option<String>,

    /// With --url: walk a login as a client and a browser do, up to the login page of the identity provider. It registers a
    /// client at the authorization server
    #[arg(long, requires = "url")]
    login: bool,

    /// With --url: trust the CA certificates in this PEM file too [env: LONGSHORE_CA_FILE]
    #[arg(long, value_name = "FILE", requires = "url")]
    ca: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Fail on warnings too
    #[arg(long)]
    strict: bool,

    #[command(flatten)]
    run: RunArgs,
}

/// Runs the checks and prints the findings. Returns false if there are failures.
pub(super) fn doctor(args: DoctorArgs) -> Result<bool, Failure> {
    let runtime = run::runtime()?;
    let mut report = Report::default();
    match &args.url {
        Some(url) => {
            let remote = deployed(url, &args).map_err(AppError::Arguments)?;
            let examined = runtime.block_on(remote::examine(remote, &mut report));
            examined.map_err(AppError::Arguments)?;
        }
        None => here(args.run, &runtime, &mut report),
    }
    runtime.shutdown_background();
    let text = if args.json {
        format!("{:#}\n", report.as_json())
    } else {
        report.as_text()
    };
    print(&text)?;
    let bearable = match args.strict {
        true => Status::Skipped,
        false => Status::Warning,
    };
    Ok(report.worst() <= bearable)
}

/// Reads the options about a deployed server.
fn deployed(url: &str, args: &DoctorArgs) -> Result<Remote, String> {
    let url = Url::parse(url).map_err(|error| {
        format!("--url is {url:?}, which is not a valid URL: {error}; write it whole, such as https://mcp.example.com/mcp")
    })?;
    let token = client::token(Probe::real());
    if token.is_some_and(|token| HeaderValue::from_str(token).is_err()) {
        return Err(
            "the variable LONGSHORE_TOKEN has characters that no header can have; set it to an API key or an access token"
                .to_owned(),
        );
    }
    let variable = Probe::real().variable(run::CA_FILE);
    let files = args.ca.iter().map(|file| ("--ca", file.as_path()));
    let files = files.chain(variable.map(|file| (run::CA_FILE, Path::new(file))));
    let roots = files.map(|(origin, file)| {
        let pem = std::fs::read(file)
            .map_err(|error| format!("{origin}: {} cannot be read: {error}", file.display()))?;
        Ok((origin, pem))
    });
    Ok(Remote {
        url,
        token: token.map(|token| token.to_owned().into()),
        hold: Duration::from_secs(args.hold),
        patience: Duration::from_secs(args.patience),
        connections: args.connections,
        origin: args.origin.clone(),
        walks_login: args.login,
        roots: roots.collect::<Result<_, String>>()?,
    })
}

/// Parses a web origin. A browser sends it without a path.
fn origin(text: &str) -> Result<String, String> {
    match Url::parse(text) {
        Ok(url) if url.origin().is_tuple() => Ok(url.origin().ascii_serialization()),
        // Those of extensions are not known to the standard.
        Ok(_) if text.contains("://") => Ok(text.to_owned()),
        _ => Err("write the scheme and the host, such as https://app.example.com".to_owned()),
    }
}

/// Checks this machine with the settings that `run` would use.
fn here(settings: RunArgs, runtime: &tokio::runtime::Runtime, report: &mut Report) {
    let probe = Probe::real();
    let loaded = run::load(settings).and_then(|loaded| {
        trust_ca_file(loaded.config.ca_file.as_deref()).map_err(AppError::from)?;
        output::check_logging(&loaded.config.log)?;
        Ok(loaded)
    });
    match loaded {
        Ok(loaded) => {
            machine::examine(&loaded, probe, report);
            runtime.block_on(reach::examine(&loaded, probe, report));
            // Upstream servers may have to be started, which blocks a thread.
            runtime.block_on(documentation::examine(loaded, report));
        }
        Err(error) => report.add(
            Check("configuration", "settings")
                .failure(error.to_string())
                .advise("correct the named settings, and run `longshore config check`"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::origin;

    #[test]
    fn an_origin_is_as_browsers_send_it() {
        let of = |text| origin(text).ok();
        let plain = "https://app.example.com";
        assert_eq!(of(plain).as_deref(), Some(plain));
        assert_eq!(of("https://App.example.com:443/").as_deref(), Some(plain));
        let extension = "chrome-extension://abc";
        assert_eq!(of(extension).as_deref(), Some(extension));
        assert_eq!((of("app.example.com"), of("localhost:3000")), (None, None));
    }
}

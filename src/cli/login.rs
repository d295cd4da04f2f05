//! `longshore login` and `logout`.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use ipnet::IpNet;
use url::Url;

use super::Failure;
use super::client::{ServerArgs, of_server, upstream};
use super::output;
use crate::app::AppError;
use crate::environment::Probe;
use crate::net::with_causes;
use crate::source::{LoginError, LoginRequest, log_in, log_out};

/// Which server, and where its token is kept.
#[derive(Debug, Args)]
struct Place {
    /// A URL, or the name of an upstream in the configuration file
    server: String,

    /// The file that has the upstream [env: LONGSHORE_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The folder that tokens are kept in [default: the upstream's auth.login, else longshore/tokens in
    /// $XDG_CONFIG_HOME or ~/.config] [env: LONGSHORE_TOKENS]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct LoginArgs {
    #[command(flatten)]
    place: Place,

    /// A client that is registered with the issuer; its secret, if it has one, is read from the variable
    /// LONGSHORE_CLIENT_SECRET
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,

    /// Where a document that describes this client is published, for issuers that read such
    #[arg(long, value_name = "URL")]
    client_metadata: Option<Url>,

    /// Which of the server's issuers [default: the first that it names]
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,

    /// What the token is to allow; may be repeated [default: what the server asks for]
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,

    /// The port of this machine that the browser comes back to [default: any that is free]
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    port: u16,

    /// A program that opens URLs, such as xdg-open; it gets the URL as its one argument. Without it the URL is only
    /// printed
    #[arg(long, value_name = "PROGRAM")]
    browser: Option<PathBuf>,

    /// A network in which the issuer may be though it is not public, such as 10.0.0.0/8; may be repeated
    #[arg(long = "allow-network", value_name = "NETWORK")]
    networks: Vec<IpNet>,

    /// How long to wait for the browser, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
}

#[derive(Debug, Args)]
pub(super) struct LogoutArgs {
    #[command(flatten)]
    place: Place,
}

/// Where tokens are kept, unless somebody says otherwise.
pub(super) fn folder() -> Option<PathBuf> {
    let probe = Probe::real();
    let set = |name: &str| probe.variable(name).filter(|value| !value.is_empty());
    if let Some(folder) = set("LONGSHORE_TOKENS") {
        return Some(folder.into());
    }
    let base = match set("XDG_CONFIG_HOME") {
        Some(base) => PathBuf::from(base),
        None => PathBuf::from(set("HOME")?).join(".config"),
    };
    Some(base.join("longshore").join("tokens"))
}

impl Place {
    fn find(&self) -> Result<(Url, PathBuf), Failure> {
        let problem = |problem: &str| of_server(&self.server, problem.to_owned());
        let config = upstream(&ServerArgs {
            server: self.server.clone(),
            config: self.config.clone(),
            json: false,
            timeout: 120,
        })?;
        let url = config.url.as_deref().ok_or_else(|| {
            problem("it is a program: there is nobody to log in to; give it what it needs by env")
        })?;
        let url = url.parse().map_err(|_| problem("its url is none"))?;
        let folder = self.folder.clone().or(config.auth.login).or_else(folder);
        let folder = folder.ok_or_else(|| {
            problem("there is no place for its token: name one with --folder or LONGSHORE_TOKENS")
        })?;
        Ok((url, folder))
    }
}

pub(super) fn login(args: LoginArgs) -> Result<(), Failure> {
    let (server, folder) = args.place.find()?;
    let secret = Probe::real()
        .variable("LONGSHORE_CLIENT_SECRET")
        .map(|secret| secret.to_owned().into());
    let request = LoginRequest {
        server,
        folder: folder.clone(),
        client_secret: secret.filter(|_| args.client_id.is_some()),
        client_id: args.client_id,
        client_metadata: args.client_metadata,
        issuer: args.issuer,
        scopes: args.scopes,
        port: args.port,
        networks: args.networks,
        patience: Duration::from_secs(args.timeout.max(1)),
    };
    let browser = args.browser;
    let show = |url: &Url| {
        output::remark(&format!("Open this page and log in:\n\n  {url}\n"));
        if let Some(program) = &browser
            && let Err(error) = open(program, url)
        {
            output::remark(&format!("{} cannot be started: {error}", program.display()));
        }
    };
    let login = runtime()?
        .block_on(log_in(&request, show))
        .map_err(|error| of_server(&args.place.server, with_causes(&error)))?;
    output::remark(&format!(
        "logged in to {} at {}; the token is kept in {}",
        login.resource,
        login.issuer,
        folder.display()
    ));
    Ok(())
}

pub(super) fn logout(args: &LogoutArgs) -> Result<(), Failure> {
    let (server, folder) = args.place.find()?;
    let told = runtime()?.block_on(log_out(&folder, &server));
    match told {
        Ok(true) => output::remark(&"logged out; its issuer was told"),
        Ok(false) => output::remark(
            &"the token is forgotten here; its issuer was not told, and it may be good until it ends",
        ),
        Err(error @ LoginError::NoLogin) => {
            output::remark(&format!("{}: {error}", args.place.server));
        }
        Err(error) => return Err(of_server(&args.place.server, with_causes(&error))),
    }
    Ok(())
}

/// Starts a program that opens a page. No shell is involved: the URL is one argument, and begins with its scheme.
fn open(program: &std::path::Path, url: &Url) -> std::io::Result<()> {
    Command::new(program)
        .arg(url.as_str())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(drop)
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    Ok(runtime.map_err(AppError::from)?)
}

//! `longshore login`, `logout` and `logins`.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, Parser as _};
use ipnet::IpNet;
use jiff::Timestamp;
use serde_json::{Value, json};
use url::Url;

use super::client::{at_mcp, clean, find, of_server, url_of};
use super::output::{self, print};
use super::run::{OPENER, load, open, runtime};
use super::table::{line, table};
use super::{Failure, OneCommand};
use crate::app::{AppError, tokens};
use crate::environment::Probe;
use crate::net::with_causes;
use crate::source::{
    LoginError, LoginRequest, PerUserConfig, SourceConfig, StoredToken, TokenStore, Tokens,
    UpstreamConfig, default_folder, find_program, log_in, log_out, log_out_user, logins,
};
use longshore_app::config::{Config, Flags};

/// Server, and location of its token.
#[derive(Clone, Debug, Args)]
pub(super) struct TokenLocation {
    /// A URL, host:port, or the name of an upstream in the configuration file
    server: String,

    #[command(flatten)]
    kept: KeptArgs,
}

/// Location of stored tokens.
#[derive(Clone, Debug, Args)]
struct KeptArgs {
    /// Configuration file with the upstream and the token store (`tokens`) [env: LONGSHORE_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Folder of stored tokens [default: from the configuration, else longshore/tokens in $XDG_CONFIG_HOME or
    /// ~/.config] [env: LONGSHORE_TOKENS]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct LoginArgs {
    #[command(flatten)]
    place: TokenLocation,

    /// ID of a client that is registered with the issuer; its secret, if any, is read from LONGSHORE_CLIENT_SECRET
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,

    /// URL of this client's metadata document, for issuers that support it
    #[arg(long, value_name = "URL")]
    client_metadata: Option<Url>,

    /// Issuer to use, if the server has several [default: the first one; required with a client secret, unless an
    /// earlier login at that issuer used it]
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,

    /// What the token is to allow; may be repeated [default: what the server asks for]
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,

    /// Port for the browser redirect to this machine [default: a free one]
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    port: u16,

    /// Program that opens the URL, its only argument [default: xdg-open if there is a display, on macOS open]
    #[arg(long, value_name = "PROGRAM")]
    browser: Option<PathBuf>,

    /// Print the URL without opening it
    #[arg(long, conflicts_with = "browser")]
    no_browser: bool,

    /// Network in which a non-public issuer may be, such as 10.0.0.0/8; may be repeated
    #[arg(long = "allow-network", value_name = "NETWORK")]
    networks: Vec<IpNet>,

    /// Time limit of the login, in seconds: for the requests, and for the user to log in at the browser
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 300,
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    timeout: u64,
}

#[derive(Debug, Args)]
pub(super) struct LogoutArgs {
    #[command(flatten)]
    place: TokenLocation,

    /// Issuer to log out from, if there are several logins [default: all]
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,

    /// End the login of this user, at the source or upstream with `auth.per_user` that SERVER names
    #[arg(long, value_name = "NAME", conflicts_with = "issuer")]
    user: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct LoginsArgs {
    #[command(flatten)]
    kept: KeptArgs,

    /// Print JSON; the default if standard output is not a terminal
    #[arg(long)]
    json: bool,
}

impl KeptArgs {
    /// Returns the token store: from the options, else the configuration, else the user's folder.
    fn tokens(&self, config: Option<&Config>, is_meant: bool) -> Result<Tokens, Failure> {
        if let Some(folder) = &self.folder {
            return Ok(Tokens::in_folder(folder.clone()));
        }
        if let Some(config) = config
            && (is_meant || config.tokens.store() != TokenStore::Memory)
        {
            return Ok(tokens(config)?);
        }
        let folder = default_folder(Probe::real()).ok_or_else(|| {
            AppError::Refused(
                "no folder for tokens; name one with --folder or LONGSHORE_TOKENS".to_owned(),
            )
        })?;
        Ok(Tokens::in_folder(folder))
    }

    fn config(&self) -> Result<Config, Failure> {
        let mut flags = Flags::default();
        flags.config = self.config.clone();
        Ok(load(flags)?.config.clone())
    }
}

impl TokenLocation {
    /// Returns the same server at `/mcp`, if it is a URL without a path.
    fn at_mcp(&self) -> Option<Self> {
        let url: Url = url_of(&self.server)?.parse().ok()?;
        Some(Self {
            server: at_mcp(&url)?.into(),
            kept: self.kept.clone(),
        })
    }

    fn find(&self) -> Result<(Url, UpstreamConfig, Tokens), Failure> {
        let problem = |problem: &str| of_server(&self.server, problem.to_owned());
        let (upstream, config) = find(&self.server, self.kept.config.clone())?;
        let config = match (config, &self.kept.config) {
            (None, Some(_)) => Some(self.kept.config()?),
            (config, _) => config,
        };
        let url = upstream.url.as_deref().ok_or_else(|| {
            problem("it is a program, which has no login; pass its credentials in env")
        })?;
        let url = url.parse().map_err(|_| problem("its url is none"))?;
        let tokens = self.kept.tokens(config.as_ref(), upstream.auth.login)?;
        Ok((url, upstream, tokens))
    }
}

pub(super) fn login(mut args: LoginArgs) -> Result<(), Failure> {
    let mut done = log_in_as(&args)?;
    // A server without authentication at its root may require it at its endpoint.
    if let Err(LoginError::Open | LoginError::OtherResource { .. } | LoginError::NoOAuth) = &done
        && let Some(place) = args.place.at_mcp()
    {
        output::remark(&format!(
            "there is no login at {}/; trying {}",
            args.place.server, place.server
        ));
        args.place = place;
        done = log_in_as(&args)?;
    }
    done.map_err(|error| of_server(&args.place.server, with_causes(&error)))
}

/// Logs in to a server like the command `login` without options.
pub(super) fn log_in_at(
    server: &str,
    config: Option<PathBuf>,
) -> Result<Result<(), LoginError>, Failure> {
    let line = OneCommand::<LoginArgs>::parse_from(["longshore login", "--", server]);
    let mut args = line.arguments;
    args.place.kept.config = config;
    log_in_as(&args)
}

fn log_in_as(args: &LoginArgs) -> Result<Result<(), LoginError>, Failure> {
    let (server, upstream, tokens) = args.place.find()?;
    let secret = Probe::real()
        .variable("LONGSHORE_CLIENT_SECRET")
        .map(|secret| secret.to_owned().into());
    let request = LoginRequest {
        server,
        tokens: tokens.clone(),
        client_secret: secret.filter(|_| args.client_id.is_some()),
        client_id: args.client_id.clone(),
        client_metadata: args.client_metadata.clone(),
        issuer: args.issuer.clone().or(upstream.auth.login_issuer),
        scopes: args.scopes.clone(),
        port: args.port,
        networks: args.networks.clone(),
        patience: Duration::from_secs(args.timeout),
    };
    let browser = args.browser.clone();
    let browser = browser.or_else(|| browser_here(Probe::real()).filter(|_| !args.no_browser));
    let show = |url: &Url| {
        output::remark(&format!("Open this page and log in:\n\n  {url}\n"));
        if let Some(program) = &browser
            && let Err(error) = open(program, url.as_str())
        {
            output::remark(&format!("{} cannot be started: {error}", program.display()));
        }
    };
    let done = runtime()?.block_on(log_in(&request, show));
    Ok(done.map(|login| {
        output::remark(&format!(
            "logged in to {} at {}; the token is stored in {tokens}",
            clean(&login.resource),
            clean(&login.issuer),
        ));
    }))
}

pub(super) fn logout(args: &LogoutArgs) -> Result<(), Failure> {
    let out = match &args.user {
        Some(user) => {
            let config = args.place.kept.config()?;
            let tokens = args.place.kept.tokens(Some(&config), true)?;
            let source = &args.place.server;
            let settings = user_logins(&config, source);
            runtime()?.block_on(log_out_user(&tokens, source, user, settings))
        }
        None => {
            let (server, upstream, tokens) = args.place.find()?;
            let out = log_out(&tokens, &upstream.auth, &server, args.issuer.as_deref());
            runtime()?.block_on(out)
        }
    };
    match out {
        Ok(out) if out.is_empty() => output::remark(&"the token is forgotten here"),
        Ok(out) => {
            for one in out {
                let issuer = clean(&one.issuer);
                output::remark(&match one.is_told {
                    true => format!("logged out; its issuer {issuer} revoked the token"),
                    false => format!(
                        "the token was deleted here, but its issuer {issuer} could not revoke it; it may work until it expires"
                    ),
                });
            }
        }
        Err(error @ LoginError::NoLogin) => {
            output::remark(&format!("{}: {error}", args.place.server));
        }
        Err(error) => return Err(of_server(&args.place.server, with_causes(&error))),
    }
    Ok(())
}

/// Returns the settings of the logins of users at a source or an upstream server.
fn user_logins<'c>(config: &'c Config, name: &str) -> Option<&'c PerUserConfig> {
    let source = config.sources.iter().find(|source| source.name == name);
    let of_source = source.and_then(SourceConfig::user_logins);
    of_source.or_else(|| config.upstreams.get(name)?.auth.per_user.as_ref())
}

pub(super) fn list(args: &LoginsArgs) -> Result<(), Failure> {
    let config = args.kept.config()?;
    let tokens = args.kept.tokens(Some(&config), false)?;
    let known = runtime()?.block_on(logins(&tokens));
    let known = known.map_err(|error| AppError::Refused(error.to_string()))?;
    if args.json || !io::stdout().is_terminal() {
        let known: Vec<Value> = known.iter().map(as_json).collect();
        return print(&format!("{:#}\n", Value::from(known)));
    }
    if known.is_empty() {
        return print(&format!("no token is stored in {tokens}\n"));
    }
    print(&listed(&known))
}

/// Returns the expiry of a token, for text and JSON output.
fn end(known: &StoredToken) -> Option<Timestamp> {
    known.ends.and_then(|ends| Timestamp::try_from(ends).ok())
}

fn as_json(known: &StoredToken) -> Value {
    json!({
        "kind": match (&known.user, known.is_login) {
            (Some(_), _) => "user",
            (None, true) => "login",
            (None, false) => "refresh_token",
        },
        "user": known.user,
        "server": known.server,
        "resource": known.resource,
        "issuer": known.issuer,
        "client": known.client_id,
        "scopes": known.scopes,
        "ends": end(known).map(|ends| ends.to_string()),
        "renewable": known.is_renewable,
    })
}

fn listed(known: &[StoredToken]) -> String {
    let now = SystemTime::now();
    let mut table = table(
        ["SERVER", "USER", "ISSUER", "CLIENT", "SCOPES", "ENDS"],
        120,
    );
    for known in known {
        let server = match &*known.server {
            "" => &known.resource,
            server => server,
        };
        let ends = match (known.is_renewable, end(known)) {
            (true, _) => "renewed when it is used".to_owned(),
            (false, None) => "not said".to_owned(),
            (false, Some(_)) if known.ends.is_some_and(|ends| ends <= now) => {
                "ended: log in again".to_owned()
            }
            (false, Some(ends)) => ends.to_string(),
        };
        let cells = [
            server,
            known.user.as_deref().unwrap_or_default(),
            &known.issuer,
            &known.client_id,
            &known.scopes.join(" "),
            &ends,
        ];
        table.add_row(cells.map(line));
    }
    format!("{table}\n")
}

/// Returns the program that opens a browser, if there is a display.
fn browser_here(probe: &Probe) -> Option<PathBuf> {
    if cfg!(target_os = "macos") {
        return Some(OPENER.into());
    }
    if !cfg!(unix) {
        return None;
    }
    ["DISPLAY", "WAYLAND_DISPLAY"]
        .iter()
        .find_map(|name| probe.variable(name))?;
    find_program(OPENER, OsStr::new(probe.variable("PATH")?))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_browser_is_opened_where_there_is_a_display_and_a_program_for_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().to_str().expect("UTF-8");
        let of = |variables: &[(&str, &str)]| browser_here(&Probe::of(variables.iter().copied()));
        let display = [("DISPLAY", ":0"), ("PATH", path)];
        assert_eq!(of(&display), None, "the program was not found");
        let program = folder.path().join(OPENER);
        std::fs::write(&program, "").expect("written");
        assert_eq!(of(&display), None, "it cannot be executed");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).expect("executable");
        assert_eq!(of(&display), Some(program.clone()));
        assert_eq!(
            of(&[("WAYLAND_DISPLAY", "wayland-0"), ("PATH", path)]),
            Some(program)
        );
        assert_eq!(of(&[("PATH", path)]), None);
        assert_eq!(of(&[("DISPLAY", ":0")]), None);
    }
}

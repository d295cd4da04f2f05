//! The server that a command names: a URL, or an upstream of the configuration.

use std::path::PathBuf;

use longshore_app::config::{Config, Flags, trust_ca_file};
use url::{Host, Url};

use super::{Failure, of_server};
use crate::app::AppError;
use crate::cli::run::{load, trust_ca_of_variable};
use crate::cli::suggestions::likeness_of;
use crate::environment::Probe;
use crate::source::UpstreamConfig;

/// Variable with a token for servers that are given by URL.
pub(super) const TOKEN: &str = "LONGSHORE_TOKEN";

/// Finds the server: a URL is used directly; a name is looked up in the configuration.
pub(crate) fn find(
    server: &str,
    file: Option<PathBuf>,
) -> Result<(UpstreamConfig, Option<Config>), Failure> {
    if let Some(url) = url_of(server) {
        url.parse()
            .map_or(Ok(()), |url| check_url(&url))
            .map_err(AppError::Arguments)?;
        let token = token(Probe::real());
        if token.is_some() && !server.contains("://") && !is_here(&url) {
            return Err(of_server(
                server,
                format!(
                    "the token in {TOKEN} would be sent unencrypted; write https://{server}, or {url} if that is meant"
                ),
            ));
        }
        trust_ca_of_variable()?;
        return Ok((at_url(url, token), None));
    }
    let mut flags = Flags::default();
    flags.config = file;
    let mut config = load(flags)?.config.clone();
    trust_ca_file(config.ca_file.as_deref()).map_err(AppError::from)?;
    if let Some(upstream) = config.upstreams.remove(server) {
        return Ok((upstream, Some(config)));
    }
    let known: Vec<&str> = config.upstreams.keys().map(String::as_str).collect();
    let known = match &known[..] {
        [] => {
            "the configuration has no upstreams; name another file with --config, or give a URL such as http://127.0.0.1:3000/mcp"
                .to_owned()
        }
        known => {
            let meant = likeness_of(server, known.iter().copied())
                .map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
            format!("configured: {}{meant}", known.join(", "))
        }
    };
    Err(of_server(
        server,
        format!("neither a URL nor the name of an upstream in the configuration ({known})"),
    ))
}

/// Checks that a URL has no credentials, and an address to which a client can connect.
fn check_url(url: &Url) -> Result<(), String> {
    check_no_password("the URL", url)?;
    let (all, here) = match url.host() {
        Some(Host::Ipv4(ip)) if ip.is_unspecified() => ("0.0.0.0", "127.0.0.1"),
        Some(Host::Ipv6(ip)) if ip.is_unspecified() => ("[::]", "[::1]"),
        _ => return Ok(()),
    };
    Err(format!(
        "{all} stands for all addresses of a server; write one of them, such as {here} on its own machine"
    ))
}

/// Checks that a URL has no credentials. They are not repeated: messages are logged.
pub(crate) fn check_no_password(what: &str, url: &Url) -> Result<(), String> {
    match url.username().is_empty() && url.password().is_none() {
        true => Ok(()),
        false => Err(format!(
            "{what} has a user name or password in it, which MCP clients do not send; put a token into the variable {TOKEN}"
        )),
    }
}

/// Returns the URL of a word; `host:port` means `http`.
pub(crate) fn url_of(word: &str) -> Option<String> {
    if word.contains("://") {
        return Some(word.to_owned());
    }
    let authority = word.split(['/', '?']).next().unwrap_or_default();
    let (host, port) = authority.rsplit_once(':')?;
    let is_host = !host.is_empty()
        && host
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '[' | ']' | ':'));
    (is_host && port.parse::<u16>().is_ok()).then(|| format!("http://{word}"))
}

/// Returns true if the host is this machine.
fn is_here(url: &str) -> bool {
    match url.parse::<Url>().ok().as_ref().and_then(Url::host) {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

/// Returns the token in the variable. Files of tokens often end with a line break, which no header can have.
pub(crate) fn token(probe: &Probe) -> Option<&str> {
    let token = probe.variable(TOKEN).map(str::trim);
    token.filter(|token| !token.is_empty())
}

/// Returns `/mcp` of a server whose URL has no path.
pub(crate) fn at_mcp(url: &Url) -> Option<Url> {
    let is_bare = matches!(url.path(), "" | "/") && url.query().is_none();
    let mut url = url.clone();
    url.set_path("/mcp");
    is_bare.then_some(url)
}

/// Configures a server by URL. A token is never on the command line, which other users can read.
pub(super) fn at_url(url: String, token: Option<&str>) -> UpstreamConfig {
    let mut config = UpstreamConfig {
        url: Some(url),
        ..UpstreamConfig::default()
    };
    if let Some(token) = token {
        config
            .headers
            .insert("Authorization".to_owned(), format!("Bearer {token}").into());
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_a_port_is_a_url() {
        for (word, url) in [
            ("127.0.0.1:3900", Some("http://127.0.0.1:3900")),
            ("localhost:3000/mcp", Some("http://localhost:3000/mcp")),
            ("[::1]:3000", Some("http://[::1]:3000")),
            ("https://a.example", Some("https://a.example")),
            ("tracker", None),
            ("a:b", None),
            (":3000", None),
            ("/path/to:80", None),
            ("host:70000", None),
        ] {
            assert_eq!(url_of(word).as_deref(), url, "{word}");
        }
    }

    #[test]
    fn a_client_connects_to_one_address() {
        let check = |url: &str| check_url(&url.parse().expect("a URL"));
        for (url, advice) in [
            ("http://0.0.0.0:3000/mcp", "127.0.0.1"),
            ("http://[::]/", "[::1]"),
        ] {
            assert!(check(url).is_err_and(|problem| problem.contains(advice)));
        }
        assert!(check("http://me:pw@127.0.0.1/").is_err_and(|problem| !problem.contains("pw")));
        assert_eq!(check("http://127.0.0.1:3000/mcp"), Ok(()));
    }

    #[test]
    fn a_token_may_be_followed_by_a_line_break() {
        let of = |value| token(&Probe::of([(TOKEN, value)])).map(str::to_owned);
        assert_eq!(of(" lsk_a\n").as_deref(), Some("lsk_a"));
        assert_eq!((of("\n"), of("")), (None, None));
    }
}

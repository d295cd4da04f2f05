//! Settings whose cost is measured, and what clients have to show for them.

#[path = "../../../benches/settings.rs"]
mod shared;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::{io, thread};

use clap::ValueEnum;
use longshore::Config;
use longshore::auth::Effect;
use longshore::telemetry::MetricsPolicy;

use self::shared::{
    KEYS, TOKEN, compare, holder, key, limit_everything, own_tools, rule, take_tokens,
};

/// Settings of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Setting {
    /// Default: no authentication, policy or rate limits
    Nothing,
    /// As `nothing`, and without metrics
    Uncounted,
    /// One in a hundred requests is traced and sent to a collector, without metrics
    Traces,
    /// API keys
    Key,
    /// Access tokens of an issuer
    Token,
    /// A rule that hides the first tool
    Filter,
    /// API keys, and a token bucket of each kind, none of which is ever empty
    Buckets,
    /// API keys of a thousand roles, each of which sees 9 tools of its own and 100 that all have
    Roles,
}

/// Number of roles.
pub(super) const ROLES: u32 = 1000;
/// Number of tools that only one role can use.
const OWN_TOOLS: u32 = 9;
/// Number of tools of the server with roles.
pub(super) const ROLE_TOOLS: u32 = 10_000;
impl Setting {
    /// Applies the setting.
    pub(super) fn apply(self, config: &mut Config) -> io::Result<()> {
        compare(config);
        match self {
            Self::Nothing => {}
            Self::Uncounted => config.telemetry.metrics = MetricsPolicy::Off,
            Self::Traces => {
                config.telemetry.metrics = MetricsPolicy::Off;
                config.telemetry.endpoint = Some(format!("http://{}", collect()?));
                config.telemetry.sample = Some(0.01);
            }
            Self::Key => config.auth.api_keys = vec![holder(0)],
            Self::Token => {
                let keys = serve_keys()?;
                take_tokens(config);
                config.auth.oauth.jwks_url = Some(format!("http://{keys}/"));
            }
            Self::Filter => {
                config.policy.rules = vec![rule(Effect::Deny, &[self.tool_name(1)])];
            }
            Self::Buckets => limit_everything(config),
            Self::Roles => {
                config.server.page_size = 1000;
                config.auth.api_keys = (0..ROLES).map(holder).collect();
                let own = (0..ROLES).map(|role| {
                    let first = role * OWN_TOOLS + 1;
                    let own = first..first + OWN_TOOLS;
                    own_tools(role, own.map(|number| self.tool_name(number)))
                });
                config.policy.rules = own.collect();
                let shared = ["shared_record_*".to_owned()];
                config.policy.rules.push(rule(Effect::Allow, &shared));
            }
        }
        Ok(())
    }

    /// Returns the name of a tool.
    pub(super) fn tool_name(self, number: u32) -> String {
        match self {
            // `echo` is one of the tools.
            Self::Roles if ROLE_TOOLS - 100 <= number => format!("shared_record_{number:05}"),
            _ => format!("lookup_record_{number:05}"),
        }
    }

    /// Returns the credentials of the clients, a different one for each; empty if none are needed.
    pub(super) fn credentials(self) -> Arc<[String]> {
        match self {
            Self::Nothing | Self::Uncounted | Self::Traces | Self::Filter => Arc::default(),
            Self::Key | Self::Buckets => [key(0)].into(),
            Self::Token => [TOKEN.to_owned()].into(),
            Self::Roles => (0..ROLES).map(key).collect(),
        }
    }
}

/// An issuer's keys at a port of their own, for as long as the process lives.
fn serve_keys() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    thread::Builder::new()
        .name("issuer".to_owned())
        .spawn(move || {
            for mut stream in listener.incoming().flatten() {
                // Requests of this program have no body, and their heads arrive in one piece.
                let _ = stream.read(&mut [0; 4096]);
                let length = KEYS.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{KEYS}"
                );
            }
        })?;
    Ok(address)
}

/// Starts a collector on its own port that accepts everything until the process ends. It runs on a thread of the
/// measured server, with little work: one request for each few hundred spans.
fn collect() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let take = move || {
        for stream in listener.incoming().flatten() {
            // After a broken connection, the next one is accepted.
            let _ = thread::Builder::new()
                .name("collector".to_owned())
                .spawn(move || take_all(stream));
        }
    };
    thread::Builder::new()
        .name("collector".to_owned())
        .spawn(take)?;
    Ok(address)
}

/// Responds to each request with an empty message, which accepts all of it.
fn take_all(mut stream: TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    let mut length = 0;
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let field = line.trim_end().to_ascii_lowercase();
        if let Some(value) = field.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if field.is_empty() {
            io::copy(&mut reader.by_ref().take(length), &mut io::sink())?;
            length = 0;
            stream.write_all(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n",
            )?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_roles_have_the_same_tools_and_each_has_as_many() {
        let mut config = Config::default();
        Setting::Roles.apply(&mut config).expect("set");
        let named: BTreeSet<_> = (1..ROLE_TOOLS)
            .map(|number| Setting::Roles.tool_name(number))
            .collect();
        let shared = named.iter().filter(|name| name.starts_with("shared"));
        assert_eq!(shared.count(), 100);
        let mut seen = BTreeSet::new();
        let rules = &config.policy.rules[..ROLES as usize];
        for rule in rules {
            assert_eq!(rule.tools.len(), OWN_TOOLS as usize);
            for tool in &rule.tools {
                assert!(named.contains(tool) && seen.insert(tool), "{tool}");
            }
        }
        assert_eq!(Setting::Roles.credentials().len(), ROLES as usize);
    }
}

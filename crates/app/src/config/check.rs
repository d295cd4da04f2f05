//! Checks across settings of several modules.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::Path;

use serde_json::Value;

use super::{Config, ConfigError, Transport};
use crate::auth::{PublicUrl, is_scope};
use crate::environment::Probe;
use crate::server::fault_of_mount;
#[cfg(feature = "sources")]
use crate::source::TokenStore;
use crate::transport::drain::GRACE_SECONDS_MIN;
use crate::transport::http::is_host;

/// Conflicting settings, with advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Description of the conflict.
    pub problem: String,
    /// Advice.
    pub advice: String,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.advice)
    }
}

/// Settings in use that require a feature which this build does not have, each with that feature.
#[cfg(feature = "sources")]
fn unbuilt(_: &Config) -> Vec<(&'static str, &'static str)> {
    Vec::new()
}

/// Settings in use that require a feature which this build does not have, each with that feature.
#[cfg(not(feature = "sources"))]
fn unbuilt(config: &Config) -> Vec<(&'static str, &'static str)> {
    [
        (!config.toolsets.is_empty(), "toolsets"),
        (config.builtin.is_set(), "builtin"),
        (!config.upstreams.is_empty(), "upstreams"),
        (!config.sources.is_empty(), "sources"),
        (config.tokens.is_set(), "tokens"),
        (config.artifacts.is_set(), "artifacts"),
    ]
    .into_iter()
    .filter_map(|(is_set, setting)| is_set.then_some((setting, "sources")))
    .collect()
}

/// Rejects settings that require a feature which this build does not have.
///
/// # Errors
///
/// Names each setting and its feature.
pub(crate) fn check_built(config: &Config) -> Result<(), ConfigError> {
    let findings: Vec<_> = unbuilt(config)
        .into_iter()
        .map(|(setting, feature)| Conflict {
            problem: format!(
                "{setting} requires the feature `{feature}`, which this build does not have"
            ),
            advice: "enable the feature, or remove the setting".to_owned(),
        })
        .collect();
    match findings.is_empty() {
        true => Ok(()),
        false => Err(ConfigError::Contradictions(findings)),
    }
}

/// Finds contradictions in the settings of sources and upstream servers.
#[cfg(feature = "sources")]
fn find_in_sources(config: &Config, probe: &Probe, find: &mut dyn FnMut(String, &str)) {
    if let Err(error) = config.tokens.check(probe) {
        let text = error.to_string();
        let (problem, advice) = text.split_once("; ").unwrap_or((&text, ""));
        find(problem.to_owned(), advice);
    }
    if config.tokens.store() == TokenStore::State
        && config.state.is_shared()
        && config.seal.keys.is_empty()
    {
        find(
            "tokens.store is state, and they would be put into state.url as they are".to_owned(),
            "set seal.keys, which encrypts them, to the same on all replicas",
        );
    }
    for (name, upstream) in &config.upstreams {
        if !(64 * 1024..=256 * 1024 * 1024).contains(&upstream.message_bytes) {
            find(
                format!(
                    "upstreams.{name}.message_bytes is {}",
                    upstream.message_bytes
                ),
                "give it 65536 to 268435456",
            );
        }
    }
}

/// Everything because of which a configuration cannot be used.
pub(super) fn errors(config: &Config, probe: &Probe, proved: bool) -> Vec<Conflict> {
    let mut findings = Vec::new();
    let mut find = |problem: String, advice: &str| {
        findings.push(Conflict {
            problem,
            advice: advice.to_owned(),
        });
    };
    let http = &config.http;
    if is_public(config) && !may_be_public(config, probe, proved) {
        find(
            format!(
                "http.host is {}, and nothing proves who calls: anybody who reaches this machine could use the tools",
                http.host
            ),
            "ask callers for a proof (auth.api_keys, with a key from `longshore key new`), listen on 127.0.0.1, or say --insecure (http.insecure = true) if that is what you want",
        );
    }
    if let Some(url) = &http.public_url
        && PublicUrl::parse(url).is_none()
    {
        find(
            format!("http.public_url is {url:?}, which is no URL of a server"),
            "write it as clients do, without a query or a fragment: https://mcp.example.com",
        );
    }
    for network in http.trusted_proxies.too_wide() {
        find(
            format!(
                "http.trusted_proxies has {network}, so that anybody could say where a request came from, and who sent it"
            ),
            "name the networks that your proxies have for themselves, such as 10.0.0.0/8",
        );
    }
    // Mounted secrets are often readable by all in a container with a single user; there it is a warning.
    if !probe.is_in_container() {
        for (setting, path) in open_to_others(config) {
            find(
                format!(
                    "{setting}: others on this machine can read {}",
                    path.display()
                ),
                "take the right away from them with `chmod o-rwx`",
            );
        }
    }
    for scope in config
        .auth
        .implied_scopes
        .iter()
        .flat_map(|(scope, implied)| [scope].into_iter().chain(implied))
    {
        if !is_scope(scope) {
            find(
                format!("auth.implied_scopes has {scope:?}, which is no scope"),
                "a scope has visible ASCII characters, no quotation mark and no backslash",
            );
        }
    }
    for host in http.allowed_hosts.iter().filter(|host| !is_host(host)) {
        find(
            format!("http.allowed_hosts has {host:?}, which is no host"),
            "write it as a client does in Host, without scheme or path: mcp.example.com or mcp.example.com:8080",
        );
    }
    for origin in &http.allowed_origins {
        let host = origin.split_once("://").map(|(_, host)| host);
        if !host.is_some_and(is_host) {
            find(
                format!("http.allowed_origins has {origin:?}, which is no origin"),
                "write it as a browser does: https://app.example.com, without a path or a slash at the end",
            );
        }
    }
    for (position, name) in config.toolsets.iter().enumerate() {
        if config.toolsets[..position].contains(name) {
            find(format!("toolsets has {name:?} twice"), "name it once");
        }
    }
    for (name, mount) in &config.endpoints {
        if let Some(problem) = fault_of_mount(name) {
            find(
                format!("endpoints.{name} is no name of an endpoint"),
                &problem,
            );
        }
        if let Err((setting, problem)) = mount.chosen() {
            let dot = if setting.is_empty() { "" } else { "." };
            find(
                format!("endpoints.{name}{dot}{setting} cannot be used"),
                &problem,
            );
        }
        for scope in mount.scopes.iter().filter(|scope| !is_scope(scope)) {
            find(
                format!("endpoints.{name}.scopes has {scope:?}, which is no scope"),
                "a scope has visible ASCII characters, no quotation mark and no backslash",
            );
        }
    }
    if let Some((setting, advice)) = config.server.messages.problem() {
        find(
            format!("{setting} is {}", value_of(config, setting)),
            advice,
        );
    }
    for (setting, value, range) in bounded(config) {
        if !range.contains(&value) {
            let (least, most) = (range.start(), range.end());
            find(
                format!("{setting} is {value}"),
                &format!("give it {least} to {most}"),
            );
        }
    }
    #[cfg(feature = "sources")]
    find_in_sources(config, probe, &mut find);
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if let Some(separator) = &config.upstreams_separator
        && !(matches!(separator.len(), 1..=8) && separator.chars().all(is_part))
    {
        find(
            format!("upstreams_separator is {separator:?}"),
            "give it 1 to 8 letters, digits, _, - and .; for names without a prefix set upstreams_names: never",
        );
    }
    for (name, key) in config.auth.api_keys.iter().flat_map(|holder| {
        let keys = holder.keys.iter().map(|key| key.expose());
        keys.map(|key| (&holder.name, key))
    }) {
        if !key.starts_with("sha256:") && config.auth.key_bytes < key.len() {
            find(
                format!(
                    "auth.api_keys, {name:?}: a key is longer than auth.key_bytes, which is {}",
                    config.auth.key_bytes
                ),
                "make a shorter one with `longshore key new`, or let keys be longer",
            );
        }
    }
    if let Some(share) = config.telemetry.sample
        && !(0.0..=1.0).contains(&share)
    {
        find(
            format!("telemetry.sample is {share}"),
            "give it a share from 0 to 1: 0.1 for every tenth trace",
        );
    }
    if let Some((setting, problem)) = config.limits.problem() {
        find(
            format!("{setting} is {}", value_of(config, &setting)),
            problem,
        );
    }
    let limits = &http.limits;
    for (zero, name) in [
        (config.server.page_size == 0, "server.page_size"),
        (
            config.server.call_timeout_seconds == 0,
            "server.call_timeout_seconds",
        ),
        (
            config.server.tasks.ttl_seconds == 0,
            "server.tasks.ttl_seconds",
        ),
        (
            config.server.tasks.poll_interval_ms == 0,
            "server.tasks.poll_interval_ms",
        ),
        (
            config.server.client_requests.timeout_seconds == 0,
            "server.client_requests.timeout_seconds",
        ),
        (
            config.server.client_requests.state_seconds == 0,
            "server.client_requests.state_seconds",
        ),
        (http.workers == Some(0), "http.workers"),
        (limits.connections == 0, "http.limits.connections"),
        (
            limits.http2_ping_seconds == 0,
            "http.limits.http2_ping_seconds",
        ),
        (limits.target_bytes == 0, "http.limits.target_bytes"),
        (limits.header_bytes == 0, "http.limits.header_bytes"),
        (limits.body_bytes == 0, "http.limits.body_bytes"),
        (limits.header_seconds == 0, "http.limits.header_seconds"),
        (limits.body_seconds == 0, "http.limits.body_seconds"),
        (limits.idle_seconds == 0, "http.limits.idle_seconds"),
        (
            limits.write_stall_seconds == 0,
            "http.limits.write_stall_seconds",
        ),
        (
            limits.connection_seconds == 0,
            "http.limits.connection_seconds",
        ),
        (
            limits.connection_requests == 0,
            "http.limits.connection_requests",
        ),
        (limits.http2_streams == 0, "http.limits.http2_streams"),
        (config.http.blocking_threads == 0, "http.blocking_threads"),
        (config.stdio.message_bytes == 0, "stdio.message_bytes"),
        (config.audit.queue == 0, "audit.queue"),
        (config.state.memory_bytes == 0, "state.memory_bytes"),
        (config.state.timeout_ms == 0, "state.timeout_ms"),
        (config.state.share_percent == 0, "state.share_percent"),
        (
            config.server.streams.max_age_seconds == 0,
            "server.streams.max_age_seconds",
        ),
        (
            config.server.streams.per_principal == 0,
            "server.streams.per_principal",
        ),
        (
            config.server.streams.replay_events == 0,
            "server.streams.replay_events",
        ),
    ] {
        if zero {
            find(
                format!("{name} is 0"),
                "give it at least 1, or leave it out for the default",
            );
        }
    }
    if 100 < config.state.share_percent {
        find(
            format!("state.share_percent is {}", config.state.share_percent),
            "give it at most 100: nobody has more than the whole",
        );
    }
    let per_session = config.server.client_requests.per_session;
    if PER_SESSION_MAX < per_session {
        find(
            format!("server.client_requests.per_session is {per_session}"),
            "give it at most 200: over stdio 256 messages are looked after at once, and answers have to find a place",
        );
    }
    if let Some(grace) = config.drain.grace_seconds
        && grace < GRACE_SECONDS_MIN
    {
        find(
            format!("drain.grace_seconds is {grace}"),
            "give it at least 5: 3.5 seconds are set aside for what has to be done at the end",
        );
    }
    let drain = &config.drain;
    if let (Some(grace), Some(delay)) = (drain.grace_seconds, drain.delay_seconds)
        && grace <= delay.saturating_add(GRACE_SECONDS_MIN - 1)
    {
        find(
            format!("drain.delay_seconds is {delay}, and drain.grace_seconds {grace}"),
            "leave calls at least a second: of the grace go the delay, and the 3.5 seconds that are set aside for the end",
        );
    }
    let oauth = &config.auth.oauth;
    if !oauth.is_configured()
        && let Some(setting) = oauth.said_without_issuer()
    {
        find(
            format!(
                "auth.oauth.{setting} is set, and auth.oauth.issuer is not: no token would be asked for"
            ),
            "name the issuer whose tokens are taken (auth.oauth.issuer, auth.oauth.issuers), or leave it out; a variable that is empty counts as absent",
        );
    }
    if let Some(port) = http.admin.port
        && port == http.port
        && port != 0
        && http.admin.host.is_none_or(|host| {
            host == http.host || host.is_unspecified() || http.host.is_unspecified()
        })
    {
        find(
            format!("http.admin.port is {port}, which clients have already"),
            "give operators a port of their own, or leave it out",
        );
    }
    if http.admin.host.is_some() && http.admin.port.is_none() {
        find(
            "http.admin.host is set, and http.admin.port is not: nothing would listen there"
                .to_owned(),
            "name the port for operators too, or leave the host out",
        );
    }
    if http.tls.client_optional && http.tls.client_ca.is_none() {
        find(
            "http.tls.client_optional is set, and http.tls.client_ca is not: nobody would be asked for a certificate".to_owned(),
            "name the file with the authorities of clients' certificates, or leave it out",
        );
    }
    if config.audit.lacks_a_place() {
        find(
            "audit.required is true, and nothing is written here".to_owned(),
            "set audit.file or audit.stderr: whether a collector has kept a record is not known in time",
        );
    }
    if let Some(workers) = http.workers.filter(|workers| WORKERS_MAX < *workers) {
        find(
            format!("http.workers is {workers}"),
            "give it at most 1024; one for each core is best, which is the default",
        );
    }
    if HEADER_BYTES_MAX < limits.header_bytes {
        find(
            format!("http.limits.header_bytes is {}", limits.header_bytes),
            "give it at most 65536, which is what is kept of a request while its head arrives",
        );
    }
    findings
}

/// Returns true if others than this machine reach the server where the settings have it listen.
pub(crate) fn is_public(config: &Config) -> bool {
    let http = &config.http;
    config.transport == Transport::Http
        && !http.host.to_canonical().is_loopback()
        && http.unix_socket.is_none()
}

/// Returns true if others than this machine may reach the server.
fn may_be_public(config: &Config, probe: &Probe, proved: bool) -> bool {
    proved || config.auth.proves_anything() || config.http.insecure || probe.is_in_container()
}

/// Checks the bound address. It differs from the settings where a socket was inherited (`LISTEN_FDS`).
pub(crate) fn check_bound(
    config: &Config,
    bound: SocketAddr,
    probe: &Probe,
    proved: bool,
) -> Result<(), ConfigError> {
    if bound.ip().to_canonical().is_loopback()
        || is_public(config)
        || may_be_public(config, probe, proved)
    {
        return Ok(());
    }
    Err(ConfigError::Contradictions(vec![Conflict {
        problem: format!(
            "the socket that was handed over (LISTEN_FDS) listens on {bound}, and nothing proves who calls: anybody who reaches this machine could use the tools"
        ),
        advice: "ask callers for a proof (auth.api_keys, with a key from `longshore key new`), have the socket listen on 127.0.0.1 (ListenStream= of the systemd socket unit), or say --insecure (http.insecure = true) if that is what you want".to_owned(),
    }]))
}

/// The value of a setting, by its name; parts of which may have dots in them, as names of tools do.
fn value_of(config: &Config, setting: &str) -> Value {
    let mut value = serde_json::to_value(config).unwrap_or_default();
    let mut rest = setting;
    while let Some(settings) = value.as_object_mut().filter(|_| !rest.is_empty()) {
        let leads = |name: &&String| {
            let after = rest.strip_prefix(name.as_str());
            after.is_some_and(|after| after.is_empty() || after.starts_with('.'))
        };
        let Some(name) = settings
            .keys()
            .filter(leads)
            .max_by_key(|name| name.len())
            .cloned()
        else {
            return Value::Null;
        };
        rest = rest[name.len()..].trim_start_matches('.');
        value = settings.remove(&name).unwrap_or_default();
    }
    value
}

/// Settings that have a least and a most, with what they are.
fn bounded(config: &Config) -> [(&'static str, u64, RangeInclusive<u64>); 11] {
    let (server, limits) = (&config.server, &config.http.limits);
    let streams = &server.streams;
    [
        (
            "http.limits.header_fields",
            limits.header_fields as u64,
            16..=100,
        ),
        (
            "http.limits.http2_resets",
            limits.http2_resets.into(),
            1..=1000,
        ),
        (
            "upstreams_reap_seconds",
            config.upstreams_reap_seconds.unwrap_or(1),
            1..=3600,
        ),
        (
            "http.limits.http2_resets_per_second",
            limits.http2_resets_per_second.into(),
            1..=1_000_000,
        ),
        (
            "http.limits.http2_control_frames_per_second",
            limits.http2_control_frames_per_second.into(),
            100..=1_000_000,
        ),
        ("auth.key_bytes", config.auth.key_bytes as u64, 64..=512),
        (
            "auth.token_bytes",
            config.auth.token_bytes as u64,
            1024..=16 * 1024,
        ),
        (
            "server.session_seconds",
            server.session_seconds,
            60..=24 * 60 * 60,
        ),
        (
            "server.streams.queue_messages",
            streams.queue_messages.into(),
            1..=65_536,
        ),
        (
            "server.streams.queue_bytes",
            streams.queue_bytes.into(),
            1024..=64 * 1024 * 1024,
        ),
        (
            "log.line_bytes",
            config.log.line_bytes as u64,
            512..=1024 * 1024,
        ),
    ]
}

/// The settings that name files and folders with secrets that others on the machine can read.
pub(crate) fn open_to_others(config: &Config) -> impl Iterator<Item = (&'static str, &Path)> {
    let all = [
        ("auth.api_keys_file", &config.auth.api_keys_file),
        ("auth.api_keys_dir", &config.auth.api_keys_dir),
        ("audit.file", &config.audit.file),
        ("http.tls.key", &config.http.tls.key),
    ];
    let named = all.into_iter();
    let named = named.filter_map(|(setting, path)| Some((setting, path.as_deref()?)));
    named.filter(|(_, path)| is_open_to_others(path))
}

/// Returns true if users outside the owner and the group have access to a file or folder. Missing files are reported
/// elsewhere.
fn is_open_to_others(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o007 != 0)
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        false
    }
}

const WORKERS_MAX: usize = 1024;
const PER_SESSION_MAX: usize = 200;
/// Size of hyper's buffer for an incomplete request head.
const HEADER_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_address_that_was_handed_over_is_checked_like_one_that_is_configured() {
        let bound = |address: &str, config: &Config, probe: &Probe| {
            let address = address.parse().expect("an address");
            check_bound(config, address, probe, false).map_err(|error| error.to_string())
        };
        let mut config = Config::default();
        let none = Probe::default();
        for public in [
            "0.0.0.0:80",
            "192.0.2.1:80",
            "[::]:80",
            "[::ffff:192.0.2.1]:80",
        ] {
            let refused = bound(public, &config, &none).expect_err(public);
            assert!(
                refused.contains(public) && refused.contains("LISTEN_FDS"),
                "{refused}"
            );
        }
        for local in ["127.0.0.1:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
            assert_eq!(bound(local, &config, &none), Ok(()), "{local}");
        }
        // A path that is configured says nothing of a socket that was handed over.
        config.http.unix_socket = Some("/run/mcp.sock".into());
        assert!(bound("0.0.0.0:80", &config, &none).is_err());
        config.http.insecure = true;
        assert_eq!(bound("0.0.0.0:80", &config, &none), Ok(()));
    }

    #[test]
    fn a_share_of_traces_is_a_share() {
        for (share, fits) in [(0.0, true), (1.0, true), (1.01, false), (-0.1, false)] {
            let mut config = Config::default();
            config.telemetry.sample = Some(share);
            let found = errors(&config, &Probe::default(), false);
            let found = found.iter().any(|f| f.problem.contains("telemetry.sample"));
            assert_eq!(found, !fits, "{share}");
        }
    }

    #[test]
    fn settings_that_undo_one_another_are_told_of() {
        let problems = |config: Value| -> Vec<String> {
            let config: Config = serde_json::from_value(config).expect("a configuration");
            let findings = errors(&config, &Probe::default(), false).into_iter();
            findings.map(|finding| finding.problem).collect()
        };
        for (config, problem) in [
            (
                json!({"auth": {"oauth": {"audience": ["https://x"]}}}),
                "auth.oauth.audience is set, and auth.oauth.issuer is not: no token would be asked for",
            ),
            (
                json!({"drain": {"grace_seconds": 10, "delay_seconds": 7}}),
                "drain.delay_seconds is 7, and drain.grace_seconds 10",
            ),
            (
                json!({"http": {"port": 4000, "admin": {"port": 4000, "host": "0.0.0.0"}}}),
                "http.admin.port is 4000, which clients have already",
            ),
            (
                json!({"http": {"admin": {"host": "127.0.0.1"}}}),
                "http.admin.host is set, and http.admin.port is not: nothing would listen there",
            ),
            (
                json!({"http": {"tls": {"client_optional": true}}}),
                "http.tls.client_optional is set, and http.tls.client_ca is not: nobody would be asked for a certificate",
            ),
            (
                json!({"audit": {"required": true}}),
                "audit.required is true, and nothing is written here",
            ),
            (
                json!({"limits": {"memory_high_percent": 95}}),
                "limits.memory_critical_percent is 90",
            ),
            (
                json!({"limits": {"tools": {"a.b": {"per_second": -1.0}}}}),
                "limits.tools.a.b.per_second is -1.0",
            ),
        ] {
            assert_eq!(problems(config), [problem]);
        }
        for config in [
            json!({"drain": {"grace_seconds": 10, "delay_seconds": 5}}),
            json!({"http": {"host": "127.0.0.1", "port": 4000, "admin": {"port": 4000, "host": "127.0.0.2"}}}),
            json!({"auth": {"oauth": {"issuer": "https://i.example", "audience": ["https://x"]}}}),
        ] {
            assert_eq!(problems(config), [""; 0]);
        }
    }

    #[test]
    fn tokens_are_kept_where_they_are_private_and_where_somebody_has_said() {
        let problems = |config: Value| -> Vec<String> {
            let config: Config = serde_json::from_value(config).expect("a configuration");
            let findings = errors(&config, &Probe::default(), false).into_iter();
            let problems = findings.map(|finding| finding.to_string());
            problems
                .filter(|problem| problem.contains("tokens"))
                .collect()
        };
        let state = json!({"url": "redis://127.0.0.1:1"});
        let shared = json!({"state": state, "tokens": {"store": "state"}});
        assert_eq!(
            problems(shared),
            [
                "tokens.store is state, and they would be put into state.url as they are; set seal.keys, which encrypts them, \
                 to the same on all replicas"
            ]
        );
        let keys = json!({"keys": ["a".repeat(32)]});
        let sealed = json!({"state": state, "tokens": {"store": "state"}, "seal": keys});
        assert_eq!(problems(sealed), [""; 0]);
        for (tokens, problem) in [
            (json!({}), None),
            (json!({"folder": "/x"}), None),
            (json!({"folder": "/x", "store": "file"}), None),
            (
                json!({"folder": "/x", "store": "memory"}),
                Some("tokens.folder is set, and tokens.store is memory; "),
            ),
            (
                json!({"folder": "/x", "store": "state"}),
                Some("tokens.folder is set, and tokens.store is state; "),
            ),
            (
                json!({"store": "file"}),
                Some("tokens.store is file, and there is no folder for it; "),
            ),
        ] {
            let found = problems(json!({"tokens": tokens, "seal": keys}));
            let fits = match (&found[..], problem) {
                ([], None) => true,
                ([found], Some(problem)) => found.starts_with(problem),
                _ => false,
            };
            assert!(fits, "{tokens}: {found:?}");
        }
    }
}

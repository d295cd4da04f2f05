//! Validation across settings: composes what each room reports, and checks what spans rooms.

use std::net::SocketAddr;
use std::path::Path;

use super::{Config, ConfigError, Transport};
use crate::environment::{Conflict, Conflicts, Probe};
#[cfg(feature = "sources")]
use crate::source::TokenStore;
use crate::transport::http::HttpConfig;

/// Returns everything that makes a configuration unusable.
pub(super) fn conflicts(config: &Config, probe: &Probe, proved: bool) -> Vec<Conflict> {
    let mut conflicts = Conflicts::default();
    validate_exposure(config, probe, proved, &mut conflicts);
    config.http.validate(&mut conflicts);
    config.stdio.validate(&mut conflicts);
    config.auth.validate(&mut conflicts);
    for (name, endpoint) in &config.endpoints {
        endpoint.validate(name, &mut conflicts);
    }
    config.server.validate(&mut conflicts);
    validate_toolsets(&config.toolsets, &mut conflicts);
    validate_sources(config, probe, &mut conflicts);
    config.telemetry.validate(&mut conflicts);
    config.limits.validate(&mut conflicts);
    config.state.validate(&mut conflicts);
    config.drain.validate(&mut conflicts);
    config.audit.validate(&mut conflicts);
    config.log.validate(&mut conflicts);
    conflicts.into_vec()
}

/// Reports an unauthenticated public server, and secrets that all users of the machine can read.
fn validate_exposure(config: &Config, probe: &Probe, proved: bool, conflicts: &mut Conflicts) {
    if is_public(config) && !may_be_public(config, probe, proved) {
        conflicts.add(
            format!(
                "http.host is {}, and authentication is off: everyone who reaches this machine could use the tools",
                config.http.host
            ),
            "require authentication (auth.api_keys, with a key from `longshore key new`), listen on 127.0.0.1, or set --insecure (http.insecure = true) if this is intended",
        );
    }
    // Mounted secrets are often readable by all in a container with a single user; there it is a warning.
    if !probe.is_in_container() {
        for (setting, path) in open_to_others(config) {
            conflicts.add(
                format!(
                    "{setting}: others on this machine can read {}",
                    path.display()
                ),
                "remove that permission with `chmod o-rwx`",
            );
        }
    }
}

/// Reports toolsets that are named twice.
fn validate_toolsets(toolsets: &[String], conflicts: &mut Conflicts) {
    for (position, name) in toolsets.iter().enumerate() {
        if toolsets[..position].contains(name) {
            conflicts.add(format!("toolsets has {name:?} twice"), "name it once");
        }
    }
}

/// Reports settings of sources and upstream servers, and settings that the token store needs.
#[cfg(feature = "sources")]
fn validate_sources(config: &Config, probe: &Probe, conflicts: &mut Conflicts) {
    config.tokens.validate(probe, conflicts);
    if config.tokens.store() == TokenStore::State
        && config.state.is_shared()
        && config.seal.keys.is_empty()
    {
        conflicts.add(
            "tokens.store is state, and they would be put into state.url as they are",
            "set seal.keys, which encrypts them, to the same on all replicas",
        );
    }
    for (name, upstream) in &config.upstreams {
        upstream.validate(name, conflicts);
    }
    validate_exchanges(config, conflicts);
    validate_upstreams(config, conflicts);
}

/// Reports exchanges of access tokens that callers do not have.
#[cfg(feature = "sources")]
fn validate_exchanges(config: &Config, conflicts: &mut Conflicts) {
    let sources = config.sources.iter().enumerate();
    let sources = sources.filter(|(_, source)| source.exchanges_tokens());
    let sources = sources.map(|(position, _)| format!("sources[{position}]"));
    let upstreams = config.upstreams.iter();
    let upstreams = upstreams.filter(|(_, upstream)| upstream.auth.exchanges_tokens());
    let upstreams = upstreams.map(|(name, _)| format!("upstreams.{name}"));
    let oauth = &config.auth.oauth;
    let (problem, advice) = match () {
        () if !oauth.is_configured() => (
            "no caller has an access token, because auth.oauth is not configured",
            "set auth.oauth.issuer to the issuer that exchanges the tokens",
        ),
        () if oauth.facade.is_configured()
            && oauth.issuer.is_none()
            && oauth.issuers.is_empty() =>
        {
            (
                "callers have access tokens of this server (auth.oauth.facade), which no other issuer exchanges",
                "set auth.oauth.issuer to the issuer that exchanges the tokens, instead of the facade",
            )
        }
        () => return,
    };
    for place in sources.chain(upstreams) {
        conflicts.add(
            format!("{place} has auth.on_behalf_of, and {problem}"),
            advice,
        );
    }
}

/// Reports settings that apply to all upstream servers.
#[cfg(not(feature = "sources"))]
fn validate_sources(config: &Config, _: &Probe, conflicts: &mut Conflicts) {
    validate_upstreams(config, conflicts);
}

/// Reports settings that apply to all upstream servers.
fn validate_upstreams(config: &Config, conflicts: &mut Conflicts) {
    conflicts.within([(
        "upstreams_reap_seconds",
        config.upstreams_reap_seconds.unwrap_or(1),
        1..=3600,
    )]);
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if let Some(separator) = &config.upstreams_separator
        && !(matches!(separator.len(), 1..=8) && separator.chars().all(is_part))
    {
        conflicts.add(
            format!("upstreams_separator is {separator:?}"),
            "use 1 to 8 letters, digits, _, - and .; for names without a prefix set upstreams_names: never",
        );
    }
}

/// Returns the settings in use that require a feature which this build does not have, each with that feature.
#[cfg(feature = "sources")]
fn unbuilt(_: &Config) -> Vec<(&'static str, &'static str)> {
    Vec::new()
}

/// Returns the settings in use that require a feature which this build does not have, each with that feature.
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
    .chain((config.ca_file.is_some() && !cfg!(feature = "egress")).then_some(("ca_file", "egress")))
    .collect()
}

/// Rejects settings that require a feature which this build does not have.
///
/// # Errors
///
/// Names each setting and its feature.
pub(crate) fn validate_features(config: &Config) -> Result<(), ConfigError> {
    let mut conflicts = Conflicts::default();
    for (setting, feature) in unbuilt(config) {
        conflicts.add(
            format!("{setting} requires the feature `{feature}`, which this build does not have"),
            "enable the feature, or remove the setting",
        );
    }
    let conflicts = conflicts.into_vec();
    match conflicts.is_empty() {
        true => Ok(()),
        false => Err(ConfigError::Conflicts(conflicts)),
    }
}

/// Returns true if others than this machine reach the server where the settings have it listen.
pub(crate) fn is_public(config: &Config) -> bool {
    config.transport == Transport::Http && is_exposed(&config.http)
}

/// Returns true if a server over HTTP listens on an address that others than this machine may reach.
pub(crate) fn is_exposed(http: &HttpConfig) -> bool {
    !http.host.to_canonical().is_loopback() && http.unix_socket.is_none()
}

/// Returns true if others than this machine may reach the server.
fn may_be_public(config: &Config, probe: &Probe, proved: bool) -> bool {
    proved || config.auth.proves_anything() || config.http.insecure || probe.is_in_container()
}

/// Validates the bound address. It differs from the settings where a socket was inherited (`LISTEN_FDS`).
pub(crate) fn validate_bound(
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
    Err(ConfigError::Conflicts(vec![Conflict {
        problem: format!(
            "the socket that was passed to this process (LISTEN_FDS) listens on {bound}, and authentication is off: everyone who reaches this machine could use the tools"
        ),
        advice: "require authentication (auth.api_keys, with a key from `longshore key new`), let the socket listen on 127.0.0.1 (ListenStream= of the systemd socket unit), or set --insecure (http.insecure = true) if this is intended".to_owned(),
    }]))
}

/// Returns the settings that name files and folders with secrets which others on the machine can read.
fn open_to_others(config: &Config) -> impl Iterator<Item = (&'static str, &Path)> {
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

/// Like [`open_to_others`], for a container. The folder of a mounted Secret is open to all, whatever the modes of its files
/// are, so that these decide.
pub(crate) fn open_to_others_in_container(
    config: &Config,
) -> impl Iterator<Item = (&'static str, &Path)> {
    open_to_others(config).filter(|(_, path)| match std::fs::read_dir(path) {
        Ok(folder) => {
            let mut files = folder.flatten().map(|entry| entry.path());
            files.any(|file| file.is_file() && is_open_to_others(&file))
        }
        Err(_) => true,
    })
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[cfg(unix)]
    #[test]
    fn of_a_mounted_folder_of_secrets_the_files_decide() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};

        let folder = tempfile::tempdir().expect("a folder");
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
        };
        // As the kubelet lays it out.
        let version = folder.path().join("..1");
        std::fs::create_dir(&version).expect("created");
        std::fs::write(version.join("alice"), "").expect("written");
        symlink("..1", folder.path().join("..data")).expect("linked");
        symlink("..data/alice", folder.path().join("alice")).expect("linked");
        set(folder.path(), 0o1777);
        let mut config = Config::default();
        config.auth.api_keys_dir = Some(folder.path().to_owned());
        for (mode, count) in [(0o440, 0), (0o444, 1)] {
            set(&version.join("alice"), mode);
            assert_eq!(open_to_others_in_container(&config).count(), count);
            assert_eq!(open_to_others(&config).count(), 1);
        }
    }

    #[test]
    fn an_address_that_was_handed_over_is_checked_like_one_that_is_configured() {
        let bound = |address: &str, config: &Config, probe: &Probe| {
            let address = address.parse().expect("an address");
            validate_bound(config, address, probe, false).map_err(|error| error.to_string())
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
            let found = conflicts(&config, &Probe::default(), false);
            let found = found.iter().any(|f| f.problem.contains("telemetry.sample"));
            assert_eq!(found, !fits, "{share}");
        }
    }

    #[test]
    fn settings_that_undo_one_another_are_told_of() {
        let problems = |config: Value| -> Vec<String> {
            let config: Config = serde_json::from_value(config).expect("a configuration");
            let found = conflicts(&config, &Probe::default(), false).into_iter();
            found.map(|conflict| conflict.problem).collect()
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
                "http.tls.client_optional is set, and http.tls.client_ca is not: no client would be asked for a certificate",
            ),
            (
                json!({"audit": {"required": true}}),
                "audit.required is true, and no record is written on this machine",
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
            let found = conflicts(&config, &Probe::default(), false).into_iter();
            let problems = found.map(|conflict| conflict.to_string());
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
                Some("tokens.store is file, but there is no folder; "),
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

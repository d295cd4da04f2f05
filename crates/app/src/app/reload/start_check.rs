//! Checks whether the server would start with changed settings, when the configuration is reloaded.
//!
//! A mistake in a setting that needs a restart is reported by the reload. Otherwise the next start would fail.

use std::path::PathBuf;

use super::super::build::load_tls;
#[cfg(feature = "sources")]
use super::super::configured::check_upstreams;
use super::super::dry_run::without_new_file;
use super::super::endpoints;
use super::super::error::AppError;
use super::super::items::{AppItems, NamedApp};
use super::super::server_card::ServerCards;
use crate::auth::{AuthSetupError, Authentication};
#[cfg(feature = "egress")]
use crate::config::check_ca_file;
use crate::config::{Config, validate_features};
use crate::seal::KeyRing;
use crate::state;

/// Checks the parts of the server to which changed settings belong, and leaves nothing behind. `changed` are the names of the settings,
/// `items` those of the application, `apps` the endpoints that it defines.
///
/// # Errors
///
/// The error with which the server would not start.
pub(super) fn check_start<'a>(
    config: &Config,
    changed: &[&str],
    items: &AppItems,
    apps: impl Iterator<Item = NamedApp<'a>> + Clone,
) -> Result<(), AppError> {
    validate_features(config)?;
    let has_changed = |sections: &[&str]| {
        let is_in_one = |name: &&str| sections.iter().any(|section| is_in(name, section));
        changed.iter().any(is_in_one)
    };
    if has_changed(&["seal"]) {
        KeyRing::new(&config.seal)?;
    }
    #[cfg(feature = "egress")]
    if has_changed(&["ca_file"]) {
        check_ca_file(config.ca_file.as_deref())?;
    }
    // The store of an application replaces the configured one.
    if has_changed(&["state"]) && items.store.is_none() {
        // Nothing is connected.
        drop(state::open(&config.state)?);
    }
    if has_changed(&["audit"]) {
        let mut planned = config.audit.clone();
        without_new_file(&mut planned)?;
        planned.check()?;
    }
    if has_changed(&["http.tls", "transport"]) {
        load_tls(config)?;
    }
    if has_changed(&["http.server_card", "http.public_url", "endpoints"]) {
        ServerCards::new(config, apps.clone())?;
    }
    if has_changed(&[
        "auth",
        "endpoints",
        "http.public_url",
        "http.tls",
        "http.trusted_proxies",
    ]) {
        check_authentication(config, apps)?;
    }
    #[cfg(feature = "sources")]
    if has_changed(&["upstreams", "auth", "http.public_url", "tokens"]) {
        check_upstreams(config)?;
    }
    #[cfg(feature = "sources")]
    if has_changed(&["artifacts"]) {
        items.check_artifacts(config)?;
    }
    Ok(())
}

/// Returns the files that these checks read, beside those of API keys.
pub(super) fn checked_files(config: &Config) -> impl Iterator<Item = PathBuf> {
    let tls = &config.http.tls;
    let files = [&tls.certificate, &tls.key, &tls.client_ca, &config.ca_file];
    let files = files.into_iter().flatten().cloned();
    #[cfg(feature = "sources")]
    let files = files.chain(config.artifacts.s3.credentials_file.clone());
    files
}

fn check_authentication<'a>(
    config: &Config,
    apps: impl Iterator<Item = NamedApp<'a>>,
) -> Result<(), AppError> {
    let endpoints = endpoints::requirements(config, apps)?;
    let facts = endpoints::server_facts(config, &endpoints);
    match Authentication::new(&config.auth, facts, Vec::new()) {
        // The last key may be revoked while the server runs. Its hook reports that.
        Err(AuthSetupError::NoKeys) => {}
        checked => drop(checked?),
    }
    #[cfg(feature = "oauth")]
    if config.auth.oauth.facade.is_configured() {
        let facade = config.auth.oauth.facade.check();
        facade.map_err(|error| AppError::AuthorizationServer(error.to_string()))?;
    }
    Ok(())
}

/// Returns true if a setting belongs to a section: `http.tls.key` to `http.tls`.
pub(super) fn is_in(setting: &str, section: &str) -> bool {
    let rest = setting.strip_prefix(section);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::App;
    use super::super::super::items::Identity;
    use super::*;
    use crate::config::Transport;
    use crate::server::EndpointConfig;

    /// Checks the settings of an application without items and endpoints.
    fn check_alone(config: &Config, changed: &[&str]) -> Result<(), AppError> {
        check_start(config, changed, &AppItems::default(), std::iter::empty())
    }

    #[test]
    fn sections_have_the_settings_below_them() {
        for (setting, section, is_below) in [
            ("http.tls.key", "http.tls", true),
            ("upstreams[0].url", "upstreams", true),
            ("seal", "seal", true),
            ("upstreams_folder", "upstreams", false),
            ("http.port", "http.tls", false),
        ] {
            assert_eq!(is_in(setting, section), is_below, "{setting} {section}");
        }
    }

    #[test]
    fn only_the_parts_of_changed_settings_are_checked() {
        let mut config = Config::default();
        config.http.tls.certificate = Some("/none.pem".into());
        config.http.tls.key = Some("/none.pem".into());
        let check = |changed: &[&str]| check_alone(&config, changed);
        assert!(check(&[]).is_ok());
        assert!(check(&["http.port"]).is_ok());
        let failed = check(&["http.tls.key"]);
        assert!(matches!(failed, Err(AppError::Tls(_))), "{failed:?}");
        assert_eq!(checked_files(&config).count(), 2);
        config.transport = Transport::Stdio;
        assert!(check_alone(&config, &["http.tls.key"]).is_ok());
    }

    #[tokio::test]
    async fn an_endpoint_with_the_name_of_one_of_the_application_is_rejected_as_at_a_start() {
        let mut config = Config::default();
        config.http.port = 0;
        let all = EndpointConfig {
            tools: vec!["*".to_owned()],
            ..EndpointConfig::default()
        };
        config.endpoints.insert("sums".to_owned(), all);
        let app = App::new().endpoint("sums", App::new());
        let started = app.config(config.clone()).bind().await;
        let started = started.expect_err("two endpoints").to_string();
        let (identity, items) = (Identity::default(), AppItems::default());
        let app = |name| std::iter::once((name, &identity));
        let reloaded = check_start(&config, &["endpoints.sums"], &items, app("sums"));
        assert_eq!(
            reloaded.map_err(|error| error.to_string()),
            Err(started.clone())
        );
        assert!(
            started.contains("two endpoints have this name"),
            "{started}"
        );
        assert!(check_start(&config, &["endpoints.sums"], &items, app("others")).is_ok());
    }

    #[test]
    fn the_shared_state_and_the_audit_log_are_checked() {
        let mut config = Config::default();
        config.state.url = Some("https://not-redis.invalid".to_owned().into());
        config.audit.stderr = true;
        config.audit.arguments = true;
        config.audit.redact = vec!["[".to_owned()];
        let check = |changed: &[&str]| check_alone(&config, changed);
        let failed = check(&["state.url"]);
        assert!(matches!(failed, Err(AppError::State(_))), "{failed:?}");
        let failed = check(&["audit.redact"]);
        assert!(matches!(failed, Err(AppError::Audit(_))), "{failed:?}");
    }

    #[test]
    fn the_store_of_an_application_replaces_the_configured_one() {
        let mut config = Config::default();
        config.state.url = Some("https://not-redis.invalid".to_owned().into());
        let items = AppItems {
            store: Some(crate::state::open(&Config::default().state).expect("memory")),
            ..AppItems::default()
        };
        let none = std::iter::empty;
        check_start(&config, &["state.url"], &items, none()).expect("not used");
    }

    #[test]
    fn files_are_checked_and_none_is_created() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let mut config = Config::default();
        config.audit.file = Some(path("missing/audit.log"));
        let failed = check_alone(&config, &["audit.file"]);
        assert!(matches!(failed, Err(AppError::Audit(_))), "{failed:?}");
        config.audit.file = Some(folder.path().to_owned());
        let failed = check_alone(&config, &["audit.file"]);
        assert!(matches!(failed, Err(AppError::Audit(_))), "{failed:?}");
        config.audit.file = Some(path("audit.log"));
        check_alone(&config, &["audit.file"]).expect("it can be created");
        let left = std::fs::read_dir(folder.path()).expect("a folder");
        assert_eq!(left.count(), 0);
    }

    #[cfg(feature = "egress")]
    #[test]
    fn trusted_certificates_are_checked() {
        let config = Config {
            ca_file: Some("/none.pem".into()),
            ..Config::default()
        };
        let failed = check_alone(&config, &["ca_file"]);
        assert!(matches!(failed, Err(AppError::Config(_))), "{failed:?}");
        assert_eq!(checked_files(&config).count(), 1);
    }

    #[cfg(feature = "sources")]
    #[test]
    fn the_store_of_large_results_is_checked() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = Config::default();
        config.artifacts.above_bytes = Some(1000);
        config.artifacts.folder = Some(folder.path().join("new/artifacts"));
        check_alone(&config, &["artifacts.folder"]).expect("it can be created");
        assert!(!folder.path().join("new").exists());
        config.artifacts.s3.bucket = "results".to_owned();
        let failed = check_alone(&config, &["artifacts.s3.bucket"]).map_err(|e| e.to_string());
        assert!(
            matches!(&failed, Err(problem) if problem.contains("folder and bucket are both set")),
            "{failed:?}"
        );
    }

    #[cfg(feature = "sources")]
    #[tokio::test]
    async fn upstream_servers_are_checked_with_what_they_need_of_other_settings() {
        let check = |upstream: serde_json::Value, changed: &str| {
            let mut config = Config::default();
            let upstream = serde_json::from_value(upstream).expect("settings");
            config.upstreams.insert("up".to_owned(), upstream);
            check_alone(&config, &[changed])
        };
        let url = "https://up.invalid/mcp";
        let good = json!({"url": url, "auth": {"bearer": "secret"}});
        assert!(check(good, "upstreams.up.url").is_ok());
        let unused = json!({"url": url, "listing_auth": {"bearer": "secret"}});
        let failed = check(unused, "upstreams.up.listing_auth");
        assert!(matches!(failed, Err(AppError::Upstream(_))), "{failed:?}");
        let of_users = json!({"url": url, "auth": {"per_user": {"issuer": "https://up.invalid", "client_id": "a"}}});
        let failed = check(of_users, "http.public_url");
        assert!(matches!(failed, Err(AppError::Upstream(_))), "{failed:?}");
    }

    #[test]
    fn an_endpoint_of_the_application_at_the_path_of_the_server_card_is_found() {
        let mut config = Config::default();
        config.http.public_url = Some("https://mcp.example.com".to_owned());
        config.http.server_card.name = Some("com.example/sums".to_owned());
        let (identity, items) = (Identity::default(), AppItems::default());
        let check = |name| {
            let apps = std::iter::once((name, &identity));
            check_start(&config, &["http.server_card.name"], &items, apps)
        };
        assert!(check("sums").is_ok());
        let failed = check("server-card");
        assert!(matches!(failed, Err(AppError::ServerCard(_))), "{failed:?}");
    }
}

//! Checks whether the server would start with changed settings, when the configuration is reloaded.
//!
//! A mistake in a setting that needs a restart is reported by the reload. Otherwise the next start would fail.

use std::path::PathBuf;

use super::super::endpoints;
use super::super::error::AppError;
use super::super::server_card::ServerCards;
use crate::auth::{AuthSetupError, Authentication};
use crate::config::Config;
use crate::seal::KeyRing;
use crate::transport::http::Tls;

/// Checks the parts of the server to which changed settings belong, and creates nothing. `changed` are the names of the settings.
///
/// # Errors
///
/// The error with which the server would not start.
pub(super) fn check_start(config: &Config, changed: &[&str]) -> Result<(), AppError> {
    let has_changed = |sections: &[&str]| {
        let is_in_one = |name: &&str| sections.iter().any(|section| is_in(name, section));
        changed.iter().any(is_in_one)
    };
    if has_changed(&["seal"]) {
        KeyRing::new(&config.seal)?;
    }
    if has_changed(&["http.tls"]) {
        Tls::load(&config.http.tls)?;
    }
    if has_changed(&["http.server_card", "http.public_url", "endpoints"]) {
        ServerCards::new(config, &[])?;
    }
    if has_changed(&[
        "auth",
        "endpoints",
        "http.public_url",
        "http.tls",
        "http.trusted_proxies",
    ]) {
        check_authentication(config)?;
    }
    #[cfg(feature = "sources")]
    if has_changed(&["upstreams"]) {
        for (name, upstream) in config.upstreams.iter().filter(|(_, it)| !it.disabled) {
            upstream.target(name)?;
        }
    }
    Ok(())
}

/// Returns the files that these checks read, beside those of API keys.
pub(super) fn checked_files(config: &Config) -> impl Iterator<Item = PathBuf> {
    let tls = &config.http.tls;
    let files = [&tls.certificate, &tls.key, &tls.client_ca];
    files.into_iter().flatten().cloned()
}

fn check_authentication(config: &Config) -> Result<(), AppError> {
    let endpoints = endpoints::requirements(config, std::iter::empty())?;
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
fn is_in(setting: &str, section: &str) -> bool {
    let rest = setting.strip_prefix(section);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(check_start(&config, &[]).is_ok());
        assert!(check_start(&config, &["http.port"]).is_ok());
        let failed = check_start(&config, &["http.tls.key"]);
        assert!(matches!(failed, Err(AppError::Tls(_))), "{failed:?}");
        assert_eq!(checked_files(&config).count(), 2);
    }
}

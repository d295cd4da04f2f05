//! Checks of an application and its configuration, which bind no address and create no files.

use std::sync::Arc;

use super::super::App;
use super::super::dry_run::{check_folder_of, without_new_files};
use super::super::error::AppError;
use super::super::server_card::ServerCards;
use super::super::supervisor::Supervisor;
use super::super::warnings::{warn_in_public, warn_of_nobody, warn_of_open_secrets};
use super::Assembled;
use super::listeners::load_tls;
use crate::config::{Config, Transport, is_public};
use crate::harness::Harness;
use crate::seal::KeyRing;
use crate::telemetry::Telemetry;

impl App {
    /// Does everything that serving would, except for binding the addresses. With `offline`, upstream servers are not contacted,
    /// and documents at URLs are left out.
    #[doc(hidden)]
    pub async fn check(mut self, offline: bool) -> Result<Checked, AppError> {
        let (config, _) = self.take_config()?;
        let origins = self.offers.origins.clone();
        let written = Arc::clone(&config);
        Box::pin(self.check_with(config, offline))
            .await
            .map_err(|error| error.located(&origins, &written))
    }

    /// Builds the server without a transport, as [`harness`](Self::harness) does, and creates no files. Before that, it checks
    /// the settings for callers, which a harness ignores.
    ///
    /// # Errors
    ///
    /// Invalid tools or settings.
    #[doc(hidden)]
    pub fn diagnostic_harness(mut self) -> Result<Harness, AppError> {
        let (mut config, _) = self.take_config()?;
        let (origins, written) = (self.offers.origins.clone(), Arc::clone(&config));
        let checked = ServerCards::new(&config, self.apps()).map(drop);
        let checked = checked.and_then(|()| self.authentication(&config).map(drop));
        let checked = checked.and_then(|()| without_new_files(Arc::make_mut(&mut config)));
        checked.map_err(|error| error.located(&origins, &written))?;
        self.config = Some(config);
        self.harness()
    }

    async fn check_with(
        mut self,
        mut config: Arc<Config>,
        offline: bool,
    ) -> Result<Checked, AppError> {
        let auth = self.authentication(&config)?;
        warn_of_nobody(&config, &auth, self.has_own_methods());
        warn_of_open_secrets(&config);
        load_tls(&config)?;
        if let Some(path) = config.http.unix_socket.clone()
            && config.transport == Transport::Http
        {
            // systemd creates the folder, or the socket itself, before the start.
            if let Err(error) = check_folder_of(&path) {
                let path = path.display();
                tracing::warn!(
                    setting = "http.unix_socket", %path, %error,
                    "the socket cannot be created now; its folder must be there at the start, and writable by the server's user"
                );
            }
        }
        if is_public(&config) {
            let proved = self.authenticates(&config);
            warn_in_public(&config.http, proved, !config.seal.keys.is_empty());
        }
        let mut left_out = Vec::new();
        let settings = Arc::make_mut(&mut config);
        without_new_files(settings)?;
        if offline {
            left_out.extend(settings.upstreams.keys().cloned());
            settings.sources.retain(|source| {
                let is_far = source
                    .openapi
                    .as_ref()
                    .is_some_and(|openapi| openapi.document.contains("://"));
                if is_far {
                    left_out.push(source.name.clone());
                }
                !is_far
            });
            self.offers.leaves_out = !left_out.is_empty();
        }
        // A check waits for the upstream servers, even if the start does not.
        if settings.upstreams_wait_seconds == Some(0) {
            settings.upstreams_wait_seconds = None;
        }
        let supervisor = Supervisor::new();
        let background = supervisor.background();
        let keys = Arc::new(KeyRing::new(&config.seal)?);
        let telemetry = Telemetry::of(&config.telemetry, self.reads_metrics(&config));
        let Assembled {
            server, upstreams, ..
        } = Box::pin(self.assemble(&config, &auth, telemetry, keys, background)).await?;
        let rejected = server.refusals().into_iter().map(|rejected| rejected.place);
        let awaited = upstreams.map(|upstreams| upstreams.awaited());
        let awaited = awaited.into_iter().flatten();
        let snapshot = server.snapshot();
        Ok(Checked {
            tools: server.tool_count(),
            offers_nothing: snapshot.catalog.offers_nothing(),
            missing: rejected
                .chain(awaited.map(|name| format!("upstreams.{name}")))
                .collect(),
            left_out,
        })
    }
}

/// Result of checking a configuration.
#[derive(Debug)]
pub struct Checked {
    pub tools: usize,
    /// True without any tool, resource and prompt.
    pub offers_nothing: bool,
    /// Settings whose items cannot be served.
    pub missing: Vec<String>,
    /// Names of the sources and upstream servers that were not checked.
    pub left_out: Vec<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::auth::FacadeConfig;
    use crate::catalog::{CallContext, Definition, tool_fn};
    use crate::server::EndpointConfig;

    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Nothing {}

    fn app(tool: &'static str) -> App {
        let said = |_: Arc<CallContext>, _: Nothing| async { Ok("said") };
        App::new().tool(tool_fn(Definition::new(tool), said))
    }

    #[tokio::test]
    async fn a_check_finds_what_an_endpoint_cannot_offer_as_a_start_does() {
        let mut config = Config::default();
        config.http.port = 0;
        let searched = EndpointConfig {
            tools: vec!["*".to_owned()],
            search_above: Some(0),
            ..EndpointConfig::default()
        };
        config.endpoints.insert("searched".to_owned(), searched);
        for (tool, is_good) in [("again", true), ("search_tools", false)] {
            let started = app(tool).config(config.clone()).bind().await.map(drop);
            let checked = app(tool).config(config.clone()).check(true).await.map(drop);
            assert_eq!(checked.is_ok(), is_good, "{checked:?}");
            let in_words = |result: Result<(), AppError>| result.map_err(|e| e.to_string());
            assert_eq!(in_words(checked), in_words(started));
        }
    }

    #[tokio::test]
    async fn a_check_builds_the_authorization_server_and_contacts_nobody() {
        let mut config = Config::default();
        config.http.public_url = Some("https://mcp.example.com".to_owned());
        config.auth.oauth.facade = serde_json::from_value::<FacadeConfig>(json!({
            "provider": "https://login.invalid", "client_id": "a", "client_secret": "b", "allow": {"anyone": true},
        }))
        .expect("settings");
        let checked = app("again").config(config).check(true).await;
        assert_eq!(checked.expect("valid").tools, 1);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn the_folder_of_a_unix_socket_is_checked_as_a_start_does() {
        let folder = tempfile::tempdir().expect("a folder");
        let check = |path: &str| {
            let mut config = Config::default();
            config.http.unix_socket = Some(folder.path().join(path));
            app("again").config(config).check(true)
        };
        assert!(check("mcp.sock").await.is_ok());
        // systemd may create the folder.
        assert!(check("missing/mcp.sock").await.is_ok());
        let left = std::fs::read_dir(folder.path()).expect("a folder");
        assert_eq!(left.count(), 0);
    }

    #[tokio::test]
    async fn settings_of_upstream_servers_are_checked_without_contacting_them() {
        let check = |settings: serde_json::Value| {
            let mut config = Config::default();
            let upstream = serde_json::from_value(settings).expect("settings");
            config.upstreams.insert("up".to_owned(), upstream);
            app("again").config(config).check(true)
        };
        let good = check(json!({"url": "https://up.invalid/mcp"})).await;
        assert_eq!(good.expect("valid").left_out, ["up"]);
        let token = json!({"bearer": "secret"});
        let wrong = check(json!({"url": "https://up.invalid/mcp", "listing_auth": token})).await;
        let wrong = wrong.expect_err("of no effect").to_string();
        assert!(wrong.contains("listing_auth"), "{wrong}");
    }
}

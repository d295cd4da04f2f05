//! Checks of an application and its configuration, which bind no address and create no files.

use std::sync::Arc;

use super::super::App;
use super::super::dry_run::without_new_files;
use super::super::error::AppError;
use super::super::server_card::ServerCards;
use super::super::supervisor::Supervisor;
use super::super::warnings::{warn_in_public, warn_of_nobody, warn_of_open_secrets};
use super::Assembled;
use crate::config::{Config, is_public};
use crate::harness::Harness;
use crate::seal::KeyRing;
use crate::telemetry::Telemetry;
use crate::transport::http::Tls;

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
        warn_of_nobody(&config, &auth, self.proved);
        warn_of_open_secrets(&config);
        Tls::load(&config.http.tls)?;
        if is_public(&config) {
            let proved = self.proved || config.auth.proves_anything();
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

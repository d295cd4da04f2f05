//! One upstream server: connected on first use, by one attempt for all who wait, and again when it went away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use serde_json::value::RawValue;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Background;
use super::config::{UpstreamConfig, UpstreamError};
use super::listing::Listing;
use super::usage::Usage;
use crate::client::{Client, ClientError, Listener, Options, Params, Target};
use crate::net::{Bulkhead, Turned};

pub(super) struct Upstream {
    pub(super) name: String,
    pub(super) config: UpstreamConfig,
    /// Stands for all of its configuration.
    pub(super) fingerprint: String,
    target: Target,
    bulkhead: Bulkhead,
    usage: Usage,
    current: ArcSwapOption<Connected>,
    connecting: Mutex<()>,
    /// The last attempt to connect failed.
    failed: AtomicBool,
    background: Arc<Background>,
}

struct Connected {
    client: Client,
    since: Instant,
}

/// Why a request to an upstream came to nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error(transparent)]
    Turned(#[from] Turned),
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl Upstream {
    pub(super) fn new(
        name: &str,
        config: UpstreamConfig,
        background: Arc<Background>,
    ) -> Result<Self, UpstreamError> {
        let target = config.target(name)?;
        Ok(Self {
            fingerprint: config.fingerprint(),
            bulkhead: Bulkhead::new(name, &config.bulkhead),
            usage: Usage::new(Instant::now()),
            current: ArcSwapOption::empty(),
            connecting: Mutex::new(()),
            failed: AtomicBool::new(false),
            background,
            name: name.to_owned(),
            target,
            config,
        })
    }

    pub(super) fn is_connected(&self) -> bool {
        self.usable().is_some()
    }

    /// Whether the last attempt to reach it failed.
    pub(super) fn is_down(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub(super) fn is_idle(&self) -> bool {
        let fixed = match self.config.idle_seconds {
            Some(0) => return false,
            fixed => fixed.map(Duration::from_secs),
        };
        self.usable()
            .is_some_and(|connected| self.usage.is_idle(Instant::now(), connected.since, fixed))
    }

    pub(super) async fn disconnect(&self, grace: Duration) {
        let Some(connected) = self.current.swap(None) else {
            return;
        };
        // Somebody may be using it still; it ends with them then.
        if let Some(connected) = Arc::into_inner(connected) {
            tracing::debug!(upstream = self.name, "disconnecting");
            connected.client.close(grace).await;
        }
    }

    fn usable(&self) -> Option<Arc<Connected>> {
        self.current
            .load_full()
            .filter(|connected| !connected.client.is_closed())
    }

    async fn connected(&self) -> Result<Arc<Connected>, ClientError> {
        if let Some(connected) = self.usable() {
            return Ok(connected);
        }
        let _one_at_a_time = self.connecting.lock().await;
        if let Some(connected) = self.usable() {
            return Ok(connected);
        }
        let options = Options {
            name: self.name.clone(),
            capabilities: super::relay::capabilities(),
            connect_timeout: Duration::from_secs(self.config.connect_seconds.max(1)),
            request_timeout: self.timeout(),
            ..Options::default()
        };
        let connecting = Client::connect(self.target.clone(), options);
        // Whoever waits may be given up; the connection is for all.
        let client = match self.background.spawn(connecting) {
            Some(connecting) => connecting.await.unwrap_or_else(|_| Err(given_up())),
            None => Err(given_up()),
        };
        self.failed.store(client.is_err(), Ordering::Relaxed);
        let client = client?;
        tracing::info!(
            upstream = self.name,
            server = client.server().implementation.name,
            revision = %client.server().revision,
            "connected"
        );
        let connected = Arc::new(Connected {
            client,
            since: Instant::now(),
        });
        self.current.store(Some(Arc::clone(&connected)));
        Ok(connected)
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.config.timeout_seconds.max(1))
    }

    /// Makes a request; once more where the first cannot have happened, or `repeatable` says that twice is as good as
    /// once.
    pub(super) async fn request(
        &self,
        method: &'static str,
        params: Params,
        listener: Option<Arc<dyn Listener>>,
        repeatable: bool,
    ) -> Result<Box<RawValue>, CallError> {
        let pass = self.bulkhead.enter().await?;
        let _used = Used::begin(&self.usage);
        let mut again = true;
        loop {
            let outcome = match self.connected().await {
                Ok(connected) => {
                    connected
                        .client
                        .request(method, params.clone(), listener.clone(), None)
                        .await
                }
                Err(error) => Err(error),
            };
            let error = match outcome {
                Ok(result) => {
                    pass.succeeded();
                    return Ok(result);
                }
                // It answered.
                Err(error @ ClientError::Rpc(_)) => {
                    pass.succeeded();
                    return Err(error.into());
                }
                Err(error) => error,
            };
            if error.ends_connection() {
                self.current.store(None);
            }
            let retry = !error.may_have_happened() || repeatable && error.ends_connection();
            if !(std::mem::take(&mut again) && retry && !matches!(error, ClientError::Start { .. }))
            {
                pass.failed();
                tracing::warn!(upstream = self.name, method, %error, "a request to an upstream server failed");
                return Err(error.into());
            }
        }
    }

    /// Everything that it offers.
    pub(super) async fn listing(&self) -> Result<Listing, ClientError> {
        let connected = self.connected().await?;
        Listing::ask(&connected.client).await
    }
}

fn given_up() -> ClientError {
    ClientError::Gone("connecting was given up".to_owned())
}

struct Used<'a>(&'a Usage);

impl<'a> Used<'a> {
    fn begin(usage: &'a Usage) -> Self {
        usage.begin(Instant::now());
        Self(usage)
    }
}

impl Drop for Used<'_> {
    fn drop(&mut self) {
        self.0.end(Instant::now());
    }
}

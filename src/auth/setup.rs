//! From settings to a gate.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use super::api_key::ApiKeys;
use super::config::{AuthConfig, AuthSetupError, ProofKind};
use super::forwarded::Forwarded;
use super::{Gate, Proof};
use crate::net::TrustedProxies;

/// How often files of keys are looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The gate, and what has to be done to keep it up to date.
#[derive(Debug)]
pub(crate) struct Authentication {
    pub(crate) gate: Arc<Gate>,
    keys: Option<Arc<ApiKeys>>,
}

impl Authentication {
    /// What the settings say. `custom` are proofs of the application's own, which come first.
    pub(crate) fn new(
        config: &AuthConfig,
        trusted: &TrustedProxies,
        custom: Vec<Arc<dyn Proof>>,
    ) -> Result<Self, AuthSetupError> {
        let mut proofs = custom;
        let mut keys = None;
        for kind in config.kinds() {
            let (name, setting) = kind.names();
            if !config.has(kind) {
                return Err(AuthSetupError::NotConfigured {
                    kind: name,
                    setting,
                });
            }
            match kind {
                ProofKind::ApiKey => {
                    let known = Arc::new(ApiKeys::new(config)?);
                    proofs.push(Arc::clone(&known) as Arc<dyn Proof>);
                    keys = Some(known);
                }
                ProofKind::Forwarded => {
                    if let Some(forwarded) = Forwarded::new(&config.forwarded, trusted)? {
                        proofs.push(Arc::new(forwarded));
                    }
                }
            }
        }
        let anonymous = config.anonymous.as_deref();
        if let Some(name) = anonymous.filter(|name| !is_free(name)) {
            return Err(AuthSetupError::Anonymous {
                name: name.to_owned(),
            });
        }
        Ok(Self {
            gate: Arc::new(Gate::new(proofs, anonymous)),
            keys,
        })
    }

    /// Reads again what may have changed, for as long as it is polled.
    pub(crate) async fn keep_up(&self) -> Infallible {
        let Some(keys) = self.keys.as_ref().filter(|keys| keys.is_watched()) else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            let keys = Arc::clone(keys);
            // A file system may be slow to answer, and others wait for this thread.
            let _ = tokio::task::spawn_blocking(move || keys.refresh()).await;
        }
    }
}

/// Whether a name is nobody else's.
fn is_free(name: &str) -> bool {
    let good = |b: u8| b.is_ascii_graphic() && b != b':';
    (1..=64).contains(&name.len()) && name.bytes().all(good) && name != "local"
}

//! Shared state of the server, and its metrics.

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "cli")]
use super::error::AppError;
use crate::config::Config;
#[cfg(feature = "cli")]
use crate::environment::Probe;
use crate::seal::{KeyRing, SealedState};
use crate::server::STATE_KINDS;
#[cfg(feature = "cli")]
use crate::source::Tokens;
use crate::state::{OpenStateError, SharedState, State, Usage};
use crate::telemetry::{
    BUILD, CONNECTIONS, DRAINING, GENERATION, Metrics, READY, STATE_ENTRIES, STATE_MEMORY,
    ServerLifecycle, Telemetry,
};

/// The state, and true if other replicas share it.
pub(super) struct OpenState {
    pub(super) state: SharedState,
    pub(super) is_shared: bool,
}

/// Opens the configured state, or the application's own. Nothing is connected yet.
pub(super) fn open(
    config: &Config,
    own: Option<Arc<dyn State>>,
    keys: &Arc<KeyRing>,
    within: Duration,
) -> Result<OpenState, OpenStateError> {
    let is_shared = own.is_some() || config.state.is_shared();
    let store = match own {
        Some(store) => store,
        None => crate::state::open(&config.state)?,
    };
    // Others may write to a shared store. With keys of its own, this replica could not read what others wrote.
    let store = if is_shared && keys.is_shared() {
        Arc::new(SealedState::new(store, Arc::clone(keys)))
    } else {
        store
    };
    let state = SharedState::new(store, within);
    Ok(OpenState { state, is_shared })
}

/// Exports the memory use of a state in memory.
pub(super) fn export_usage(state: &SharedState, metrics: &Metrics) {
    // A state elsewhere uses no memory here.
    if state.usage().is_empty() {
        return;
    }
    for kind in STATE_KINDS {
        let read = |of: fn(&Usage) -> usize| {
            let state = state.clone();
            move || {
                let usage = state.usage();
                let known = usage.iter().find(|usage| usage.kind == kind);
                known.map_or(0.0, |usage| of(usage) as f64)
            }
        };
        let labels = [("kind", kind)];
        metrics.read(&STATE_MEMORY, &labels, read(|usage| usage.bytes));
        metrics.read(&STATE_ENTRIES, &labels, read(|usage| usage.entries));
    }
}

/// Opens the token store of this configuration, for a command that manages tokens.
///
/// # Errors
///
/// No store is configured, or the state cannot be opened.
#[cfg(feature = "cli")]
pub fn tokens(config: &Config) -> Result<Tokens, AppError> {
    /// Minimum timeout of the state: a command may take longer than a call.
    const PATIENCE: Duration = Duration::from_secs(5);
    let tokens = Tokens::new(&config.tokens, Probe::real())?;
    if tokens.are_shared() {
        let keys = Arc::new(KeyRing::new(&config.seal)?);
        let within = PATIENCE.max(Duration::from_millis(config.state.timeout_ms));
        let OpenState { state, is_shared } = open(config, None, &keys, within)?;
        tokens.are_in(state, is_shared, keys.is_shared())?;
    }
    Ok(tokens)
}

/// Exports the lifecycle of the server.
pub(super) fn export_lifecycle(telemetry: &Telemetry) {
    let metrics = &telemetry.metrics;
    let life = &telemetry.life;
    metrics.read(&BUILD, &[("version", env!("CARGO_PKG_VERSION"))], || 1.0);
    let read = |metric, value: fn(&ServerLifecycle) -> f64| {
        let life = Arc::clone(life);
        metrics.read(metric, &[], move || value(&life));
    };
    read(&CONNECTIONS, |life| life.clients() as f64);
    read(&READY, |life| f64::from(u8::from(life.is_ready())));
    read(&DRAINING, |life| f64::from(u8::from(life.is_draining())));
    read(&GENERATION, |life| life.generation() as f64);
}

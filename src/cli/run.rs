//! `longshore run`.

use super::log;
use super::output::{self, Audience};
use crate::app::{App, AppError, MainError};
use crate::config::{Flags, Loaded};
use crate::environment::Probe;
use crate::telemetry::LOG_DROPPED;

/// The settings; without a toolset and a source, the demo.
pub(super) fn load(flags: &Flags) -> Result<Loaded, MainError> {
    let mut loaded = Loaded::read(flags, &Probe::real()).map_err(AppError::from)?;
    if loaded.config.toolsets.is_empty() && loaded.config.sources.is_empty() {
        loaded.config.toolsets.push("demo".to_owned());
    }
    Ok(loaded)
}

/// Serves what the settings name; without any, the demo toolset.
pub(super) fn run(flags: &Flags, audience: Audience) -> Result<(), MainError> {
    let config = load(flags)?.config;
    let sources = config.sources.iter().map(|source| source.name.as_str());
    let toolsets: Vec<&str> = config
        .toolsets
        .iter()
        .map(String::as_str)
        .chain(sources)
        .collect();
    let toolsets = toolsets.join(", ");
    output::start_logging(&config.log, &Probe::real())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(AppError::from)?;
    let served = runtime.block_on(async {
        let bound = App::new().config(config).bind()?;
        let metrics = bound.metrics();
        metrics.read(&LOG_DROPPED, &[], || log::dropped() as f64);
        match (audience, bound.address()) {
            (Audience::Programs, _) => bound.announce(),
            (Audience::People, Some(address)) => {
                output::greet(bound.scheme(), address, &toolsets, bound.tool_count());
            }
            (Audience::People, None) => output::greet_over_stdio(bound.tool_count()),
        }
        bound.serve().await
    });
    runtime.shutdown_background();
    served.map_err(MainError::from)
}

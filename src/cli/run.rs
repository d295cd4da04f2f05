//! `longshore run`.

use super::output::{self, Audience};
use crate::app::{App, MainError};
use crate::config::{Config, Flags};
use crate::environment::Probe;

/// Serves what the settings name; without any, the demo toolset.
pub(super) fn run(flags: &Flags, audience: Audience) -> Result<(), MainError> {
    let mut config = Config::load(flags, &Probe::real()).map_err(crate::app::AppError::from)?;
    if config.toolsets.is_empty() {
        config.toolsets.push("demo".to_owned());
    }
    let toolsets = config.toolsets.join(", ");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(crate::app::AppError::from)?;
    let served = runtime.block_on(async {
        let bound = App::new().config(config).bind()?;
        match (audience, bound.address()) {
            (Audience::Programs, _) => bound.announce(),
            (Audience::People, Some(address)) => {
                output::greet(address, &toolsets, bound.tool_count());
            }
            (Audience::People, None) => output::greet_over_stdio(bound.tool_count()),
        }
        bound.serve().await
    });
    runtime.shutdown_background();
    served.map_err(MainError::from)
}

//! Stand-in for builds without the feature `sources`, which have no upstream servers and sources to watch.

use std::sync::Arc;

use crate::source::{Artifacts, ClientStatsHandle, Upstreams};
use crate::telemetry::{Metrics, Telemetry};

pub(super) fn watch(upstreams: &Upstreams, _: &Telemetry) {
    match *upstreams {}
}

pub(super) fn watch_sources(_: &[ClientStatsHandle], _: &Metrics) {}

pub(super) fn watch_artifacts(artifacts: &Arc<Artifacts>, _: &Metrics) {
    match **artifacts {}
}

//! Keys of streams in the shared state.

/// Keys in the shared state. The number is the version of the layout.
pub(super) struct Names {
    pub(super) prefix: String,
    pub(super) notices: String,
    pub(super) events: String,
    pub(super) levels: String,
    pub(super) bus: String,
}

impl Names {
    pub(super) fn new(endpoint: &str) -> Self {
        let prefix = format!("1/{endpoint}");
        Self {
            notices: format!("{prefix}/notices"),
            events: format!("{prefix}/facts"),
            levels: format!("{prefix}/levels"),
            bus: format!("{prefix}/bus"),
            prefix,
        }
    }

    /// Key of the log of a call stream.
    pub(super) fn events(&self, session: &str, stream: u64) -> String {
        format!("{}{stream:016x}", self.all_events(session))
    }

    /// Prefix of the keys of all logs of a session.
    pub(super) fn all_events(&self, session: &str) -> String {
        format!("{}/events/{session}/", self.prefix)
    }

    /// Key of the sequence that numbers a session's streams.
    pub(super) fn openings(&self, session: &str) -> String {
        format!("{}/openings/{session}", self.prefix)
    }

    /// Key of a session's subscriptions.
    pub(super) fn subscriptions(&self, session: &str) -> String {
        format!("{}/subscriptions/{session}", self.prefix)
    }
}

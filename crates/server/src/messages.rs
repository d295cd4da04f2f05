//! Size limits of messages, and errors for malformed ones.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Server;
use super::reply::{Refusal, Reply};
use crate::environment::Conflicts;
use crate::limit::Limit;
use crate::protocol::message::{Excess, Malformed, MalformedKind, MessageBounds};
use crate::protocol::{ErrorCode, ErrorObject};

/// How much one message may hold, whatever carries it.
///
/// The defaults of the first three are the most there can be: whoever reads a part of a message again goes by them.
///
/// ```toml
/// [server.messages]
/// depth = 32
/// batch = 20
/// ```
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MessagesConfig {
    /// How deep arrays and objects may be nested, 64 at most; at least 8, which messages of the protocol take. Default: 64;
    /// beyond: error -32700.
    pub depth: u32,
    /// How many members one object may have, 10000 at most; at least 16. Default: 10000; beyond: error -32600.
    pub members: u16,
    /// Bytes of an id that is a string, 1024 at most; at least 36, which is a UUID. Default: 1024; beyond: error -32600.
    pub id_bytes: usize,
    /// How many values the arrays and objects of one message may hold together; at least 1000. A tree of them takes a hundred
    /// times the memory of a text of small ones. Default: 250000; beyond: error -32600.
    pub values: u32,
    /// How many messages one array may have (2025-03-26), 1000 at most. Default: 50; beyond: error -32600.
    pub batch: usize,
    /// Bytes of the answers to an array together. Default: 16777216, 16 MiB; beyond: error -32600.
    pub batch_bytes: usize,
}

impl Default for MessagesConfig {
    fn default() -> Self {
        Self {
            depth: 64,
            members: 10_000,
            id_bytes: 1024,
            values: 250_000,
            batch: 50,
            batch_bytes: 16 * 1024 * 1024,
        }
    }
}

impl MessagesConfig {
    /// Reports the first invalid setting.
    pub fn validate(&self, conflicts: &mut Conflicts) {
        if let Some((setting, advice)) = self.problem() {
            conflicts.invalid("server.messages", self, setting, advice);
        }
    }

    /// Returns the first invalid setting and its problem.
    fn problem(&self) -> Option<(&'static str, &'static str)> {
        if !(8..=64).contains(&self.depth) {
            return Some(("server.messages.depth", "give it 8 to 64 levels"));
        }
        if !(16..=10_000).contains(&self.members) {
            return Some(("server.messages.members", "give it 16 to 10000 members"));
        }
        if !(36..=1024).contains(&self.id_bytes) {
            return Some(("server.messages.id_bytes", "give it 36 to 1024 bytes"));
        }
        if self.values < 1000 {
            return Some(("server.messages.values", "give it at least 1000 values"));
        }
        if !(1..=1000).contains(&self.batch) {
            let advice =
                "give it 1 to 1000 messages; server.batch = \"never\" takes no arrays at all";
            return Some(("server.messages.batch", advice));
        }
        if self.batch_bytes < 1024 {
            return Some(("server.messages.batch_bytes", "give it at least 1024 bytes"));
        }
        None
    }

    pub(super) fn bounds(&self) -> MessageBounds {
        MessageBounds::new(self.depth, self.members, self.values, self.id_bytes)
    }
}

impl Server {
    /// Error for a malformed message.
    #[cold]
    pub(super) fn malformed_message(&self, problem: &Malformed<'_>) -> Reply {
        let (code, name) = match problem.kind {
            MalformedKind::Parse => (ErrorCode::Parse, "Parse error"),
            MalformedKind::Invalid => (ErrorCode::InvalidRequest, "Invalid Request"),
        };
        let error = ErrorObject::new(code, format!("{name}: {}", problem.reason));
        let error = match problem.excess {
            None => error,
            Some(Excess::Depth) => self.exceeded(Limit::JsonDepth, error),
            Some(Excess::Members) => self.exceeded(Limit::JsonMembers, error),
            Some(Excess::Values) => self.exceeded(Limit::JsonValues, error),
            Some(Excess::Id) => self.exceeded(Limit::IdBytes, error),
        };
        Reply::refused(Refusal::Malformed, problem.id, &error)
    }

    /// Error for a batch that is too large, or whose responses are.
    #[cold]
    pub(super) fn batch_too_large(&self, limit: Limit, message: String) -> Reply {
        let error = ErrorObject::new(ErrorCode::InvalidRequest, message);
        Reply::refused(Refusal::Malformed, None, &self.exceeded(limit, error))
    }

    /// Counts an exceeded limit and adds the name of its setting to the error.
    fn exceeded(&self, limit: Limit, error: ErrorObject) -> ErrorObject {
        self.limits.hits.count(limit);
        error.with_data(json!({ "setting": limit.setting() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_messages_may_hold_lies_between_what_is_needed_and_what_there_is_room_for() {
        assert_eq!(MessagesConfig::default().problem(), None);
        let change = |change: fn(&mut MessagesConfig)| {
            let mut config = MessagesConfig::default();
            change(&mut config);
            config.problem().map(|(setting, _)| setting)
        };
        for (setting, bad, good) in [
            (
                "server.messages.depth",
                [(|c| c.depth = 7) as fn(&mut MessagesConfig), |c| {
                    c.depth = 65;
                }],
                [(|c| c.depth = 8) as fn(&mut MessagesConfig), |c| {
                    c.depth = 64;
                }],
            ),
            (
                "server.messages.members",
                [|c| c.members = 15, |c| c.members = 10_001],
                [|c| c.members = 16, |c| c.members = 10_000],
            ),
            (
                "server.messages.id_bytes",
                [|c| c.id_bytes = 35, |c| c.id_bytes = 1025],
                [|c| c.id_bytes = 36, |c| c.id_bytes = 1024],
            ),
            (
                "server.messages.values",
                [|c| c.values = 0, |c| c.values = 999],
                [|c| c.values = 1000, |c| c.values = u32::MAX],
            ),
            (
                "server.messages.batch",
                [|c| c.batch = 0, |c| c.batch = 1001],
                [|c| c.batch = 1, |c| c.batch = 1000],
            ),
            (
                "server.messages.batch_bytes",
                [|c| c.batch_bytes = 0, |c| c.batch_bytes = 1023],
                [|c| c.batch_bytes = 1024, |c| c.batch_bytes = 1 << 30],
            ),
        ] {
            assert_eq!(bad.map(change), [Some(setting); 2]);
            assert_eq!(good.map(change), [None; 2], "{setting}");
        }
    }
}

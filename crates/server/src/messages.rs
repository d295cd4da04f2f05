//! Size limits of messages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::Conflicts;
use crate::protocol::message::MessageBounds;

/// Limits of a message, on any transport.
///
/// The defaults of the first three are also their maximum, because all parsers rely on them.
///
/// ```toml
/// [server.messages]
/// depth = 32
/// batch = 20
/// ```
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MessagesConfig {
    /// Maximum nesting depth of arrays and objects, 8 to 64. A deeper message gets error -32700.
    pub depth: u32,
    /// Maximum number of members of an object, 16 to 10000. A larger one gets error -32600.
    pub members: u16,
    /// Maximum length of a string ID, in bytes, 36 to 1024. A longer one gets error -32600.
    pub id_bytes: usize,
    /// Maximum number of values in the arrays and objects of a message; at least 1000. Parsed small values take a
    /// hundred times the memory of their text. A larger message gets error -32600.
    pub values: u32,
    /// Maximum number of messages in an array (2025-03-26), at most 1000. A larger array gets error -32600.
    pub batch: usize,
    /// Maximum total size of the responses to an array, in bytes. Beyond it, messages get error -32600.
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
            return Some(("server.messages.depth", "set it to 8 to 64 levels"));
        }
        if !(16..=10_000).contains(&self.members) {
            return Some(("server.messages.members", "set it to 16 to 10000 members"));
        }
        if !(36..=1024).contains(&self.id_bytes) {
            return Some(("server.messages.id_bytes", "set it to 36 to 1024 bytes"));
        }
        if self.values < 1000 {
            return Some(("server.messages.values", "set it to at least 1000 values"));
        }
        if !(1..=1000).contains(&self.batch) {
            let advice =
                "set it to 1 to 1000 messages; server.batch = \"never\" rejects all batches";
            return Some(("server.messages.batch", advice));
        }
        if self.batch_bytes < 1024 {
            return Some((
                "server.messages.batch_bytes",
                "set it to at least 1024 bytes",
            ));
        }
        None
    }

    pub(super) fn bounds(&self) -> MessageBounds {
        MessageBounds::new(self.depth, self.members, self.values, self.id_bytes)
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

//! Server properties that affect durability: version, persistence, eviction policy.

use redis::{Value, cmd};

use super::Redis;
use crate::state::StateError;

/// Properties of a single server, or of one node of a cluster.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ServerInfo {
    /// Such as `7.0.15`.
    pub version: Option<String>,
    /// Eviction policy at full memory: `maxmemory_policy`.
    pub policy: Option<String>,
    /// Memory limit in bytes; 0 means unlimited.
    pub(crate) memory_max: Option<u64>,
}

impl Redis {
    /// Queries the version and settings of every server.
    ///
    /// # Errors
    ///
    /// An error of the store, or a missing permission of the user.
    pub async fn nature(&self) -> Result<Vec<ServerInfo>, StateError> {
        let mut command = cmd("INFO");
        command.arg("everything");
        let said: Value = self.ask(command).await?;
        let mut texts = Vec::new();
        collect(said, &mut texts);
        Ok(texts.iter().map(|text| ServerInfo::read(text)).collect())
    }
}

/// The texts in an answer: one, or of a cluster one for each node.
fn collect(value: Value, texts: &mut Vec<String>) {
    match value {
        Value::BulkString(bytes) => texts.push(String::from_utf8_lossy(&bytes).into_owned()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => texts.push(text),
        Value::Array(values) => {
            for value in values {
                collect(value, texts);
            }
        }
        Value::Map(pairs) => {
            for (_, value) in pairs {
                collect(value, texts);
            }
        }
        _ => {}
    }
}

impl ServerInfo {
    /// Reads lines of `name:value`.
    fn read(text: &str) -> Self {
        let mut nature = Self::default();
        for line in text.lines() {
            match line.trim_end().split_once(':') {
                // Valkey has a version of its own, and says which of Redis it is compatible with.
                Some(("redis_version", value)) => nature.version = Some(value.to_owned()),
                Some(("maxmemory_policy", value)) => nature.policy = Some(value.to_owned()),
                Some(("maxmemory", value)) => nature.memory_max = value.parse().ok(),
                _ => {}
            }
        }
        nature
    }

    /// Returns true if the server evicts unexpired entries when its memory is full.
    pub fn evicts(&self) -> bool {
        self.memory_max != Some(0)
            && self
                .policy
                .as_deref()
                .is_some_and(|policy| policy != "noeviction")
    }

    /// Returns true if the server is older than the required version.
    pub fn is_old(&self) -> bool {
        let major = |version: &str| version.split('.').next()?.parse::<u32>().ok();
        let major = self.version.as_deref().and_then(major);
        major.is_some_and(|major| major < 7)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\n\r\n# Memory\r\n\
                        maxmemory:1048576\r\nmaxmemory_human:1.00M\r\nmaxmemory_policy:allkeys-lru\r\n";

    #[test]
    fn a_server_says_what_it_is() {
        let nature = ServerInfo::read(SAID);
        assert_eq!(nature.version.as_deref(), Some("7.2.4"));
        assert!(nature.evicts() && !nature.is_old());
        let unlimited = ServerInfo::read(&SAID.replace(":1048576", ":0"));
        assert!(!unlimited.evicts());
        let kept = ServerInfo::read(&SAID.replace("allkeys-lru", "noeviction"));
        assert!(!kept.evicts());
        assert!(ServerInfo::read("redis_version:6.2.1\r\n").is_old());
        assert_eq!(ServerInfo::read("nothing"), ServerInfo::default());
    }

    #[test]
    fn every_node_of_a_cluster_is_heard() {
        let node = |text: &str| {
            (
                Value::SimpleString("127.0.0.1:1".to_owned()),
                Value::BulkString(text.as_bytes().to_vec()),
            )
        };
        let mut texts = Vec::new();
        collect(Value::Map(vec![node("one"), node("two")]), &mut texts);
        assert_eq!(texts, ["one", "two"]);
    }
}

//! Tools for Redis: a port of the FastMCP server `redis/mcp-redis`. See README.md beside it.
//!
//! ```sh
//! REDIS_URL=redis://127.0.0.1:6379 cargo run --example ported-redis    # http://127.0.0.1:3000/mcp
//! cargo test --example ported-redis                                    # needs no Redis
//! ```

use std::collections::BTreeMap;

use longshore::extract::Progress;
use longshore::{App, JsonSchema, ToolError, tools};
use redis::aio::ConnectionManager;
use redis::{Cmd, FromRedisValue, RedisError, Value, cmd};
use serde::Serialize;

/// Runs commands. A connection in production, a map in tests.
trait Store: Send + Sync + 'static {
    fn run(&self, command: Cmd) -> impl Future<Output = Result<Value, RedisError>> + Send;
}

impl Store for ConnectionManager {
    async fn run(&self, command: Cmd) -> Result<Value, RedisError> {
        // A clone is a handle to the same connection.
        command.query_async(&mut self.clone()).await
    }
}

/// The tools of a database.
struct Redis<S>(S);

#[derive(Serialize, JsonSchema)]
struct KeyType {
    key: String,
    r#type: String,
    /// Seconds to live: -1 for a key that does not expire, -2 for one that does not exist.
    ttl: i64,
}

#[derive(Serialize, JsonSchema)]
struct Scanned {
    /// The cursor of the next call; 0 at the end.
    cursor: u64,
    keys: Vec<String>,
    scan_complete: bool,
}

#[tools]
impl<S: Store> Redis<S> {
    // === Strings ===

    /// Sets a string value, with an optional expiration time.
    #[tool]
    async fn set(
        &self,
        /// The key to set.
        key: String,
        /// The value to store. Anything but a string is stored as JSON.
        value: serde_json::Value,
        /// Expiration time in seconds.
        expiration: Option<u64>,
    ) -> Result<String, ToolError> {
        let value = match value {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        let mut set = cmd("SET");
        set.arg(&key).arg(value);
        if let Some(seconds) = expiration {
            set.arg("EX").arg(seconds);
        }
        self.ask::<()>(&set).await?;
        Ok(format!("{key} is set"))
    }

    /// Returns a string value.
    #[tool(read_only)]
    async fn get(&self, key: String) -> Result<String, ToolError> {
        let found = self.ask::<Option<String>>(cmd("GET").arg(&key)).await?;
        found.ok_or_else(|| missing(&key))
    }

    // === Hashes ===

    /// Sets a field of a hash, with an optional expiration time of the whole hash.
    #[tool]
    async fn hset(
        &self,
        /// The key of the hash.
        name: String,
        /// The name of the field.
        key: String,
        value: String,
        expire_seconds: Option<u64>,
    ) -> Result<String, ToolError> {
        self.ask::<()>(cmd("HSET").arg(&name).arg(&key).arg(value))
            .await?;
        self.expire_in(&name, expire_seconds).await?;
        Ok(format!("{key} of {name} is set"))
    }

    /// Returns a field of a hash.
    #[tool(read_only)]
    async fn hget(&self, name: String, key: String) -> Result<String, ToolError> {
        let found = self
            .ask::<Option<String>>(cmd("HGET").arg(&name).arg(&key))
            .await?;
        found.ok_or_else(|| missing(&format!("field {key} of {name}")))
    }

    /// Deletes a field of a hash.
    #[tool(destructive)]
    async fn hdel(&self, name: String, key: String) -> Result<bool, ToolError> {
        self.ask(cmd("HDEL").arg(&name).arg(&key)).await
    }

    /// Returns all fields of a hash.
    #[tool(read_only)]
    async fn hgetall(&self, name: String) -> Result<BTreeMap<String, String>, ToolError> {
        self.ask(cmd("HGETALL").arg(&name)).await
    }

    /// Returns true if a hash has a field.
    #[tool(read_only)]
    async fn hexists(&self, name: String, key: String) -> Result<bool, ToolError> {
        self.ask(cmd("HEXISTS").arg(&name).arg(&key)).await
    }

    // === Lists ===

    /// Adds a value at the beginning of a list. Returns its length.
    #[tool]
    async fn lpush(
        &self,
        name: String,
        value: String,
        expire: Option<u64>,
    ) -> Result<u64, ToolError> {
        let length = self.ask(cmd("LPUSH").arg(&name).arg(value)).await?;
        self.expire_in(&name, expire).await?;
        Ok(length)
    }

    /// Adds a value at the end of a list. Returns its length.
    #[tool]
    async fn rpush(
        &self,
        name: String,
        value: String,
        expire: Option<u64>,
    ) -> Result<u64, ToolError> {
        let length = self.ask(cmd("RPUSH").arg(&name).arg(value)).await?;
        self.expire_in(&name, expire).await?;
        Ok(length)
    }

    /// Takes the first value off a list.
    #[tool(destructive)]
    async fn lpop(&self, name: String) -> Result<Option<String>, ToolError> {
        self.ask(cmd("LPOP").arg(&name)).await
    }

    /// Takes the last value off a list.
    #[tool(destructive)]
    async fn rpop(&self, name: String) -> Result<Option<String>, ToolError> {
        self.ask(cmd("RPOP").arg(&name)).await
    }

    /// Returns a range of a list. Negative positions count from the end.
    #[tool(read_only)]
    async fn lrange(
        &self,
        name: String,
        #[arg(default)] start: i64,
        #[arg(default = -1)] stop: i64,
    ) -> Result<Vec<String>, ToolError> {
        self.ask(cmd("LRANGE").arg(&name).arg(start).arg(stop))
            .await
    }

    /// Returns the length of a list.
    #[tool(read_only)]
    async fn llen(&self, name: String) -> Result<u64, ToolError> {
        self.ask(cmd("LLEN").arg(&name)).await
    }

    // === Sets ===

    /// Adds a value to a set.
    #[tool(idempotent)]
    async fn sadd(
        &self,
        name: String,
        value: String,
        expire_seconds: Option<u64>,
    ) -> Result<bool, ToolError> {
        let is_new = self.ask(cmd("SADD").arg(&name).arg(value)).await?;
        self.expire_in(&name, expire_seconds).await?;
        Ok(is_new)
    }

    /// Removes a value from a set.
    #[tool(destructive, idempotent)]
    async fn srem(&self, name: String, value: String) -> Result<bool, ToolError> {
        self.ask(cmd("SREM").arg(&name).arg(value)).await
    }

    /// Returns all members of a set.
    #[tool(read_only)]
    async fn smembers(&self, name: String) -> Result<Vec<String>, ToolError> {
        self.ask(cmd("SMEMBERS").arg(&name)).await
    }

    // === Sorted sets ===

    /// Adds a member to a sorted set.
    #[tool(idempotent)]
    async fn zadd(
        &self,
        key: String,
        score: f64,
        member: String,
        expiration: Option<u64>,
    ) -> Result<bool, ToolError> {
        let is_new = self
            .ask(cmd("ZADD").arg(&key).arg(score).arg(member))
            .await?;
        self.expire_in(&key, expiration).await?;
        Ok(is_new)
    }

    /// Returns a range of a sorted set, with the scores.
    #[tool(read_only)]
    async fn zrange(
        &self,
        key: String,
        #[arg(default)] start: i64,
        #[arg(default = -1)] end: i64,
    ) -> Result<Vec<(String, f64)>, ToolError> {
        let mut range = cmd("ZRANGE");
        self.ask(range.arg(&key).arg(start).arg(end).arg("WITHSCORES"))
            .await
    }

    /// Removes a member from a sorted set.
    #[tool(destructive, idempotent)]
    async fn zrem(&self, key: String, member: String) -> Result<bool, ToolError> {
        self.ask(cmd("ZREM").arg(&key).arg(member)).await
    }

    // === Keys ===

    /// Deletes a key.
    #[tool(destructive, idempotent)]
    async fn delete(&self, key: String) -> Result<bool, ToolError> {
        self.ask(cmd("DEL").arg(&key)).await
    }

    /// Returns the type of a key's value and its time to live.
    #[tool(read_only)]
    async fn r#type(&self, key: String) -> Result<KeyType, ToolError> {
        Ok(KeyType {
            r#type: self.ask(cmd("TYPE").arg(&key)).await?,
            ttl: self.ask(cmd("TTL").arg(&key)).await?,
            key,
        })
    }

    /// Sets the expiration time of a key.
    #[tool(idempotent)]
    async fn expire(&self, name: String, expire_seconds: u64) -> Result<String, ToolError> {
        match self
            .ask(cmd("EXPIRE").arg(&name).arg(expire_seconds))
            .await?
        {
            true => Ok(format!("{name} expires in {expire_seconds} s")),
            false => Err(missing(&name)),
        }
    }

    /// Renames a key.
    #[tool]
    async fn rename(&self, old_key: String, new_key: String) -> Result<String, ToolError> {
        if !self.ask::<bool>(cmd("EXISTS").arg(&old_key)).await? {
            return Err(missing(&old_key));
        }
        self.ask::<()>(cmd("RENAME").arg(&old_key).arg(&new_key))
            .await?;
        Ok(format!("{old_key} is {new_key} now"))
    }

    /// Returns some keys that match a pattern, and where to continue.
    #[tool(read_only)]
    async fn scan_keys(
        &self,
        /// A pattern such as `user:*`.
        #[arg(default = "*")]
        pattern: String,
        /// The number of keys to look at.
        #[arg(default = 100)]
        count: u32,
        #[arg(default)] cursor: u64,
    ) -> Result<Scanned, ToolError> {
        let mut scan = cmd("SCAN");
        scan.arg(cursor)
            .arg("MATCH")
            .arg(pattern)
            .arg("COUNT")
            .arg(count);
        let (cursor, keys) = self.ask(&scan).await?;
        Ok(Scanned {
            cursor,
            keys,
            scan_complete: cursor == 0,
        })
    }

    /// Returns all keys that match a pattern.
    #[tool(read_only)]
    async fn scan_all_keys(
        &self,
        #[call] progress: Progress,
        #[arg(default = "*")] pattern: String,
        #[arg(default = 100)] batch_size: u32,
    ) -> Result<Vec<String>, ToolError> {
        let (mut cursor, mut all) = (0, Vec::new());
        loop {
            let scanned = self.scan_keys(pattern.clone(), batch_size, cursor).await?;
            all.extend(scanned.keys);
            progress.report(all.len() as f64, None, "scanned").await;
            if scanned.scan_complete {
                return Ok(all);
            }
            cursor = scanned.cursor;
        }
    }

    // === The server ===

    /// Returns the number of keys in the database.
    #[tool(read_only)]
    async fn dbsize(&self) -> Result<u64, ToolError> {
        self.ask(&cmd("DBSIZE")).await
    }

    /// Returns what the database server says of itself.
    #[tool(read_only)]
    async fn info(
        &self,
        /// A section such as `memory` or `clients`.
        #[arg(default = "default")]
        section: String,
    ) -> Result<BTreeMap<String, String>, ToolError> {
        let info: String = self.ask(cmd("INFO").arg(section)).await?;
        let pairs = info.lines().filter_map(|line| line.split_once(':'));
        Ok(pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect())
    }

    /// Returns the clients that are connected to the database.
    #[tool(read_only)]
    async fn client_list(&self) -> Result<Vec<String>, ToolError> {
        let list: String = self.ask(cmd("CLIENT").arg("LIST")).await?;
        Ok(list.lines().map(str::to_owned).collect())
    }
}

impl<S: Store> Redis<S> {
    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, ToolError> {
        let value = self.0.run(command.clone()).await?;
        Ok(T::from_redis_value(value)?)
    }

    async fn expire_in(&self, key: &str, seconds: Option<u64>) -> Result<(), ToolError> {
        if let Some(seconds) = seconds {
            self.ask::<()>(cmd("EXPIRE").arg(key).arg(seconds)).await?;
        }
        Ok(())
    }
}

fn missing(what: &str) -> ToolError {
    ToolError::new(format!("{what} does not exist"))
}

fn app(store: impl Store) -> App {
    App::new().name("redis", "1.0.0").toolset(Redis(store))
}

#[tokio::main]
#[expect(
    clippy::disallowed_methods,
    reason = "an example reads its own variable"
)]
async fn main() -> longshore::Result {
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".to_owned());
    let store = ConnectionManager::new(redis::Client::open(url)?).await?;
    Ok(app(store).serve().await?)
}

#[cfg(test)]
mod tests;

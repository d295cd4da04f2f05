//! State on Redis or Valkey, shared by all replicas with the same server and prefix.
//!
//! Values and counters are strings, logs are streams, and operations with several steps are scripts, so that they are
//! atomic. Every key expires. After several failures in a row, calls are rejected immediately for a moment, so that
//! nothing waits for an unreachable server. Connections are re-established automatically.

mod address;
mod listener;
mod server_info;
mod trust;
mod connector;
mod on_demand;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::{
    Cmd, ErrorKind, FromRedisValue, RedisError, Script, ScriptInvocation, ServerErrorKind, cmd,
};
use tokio::time::Instant;

use super::{
    LogPage, OpenStateError, Retention, State, StateConfig, StateError, StateFuture, Subscription,
};
use crate::net::{Backoff, Breaker, Mutex, chance};
use address::Address;
use connector::{Connection, Deployment};
use listener::Subscriptions;
pub use server_info::ServerInfo;

/// A [`State`] on a Redis or Valkey server, of version 7 or later.
pub struct Redis {
    way: Deployment,
    subscriptions: Arc<Subscriptions>,
    prefix: String,
    breaker: Mutex<Breaker>,
    scripts: Scripts,
    within: Duration,
}

struct Scripts {
    append: Script,
    read_after: Script,
    swap: Script,
    count: Script,
}

/// Failures in a row after which calls are refused for a moment.
const FAILURES_MAX: u32 = 5;

impl Redis {
    /// Creates a state on the configured server, without connecting.
    ///
    /// # Errors
    ///
    /// The address is invalid, or files of `state.tls` cannot be used.
    pub fn new(config: &StateConfig) -> Result<Self, OpenStateError> {
        let url = config.url.as_ref().map_or("", |url| url.expose());
        let within = Duration::from_millis(config.timeout_ms);
        let address = Address::parse(url).ok_or(OpenStateError::Url)?;
        let certificates = trust::certificates(&config.tls)?;
        if certificates.is_some() && !address.is_secure() {
            return Err(OpenStateError::NoTls);
        }
        let way =
            Deployment::new(address, certificates, within).map_err(|_| OpenStateError::Url)?;
        Ok(Self {
            subscriptions: Subscriptions::new(way.clone()),
            way,
            prefix: config.prefix.clone(),
            breaker: Mutex::new(Breaker::new(FAILURES_MAX, PAUSE)),
            scripts: Scripts {
                append: Script::new(include_str!("scripts/append.lua")),
                read_after: Script::new(include_str!("scripts/read_after.lua")),
                swap: Script::new(include_str!("scripts/swap.lua")),
                count: Script::new(include_str!("scripts/count.lua")),
            },
            within,
        })
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn set(&self, key: &str, value: &[u8], life: Duration) -> Cmd {
        let mut command = cmd("SET");
        command
            .arg(self.key(key))
            .arg(value)
            .arg("PX")
            .arg(millis(life));
        command
    }

    async fn ask<T: FromRedisValue>(&self, command: Cmd) -> Result<T, StateError> {
        let (call, mut connection) = self.enter().await?;
        let result = command.query_async(&mut connection).await;
        self.leave(call, &connection, result)
    }

    async fn run<T: FromRedisValue>(
        &self,
        invocation: ScriptInvocation<'_>,
    ) -> Result<T, StateError> {
        let (call, mut connection) = self.enter().await?;
        let result = invocation.invoke_async(&mut connection).await;
        self.leave(call, &connection, result)
    }

    /// A connection to ask over, unless that is not to be tried now.
    async fn enter(&self) -> Result<(Call<'_>, Connection), StateError> {
        let mut call = self.begin()?;
        match self.way.connection().await {
            Ok(connection) => {
                call.is_asked = true;
                Ok((call, connection))
            }
            Err(error) => call.end(Err(error)),
        }
    }

    /// Draws the conclusions from what came of it.
    fn leave<T>(
        &self,
        call: Call<'_>,
        connection: &Connection,
        result: Result<T, RedisError>,
    ) -> Result<T, StateError> {
        self.way.judge(connection, result.as_ref().err());
        call.end(result)
    }

    /// Refuses a call at once if those before it have failed.
    fn begin(&self) -> Result<Call<'_>, StateError> {
        let began = Instant::now();
        self.breaker.lock().enter(began).map_err(|_| {
            unreachable("it did not respond before, and is not asked again for a moment")
        })?;
        Ok(Call {
            redis: Some(self),
            began,
            is_asked: false,
        })
    }
}

const PAUSE: Backoff = Backoff {
    base: Duration::from_millis(250),
    max: Duration::from_secs(2),
};

/// A server that has not responded for so long counts as failed when the caller leaves.
const SILENCE: Duration = Duration::from_millis(100);

/// A call that has begun. One that is given up counts as failed if the server had time to respond. Otherwise its caller has
/// left early, which says nothing about the server.
struct Call<'r> {
    redis: Option<&'r Redis>,
    began: Instant,
    /// True once it has a connection.
    is_asked: bool,
}

impl Call<'_> {
    fn end<T>(mut self, result: Result<T, RedisError>) -> Result<T, StateError> {
        if let Some(redis) = self.redis.take() {
            match &result {
                // A server that says no is one that answers.
                Err(error) if is_of_the_connection(error) => {
                    redis.breaker.lock().failed(Instant::now(), chance());
                }
                _ => redis.breaker.lock().succeeded(),
            }
        }
        result.map_err(|error| state_error(&error))
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let Some(redis) = self.redis else {
            return;
        };
        let now = Instant::now();
        if now < self.began + redis.within.min(SILENCE) {
            redis.breaker.lock().abandoned(now);
            return;
        }
        redis.breaker.lock().failed(now, chance());
        if self.is_asked {
            redis.way.miss();
        }
    }
}

fn is_of_the_connection(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Io
            | ErrorKind::AuthenticationFailed
            | ErrorKind::Server(ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown)
    )
}

/// Converts an error, without addresses and credentials.
fn state_error(error: &RedisError) -> StateError {
    let says = |word: &str| {
        error.code() == Some(word) || error.detail().is_some_and(|detail| detail.contains(word))
    };
    if says("WRONGTYPE") {
        return StateError::WrongType;
    }
    if let Some(problem) = trust::problem(error) {
        return unreachable(problem);
    }
    unreachable(match error.kind() {
        ErrorKind::Io if error.is_timeout() => "it does not respond in time",
        ErrorKind::Io if error.is_connection_refusal() => "connection refused",
        // The standard library has no kind of error for it.
        ErrorKind::Io if error.to_string().contains("lookup address information") => {
            "its name has no address"
        }
        ErrorKind::Io => "the connection could not be established, or broke off",
        ErrorKind::AuthenticationFailed => "it rejects the credentials of state.url",
        ErrorKind::Server(ServerErrorKind::ReadOnly) => "it is read-only",
        ErrorKind::Server(ServerErrorKind::BusyLoading) => "it is loading its data",
        ErrorKind::Server(ServerErrorKind::NoPerm) => "its user lacks a permission (ACL)",
        _ if says("NOAUTH") || says("WRONGPASS") => "it rejects the credentials of state.url",
        _ if says("OOM") => "it is full (maxmemory)",
        _ => return unreachable(&error_response(error)),
    })
}

/// Description of an error response. Its code is a constant of the server, such as `NOREPLICAS`; its text may have
/// addresses.
fn error_response(error: &RedisError) -> String {
    match error.code() {
        Some(code) => format!("it responds with the error {code}"),
        None => "it responds with an error".to_owned(),
    }
}

fn unreachable(reason: &str) -> StateError {
    StateError::Unreachable {
        reason: reason.to_owned(),
    }
}

fn millis(life: Duration) -> String {
    life.as_millis().max(1).to_string()
}

impl State for Redis {
    fn get<'a>(&'a self, key: &'a str) -> StateFuture<'a, Option<Bytes>> {
        let command = cmd("GET").arg(self.key(key)).to_owned();
        Box::pin(async move {
            let value: Option<Vec<u8>> = self.ask(command).await?;
            Ok(value.map(Bytes::from))
        })
    }

    fn put<'a>(&'a self, key: &'a str, value: Bytes, life: Duration) -> StateFuture<'a, ()> {
        Box::pin(self.ask(self.set(key, &value, life)))
    }

    fn put_if_absent<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
        life: Duration,
    ) -> StateFuture<'a, bool> {
        let mut command = self.set(key, &value, life);
        command.arg("NX");
        Box::pin(async move {
            let written: Option<String> = self.ask(command).await?;
            Ok(written.is_some())
        })
    }

    fn compare_and_swap<'a>(
        &'a self,
        key: &'a str,
        expected: Bytes,
        value: Bytes,
        life: Duration,
    ) -> StateFuture<'a, bool> {
        let mut swap = self.scripts.swap.key(self.key(key));
        swap.arg(&*expected).arg(&*value).arg(millis(life));
        Box::pin(self.run(swap))
    }

    fn remove<'a>(&'a self, key: &'a str) -> StateFuture<'a, bool> {
        let command = cmd("DEL").arg(self.key(key)).to_owned();
        Box::pin(self.ask(command))
    }

    fn count<'a>(&'a self, key: &'a str, by: u64, life: Duration) -> StateFuture<'a, u64> {
        let mut count = self.scripts.count.key(self.key(key));
        count.arg(by).arg(millis(life));
        Box::pin(self.run(count))
    }

    fn append<'a>(&'a self, log: &'a str, entry: Bytes, keep: Retention) -> StateFuture<'a, u64> {
        let mut append = self.scripts.append.key(self.key(log));
        append
            .arg(&*entry)
            .arg(keep.entries.max(1))
            .arg(keep.bytes)
            .arg(millis(keep.life));
        Box::pin(self.run(append))
    }

    fn read_after<'a>(
        &'a self,
        log: &'a str,
        after: u64,
        max: usize,
    ) -> StateFuture<'a, Option<LogPage>> {
        let mut read = self.scripts.read_after.key(self.key(log));
        read.arg(after.saturating_add(1)).arg(max);
        Box::pin(async move { page(self.run(read).await?) })
    }

    fn trim<'a>(&'a self, log: &'a str, through: u64) -> StateFuture<'a, ()> {
        let mut command = cmd("XTRIM");
        let from = format!("{}-0", through.saturating_add(1));
        command.arg(self.key(log)).arg("MINID").arg(from);
        Box::pin(self.ask(command))
    }

    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> StateFuture<'a, ()> {
        let mut command = cmd("PUBLISH");
        command.arg(self.key(channel)).arg(&*message);
        Box::pin(self.ask(command))
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> StateFuture<'a, Box<dyn Subscription>> {
        let channel = self.key(channel);
        Box::pin(async move {
            let call = self.begin()?;
            let listener = self.subscriptions.subscribe(channel).await;
            let listener = call.end(listener)?;
            Ok(Box::new(listener) as Box<dyn Subscription>)
        })
    }
}

/// The answer of the script that reads.
fn page(found: Vec<Vec<u8>>) -> Result<Option<LogPage>, StateError> {
    let mut pieces = found.into_iter();
    let Some(first) = pieces.next() else {
        return Ok(None);
    };
    let number = |piece: Option<Vec<u8>>| {
        piece
            .and_then(|piece| std::str::from_utf8(&piece).ok()?.parse::<u64>().ok())
            .ok_or_else(|| unreachable("its response is not of the expected type"))
    };
    let mut page = LogPage {
        first: number(Some(first))?,
        last: number(pieces.next())?,
        entries: Vec::new(),
    };
    while let Some(at) = pieces.next() {
        let entry = pieces.next().unwrap_or_default();
        page.entries.push((number(Some(at))?, entry.into()));
    }
    Ok(Some(page))
}

impl fmt::Debug for Redis {
    /// Leaves the address out: it may hold credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn calls_that_their_callers_give_up_early_say_nothing_about_the_server() {
        let config = StateConfig {
            url: Some("redis://127.0.0.1:1".to_owned().into()),
            ..StateConfig::default()
        };
        let redis = Redis::new(&config).expect("an address");
        for _ in 0..2 * FAILURES_MAX {
            drop(redis.begin().expect("admitted"));
        }
        for _ in 0..FAILURES_MAX {
            let call = redis.begin().expect("admitted");
            tokio::time::advance(redis.within.min(SILENCE)).await;
            drop(call);
        }
        assert!(redis.begin().is_err());
    }

    #[test]
    fn a_name_without_an_address_is_not_a_connection_that_broke_off() {
        let text = |error: io::Error| state_error(&RedisError::from(error)).to_string();
        let unknown = "failed to lookup address information: Name or service not known";
        let named = text(io::Error::other(unknown));
        assert!(named.contains("its name has no address"), "{named}");
        let refused = text(io::ErrorKind::ConnectionRefused.into());
        assert!(refused.contains("connection refused"), "{refused}");
        let broken = text(io::ErrorKind::BrokenPipe.into());
        assert!(broken.contains("broke off"), "{broken}");
    }
}

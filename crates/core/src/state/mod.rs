//! State that replicas share: small values, logs, counters, and messages between replicas.
//!
//! [`State`] is the trait of a store, [`Memory`] the one that is there without configuration, for a single process.
//! The rest of the program talks to a store through [`SharedState`], which holds every call to a deadline and every
//! value to a size.
//!
//! Nothing on the way of an ordinary call depends on it. Losing it costs the resumption of broken streams and what
//! sessions have changed since they began; never calls, and never sessions.

mod config;
mod memory;
#[cfg(feature = "redis")]
mod redis;
mod shared;
/// Contract of a store, tested with every implementation.
#[cfg(any(test, feature = "testing"))]
#[path = "../../../../tests/it/support/state.rs"]
pub mod testing;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::future::BoxFuture;

#[cfg(feature = "redis")]
pub use self::redis::{Redis, ServerInfo};
pub use config::{StateConfig, StateTlsConfig};
pub use memory::Memory;
pub use shared::SharedState;

/// A store that replicas share.
///
/// All entries expire: values, counters and logs. Keys have at most 512 bytes of visible ASCII, values at most
/// [`VALUE_MAX_BYTES`], and log entries at most [`ENTRY_MAX_BYTES`]; callers ensure this.
///
/// A key has one type. Using a value as a counter or log returns [`StateError::WrongType`] and changes nothing.
///
/// # What an implementer may get wrong
///
/// - Each call is atomic across all replicas.
/// - Log numbers increase and are never reused, even if a log expires and starts again, or the store is restored from
///   a backup. The time in microseconds as a lower bound ensures this. A reader with an old number can thus detect
///   lost entries, and misses no new ones.
/// - A future may be dropped at any time. The operation may or may not have happened then.
/// - No call waits for a reconnection. An unreachable store returns [`StateError::Unreachable`] immediately, and
///   reconnects by itself.
pub trait State: fmt::Debug + Send + Sync + 'static {
    /// Reads a value.
    fn get<'a>(&'a self, key: &'a str) -> StateFuture<'a, Option<Bytes>>;

    /// Writes a value, in place of a present one.
    fn put<'a>(&'a self, key: &'a str, value: Bytes, life: Duration) -> StateFuture<'a, ()>;

    /// Writes a value if the key is free. Returns true if it did.
    fn put_if_absent<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
        life: Duration,
    ) -> StateFuture<'a, bool>;

    /// Writes a value if the one that is there is `expected`. Says whether it did.
    fn compare_and_swap<'a>(
        &'a self,
        key: &'a str,
        expected: Bytes,
        value: Bytes,
        life: Duration,
    ) -> StateFuture<'a, bool>;

    /// Removes a value, a counter or a log. Says whether there was one.
    fn remove<'a>(&'a self, key: &'a str) -> StateFuture<'a, bool>;

    /// Adds to a counter, and says what it is then. One that is not there begins at 0; its life runs from its first
    /// count and is not prolonged.
    fn count<'a>(&'a self, key: &'a str, by: u64, life: Duration) -> StateFuture<'a, u64>;

    /// Puts an entry at the end of a log, and says its number. What `keep` leaves no room for goes away at the log's
    /// beginning; the whole log goes away `keep.life` after its last entry.
    fn append<'a>(&'a self, log: &'a str, entry: Bytes, keep: Retention) -> StateFuture<'a, u64>;

    /// Reads at most `max` entries whose number is greater than `after`. `None` if there is no such log.
    fn read_after<'a>(
        &'a self,
        log: &'a str,
        after: u64,
        max: usize,
    ) -> StateFuture<'a, Option<LogPage>>;

    /// Removes the entries of a log up to a number, that one included.
    fn trim<'a>(&'a self, log: &'a str, through: u64) -> StateFuture<'a, ()>;

    /// Sends a message to all present subscribers of a channel, in this process too. The number of subscribers stays
    /// unknown.
    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> StateFuture<'a, ()>;

    /// Listens to a channel from now on.
    fn subscribe<'a>(&'a self, channel: &'a str) -> StateFuture<'a, Box<dyn Subscription>>;

    /// Removes everything whose key begins with a prefix. A store that would have to look at all its keys for it does
    /// nothing, and leaves them to expire.
    fn remove_all<'a>(&'a self, _prefix: &'a str) -> StateFuture<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns a view of the same store, in which entries are created for an owner. `None` if the store has no
    /// shares.
    fn claimed(&self, _claim: Claim<'_>) -> Option<Arc<dyn State>> {
        None
    }

    /// Returns what the store takes of this process's memory, by kind.
    fn usage(&self) -> Vec<Usage> {
        Vec::new()
    }
}

/// The owner and the kind of entries of a store.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The principal or client address whose share they take. `None` if they belong to no caller.
    pub owner: Option<&'a str>,
    /// Kind of the entries, for metrics.
    pub kind: &'static str,
    /// True if a full store may drop values before they expire. Logs have [`Retention::may_go`].
    pub may_go: bool,
}

/// Memory that entries of one kind take in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// The kind, as [`Claim::kind`] names it.
    pub kind: &'static str,
    /// Their keys and contents, in bytes.
    pub bytes: usize,
    /// Number of entries.
    pub entries: usize,
}

/// Future of a store's response.
pub type StateFuture<'a, T> = BoxFuture<'a, Result<T, StateError>>;

/// A subscription to a channel, which ends when this is dropped.
pub trait Subscription: Send {
    /// Waits for the next message. A subscription survives the loss of its connection: it tells of it by
    /// [`SubscriptionEvent::Missed`] once it is back.
    fn next(&mut self) -> BoxFuture<'_, SubscriptionEvent>;
}

/// An event of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscriptionEvent {
    /// A message.
    Message(Bytes),
    /// An unknown number of messages did not arrive.
    Missed,
}

/// The time in microseconds, above which a log begins of which nothing is known.
pub fn unix_micros() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(1, |now| u64::try_from(now.as_micros()).unwrap_or(u64::MAX))
}

/// Retention of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Maximum number of entries.
    pub entries: usize,
    /// Maximum size of all entries together, in bytes. The newest entry is always kept.
    pub bytes: usize,
    /// Lifetime of the log after its last entry.
    pub life: Duration,
    /// True if a full store may drop the whole log before its time.
    pub may_go: bool,
}

/// A part of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPage {
    /// Entries with their numbers, in order.
    pub entries: Vec<(u64, Bytes)>,
    /// The number of the oldest entry that is kept, or a smaller one that is greater than those of all that are not.
    /// Greater than `last` if none is kept.
    pub first: u64,
    /// The number of the newest entry.
    pub last: u64,
}

impl LogPage {
    /// Returns true if no entry between a number given earlier and the entries kept now is missing.
    pub fn continues(&self, after: u64) -> bool {
        after.checked_add(1).is_some_and(|next| self.first <= next) && after <= self.last
    }

    /// Returns true if the entry of a number is kept, or was the last of the trimmed ones: then all later entries are
    /// known. Ask this of a page that was read after the number before it.
    pub fn knows(&self, number: u64) -> bool {
        let first = self.entries.first().map(|(first, _)| *first);
        first == Some(number) || number.checked_add(1) == Some(self.first)
    }
}

/// Maximum size of a value, in bytes.
pub const VALUE_MAX_BYTES: usize = 64 * 1024;
/// Maximum size of a log entry, in bytes.
pub const ENTRY_MAX_BYTES: usize = 256 * 1024;
/// Maximum length of a key, in bytes.
pub const KEY_MAX_BYTES: usize = 512;

/// Error of a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// Timeout. The store may have applied the change.
    #[error("the shared state did not respond within {within:?} (state.timeout_ms)")]
    TooSlow {
        /// The deadline that passed.
        within: Duration,
    },
    /// A key, value or entry is too large.
    #[error("{bytes} bytes exceed the {max} bytes that an entry of the shared state may have")]
    TooLarge {
        /// Actual size, in bytes.
        bytes: usize,
        /// Maximum size, in bytes.
        max: usize,
    },
    /// There is no room left.
    #[error("the state in memory is full (state.memory_bytes)")]
    Full,
    /// The owner has used up its share of the store.
    #[error("the caller has used up its share of the state in memory (state.share_percent)")]
    Share,
    /// The key holds something of another kind.
    #[error("a key of the shared state holds something of another kind than was expected")]
    WrongType,
    /// The store cannot be reached, or cannot do what it is asked now.
    #[error("the shared state cannot be used: {reason}")]
    Unreachable {
        /// Reason, without addresses or credentials.
        reason: String,
    },
}

/// Error of a configured store that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenStateError {
    /// No address of a Redis server.
    #[error(
        "state.url is not the address of a Redis or Valkey server; write it as redis://host:6379, rediss://user:password@host:6379/0 with TLS, redis+sentinel://host:26379,host:26379/name or redis+cluster://host:6379,host:6379"
    )]
    Url,
    /// This program cannot talk to Redis.
    #[error(
        "state.url is set, but this program was built without the feature `redis`; build it with that, or leave state.url out"
    )]
    Unsupported,
    /// Certificates for a connection that has none.
    #[error(
        "state.tls is set, and state.url asks for no TLS; write it with rediss:// (rediss+sentinel://, rediss+cluster://), or leave state.tls out"
    )]
    NoTls,
    /// A certificate without its key, or the other way round.
    #[error("state.tls.certificate and state.tls.key go together; set both or neither")]
    Half,
    /// A file that cannot be used.
    #[error("{setting} names {}, which cannot be used: {problem}", path.display())]
    File {
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// Description of the problem.
        problem: String,
    },
}

/// The store that is configured. Nothing is connected yet.
pub fn open(config: &StateConfig) -> Result<Arc<dyn State>, OpenStateError> {
    if config.url.is_none() {
        return Ok(Arc::new(Memory::with_share(
            config.memory_bytes,
            config.share_percent,
        )));
    }
    #[cfg(feature = "redis")]
    return Ok(Arc::new(Redis::new(config)?));
    #[cfg(not(feature = "redis"))]
    return Err(OpenStateError::Unsupported);
}

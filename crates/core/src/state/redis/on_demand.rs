//! A connection that is opened on demand, and replaced when nothing responds on it.

use std::sync::Arc;
use std::time::Duration;

use redis::RedisResult;
use tokio::time::{Instant, timeout};

use super::connector::unreachable;
use crate::net::{self, Mutex};

/// Timeout of connecting to a deployment. Sentinels and nodes that do not respond take up to two seconds each time they
/// are asked.
const CONNECT_ALL: Duration = Duration::from_secs(7);
/// Errors in a row after which the connection to a single server is replaced, and calls without a response within
/// [`MISSES_WITHIN`] after which that to a master or a cluster is. A connection whose other end is gone only times out
/// for minutes, and a server that hangs keeps its connections.
pub(super) const ERRORS_MAX: u32 = 5;
const MISSES_WITHIN: Duration = Duration::from_secs(10);
/// Minimum time between two replacements.
pub(super) const REPLACEMENT: Duration = Duration::from_secs(1);

/// A connection that one task opens on demand for all waiting callers. Cancelled callers do not abort it.
pub(super) struct OnDemand<W: Connect> {
    pub(super) way: W,
    held: Mutex<OpenConnection<W::Connection>>,
    turn: tokio::sync::Mutex<()>,
}

struct OpenConnection<C> {
    connection: Option<C>,
    /// Grows with each connection, so that one that is lost is not taken for the one after it.
    number: u64,
    failed: Option<Instant>,
    /// Number of calls without a response, and the time of the first.
    missed: Option<(Instant, u32)>,
    replaced: Option<Instant>,
}

/// A target of a connection.
pub(super) trait Connect: Send + Sync + 'static {
    type Connection: Clone + Send + 'static;

    fn connect(&self) -> impl Future<Output = RedisResult<Self::Connection>> + Send;
}

impl<W: Connect> OnDemand<W> {
    pub(super) fn new(way: W) -> Arc<Self> {
        let held = OpenConnection {
            connection: None,
            number: 0,
            failed: None,
            missed: None,
            replaced: None,
        };
        Arc::new(Self {
            way,
            held: Mutex::new(held),
            turn: tokio::sync::Mutex::new(()),
        })
    }

    fn there(&self) -> Option<(W::Connection, u64)> {
        let held = self.held.lock();
        Some((held.connection.clone()?, held.number))
    }

    pub(super) async fn connection(self: &Arc<Self>) -> RedisResult<(W::Connection, u64)> {
        if let Some(there) = self.there() {
            return Ok(there);
        }
        let (this, asked) = (Arc::clone(self), Instant::now());
        let made = net::spawn(async move { this.make(asked).await }).await;
        made.unwrap_or_else(|_| Err(unreachable("connecting ended unexpectedly")))
    }

    async fn make(&self, asked: Instant) -> RedisResult<(W::Connection, u64)> {
        let _turn = self.turn.lock().await;
        if let Some(there) = self.there() {
            return Ok(there);
        }
        if self
            .held
            .lock()
            .failed
            .is_some_and(|failed| asked <= failed)
        {
            return Err(unreachable("it could not be connected to"));
        }
        let made = timeout(CONNECT_ALL, self.way.connect())
            .await
            .unwrap_or_else(|_| Err(unreachable("connecting took too long")));
        let mut held = self.held.lock();
        match made {
            Ok(connection) => {
                held.number += 1;
                held.connection = Some(connection.clone());
                Ok((connection, held.number))
            }
            Err(error) => {
                held.failed = Some(Instant::now());
                Err(error)
            }
        }
    }

    pub(super) fn lose(&self, number: u64) {
        let mut held = self.held.lock();
        if held.number == number {
            held.connection = None;
        }
    }

    /// Counts a call without a response, and drops the connection after several.
    pub(super) fn miss(&self) {
        let now = Instant::now();
        let mut held = self.held.lock();
        let missed = held
            .missed
            .filter(|(first, _)| now < *first + MISSES_WITHIN);
        let (first, count) = missed.unwrap_or((now, 0));
        held.missed = Some((first, count + 1));
        let may_be_replaced = held.replaced.is_none_or(|at| at + REPLACEMENT <= now);
        if ERRORS_MAX <= count + 1 && may_be_replaced {
            held.connection = None;
            held.missed = None;
            held.replaced = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Connects, and numbers its connections.
    #[derive(Default)]
    struct Numbered(AtomicU64);

    impl Connect for Numbered {
        type Connection = u64;

        async fn connect(&self) -> RedisResult<u64> {
            Ok(self.0.fetch_add(1, Ordering::Relaxed))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_on_which_calls_have_no_response_is_replaced() {
        let kept = OnDemand::new(Numbered::default());
        let connected = || async { kept.connection().await.expect("connected").0 };
        assert_eq!(connected().await, 0);
        for _ in 1..ERRORS_MAX {
            kept.miss();
        }
        assert_eq!(connected().await, 0);
        kept.miss();
        assert_eq!(connected().await, 1);
        // Calls that began before it was replaced.
        for _ in 0..2 * ERRORS_MAX {
            kept.miss();
        }
        assert_eq!(connected().await, 1);
        tokio::time::advance(REPLACEMENT).await;
        kept.miss();
        assert_eq!(connected().await, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_a_response_now_and_then_replaces_nothing() {
        let kept = OnDemand::new(Numbered::default());
        for _ in 0..10 * ERRORS_MAX {
            assert_eq!(kept.connection().await.expect("connected").0, 0);
            kept.miss();
            tokio::time::advance(MISSES_WITHIN / (ERRORS_MAX - 1)).await;
        }
    }
}

//! Values for single use: codes, and the refresh tokens of a login.
//!
//! The records lie in the shared state. If replicas share none, each replica knows only the codes and refresh tokens that
//! it redeemed itself, and a restart forgets them.

use std::time::Duration;

use bytes::Bytes;

use crate::state::{SharedState, StateError};

/// Records of used codes and of the logins that follow from them.
#[derive(Clone, Debug)]
pub(super) struct SingleUse(SharedState);

/// Result of using a refresh token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rotation {
    /// The token is replaced by one with this serial number.
    Next(u64),
    /// The token was used before, or its login has ended. The login is over.
    Ended,
}

/// Grace period for a second use of a refresh token, in seconds: clients lose responses, and several processes of one
/// client refresh at the same moment.
const REUSE_GRACE_SECONDS: u64 = 10;
/// Attempts to change a record that others change as well.
const ATTEMPTS: usize = 8;
/// Attempts to change a record if the state does not respond.
const FAILURES_MAX: usize = 3;
const ENDED: &[u8] = b"ended";

impl SingleUse {
    pub(super) fn new(state: SharedState) -> Self {
        Self(state)
    }

    /// Marks a code as used. False if it was used before; the login that followed from it ends then.
    pub(super) async fn redeem(&self, login: &str, life: Duration) -> Result<bool, StateError> {
        self.mark(&format!("oauth:code:{login}"), life).await
    }

    /// Marks an identity assertion as used. False if it was used before.
    pub(super) async fn use_assertion(&self, id: &str, life: Duration) -> Result<bool, StateError> {
        self.mark(&format!("oauth:assertion:{id}"), life).await
    }

    async fn mark(&self, key: &str, life: Duration) -> Result<bool, StateError> {
        let mark = Bytes::from_static(b"1");
        self.0.put_if_absent(key, mark, life).await
    }

    /// Uses a refresh token.
    pub(super) async fn rotate(
        &self,
        login: &str,
        serial: u64,
        now: u64,
        life: Duration,
    ) -> Result<Rotation, StateError> {
        let key = login_key(login);
        let next = record(serial + 1, now);
        let mut failures = 0;
        for _ in 0..ATTEMPTS {
            let current = self.0.get(&key).await?;
            let written = match current {
                // The first use, or the state has lost its records.
                None => self.0.put_if_absent(&key, next.clone(), life).await,
                Some(current) => match parse(&current) {
                    Some((valid, _)) if valid == serial => {
                        let swapped = self.0.compare_and_swap(&key, current, next.clone(), life);
                        swapped.await
                    }
                    Some((valid, at))
                        if valid == serial + 1 && now.saturating_sub(at) <= REUSE_GRACE_SECONDS =>
                    {
                        return Ok(Rotation::Next(valid));
                    }
                    _ => {
                        self.end(login, life).await?;
                        return Ok(Rotation::Ended);
                    }
                },
            };
            match written {
                Ok(true) => return Ok(Rotation::Next(serial + 1)),
                Ok(false) => {}
                // It may have been written. A client that repeats its request after the grace period would end the login.
                Err(_) if failures + 1 < FAILURES_MAX => failures += 1,
                Err(error) => return Err(error),
            }
        }
        Err(StateError::Unreachable {
            reason: "a refresh token is used by too many concurrent requests".to_owned(),
        })
    }

    /// Ends a login: none of its refresh tokens is valid any more.
    pub(super) async fn end(&self, login: &str, life: Duration) -> Result<(), StateError> {
        let ended = Bytes::from_static(ENDED);
        self.0.put(&login_key(login), ended, life).await
    }
}

fn login_key(login: &str) -> String {
    format!("oauth:login:{login}")
}

fn record(serial: u64, at: u64) -> Bytes {
    Bytes::from(format!("{serial} {at}"))
}

/// Reads a record: the serial number that is valid, and when the one before it was used.
fn parse(record: &[u8]) -> Option<(u64, u64)> {
    let (serial, at) = std::str::from_utf8(record).ok()?.split_once(' ')?;
    Some((serial.parse().ok()?, at.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::state::testing::{Asked, Fronted, StandIn};
    use crate::state::{Memory, StateFuture};

    const LIFE: Duration = Duration::from_secs(3600);

    fn once() -> SingleUse {
        let memory = Arc::new(Memory::new(1024 * 1024));
        SingleUse::new(SharedState::new(memory, Duration::from_secs(1)))
    }

    #[tokio::test]
    async fn a_code_is_redeemed_once() {
        let once = once();
        assert!(once.redeem("a", LIFE).await.expect("stored"));
        assert!(!once.redeem("a", LIFE).await.expect("stored"));
        assert!(once.redeem("b", LIFE).await.expect("stored"));
    }

    #[tokio::test]
    async fn a_refresh_token_that_is_used_again_later_ends_the_login() {
        let once = once();
        let used = async |serial, now| once.rotate("a", serial, now, LIFE).await.expect("stored");
        assert_eq!(used(0, 100).await, Rotation::Next(1));
        assert_eq!(used(1, 200).await, Rotation::Next(2));
        // A lost response, or a second process of the client.
        assert_eq!(used(1, 205).await, Rotation::Next(2));
        assert_eq!(used(1, 211).await, Rotation::Ended);
        assert_eq!(used(2, 212).await, Rotation::Ended);
    }

    /// A state whose first change of a value fails.
    #[derive(Debug)]
    struct Failing(Memory, AtomicBool);

    impl StandIn for Failing {
        fn store(&self) -> &Memory {
            &self.0
        }

        fn instead<'a, T: Send + 'a>(&'a self, asked: Asked) -> Option<StateFuture<'a, T>> {
            if asked != Asked::Swap || self.1.swap(true, Ordering::Relaxed) {
                return None;
            }
            let within = Duration::from_millis(100);
            let failed = Err(StateError::TooSlow { within });
            Some(Box::pin(std::future::ready(failed)))
        }
    }

    #[tokio::test]
    async fn a_change_that_failed_is_tried_again() {
        let memory = Memory::new(1024 * 1024);
        let failing = Arc::new(Fronted(Failing(memory, AtomicBool::default())));
        let once = SingleUse::new(SharedState::new(failing, Duration::from_secs(1)));
        let used = async |serial, now| once.rotate("a", serial, now, LIFE).await.expect("stored");
        assert_eq!(used(0, 100).await, Rotation::Next(1));
        assert_eq!(used(1, 200).await, Rotation::Next(2));
        assert_eq!(used(2, 300).await, Rotation::Next(3));
    }

    #[tokio::test]
    async fn a_login_that_was_ended_is_over_before_its_first_refresh() {
        let once = once();
        once.end("a", LIFE).await.expect("stored");
        let used = once.rotate("a", 0, 1, LIFE).await.expect("stored");
        assert_eq!(used, Rotation::Ended);
    }
}

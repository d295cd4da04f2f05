//! Rates shared by all replicas.
//!
//! Each replica has its own buckets and never waits for another. Several times a second it publishes the tokens taken
//! from its buckets, and takes the tokens that other replicas report. Together they allow the rate of one, and
//! slightly more just after a burst or when messages are lost. Keys are sent as keyed hashes, so that only replicas
//! with the same sealing keys can interpret them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{ActiveLimits, Limits};
use crate::state::{SharedState, Subscription, SubscriptionEvent};

/// Connection to other replicas.
#[derive(Clone, Debug)]
pub struct RateSync {
    pub state: SharedState,
    /// Secret seed that is equal on all replicas.
    pub seed: u64,
    /// This replica, so that it does not heed itself.
    pub replica: u64,
}

/// Interval of exchanges. An exchange is one message per replica, and none if nothing was taken.
const EXCHANGE: Duration = Duration::from_millis(200);
/// After which time a store that could not be listened to is tried again.
const RETRY: Duration = Duration::from_secs(1);
const CHANNEL: &str = "limits";

/// Kind of bucket. The numbers are part of the message format, which other versions read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Server = 0,
    Address = 1,
    Principal = 2,
    Initialize = 3,
    FailedAuthentications = 4,
    Tool = 5,
}

/// Tokens taken from one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Consumed {
    pub(super) kind: Kind,
    pub(super) key: u64,
    pub(super) count: u32,
}

impl Limits {
    /// Keeps the buckets of this replica in step with those of the others. Runs until it is dropped.
    pub async fn exchange(self: Arc<Self>) {
        let Some(reach) = self.reach.clone() else {
            return;
        };
        let mut bus: Option<Box<dyn Subscription>> = None;
        let (mut retry_at, mut tell_at) = (Instant::now(), Instant::now());
        loop {
            let is_shared = self.rules.load().config.shared;
            if is_shared && bus.is_none() && retry_at <= Instant::now() {
                bus = reach.state.subscribe(CHANNEL).await.ok();
                retry_at = Instant::now() + RETRY;
            }
            tokio::select! {
                heard = next(&mut bus) => if let SubscriptionEvent::Message(message) = heard {
                    self.rules.load().apply(&message, reach.replica);
                },
                () = tokio::time::sleep_until(tell_at) => if is_shared {
                    tell_at = Instant::now() + EXCHANGE;
                    let taken = self.rules.load().taken();
                    for some in taken.chunks(TAKEN_MAX) {
                        // An exchange that fails is dropped: each replica then limits by itself.
                        let _ = reach.state.publish(CHANNEL, write(reach.replica, some)).await;
                    }
                } else {
                    // The connection is tried again after a while.
                    tell_at = Instant::now() + RETRY;
                    bus = None;
                },
            }
        }
    }
}

async fn next(bus: &mut Option<Box<dyn Subscription>>) -> SubscriptionEvent {
    match bus {
        Some(bus) => bus.next().await,
        None => std::future::pending().await,
    }
}

impl ActiveLimits {
    fn apply(&self, message: &[u8], own: u64) {
        let Some((replica, taken)) = read(message) else {
            return;
        };
        if replica == own {
            return;
        }
        for taken in taken {
            self.charge(taken);
        }
    }
}

/// Version, replica; then kind, key and count of each.
const VERSION: u8 = 1;
const HEAD: usize = 1 + 8;
const ENTRY: usize = 1 + 8 + 4;
/// As many as one message has room for, with what sealing adds.
const TAKEN_MAX: usize = 2048;

fn write(replica: u64, taken: &[Consumed]) -> Bytes {
    let mut bytes = Vec::with_capacity(HEAD + ENTRY * taken.len());
    bytes.push(VERSION);
    bytes.extend(replica.to_le_bytes());
    for taken in taken {
        bytes.push(taken.kind as u8);
        bytes.extend(taken.key.to_le_bytes());
        bytes.extend(taken.count.to_le_bytes());
    }
    bytes.into()
}

/// `None` if another version has written it. Entries that this one does not know are left out.
fn read(message: &[u8]) -> Option<(u64, impl Iterator<Item = Consumed>)> {
    let (head, entries) = message.split_at_checked(HEAD)?;
    let (version, replica) = head.split_first()?;
    if *version != VERSION {
        return None;
    }
    let replica = u64::from_le_bytes(replica.try_into().ok()?);
    let entries = entries.chunks_exact(ENTRY).filter_map(|entry| {
        let (kind, rest) = entry.split_first()?;
        let (key, count) = rest.split_at_checked(8)?;
        Some(Consumed {
            kind: Kind::of(*kind)?,
            key: u64::from_le_bytes(key.try_into().ok()?),
            count: u32::from_le_bytes(count.try_into().ok()?),
        })
    });
    Some((replica, entries))
}

impl Kind {
    fn of(number: u8) -> Option<Self> {
        [
            Self::Server,
            Self::Address,
            Self::Principal,
            Self::Initialize,
            Self::FailedAuthentications,
            Self::Tool,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == number)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::super::{LimitConfig, RateConfig, ToolLimitConfig};
    use super::*;
    use crate::telemetry::Metrics;

    const SOMEBODY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const ANOTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[test]
    fn what_is_written_is_read() {
        let all = [
            (Kind::Server, 0, 7),
            (Kind::Tool, u64::MAX, u32::MAX),
            (Kind::Principal, 5, 1),
        ]
        .map(|(kind, key, count)| Consumed { kind, key, count });
        let written = write(9, &all);
        let (replica, entries) = read(&written).expect("this version");
        assert_eq!((replica, entries.collect::<Vec<_>>()), (9, all.to_vec()));
    }

    #[test]
    fn words_of_other_versions_are_not_understood_and_harm_nothing() {
        let written = write(9, &[]);
        assert!(read(&written[..HEAD - 1]).is_none());
        let mut other = written.to_vec();
        other[0] += 1;
        assert!(read(&other).is_none());
        // A kind that is not known yet, and half an entry.
        let mut newer = written.to_vec();
        newer.extend([200; ENTRY]);
        newer.extend([1; ENTRY - 1]);
        assert_eq!(read(&newer).map(|(_, entries)| entries.count()), Some(0));
    }

    fn replicas(config: &LimitConfig, state: &SharedState) -> [Arc<Limits>; 2] {
        [1, 2].map(|replica| {
            let reach = RateSync {
                state: state.clone(),
                seed: 42,
                replica,
            };
            let limits = Arc::new(Limits::new(config, &Metrics::default()).reaching(reach));
            tokio::spawn(Arc::clone(&limits).exchange());
            limits
        })
    }

    fn slow(burst: u32) -> RateConfig {
        RateConfig {
            per_second: 0.001,
            burst,
        }
    }

    fn config() -> LimitConfig {
        let tool = ToolLimitConfig {
            per_second: 0.001,
            burst: 3,
            calls: None,
        };
        LimitConfig {
            shared: true,
            server: slow(20),
            address: slow(8),
            tools: [("report".to_owned(), tool)].into(),
            ..LimitConfig::default()
        }
    }

    async fn exchanged() {
        // Once to say, and once to hear.
        tokio::time::sleep(EXCHANGE * 2).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_one_replica_lets_through_the_others_do_not_let_through_again() {
        let [one, other] = replicas(&config(), &SharedState::default());
        exchanged().await;
        assert!((0..6).all(|_| one.arrive(SOMEBODY).is_ok()));
        assert!((0..3).all(|_| one.call("report").is_ok()));
        exchanged().await;
        assert!((0..2).all(|_| other.arrive(SOMEBODY).is_ok()));
        assert!(other.arrive(SOMEBODY).is_err(), "eight are all there are");
        assert!(other.call("report").is_err());
        // Of the twenty for everybody twelve are left.
        assert!((0..8).all(|_| other.arrive(ANOTHER).is_ok()));
        exchanged().await;
        assert!(one.arrive(ANOTHER).is_err());
        // What was heard is not told on: nothing is taken twice.
        let third = IpAddr::from([192, 0, 2, 3]);
        assert!((0..4).all(|_| one.arrive(third).is_ok()));
        assert!(one.arrive(third).is_err(), "twenty are all there are");
    }

    #[tokio::test(start_paused = true)]
    async fn unless_it_is_asked_for_each_replica_has_its_own() {
        let config = LimitConfig {
            shared: false,
            ..config()
        };
        let [one, other] = replicas(&config, &SharedState::default());
        exchanged().await;
        assert!((0..8).all(|_| one.arrive(SOMEBODY).is_ok()));
        exchanged().await;
        assert!((0..8).all(|_| other.arrive(SOMEBODY).is_ok()));
        // And when it is asked for, from then on.
        let shared = self::config();
        for limits in [&one, &other] {
            limits.take_on(&shared);
        }
        tokio::time::sleep(RETRY + EXCHANGE).await;
        assert!((0..3).all(|_| one.call("report").is_ok()));
        exchanged().await;
        assert!(other.call("report").is_err());
    }

    #[test]
    fn where_nobody_can_be_told_a_replica_holds_to_its_rates_by_itself() {
        let limits = Limits::new(&config(), &Metrics::default());
        assert!((0..8).all(|_| limits.arrive(SOMEBODY).is_ok()));
        assert!(limits.arrive(SOMEBODY).is_err());
    }
}

//! Token buckets: one, or one for each key with bounded memory.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{BuildHasher, Hash};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, MutexGuard, OnceLock};
use std::time::Duration;

use foldhash::fast::{FixedState, RandomState};
use governor::clock::{Clock, DefaultClock, Reference};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed, StateStore};
use governor::{NotUntil, Quota, RateLimiter};

use super::{Limit, LimitExceeded, RateConfig};
use crate::net::Mutex;

/// A token bucket.
#[derive(Debug)]
pub(super) struct Bucket {
    limiter: RateLimiter<NotKeyed, Level, DefaultClock>,
    level: Level,
    ledger: Ledger<<DefaultClock as Clock>::Instant>,
    clock: DefaultClock,
    limit: Limit,
    /// Number of tokens taken since the last exchange, if replicas share the rate.
    taken: Option<AtomicU32>,
}

impl Bucket {
    /// `None` if the rate is not limited.
    pub(super) fn new(rate: &RateConfig, limit: Limit, is_shared: bool) -> Option<Self> {
        let clock = DefaultClock::default();
        let (quota, level) = (quota(rate)?, Level::default());
        Some(Self {
            ledger: Ledger::new(&quota, clock.now()),
            limiter: RateLimiter::new(quota, level.clone(), clock.clone()),
            level,
            clock,
            limit,
            taken: is_shared.then(AtomicU32::default),
        })
    }

    pub(super) fn take(&self) -> Result<(), LimitExceeded> {
        self.limiter
            .check()
            .map_err(|until| refused(self.limit, &until, self.clock.now()))?;
        if let Some(taken) = &self.taken {
            taken.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// Returns the number of tokens taken since the last call of this function.
    pub(super) fn taken(&self) -> u32 {
        self.taken
            .as_ref()
            .map_or(0, |taken| taken.swap(0, Relaxed))
    }

    /// Subtracts tokens that other replicas took.
    pub(super) fn charge(&self, count: u32) {
        let now = self.clock.now();
        self.ledger
            .charge(&self.level, &NotKeyed::NonKey, count, now);
    }
}

/// Fill level of a single bucket.
#[derive(Clone, Debug, Default)]
struct Level(Arc<InMemoryState>);

impl StateStore for Level {
    type Key = NotKeyed;

    fn measure_and_replace<T, F, E>(&self, key: &NotKeyed, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        self.0.measure_and_replace(key, decide)
    }
}

/// Subtracts tokens that other replicas took.
///
/// A bucket that has fewer tokens goes into debt. Otherwise each replica would admit the whole rate under a steady
/// load, because its bucket is empty whenever the others report.
#[derive(Debug)]
struct Ledger<P> {
    /// Time from which the limiter counts.
    start: P,
    /// Time in which one token is added, in nanoseconds.
    token: u64,
    /// Time that the bucket with the largest debt takes to be full again, in nanoseconds.
    full_after_max: u64,
}

/// Part of the maximum debt that does not depend on the burst. It covers the reports of many replicas at a high rate.
const DEBT: Duration = Duration::from_secs(10);

impl<P: Reference> Ledger<P> {
    fn new(quota: &Quota, start: P) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let token = nanos(quota.replenish_interval());
        let burst = token.saturating_mul(quota.burst_size().get().into());
        Self {
            start,
            token,
            full_after_max: burst.saturating_mul(2).saturating_add(nanos(DEBT)),
        }
    }

    fn charge<S: StateStore>(&self, store: &S, key: &S::Key, count: u32, now: P) {
        let now = now.duration_since(self.start).as_u64();
        let taken = self.token.saturating_mul(count.into());
        let latest = now.saturating_add(self.full_after_max);
        let charged: Result<(), Infallible> = store.measure_and_replace(key, |full_at| {
            let full_at = full_at.map_or(now, |full_at| full_at.as_u64().max(now));
            let charged = full_at.saturating_add(taken).min(latest.max(full_at));
            Ok(((), Nanos::from(charged)))
        });
        let Ok(()) = charged;
    }
}

/// A bucket for each key.
#[derive(Debug)]
pub(super) struct Keyed<C: Clock = DefaultClock> {
    limiter: RateLimiter<u64, Store, C, NoOpMiddleware<C::Instant>>,
    levels: Store,
    ledger: Ledger<C::Instant>,
    hasher: RandomState,
    clock: C,
    limit: Limit,
    /// Tokens to report to other replicas, if replicas share the rate.
    tally: Option<Tally>,
}

impl Keyed {
    /// Creates the buckets of a rate, for about `max` keys; `None` if the rate is unlimited. Replicas with the same
    /// seed agree on the hashes of keys.
    pub(super) fn new(
        rate: &RateConfig,
        max: usize,
        limit: Limit,
        seed: Option<u64>,
    ) -> Option<Self> {
        let mut keyed = Self::with_clock(rate, max, limit, DefaultClock::default())?;
        keyed.tally = seed.map(Tally::new);
        Some(keyed)
    }
}

impl<C: Clock + Clone> Keyed<C> {
    fn with_clock(rate: &RateConfig, max: usize, limit: Limit, clock: C) -> Option<Self> {
        let (quota, levels) = (quota(rate)?, Store::new(max));
        Some(Self {
            ledger: Ledger::new(&quota, clock.now()),
            limiter: RateLimiter::new(quota, levels.clone(), clock.clone()),
            levels,
            hasher: RandomState::default(),
            clock,
            limit,
            tally: None,
        })
    }

    /// Takes one token from a key's bucket. Keys are distinguished by hash; its seed belongs to this process or is
    /// shared by all replicas.
    pub(super) fn take<K: Hash + ?Sized>(&self, key: &K) -> Result<(), LimitExceeded> {
        let number = match &self.tally {
            None => self.hasher.hash_one(key),
            Some(tally) => tally.hasher.hash_one(key),
        };
        self.limiter
            .check_key(&number)
            .map_err(|until| refused(self.limit, &until, self.clock.now()))?;
        if let Some(tally) = &self.tally {
            tally.add(number);
        }
        Ok(())
    }

    /// Returns the tokens taken of each key since the last call of this function.
    pub(super) fn taken(&self) -> Vec<(u64, u32)> {
        self.tally.as_ref().map_or_else(Vec::new, Tally::take)
    }

    /// Subtracts tokens that other replicas took of a key.
    pub(super) fn charge(&self, key: u64, count: u32) {
        let now = self.clock.now();
        self.ledger.charge(&self.levels, &key, count, now);
    }
}

/// Tokens taken by key, until the next exchange.
#[derive(Debug)]
struct Tally {
    hasher: FixedState,
    taken: [Mutex<HashMap<u64, u32, FixedState>>; TALLIES],
}

const TALLIES: usize = 16;
/// Maximum number of keys in an exchange; further ones are not reported.
const TALLIED_MAX: usize = 1024;

impl Tally {
    fn new(seed: u64) -> Self {
        Self {
            hasher: FixedState::with_seed(seed),
            taken: std::array::from_fn(|_| Mutex::default()),
        }
    }

    fn add(&self, key: u64) {
        let mut taken = self.taken[key as usize % TALLIES].lock();
        if let Some(count) = taken.get_mut(&key) {
            *count = count.saturating_add(1);
        } else if taken.len() < TALLIED_MAX {
            taken.insert(key, 1);
        }
    }

    fn take(&self) -> Vec<(u64, u32)> {
        let mut all = Vec::new();
        for taken in &self.taken {
            all.extend(taken.lock().drain());
        }
        all
    }
}

/// Fill levels of the buckets of many keys in bounded memory: sets of a few keys each. A full set drops the bucket
/// that is nearest to full, which loses least.
///
/// Sets are created in groups at their first use: a server that is asked by few clients has few of them.
#[derive(Clone, Debug)]
struct Store {
    groups: Arc<[Group]>,
    /// Number of sets, a power of two.
    sets: usize,
}

type Group = OnceLock<Box<[Mutex<Set>]>>;

/// Keys and when their buckets are full again.
type Set = Vec<(u64, Nanos)>;

/// Keys in one set. They are searched one after the other.
const WAYS: usize = 16;
/// Maximum number of sets in a group.
const GROUP_SETS: usize = 64;

impl Store {
    fn new(max: usize) -> Self {
        let sets = max.div_ceil(WAYS).max(1).next_power_of_two();
        Self {
            groups: (0..sets.div_ceil(GROUP_SETS))
                .map(|_| OnceLock::new())
                .collect(),
            sets,
        }
    }

    fn set(&self, key: u64) -> MutexGuard<'_, Set> {
        // The upper bits choose the set, so that the keys within one differ in the others.
        let number = (key >> 32) as usize & (self.sets - 1);
        let group = self.groups[number / GROUP_SETS].get_or_init(|| {
            let sets = self.sets.min(GROUP_SETS);
            (0..sets).map(|_| Mutex::default()).collect()
        });
        group[number % GROUP_SETS].lock()
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        let len = |set: &Mutex<Set>| set.lock().len();
        let groups = self.groups.iter().filter_map(OnceLock::get);
        groups.flat_map(|group| group.iter()).map(len).sum()
    }
}

impl StateStore for Store {
    type Key = u64;

    fn measure_and_replace<T, F, E>(&self, asked: &u64, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let mut set = self.set(*asked);
        let place = set.iter().position(|(key, _)| *key == *asked);
        let (decided, full_at) = decide(place.map(|place| set[place].1))?;
        let entry = (*asked, full_at);
        match place {
            Some(place) => set[place] = entry,
            None if set.len() < WAYS => set.push(entry),
            None => {
                if let Some(fullest) = set.iter_mut().min_by_key(|(_, full_at)| *full_at) {
                    *fullest = entry;
                }
            }
        }
        Ok(decided)
    }
}

fn refused<P: Reference>(limit: Limit, until: &NotUntil<P>, now: P) -> LimitExceeded {
    let quota = until.quota();
    LimitExceeded::for_rate(
        limit,
        until.wait_time_from(now),
        quota.burst_size().get(),
        quota.burst_size_replenished_in(),
    )
}

/// `None` for no limit.
fn quota(rate: &RateConfig) -> Option<Quota> {
    if rate.per_second <= 0.0 {
        return None;
    }
    let period = Duration::try_from_secs_f64(rate.per_second.recip()).ok()?;
    let burst = match NonZeroU32::new(rate.burst) {
        Some(burst) => burst,
        None => NonZeroU32::new(rate.per_second.ceil() as u32)?,
    };
    Some(Quota::with_period(period.max(Duration::from_nanos(1)))?.allow_burst(burst))
}

/// An address as a key: what one customer of a network has. Of IPv6 that is 64 bits.
pub fn subnet(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits() >> 64 << 64,
    }
}

/// Returns true if an address is public, and therefore belongs to one client or household. A private address can be
/// that of a load balancer.
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [a, b, ..] = address.octets();
            let is_shared = a == 100 && b & 0xc0 == 64;
            !(address.is_loopback()
                || address.is_private()
                || address.is_link_local()
                || address.is_unspecified()
                || is_shared)
        }
        IpAddr::V6(address) => {
            !(address.is_loopback()
                || address.is_unique_local()
                || address.is_unicast_link_local()
                || address.is_unspecified())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor::clock::FakeRelativeClock;

    fn keyed(
        per_second: f64,
        burst: u32,
        max: usize,
    ) -> (FakeRelativeClock, Keyed<FakeRelativeClock>) {
        let clock = FakeRelativeClock::default();
        let rate = RateConfig { per_second, burst };
        let keyed = Keyed::with_clock(&rate, max, Limit::PrincipalRate, clock.clone());
        (clock, keyed.expect("a rate"))
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate_to_the_token() {
        let (clock, keyed) = keyed(2.0, 3, 100);
        assert!((0..3).all(|_| keyed.take("a").is_ok()));
        let refused = keyed.take("a").expect_err("empty");
        assert_eq!(refused.retry_after_ms(), 500);
        assert_eq!(refused.retry_after_seconds(), 1);
        assert_eq!(refused.quota(), Some((3, 1)));
        assert!(keyed.take("b").is_ok(), "another key has another bucket");
        clock.advance(Duration::from_millis(499));
        assert!(keyed.take("a").is_err());
        clock.advance(Duration::from_millis(1));
        assert!(keyed.take("a").is_ok() && keyed.take("a").is_err());
        clock.advance(Duration::from_secs(1000));
        assert!((0..3).all(|_| keyed.take("a").is_ok()) && keyed.take("a").is_err());
    }

    #[test]
    fn a_million_keys_take_bounded_memory_and_those_that_ask_most_are_remembered() {
        let (_, keyed) = keyed(0.001, 2, 1000);
        assert!(keyed.take("greedy").is_ok() && keyed.take("greedy").is_ok());
        for key in 0..1_000_000_u32 {
            assert!(keyed.take(&key).is_ok());
        }
        let store = &keyed.levels;
        assert!(store.len() <= 1024, "{}", store.len());
    }

    #[test]
    fn a_key_that_asks_on_is_not_forgotten_for_others_that_ask_once() {
        let (_, keyed) = keyed(0.001, 3, WAYS);
        assert!((0..3).all(|_| keyed.take("greedy").is_ok()));
        for key in 0..10_000_u32 {
            assert!(keyed.take(&key).is_ok());
        }
        assert!(keyed.take("greedy").is_err());
    }

    #[test]
    fn what_was_taken_elsewhere_is_gone_here_too_and_debts_are_bounded() {
        let (clock, keyed) = keyed(1.0, 10, 100);
        let key = keyed.hasher.hash_one("a");
        keyed.charge(key, 7);
        assert!((0..3).all(|_| keyed.take("a").is_ok()) && keyed.take("a").is_err());
        keyed.charge(key, 2);
        clock.advance(Duration::from_secs(2));
        let owed = keyed.take("a").expect_err("both tokens are owed");
        assert_eq!(owed.retry_after_ms(), 1000);
        clock.advance(Duration::from_secs(1));
        assert!(keyed.take("a").is_ok() && keyed.take("a").is_err());
        keyed.charge(key, u32::MAX);
        assert!(keyed.take("b").is_ok());
        clock.advance(Duration::from_secs(20));
        assert!(keyed.take("a").is_err(), "a burst and ten seconds of debt");
        clock.advance(Duration::from_secs(1));
        assert!(keyed.take("a").is_ok());
        let bucket = RateConfig {
            per_second: 0.001,
            burst: 5,
        };
        let bucket = Bucket::new(&bucket, Limit::ServerRate, true).expect("a rate");
        bucket.charge(3);
        assert!((0..2).all(|_| bucket.take().is_ok()) && bucket.take().is_err());
        assert_eq!((bucket.taken(), bucket.taken()), (2, 0));
    }

    /// Ten seconds in which two replicas get more requests than they may admit, and report to each other five times a
    /// second.
    #[test]
    fn under_a_steady_load_two_replicas_admit_the_rate_of_one() {
        let replicas = [(); 2].map(|()| keyed(100.0, 10, 100));
        let mut admitted = [0; 2];
        let mut reported = [0; 2];
        for step in 1..=1000 {
            for (replica, (clock, keyed)) in replicas.iter().enumerate() {
                clock.advance(Duration::from_millis(10));
                admitted[replica] += (0..3).filter(|_| keyed.take("a").is_ok()).count();
            }
            if step % 20 == 0 {
                for (replica, (_, keyed)) in replicas.iter().enumerate() {
                    let other = 1 - replica;
                    let taken = admitted[other] - reported[other];
                    let key = keyed.hasher.hash_one("a");
                    keyed.charge(key, u32::try_from(taken).expect("few"));
                }
                reported = admitted;
            }
        }
        let total: usize = admitted.iter().sum();
        assert!((980..=1080).contains(&total), "{admitted:?}");
    }

    #[test]
    fn replicas_with_the_same_seed_mean_the_same_key() {
        let rate = RateConfig {
            per_second: 0.001,
            burst: 3,
        };
        let shared =
            |seed| Keyed::new(&rate, 100, Limit::PrincipalRate, Some(seed)).expect("a rate");
        let (one, other, stranger) = (shared(7), shared(7), shared(8));
        assert!((0..3).all(|_| one.take("somebody").is_ok()) && one.take("somebody").is_err());
        let taken = one.taken();
        assert_eq!(taken.iter().map(|(_, count)| count).sum::<u32>(), 3);
        assert!(one.taken().is_empty());
        for (key, count) in taken {
            other.charge(key, count);
            stranger.charge(key, count);
        }
        assert!(other.take("somebody").is_err() && other.take("somebody else").is_ok());
        assert!(stranger.take("somebody").is_ok());
    }

    #[test]
    fn of_very_many_keys_some_are_told() {
        let rate = RateConfig {
            per_second: 1.0,
            burst: 1,
        };
        let keyed = Keyed::new(&rate, 100_000, Limit::AddressRate, Some(1)).expect("a rate");
        for key in 0..50_000_u32 {
            let _ = keyed.take(&key);
        }
        let reported = keyed.taken().len();
        assert!(
            (10_000..=TALLIES * TALLIED_MAX).contains(&reported),
            "{reported}"
        );
    }

    #[test]
    fn without_a_burst_a_second_s_worth_may_come_at_once() {
        let (_, keyed) = keyed(2.5, 0, 100);
        assert!((0..3).all(|_| keyed.take("a").is_ok()) && keyed.take("a").is_err());
        assert!(quota(&RateConfig::default()).is_none());
    }

    #[test]
    fn private_addresses_may_stand_for_everybody() {
        let public = |text: &str| is_public(text.parse().expect("an address"));
        for address in [
            "192.0.2.1",
            "8.8.8.8",
            "2001:db8::1",
            "100.63.0.1",
            "172.32.0.1",
        ] {
            assert!(public(address), "{address}");
        }
        for address in [
            "127.0.0.1",
            "::1",
            "10.1.2.3",
            "172.17.0.1",
            "192.168.1.1",
            "169.254.1.1",
            "100.64.0.1",
            "fd00::1",
            "fe80::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(!public(address), "{address}");
        }
    }

    #[test]
    fn an_address_stands_for_its_network() {
        let subnet = |text: &str| subnet(text.parse().expect("an address"));
        assert_eq!(subnet("192.0.2.1"), subnet("::ffff:192.0.2.1"));
        assert_ne!(subnet("192.0.2.1"), subnet("192.0.2.2"));
        assert_eq!(subnet("2001:db8::1"), subnet("2001:db8::2:3:4:5"));
        assert_ne!(subnet("2001:db8::1"), subnet("2001:db8:0:1::1"));
    }
}

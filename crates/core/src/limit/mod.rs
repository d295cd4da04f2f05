//! Rate and concurrency limits.
//!
//! Rates are token buckets (`bucket`); what runs at once has places (`places`). Each limit is asked where its key is
//! known: an address before anything else, a principal right after it was proved, a tool once its arguments are good.
//! A limit that is not configured costs one branch. Replicas can share rates (`rate_sync`).

mod bucket;
mod config;
mod rate_sync;
mod limit_metrics;
mod memory;
mod concurrency;
mod rejected;
mod responses;

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use foldhash::fast::FixedState;

pub use bucket::{is_public, subnet};
use concurrency::{ConcurrencyLimit, Permit};
pub use config::{LimitConfig, PrincipalRateConfig, RateConfig, ToolLimitConfig};
pub use limit_metrics::Limit;
pub use limit_metrics::{LimitCounters, SectionHits};
pub use memory::Pressure;
pub use rate_sync::RateSync;
pub use rejected::LimitExceeded;
use responses::ResponseMemory;
pub use responses::{LARGE_BYTES, Reservation};

use crate::auth::{Principal, PrincipalKind};
use crate::net::ShareKey;
use crate::telemetry::Metrics;
use bucket::{Bucket, Keyed};
use rate_sync::{Consumed, Kind};

/// All limits on requests and calls, with counters of their hits.
///
/// Settings can change at run time: buckets and permits with unchanged settings keep their state.
#[derive(Debug)]
pub struct Limits {
    pub hits: Arc<LimitCounters>,
    rules: ArcSwap<ActiveLimits>,
    /// A [`Pressure`].
    memory: Arc<AtomicU8>,
    /// Memory of responses that wait to be read.
    responses: ResponseMemory,
    /// Connection to other replicas, if rates can be shared.
    reach: Option<RateSync>,
    /// Number of calls that hold or wait for a permit. At 0 all permits are free.
    busy: Arc<AtomicUsize>,
    // Lets requests skip the rules where nothing is limited.
    limits_arrivals: AtomicBool,
    limits_principals: AtomicBool,
    limits_tools: AtomicBool,
}

/// Limits in force.
#[derive(Debug)]
struct ActiveLimits {
    config: LimitConfig,
    server: Option<Arc<Bucket>>,
    addresses: Option<Arc<Keyed>>,
    principals: Option<Arc<Keyed>>,
    handshakes: Option<Arc<Keyed>>,
    failures: Option<Arc<Keyed>>,
    /// True if the two limits before apply to addresses that many clients may share.
    handshakes_everywhere: bool,
    failures_everywhere: bool,
    tools: HashMap<Box<str>, Arc<ToolLimits>>,
    /// Names of tools, by what replicas call them among themselves.
    tool_keys: HashMap<u64, Box<str>>,
    calls: ConcurrencyLimit,
    calls_of: Arc<concurrency::Keyed>,
    /// Concurrency of anonymous callers, by address.
    calls_from: Arc<concurrency::Keyed>,
    /// True if the limit before applies to addresses that many clients may share.
    calls_from_everywhere: bool,
}

/// When it is worth asking again where memory is short.
const SHORT_OF_MEMORY: Duration = Duration::from_secs(5);

/// The limits of one tool.
#[derive(Debug)]
pub struct ToolLimits {
    rate: Option<Bucket>,
    calls: Option<ConcurrencyLimit>,
}

impl ActiveLimits {
    /// Creates the limits of a configuration and keeps unchanged ones. A shared seed lets replicas share rates.
    fn new(config: &LimitConfig, before: Option<&Self>, seed: Option<u64>) -> Self {
        let seed = seed.filter(|_| config.shared);
        let before = before.filter(|before| before.config.shared == config.shared);
        let same_buckets = before.filter(|before| before.config.buckets == config.buckets);
        let keyed = |rate: RateConfig,
                     limit,
                     of: fn(&LimitConfig) -> RateConfig,
                     kept: fn(&Self) -> &Option<Arc<Keyed>>| {
            match same_buckets.filter(|before| of(&before.config) == rate) {
                Some(before) => kept(before).clone(),
                None => Keyed::new(&rate, config.buckets, limit, seed).map(Arc::new),
            }
        };
        let handshakes = |config: &LimitConfig| {
            RateConfig::a_minute(config.initialize_per_minute.unwrap_or(600))
        };
        let failures = |config: &LimitConfig| {
            RateConfig::a_minute(config.failed_authentications_per_minute.unwrap_or(10))
        };
        let queue = config.waiting();
        let same_queue = before.filter(|before| before.config.waiting() == queue);
        let tool_keys = seed.map(|seed| {
            let hasher = FixedState::with_seed(seed);
            let names = config.tools.keys();
            names
                .map(|name| (hasher.hash_one(&**name), name.as_str().into()))
                .collect()
        });
        Self {
            server: match before.filter(|before| before.config.server == config.server) {
                Some(before) => before.server.clone(),
                None => {
                    Bucket::new(&config.server, Limit::ServerRate, seed.is_some()).map(Arc::new)
                }
            },
            addresses: keyed(
                config.address,
                Limit::AddressRate,
                |c| c.address,
                |r| &r.addresses,
            ),
            principals: keyed(
                config.principal.rate(),
                Limit::PrincipalRate,
                |c| c.principal.rate(),
                |r| &r.principals,
            ),
            handshakes: keyed(handshakes(config), Limit::Initialize, handshakes, |r| {
                &r.handshakes
            }),
            failures: keyed(
                failures(config),
                Limit::FailedAuthentications,
                failures,
                |r| &r.failures,
            ),
            handshakes_everywhere: config.initialize_per_minute.is_some(),
            failures_everywhere: config.failed_authentications_per_minute.is_some(),
            tools: Self::tools(config, same_queue, seed.is_some()),
            tool_keys: tool_keys.unwrap_or_default(),
            calls: match same_queue.filter(|before| before.config.calls() == config.calls()) {
                Some(before) => before.calls.clone(),
                None => ConcurrencyLimit::new(config.calls(), queue, Limit::Calls),
            },
            calls_of: match same_queue
                .filter(|before| before.config.calls_per_principal == config.calls_per_principal)
            {
                Some(before) => Arc::clone(&before.calls_of),
                None => Arc::new(concurrency::Keyed::new(
                    config.calls_per_principal,
                    queue,
                    Limit::PrincipalCalls,
                )),
            },
            calls_from: match same_queue
                .filter(|before| before.config.calls_of_address() == config.calls_of_address())
            {
                Some(before) => Arc::clone(&before.calls_from),
                None => Arc::new(concurrency::Keyed::new(
                    config.calls_of_address(),
                    queue,
                    Limit::AddressCalls,
                )),
            },
            calls_from_everywhere: config.calls_per_address.is_some(),
            config: config.clone(),
        }
    }

    /// Creates the limits of tools, and keeps unchanged ones of `before`.
    fn tools(
        config: &LimitConfig,
        before: Option<&Self>,
        is_shared: bool,
    ) -> HashMap<Box<str>, Arc<ToolLimits>> {
        let limits = config.tools.iter().map(|(name, tool)| {
            let kept = before
                .filter(|before| before.config.tools.get(name) == Some(tool))
                .and_then(|before| before.tools.get(name.as_str()));
            let limits = kept.cloned().unwrap_or_else(|| {
                Arc::new(ToolLimits {
                    rate: Bucket::new(&tool.rate(), Limit::ToolRate, is_shared),
                    calls: tool.calls.map(|calls| {
                        ConcurrencyLimit::new(calls, config.waiting(), Limit::ToolCalls)
                    }),
                })
            });
            (name.as_str().into(), limits)
        });
        limits.collect()
    }

    /// Returns the tokens taken from all buckets since the last call of this function.
    fn taken(&self) -> Vec<Consumed> {
        let mut all = Vec::new();
        for (kind, buckets) in self.keyed() {
            let taken = buckets.iter().flat_map(|buckets| buckets.taken());
            all.extend(taken.map(|(key, count)| Consumed { kind, key, count }));
        }
        let server = self
            .server
            .iter()
            .map(|bucket| (Kind::Server, 0, &**bucket));
        let tools = self.tool_keys.iter().filter_map(|(key, name)| {
            let bucket = self.tools.get(name)?.rate.as_ref()?;
            Some((Kind::Tool, *key, bucket))
        });
        let singles = server.chain(tools).map(|(kind, key, bucket)| Consumed {
            kind,
            key,
            count: bucket.taken(),
        });
        all.extend(singles.filter(|taken| taken.count != 0));
        all
    }

    /// Subtracts tokens that other replicas took.
    fn charge(&self, taken: Consumed) {
        match taken.kind {
            Kind::Server => {
                if let Some(bucket) = &self.server {
                    bucket.charge(taken.count);
                }
            }
            Kind::Tool => {
                let name = self.tool_keys.get(&taken.key);
                let tool = name.and_then(|name| self.tools.get(name));
                if let Some(bucket) = tool.and_then(|tool| tool.rate.as_ref()) {
                    bucket.charge(taken.count);
                }
            }
            kind => {
                let same = self.keyed().into_iter().find(|(own, _)| *own == kind);
                if let Some((_, Some(buckets))) = same {
                    buckets.charge(taken.key, taken.count);
                }
            }
        }
    }

    fn keyed(&self) -> [(Kind, &Option<Arc<Keyed>>); 4] {
        [
            (Kind::Address, &self.addresses),
            (Kind::Principal, &self.principals),
            (Kind::Initialize, &self.handshakes),
            (Kind::FailedAuthentications, &self.failures),
        ]
    }

    #[inline]
    fn places_of(
        &self,
        principal: &Principal,
        address: Option<IpAddr>,
    ) -> Option<(&concurrency::Keyed, ShareKey)> {
        let key = share_of(principal, address);
        match address {
            _ if is_proved(principal) => Some((&self.calls_of, key)),
            Some(address) if self.calls_from_everywhere || is_public(address) => {
                Some((&self.calls_from, key))
            }
            _ => None,
        }
    }
}

impl Limits {
    pub fn new(config: &LimitConfig, metrics: &Metrics) -> Self {
        let limits = Self {
            hits: Arc::new(LimitCounters::new(metrics)),
            rules: ArcSwap::from_pointee(ActiveLimits::new(config, None, None)),
            memory: Arc::default(),
            responses: ResponseMemory::default(),
            reach: None,
            busy: Arc::default(),
            limits_arrivals: AtomicBool::default(),
            limits_principals: AtomicBool::default(),
            limits_tools: AtomicBool::default(),
        };
        limits.responses.show(metrics);
        limits.note();
        limits
    }

    /// Shares rates with other replicas.
    pub fn reaching(mut self, reach: RateSync) -> Self {
        let config = self.rules.load().config.clone();
        let rules = ActiveLimits::new(&config, None, Some(reach.seed));
        self.rules.store(Arc::new(rules));
        self.reach = Some(reach);
        self
    }

    /// Holds to other settings from now on. Calls that run keep the places that they have; where the number of places has
    /// changed, they do not count among the new ones.
    pub fn take_on(&self, config: &LimitConfig) {
        let seed = self.reach.as_ref().map(|reach| reach.seed);
        let rules = ActiveLimits::new(config, Some(&self.rules.load()), seed);
        self.rules.store(Arc::new(rules));
        self.note();
        self.warn_if_alone();
    }

    /// Logs a warning if rates should be shared and no other replica can be reached.
    pub fn warn_if_alone(&self) {
        if self.reach.is_none() && self.rules.load().config.shared {
            tracing::warn!(
                setting = "limits.shared",
                "each replica applies rates by itself; to share them, set state.url and seal.keys"
            );
        }
    }

    fn note(&self) {
        let rules = self.rules.load();
        self.responses.apply(&rules.config);
        let limits_arrivals = rules.server.is_some()
            || rules.addresses.is_some()
            || self.memory() == Pressure::Critical;
        self.limits_arrivals.store(limits_arrivals, Relaxed);
        self.limits_principals
            .store(rules.principals.is_some(), Relaxed);
        self.limits_tools.store(!rules.tools.is_empty(), Relaxed);
    }

    /// Admits a request from an address, before its sender is known.
    ///
    /// # Errors
    ///
    /// The address, or all clients together, exceeded a rate.
    #[inline]
    pub fn arrive(&self, address: IpAddr) -> Result<(), LimitExceeded> {
        if !self.limits_arrivals.load(Relaxed) {
            return Ok(());
        }
        let rules = self.rules.load();
        let asked = rules
            .addresses
            .as_ref()
            .map_or(Ok(()), |addresses| addresses.take(&subnet(address)));
        let asked =
            asked.and_then(|()| rules.server.as_ref().map_or(Ok(()), |server| server.take()));
        self.counted(asked)?;
        if self.memory() == Pressure::Critical {
            // The caller that rejects the request counts it.
            return Err(LimitExceeded::for_places(Limit::Memory, SHORT_OF_MEMORY));
        }
        Ok(())
    }

    /// Returns the level of memory pressure.
    #[inline]
    pub fn memory(&self) -> Pressure {
        Pressure::of(self.memory.load(Relaxed))
    }

    /// Takes note of how much memory is in use, if that is limited; says how short it is.
    pub fn look_at_memory(&self, in_use: impl FnOnce() -> Option<u64>) -> Pressure {
        let rules = self.rules.load();
        let limit = rules.config.memory_bytes;
        // Without a limit the use is not read; an unknown use counts as none.
        let in_use = (limit != 0).then(in_use).flatten().unwrap_or_default();
        let found = Pressure::find(&rules.config, in_use);
        let before = Pressure::of(self.memory.swap(found as u8, Relaxed));
        if before != found {
            self.note();
            found.record(limit, in_use);
        }
        found
    }

    /// Admits a request whose sender is known.
    ///
    /// # Errors
    ///
    /// The principal asked too often.
    #[inline]
    pub fn admit(&self, principal: &Principal) -> Result<(), LimitExceeded> {
        if !self.limits_principals.load(Relaxed) || !is_proved(principal) {
            return Ok(());
        }
        match &self.rules.load().principals {
            Some(principals) => self.counted(principals.take(principal.id())),
            None => Ok(()),
        }
    }

    /// Admits a new session. Unauthenticated callers are distinguished by their address.
    ///
    /// # Errors
    ///
    /// Too many sessions began recently.
    pub fn begin_session(
        &self,
        principal: &Principal,
        address: Option<IpAddr>,
    ) -> Result<(), LimitExceeded> {
        if self.memory() != Pressure::None {
            return self.counted(Err(LimitExceeded::for_places(
                Limit::Memory,
                SHORT_OF_MEMORY,
            )));
        }
        let rules = self.rules.load();
        let Some(handshakes) = &rules.handshakes else {
            return Ok(());
        };
        self.counted(match address {
            _ if is_proved(principal) => handshakes.take(principal.id()),
            Some(address) if rules.handshakes_everywhere || is_public(address) => {
                handshakes.take(&subnet(address))
            }
            _ => Ok(()),
        })
    }

    /// Counts a failed authentication. It never rejects a valid credential.
    ///
    /// # Errors
    ///
    /// That happened too often at its address.
    pub fn failed_proof(&self, address: Option<IpAddr>) -> Result<(), LimitExceeded> {
        let rules = self.rules.load();
        self.counted(match (&rules.failures, address) {
            (Some(failures), Some(address)) if rules.failures_everywhere || is_public(address) => {
                failures.take(&subnet(address))
            }
            _ => Ok(()),
        })
    }

    /// Checks that there is memory for one more large response, before the work for it begins.
    ///
    /// # Errors
    ///
    /// Too many responses wait to be read already.
    #[inline]
    pub fn check_response(&self, key: ShareKey) -> Result<(), LimitExceeded> {
        let checked = self.responses.check(key);
        if let Err(refused) = &checked {
            self.hits.count(refused.limit);
        }
        checked
    }

    /// Reserves memory for a response of about this size until it is read; none for a small one.
    ///
    /// # Errors
    ///
    /// Too many responses wait to be read already.
    #[inline]
    pub fn reserve_response(
        &self,
        key: ShareKey,
        bytes: usize,
    ) -> Result<Option<Reservation>, LimitExceeded> {
        if bytes < LARGE_BYTES {
            return Ok(None);
        }
        let reserved = self.responses.reserve(key, bytes);
        if let Err(refused) = &reserved {
            self.hits.count(refused.limit);
        }
        reserved
    }

    /// Counts a document as unread until it is sent, if it is large.
    ///
    /// # Errors
    ///
    /// Too many responses wait to be read already.
    pub fn hold_response(&self, key: ShareKey, document: Bytes) -> Result<Bytes, LimitExceeded> {
        Ok(match self.reserve_response(key, document.len())? {
            Some(reservation) => reservation.hold(document),
            None => document,
        })
    }

    /// The share of a client that has not said who it is.
    pub fn share_of_address(address: IpAddr) -> ShareKey {
        ShareKey::of_network(subnet(address))
    }

    /// A tool is about to be called. Returns its own limits, if it has any.
    ///
    /// # Errors
    ///
    /// It was called too often.
    #[inline]
    pub fn call(&self, tool: &str) -> Result<Option<Arc<ToolLimits>>, LimitExceeded> {
        if !self.limits_tools.load(Relaxed) {
            return Ok(None);
        }
        let Some(limits) = self.rules.load().tools.get(tool).cloned() else {
            return Ok(None);
        };
        self.counted(limits.rate.as_ref().map_or(Ok(()), Bucket::take))?;
        Ok(Some(limits))
    }

    /// Returns true if a call may begin without waiting. Without limits for the caller this is one load.
    #[inline]
    pub fn has_room(
        &self,
        principal: &Principal,
        address: Option<IpAddr>,
        tool: Option<&ToolLimits>,
    ) -> bool {
        if self.busy.load(Relaxed) == 0 {
            return true;
        }
        let rules = self.rules.load();
        rules.calls.is_free()
            && tool.is_none_or(|tool| tool.calls.as_ref().is_none_or(ConcurrencyLimit::is_free))
            && rules
                .places_of(principal, address)
                .is_none_or(|(keyed, key)| keyed.is_free(key))
    }

    /// All places that a call needs.
    pub fn turn(
        &self,
        principal: &Principal,
        address: Option<IpAddr>,
        tool: Option<&ToolLimits>,
    ) -> PermitRequest {
        let rules = self.rules.load();
        // The scarcest permit is taken first, so that no other permit is held while waiting for it.
        PermitRequest {
            places: [
                tool.and_then(|tool| tool.calls.clone()),
                rules
                    .places_of(principal, address)
                    .and_then(|(keyed, key)| keyed.of(key)),
                Some(rules.calls.clone()),
            ],
            hits: Arc::clone(&self.hits),
            memory: Arc::clone(&self.memory),
            busy: ActiveCall::new(&self.busy),
        }
    }

    fn counted(&self, asked: Result<(), LimitExceeded>) -> Result<(), LimitExceeded> {
        if let Err(refused) = &asked {
            self.hits.count(refused.limit);
        }
        asked
    }
}

/// Permits that a call holds or waits for.
#[derive(Debug)]
pub struct PermitRequest {
    places: [Option<ConcurrencyLimit>; 3],
    hits: Arc<LimitCounters>,
    /// A [`Pressure`].
    memory: Arc<AtomicU8>,
    busy: ActiveCall,
}

/// The places of one call, until this is dropped.
#[derive(Debug)]
pub struct CallPermits {
    _places: [Option<Permit>; 3],
    _busy: ActiveCall,
}

/// Counts a call for as long as it has places or waits for them.
#[derive(Debug)]
struct ActiveCall(Arc<AtomicUsize>);

impl ActiveCall {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for ActiveCall {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl PermitRequest {
    /// Waits for all of them.
    ///
    /// # Errors
    ///
    /// Too many wait already, it takes too long, or memory has become short meanwhile.
    pub async fn wait(self) -> Result<CallPermits, LimitExceeded> {
        let mut held = [const { None }; 3];
        for (held, places) in held.iter_mut().zip(self.places) {
            let Some(places) = places else {
                continue;
            };
            let place = match places.wait() {
                Ok(waiting) => waiting.await,
                Err(refused) => Err(refused),
            };
            *held = Some(place.inspect_err(|refused| self.hits.count(refused.limit))?);
        }
        if Pressure::of(self.memory.load(Relaxed)) == Pressure::Critical {
            self.hits.count(Limit::Memory);
            return Err(LimitExceeded::for_places(Limit::Memory, SHORT_OF_MEMORY));
        }
        Ok(CallPermits {
            _places: held,
            _busy: self.busy,
        })
    }

    /// Takes the free permits, for a call that runs already.
    pub fn take(self) -> CallPermits {
        let places = self.places;
        CallPermits {
            _places: places.map(|places| places.map(|places| places.take())),
            _busy: self.busy,
        }
    }
}

/// The share of a caller: that of its principal or, where no name was proved, that of its address.
#[inline]
pub fn share_of(principal: &Principal, address: Option<IpAddr>) -> ShareKey {
    match address {
        _ if is_proved(principal) => ShareKey::of_principal(principal.id()),
        Some(address) => ShareKey::of_network(subnet(address)),
        None => ShareKey::NONE,
    }
}

/// Returns true if a name identifies one caller.
#[inline]
fn is_proved(principal: &Principal) -> bool {
    !matches!(
        principal.kind(),
        PrincipalKind::Anonymous | PrincipalKind::Local
    )
}

#[cfg(test)]
mod tests;

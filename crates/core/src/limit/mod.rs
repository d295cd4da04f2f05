//! Rate and concurrency limits.
//!
//! Rates are token buckets (`bucket`); calls that run at once hold permits (`permits`). Each limit is asked where its key is
//! known: an address before anything else, a principal right after it was proved, a tool once its arguments are good.
//! A limit that is not configured costs one branch. Replicas can share rates (`rate_sync`).

mod active;
mod bucket;
mod config;
mod rate_sync;
mod limit_metrics;
mod memory;
mod concurrency;
mod permits;
mod rejected;
mod responses;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};

use arc_swap::ArcSwap;
use bytes::Bytes;

use crate::auth::{Principal, PrincipalKind};
use crate::net::{MemoryBudget, ShareKey};
use crate::telemetry::Metrics;
use active::ActiveLimits;
pub use active::ToolLimits;
use bucket::Bucket;
pub use bucket::{is_public, subnet};
use concurrency::ConcurrencyLimit;
pub use config::{LimitConfig, PrincipalRateConfig, RateConfig, ToolLimitConfig};
pub use limit_metrics::Limit;
pub use limit_metrics::{LimitCounters, SectionHits};
use memory::BodyMemory;
pub use memory::Pressure;
use permits::ActiveCall;
pub use permits::{CallPermits, PermitRequest};
pub use rate_sync::RateSync;
pub use rejected::LimitExceeded;
use responses::ResponseMemory;
pub use responses::{LARGE_BYTES, Reservation};

/// All limits on requests and calls, with counters of their hits.
///
/// Settings can change at run time: buckets and permits with unchanged settings keep their state.
#[derive(Debug)]
pub struct Limits {
    pub hits: Arc<LimitCounters>,
    rules: ArcSwap<ActiveLimits>,
    /// A [`Pressure`].
    memory: Arc<AtomicU8>,
    /// Memory of large bodies that have just arrived.
    bodies: BodyMemory,
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

/// The limits and the client address of a request: an extension of requests that other parts of the program serve.
#[derive(Clone, Debug)]
pub struct ClientLimits {
    pub limits: Arc<Limits>,
    pub address: Option<IpAddr>,
}

impl Limits {
    pub fn new(config: &LimitConfig, metrics: &Metrics) -> Self {
        let limits = Self {
            hits: Arc::new(LimitCounters::new(metrics)),
            rules: ArcSwap::from_pointee(ActiveLimits::new(config, None, None)),
            memory: Arc::default(),
            bodies: BodyMemory::default(),
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

    /// Shares the memory for large request bodies with the responses that sources receive.
    pub fn sharing(mut self, memory: MemoryBudget) -> Self {
        self.bodies = BodyMemory::of(memory);
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
            return Err(LimitExceeded::MEMORY);
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
        self.bodies.measured(&rules.config, in_use);
        let before = Pressure::of(self.memory.swap(found as u8, Relaxed));
        if before != found {
            self.note();
            found.record(limit, in_use);
        }
        found
    }

    /// Admits further bytes of a large request body. The memory in use is measured again once as many bytes have arrived as
    /// the free memory was sufficient for, since most of them may have been freed.
    ///
    /// # Errors
    ///
    /// The free memory is not sufficient for them.
    pub fn receive(
        &self,
        bytes: usize,
        in_use: impl FnOnce() -> Option<u64>,
    ) -> Result<(), LimitExceeded> {
        let bytes = bytes as u64;
        if self.bodies.take(bytes) {
            return Ok(());
        }
        self.look_at_memory(in_use);
        match self.bodies.take(bytes) {
            true => Ok(()),
            // The caller that rejects the request counts it.
            false => Err(LimitExceeded::MEMORY),
        }
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
            return self.counted(Err(LimitExceeded::MEMORY));
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
        self.counted(self.responses.check(key))
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
        self.counted(self.responses.reserve(key, bytes))
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
        self.counted(limits.rate.as_deref().map_or(Ok(()), Bucket::take))?;
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
        self.request([
            tool.and_then(|tool| tool.calls.clone()),
            rules
                .places_of(principal, address)
                .and_then(|(keyed, key)| keyed.of(key)),
            Some(rules.calls.clone()),
        ])
    }

    /// No places: for a call that runs nothing itself.
    pub fn no_turn(&self) -> PermitRequest {
        self.request([const { None }; 3])
    }

    fn request(&self, places: [Option<ConcurrencyLimit>; 3]) -> PermitRequest {
        PermitRequest {
            places,
            hits: Arc::clone(&self.hits),
            memory: Arc::clone(&self.memory),
            busy: ActiveCall::new(&self.busy),
        }
    }

    /// Counts a rejection.
    fn counted<T>(&self, asked: Result<T, LimitExceeded>) -> Result<T, LimitExceeded> {
        asked.inspect_err(|refused| self.hits.count(refused.limit))
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

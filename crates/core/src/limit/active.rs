//! The limits of a configuration.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::bucket::is_public;
use super::bucket::{Bucket, Keyed};
use super::concurrency;
use super::concurrency::ConcurrencyLimit;
use super::config::{LimitConfig, RateConfig};
use super::limit_metrics::Limit;
use super::rate_sync::{Consumed, Kind};
use super::{is_proved, share_of};
use crate::auth::Principal;
use crate::net::ShareKey;

/// Limits in force.
#[derive(Debug)]
pub(super) struct ActiveLimits {
    pub(super) config: LimitConfig,
    pub(super) server: Option<Arc<Bucket>>,
    pub(super) addresses: Option<Arc<Keyed>>,
    pub(super) principals: Option<Arc<Keyed>>,
    pub(super) handshakes: Option<Arc<Keyed>>,
    pub(super) failures: Option<Arc<Keyed>>,
    /// True if the two limits before apply to addresses that many clients may share.
    pub(super) handshakes_everywhere: bool,
    pub(super) failures_everywhere: bool,
    pub(super) tools: HashMap<Box<str>, Arc<ToolLimits>>,
    /// Names of tools, by what replicas call them among themselves.
    pub(super) tool_keys: HashMap<u64, Box<str>>,
    pub(super) calls: ConcurrencyLimit,
    pub(super) calls_of: Arc<concurrency::Keyed>,
    /// Concurrency of anonymous callers, by address.
    pub(super) calls_from: Arc<concurrency::Keyed>,
    /// True if the limit before applies to addresses that many clients may share.
    pub(super) calls_from_everywhere: bool,
}

/// The limits of one tool.
#[derive(Debug)]
pub struct ToolLimits {
    pub(super) rate: Option<Arc<Bucket>>,
    pub(super) calls: Option<ConcurrencyLimit>,
}

impl ActiveLimits {
    /// Creates the limits of a configuration and keeps unchanged ones. A shared seed lets replicas share rates.
    pub(super) fn new(config: &LimitConfig, before: Option<&Self>, seed: Option<u64>) -> Self {
        let seed = seed.filter(|_| config.shared);
        let before = before.filter(|before| before.config.shared == config.shared);
        let same_buckets = before.filter(|before| before.config.buckets == config.buckets);
        let keyed =
            |limit, of: fn(&LimitConfig) -> RateConfig, kept: fn(&Self) -> &Option<Arc<Keyed>>| {
                let rate = of(config);
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
        let keyed_calls =
            |limit, of: fn(&LimitConfig) -> usize, kept: fn(&Self) -> &Arc<concurrency::Keyed>| {
                let total = of(config);
                match same_queue.filter(|before| of(&before.config) == total) {
                    Some(before) => Arc::clone(kept(before)),
                    None => Arc::new(concurrency::Keyed::new(total, queue, limit)),
                }
            };
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
            addresses: keyed(Limit::AddressRate, |c| c.address, |r| &r.addresses),
            principals: keyed(
                Limit::PrincipalRate,
                |c| c.principal.rate(),
                |r| &r.principals,
            ),
            handshakes: keyed(Limit::Initialize, handshakes, |r| &r.handshakes),
            failures: keyed(Limit::FailedAuthentications, failures, |r| &r.failures),
            handshakes_everywhere: config.initialize_per_minute.is_some(),
            failures_everywhere: config.failed_authentications_per_minute.is_some(),
            tools: Self::tools(config, before, seed.is_some()),
            tool_keys: tool_keys.unwrap_or_default(),
            calls: match same_queue.filter(|before| before.config.calls() == config.calls()) {
                Some(before) => before.calls.clone(),
                None => ConcurrencyLimit::new(config.calls(), queue, Limit::Calls),
            },
            calls_of: keyed_calls(
                Limit::PrincipalCalls,
                |c| c.calls_per_principal,
                |r| &r.calls_of,
            ),
            calls_from: keyed_calls(Limit::AddressCalls, LimitConfig::calls_of_address, |r| {
                &r.calls_from
            }),
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
        let queue = config.waiting();
        let limits = config.tools.iter().map(|(name, tool)| {
            let known = before.and_then(|before| {
                let settings = before.config.tools.get(name)?;
                Some((settings, before.tools.get(name.as_str())?))
            });
            let rate = known.filter(|(settings, _)| settings.rate() == tool.rate());
            let has_same_queue = before.is_some_and(|before| before.config.waiting() == queue);
            let calls =
                known.filter(|(settings, _)| has_same_queue && settings.calls == tool.calls);
            let limits = ToolLimits {
                rate: match rate {
                    Some((_, limits)) => limits.rate.clone(),
                    None => Bucket::new(&tool.rate(), Limit::ToolRate, is_shared).map(Arc::new),
                },
                calls: match calls {
                    Some((_, limits)) => limits.calls.clone(),
                    None => {
                        let calls = tool.calls;
                        calls.map(|calls| ConcurrencyLimit::new(calls, queue, Limit::ToolCalls))
                    }
                },
            };
            (name.as_str().into(), Arc::new(limits))
        });
        limits.collect()
    }

    /// Returns the tokens taken from all buckets since the last call of this function.
    pub(super) fn taken(&self) -> Vec<Consumed> {
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
            let bucket = self.tools.get(name)?.rate.as_deref()?;
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
    pub(super) fn charge(&self, taken: Consumed) {
        match taken.kind {
            Kind::Server => {
                if let Some(bucket) = &self.server {
                    bucket.charge(taken.count);
                }
            }
            Kind::Tool => {
                let name = self.tool_keys.get(&taken.key);
                let tool = name.and_then(|name| self.tools.get(name));
                if let Some(bucket) = tool.and_then(|tool| tool.rate.as_deref()) {
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
    pub(super) fn places_of(
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

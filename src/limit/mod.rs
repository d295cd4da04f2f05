//! How often, and how many at once.
//!
//! Rates are token buckets (`bucket`); what runs at once has places (`places`). Each limit is asked where its key is
//! known: an address before anything else, a principal right after it was proved, a tool once its arguments are good.
//! What nobody limited costs a branch.

mod bucket;
mod config;
mod hits;
mod places;
mod refused;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

pub(crate) use bucket::{is_public, subnet};
pub use config::{LimitConfig, PrincipalRateConfig, RateConfig, ToolLimitConfig};
pub(crate) use hits::Hits;
pub use hits::Limit;
use places::{Place, Places};
pub(crate) use refused::Refused;

use crate::auth::{Principal, PrincipalKind};
use crate::telemetry::Metrics;
use bucket::{Bucket, Keyed};

/// All limits of a server that count requests and calls, and how often each limit was hit.
#[derive(Debug)]
pub(crate) struct Limits {
    pub(crate) hits: Arc<Hits>,
    server: Option<Bucket>,
    addresses: Option<Keyed>,
    principals: Option<Keyed>,
    handshakes: Option<Keyed>,
    failures: Option<Keyed>,
    /// Whether the two before apply to addresses that may stand for everybody.
    handshakes_everywhere: bool,
    failures_everywhere: bool,
    tools: HashMap<Box<str>, ToolLimits>,
    calls: Places,
    calls_of: places::Keyed,
}

/// The limits of one tool.
#[derive(Debug)]
pub(crate) struct ToolLimits {
    rate: Option<Bucket>,
    calls: Option<Places>,
}

impl Limits {
    pub(crate) fn new(config: &LimitConfig, metrics: &Metrics) -> Self {
        let hits = Arc::new(Hits::new(metrics));
        let keyed = |rate: &RateConfig, limit| Keyed::new(rate, config.buckets, limit);
        let queue = places::Queue {
            length: config.queue,
            patience: std::time::Duration::from_millis(config.queue_ms),
        };
        let tools = config.tools.iter().map(|(name, tool)| {
            let limits = ToolLimits {
                rate: Bucket::new(&tool.rate(), Limit::ToolRate),
                calls: tool
                    .calls
                    .map(|calls| Places::new(calls, queue, Limit::ToolCalls)),
            };
            (name.as_str().into(), limits)
        });
        Self {
            server: Bucket::new(&config.server, Limit::ServerRate),
            addresses: keyed(&config.address, Limit::AddressRate),
            principals: keyed(&config.principal.rate(), Limit::PrincipalRate),
            handshakes: keyed(
                &RateConfig::a_minute(config.initialize_per_minute.unwrap_or(600)),
                Limit::Initialize,
            ),
            failures: keyed(
                &RateConfig::a_minute(config.failed_authentications_per_minute.unwrap_or(10)),
                Limit::FailedAuthentications,
            ),
            handshakes_everywhere: config.initialize_per_minute.is_some(),
            failures_everywhere: config.failed_authentications_per_minute.is_some(),
            tools: tools.collect(),
            calls: Places::new(config.calls(), queue, Limit::Calls),
            calls_of: places::Keyed::new(config.calls_per_principal, queue, Limit::PrincipalCalls),
            hits,
        }
    }

    /// A request comes in from an address, and nobody knows yet who sent it.
    ///
    /// # Errors
    ///
    /// The address, or everybody together, asked too often.
    #[inline]
    pub(crate) fn arrive(&self, address: IpAddr) -> Result<(), Refused> {
        if self.server.is_none() && self.addresses.is_none() {
            return Ok(());
        }
        let asked = self
            .addresses
            .as_ref()
            .map_or(Ok(()), |addresses| addresses.take(&subnet(address)));
        let asked = asked.and_then(|()| self.server.as_ref().map_or(Ok(()), Bucket::take));
        self.counted(asked)
    }

    /// It is known who sent a request.
    ///
    /// # Errors
    ///
    /// The principal asked too often.
    #[inline]
    pub(crate) fn admit(&self, principal: &Principal) -> Result<(), Refused> {
        match &self.principals {
            Some(principals) if is_proved(principal) => {
                self.counted(principals.take(principal.id()))
            }
            _ => Ok(()),
        }
    }

    /// A session is about to begin. Those whose principal was not proved are told apart by their address.
    ///
    /// # Errors
    ///
    /// Too many began lately.
    pub(crate) fn begin_session(
        &self,
        principal: &Principal,
        address: Option<IpAddr>,
    ) -> Result<(), Refused> {
        let Some(handshakes) = &self.handshakes else {
            return Ok(());
        };
        self.counted(match address {
            _ if is_proved(principal) => handshakes.take(principal.id()),
            Some(address) if self.handshakes_everywhere || is_public(address) => {
                handshakes.take(&subnet(address))
            }
            _ => Ok(()),
        })
    }

    /// Somebody failed to prove who it is. Whoever can prove it is never kept from that.
    ///
    /// # Errors
    ///
    /// That happened too often at its address.
    pub(crate) fn failed_proof(&self, address: Option<IpAddr>) -> Result<(), Refused> {
        self.counted(match (&self.failures, address) {
            (Some(failures), Some(address)) if self.failures_everywhere || is_public(address) => {
                failures.take(&subnet(address))
            }
            _ => Ok(()),
        })
    }

    /// A tool is about to be called. Returns its own limits, if it has any.
    ///
    /// # Errors
    ///
    /// It was called too often.
    #[inline]
    pub(crate) fn call(&self, tool: &str) -> Result<Option<&ToolLimits>, Refused> {
        if self.tools.is_empty() {
            return Ok(None);
        }
        let Some(limits) = self.tools.get(tool) else {
            return Ok(None);
        };
        self.counted(limits.rate.as_ref().map_or(Ok(()), Bucket::take))?;
        Ok(Some(limits))
    }

    /// Whether a call may begin at once. For those who have no limit of their own that is one look.
    #[inline]
    pub(crate) fn has_room(&self, principal: &Principal, tool: Option<&ToolLimits>) -> bool {
        self.calls.is_free()
            && tool.is_none_or(|tool| tool.calls.as_ref().is_none_or(Places::is_free))
            && self.of_principal(principal).is_none_or(|p| p.is_free())
    }

    /// All places that a call needs.
    pub(crate) fn turn(&self, principal: &Principal, tool: Option<&ToolLimits>) -> Turn {
        // The scarcest first, so that nobody waits for it with a place that others could use.
        Turn {
            places: [
                tool.and_then(|tool| tool.calls.clone()),
                self.of_principal(principal),
                Some(self.calls.clone()),
            ],
            hits: Arc::clone(&self.hits),
        }
    }

    #[inline]
    fn of_principal(&self, principal: &Principal) -> Option<Places> {
        if is_proved(principal) {
            self.calls_of.of(principal.id())
        } else {
            None
        }
    }

    /// Names of tools that have limits.
    pub(crate) fn tools(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(|name| &**name)
    }

    fn counted(&self, asked: Result<(), Refused>) -> Result<(), Refused> {
        if let Err(refused) = &asked {
            self.hits.count(refused.limit);
        }
        asked
    }
}

/// What a call waits for before it begins, or has while it runs.
#[derive(Debug)]
pub(crate) struct Turn {
    places: [Option<Places>; 3],
    hits: Arc<Hits>,
}

/// The places of one call, until this is dropped.
pub(crate) type Held = [Option<Place>; 3];

impl Turn {
    /// Waits for all of them.
    ///
    /// # Errors
    ///
    /// Too many wait already, or it takes too long.
    pub(crate) async fn wait(self) -> Result<Held, Refused> {
        let mut held = Held::default();
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
        Ok(held)
    }

    /// Takes what is there, for a call that runs already.
    pub(crate) fn take(self) -> Held {
        self.places.map(|places| places.map(|places| places.take()))
    }
}

/// Whether a name stands for one caller, and not for everybody.
#[inline]
fn is_proved(principal: &Principal) -> bool {
    !matches!(
        principal.kind(),
        PrincipalKind::Anonymous | PrincipalKind::Local
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOMEBODY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const ANOTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn limited_by(config: &LimitConfig) -> Limits {
        Limits::new(config, &Metrics::default())
    }

    fn rate(per_second: f64, burst: u32) -> RateConfig {
        RateConfig { per_second, burst }
    }

    #[test]
    fn by_default_nobody_without_a_proof_is_limited_in_what_it_asks() {
        let limits = limited_by(&LimitConfig::default());
        for _ in 0..100_000 {
            assert!(limits.arrive(SOMEBODY).is_ok());
            assert!(limits.admit(&Principal::anonymous()).is_ok());
            assert!(limits.call("tool").is_ok());
        }
        assert!(limits.has_room(&Principal::anonymous(), None));
        assert!(
            Limit::ALL
                .into_iter()
                .all(|limit| limits.hits.of(limit) == 0)
        );
    }

    #[test]
    fn addresses_are_told_apart_and_all_together_have_a_limit_too() {
        let limits = limited_by(&LimitConfig {
            address: rate(0.001, 2),
            server: rate(0.001, 3),
            ..LimitConfig::default()
        });
        let asked = [SOMEBODY, SOMEBODY, SOMEBODY, ANOTHER, ANOTHER]
            .map(|address| limits.arrive(address).err().map(|refused| refused.limit));
        let (address, server) = (Some(Limit::AddressRate), Some(Limit::ServerRate));
        assert_eq!(asked, [None, None, address, None, server]);
        assert_eq!(limits.hits.of(Limit::AddressRate), 1);
        assert_eq!(limits.hits.of(Limit::ServerRate), 1);
    }

    #[test]
    fn sessions_of_an_address_begin_at_a_rate() {
        let limits = limited_by(&LimitConfig {
            initialize_per_minute: Some(3),
            ..LimitConfig::default()
        });
        let anonymous = Principal::anonymous();
        let begin = |address| limits.begin_session(&anonymous, address);
        assert!((0..3).all(|_| begin(Some(SOMEBODY)).is_ok()));
        let refused = begin(Some(SOMEBODY)).expect_err("too many");
        assert_eq!(refused.limit.setting(), "limits.initialize_per_minute");
        assert!(refused.retry_after_seconds() <= 20);
        assert!(begin(Some(ANOTHER)).is_ok());
        assert!(
            (0..100).all(|_| begin(None).is_ok()),
            "no socket, no address"
        );
    }

    #[test]
    fn who_fails_to_prove_itself_too_often_is_told_to_wait() {
        let limits = limited_by(&LimitConfig::default());
        assert!((0..10).all(|_| limits.failed_proof(Some(SOMEBODY)).is_ok()));
        let refused = limits.failed_proof(Some(SOMEBODY)).expect_err("too often");
        assert_eq!(refused.limit, Limit::FailedAuthentications);
        assert!(limits.failed_proof(Some(ANOTHER)).is_ok());
    }

    #[test]
    fn addresses_that_may_be_a_balancer_are_limited_only_if_somebody_says_so() {
        let balancer = Some(IpAddr::from([10, 0, 0, 1]));
        let anonymous = Principal::anonymous();
        let limits = limited_by(&LimitConfig::default());
        for _ in 0..10_000 {
            assert!(limits.failed_proof(balancer).is_ok());
            assert!(limits.begin_session(&anonymous, balancer).is_ok());
        }
        let limits = limited_by(&LimitConfig {
            initialize_per_minute: Some(1),
            failed_authentications_per_minute: Some(1),
            ..LimitConfig::default()
        });
        assert!(limits.failed_proof(balancer).is_ok() && limits.failed_proof(balancer).is_err());
        let begin = || limits.begin_session(&anonymous, balancer);
        assert!(begin().is_ok() && begin().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_has_a_place_of_its_tool_and_of_the_server() {
        let tool = ToolLimitConfig {
            calls: Some(1),
            ..ToolLimitConfig::default()
        };
        let limits = limited_by(&LimitConfig {
            tools: [("slow".to_owned(), tool)].into(),
            calls: Some(2),
            queue: 0,
            ..LimitConfig::default()
        });
        let anonymous = Principal::anonymous();
        let tool = limits.call("slow").expect("no rate");
        assert!(limits.has_room(&anonymous, tool));
        let held = limits.turn(&anonymous, tool).take();
        assert!(!limits.has_room(&anonymous, tool) && limits.has_room(&anonymous, None));
        let refused = limits.turn(&anonymous, tool).wait().await;
        assert_eq!(refused.expect_err("none is left").limit, Limit::ToolCalls);
        let other = limits
            .turn(&anonymous, None)
            .wait()
            .await
            .expect("one is left");
        let refused = limits.turn(&anonymous, None).wait().await;
        assert_eq!(refused.expect_err("none is left").limit, Limit::Calls);
        drop((held, other));
        assert!(limits.turn(&anonymous, tool).wait().await.is_ok());
        assert_eq!(limits.hits.of(Limit::ToolCalls), 1);
        assert_eq!(limits.hits.of(Limit::Calls), 1);
    }

    #[test]
    fn a_tool_has_the_rate_that_was_set_for_it() {
        let tool = ToolLimitConfig {
            per_second: 0.001,
            burst: 1,
            calls: None,
        };
        let limits = limited_by(&LimitConfig {
            tools: [("slow".to_owned(), tool)].into(),
            ..LimitConfig::default()
        });
        assert!(limits.call("slow").is_ok());
        assert_eq!(
            limits.call("slow").expect_err("once").limit,
            Limit::ToolRate
        );
        assert!((0..100).all(|_| limits.call("fast").is_ok()));
    }
}

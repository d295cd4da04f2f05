//! What the benchmarks measure here. No part of the interface: anything here may change at any time.

use std::fmt;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use http::HeaderValue;

use crate::auth::Principal;
use crate::credentials::{OnBehalfOf, OnBehalfOfConfig};
use crate::telemetry::Metrics;

/// A caller's token that was exchanged before (`auth.on_behalf_of`).
pub struct CachedExchange {
    exchange: OnBehalfOf,
    caller: Principal,
}

impl CachedExchange {
    /// Caches the exchange of a token of `bytes` characters.
    pub fn new(bytes: usize) -> Self {
        let config = OnBehalfOfConfig {
            token_url: "https://issuer.example/token".to_owned(),
            client_id: "longshore".to_owned(),
            ..OnBehalfOfConfig::default()
        };
        let exchange = OnBehalfOf::new(&config, ("bench", None), &Metrics::default());
        let exchange =
            exchange.unwrap_or_else(|problem| panic!("the settings are valid: {problem}"));
        let token = "t".repeat(bytes);
        exchange.remember(&token, HeaderValue::from_static("Bearer exchanged"));
        Self {
            exchange,
            caller: Principal::new("ann").with_access_token(token),
        }
    }

    /// Returns the header for the other server, as a call gets it.
    pub fn header(&self) -> HeaderValue {
        let token = pin!(self.exchange.token(&self.caller));
        match token.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(header)) => header,
            other => panic!("the token is cached: {other:?}"),
        }
    }
}

impl fmt::Debug for CachedExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedExchange").finish_non_exhaustive()
    }
}

//! Time limits of a request.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::super::{FetchError, Phase};

/// Time limits for each part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Looking up addresses; and then connecting to one of them. Default: 3 s each.
    pub connect: Duration,
    /// Agreeing on keys. Default: 5 s.
    pub tls: Duration,
    /// Limit from then until the response begins. Default: 30 s.
    pub first_byte: Duration,
    /// Limit between two parts of the response. Default: 60 s.
    pub idle: Duration,
    /// Everything together, redirects included. Default: 60 s; `None` sets no such limit, for streams.
    pub total: Option<Duration>,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            tls: Duration::from_secs(5),
            first_byte: Duration::from_secs(30),
            idle: Duration::from_secs(60),
            total: Some(Duration::from_secs(60)),
        }
    }
}

impl Deadlines {
    /// The defaults, with another limit for everything together, and no part longer than that.
    pub fn total(total: Duration) -> Self {
        let default = Self::default();
        Self {
            connect: default.connect.min(total),
            tls: default.tls.min(total),
            first_byte: total,
            idle: total,
            total: Some(total),
        }
    }

    /// Waits for a future that completes when the response begins. Connecting has its own limits, in addition to that of
    /// the response. `total` is the end of the whole request, with its limit.
    pub(in super::super) async fn until_head<F: Future>(
        &self,
        now: Instant,
        total: Option<(Instant, Duration)>,
        host: &str,
        response: F,
    ) -> Result<F::Output, FetchError> {
        let head = now + self.connect * 2 + self.tls + self.first_byte;
        let (deadline, phase, limit) = match total {
            Some((total, limit)) if total <= head => (total, Phase::Total, limit),
            _ => (head, Phase::FirstByte, self.first_byte),
        };
        timeout_at(deadline, response)
            .await
            .map_err(|_| FetchError::Timeout {
                host: host.to_owned(),
                phase,
                limit,
            })
    }
}

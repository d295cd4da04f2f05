//! Bound on guesses of client secrets (RFC 6749, section 2.3.1).

use quick_cache::sync::Cache;
use tokio::time::{Duration, Instant};

use super::client::Client;
use super::error::OAuthError;
use crate::limit::{ClientLimits, Limit, subnet};

/// Maximum number of addresses that wait at the same time.
const WAITING_MAX: usize = 10_000;

/// Addresses whose attempts failed too often, and until when they wait.
#[derive(Debug)]
pub(super) struct SecretAttempts(Cache<u128, Instant>);

impl SecretAttempts {
    pub(super) fn new() -> Self {
        Self(Cache::new(WAITING_MAX))
    }

    /// Checks the secret that a request of a client shows.
    ///
    /// Secrets of an address that waits are not compared, since the response would tell the correct guess.
    ///
    /// # Errors
    ///
    /// `invalid_client`, or 429 after too many failures at the address.
    pub(super) fn check(
        &self,
        client: &Client,
        secret: Option<&str>,
        limits: Option<&ClientLimits>,
    ) -> Result<(), OAuthError> {
        if !client.is_confidential() {
            return Ok(());
        }
        let Some((limits, address)) = limits.and_then(|limits| Some((limits, limits.address?)))
        else {
            return client.check_secret(secret);
        };
        let (now, key) = (Instant::now(), subnet(address));
        if let Some(until) = self.0.get(&key).filter(|until| now < *until) {
            limits.limits.hits.count(Limit::FailedAuthentications);
            return Err(OAuthError::limited((until - now).as_secs() + 1));
        }
        let checked = client.check_secret(secret);
        if checked.is_err()
            && let Err(refused) = limits.limits.failed_proof(Some(address))
        {
            let seconds = refused.retry_after_seconds();
            self.0.insert(key, now + Duration::from_secs(seconds));
            return Err(OAuthError::limited(seconds));
        }
        checked
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;

    use super::*;
    use crate::auth::FacadeClientConfig;
    use crate::limit::{LimitConfig, Limits};
    use crate::telemetry::Metrics;

    #[tokio::test(start_paused = true)]
    async fn who_guesses_secrets_waits_and_others_do_not() {
        let config = FacadeClientConfig {
            id: "console".to_owned(),
            secret: Some("secret-of-the-console".to_owned().into()),
            ..FacadeClientConfig::default()
        };
        let client = Client::configured(&config);
        let config = LimitConfig {
            failed_authentications_per_minute: Some(2),
            ..LimitConfig::default()
        };
        let limits = Arc::new(Limits::new(&config, &Metrics::default()));
        let attempts = SecretAttempts::new();
        let status = |last: u8, secret: &str| {
            let limits = ClientLimits {
                limits: Arc::clone(&limits),
                address: Some(IpAddr::from([198, 51, 100, last])),
            };
            let checked = attempts.check(&client, Some(secret), Some(&limits));
            checked.map_or_else(|error| error.status.as_u16(), |()| 200)
        };
        assert_eq!(status(1, "secret-of-the-console"), 200);
        assert_eq!([0; 3].map(|_| status(1, "guess")), [401, 401, 429]);
        // The response does not tell the correct guess.
        assert_eq!(status(1, "secret-of-the-console"), 429);
        assert_eq!(limits.hits.of(Limit::FailedAuthentications), 2);
        assert_eq!(status(2, "secret-of-the-console"), 200);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(status(1, "secret-of-the-console"), 200);
    }
}

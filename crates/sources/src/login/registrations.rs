//! Clients that this server has registered with issuers (RFC 7591), so that later logins use them again.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use crate::net::Mutex;

/// Time for which a registration is used. Issuers remove clients that they consider unused.
const LIFE: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of remembered registrations. The issuer is named by the server, which could always name another.
const REGISTRATIONS_MAX: usize = 16;

/// Number of logins that may begin with a client while none is successful. An issuer that has removed a client may show a page
/// of its own instead of sending users back.
const UNPROVEN_MAX: u32 = 3;

/// OAuth client identity.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) id: String,
    pub(super) secret: Option<String>,
    pub(super) in_form: bool,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Registration {
    identity: Identity,
    until: Instant,
    /// Number of logins that have begun since one was successful.
    unproven: u32,
}

/// Registered clients by issuer and redirect URI.
#[derive(Debug, Default)]
pub(crate) struct Registrations(Mutex<HashMap<(String, String), Registration>>);

impl Registrations {
    pub(super) fn get(&self, issuer: &str, redirect: &str) -> Option<Identity> {
        let key = (issuer.to_owned(), redirect.to_owned());
        let mut all = self.0.lock();
        let known = all.get_mut(&key)?;
        if known.until <= Instant::now() || UNPROVEN_MAX <= known.unproven {
            all.remove(&key);
            return None;
        }
        known.unproven += 1;
        Some(known.identity.clone())
    }

    /// Remembers a registration. `expires_in` is the remaining life of the client's secret; `None` if it does not expire.
    pub(super) fn put(
        &self,
        issuer: &str,
        redirect: &str,
        identity: Identity,
        expires_in: Option<Duration>,
    ) {
        let until = Instant::now() + expires_in.map_or(LIFE, |life| life.min(LIFE));
        let mut known = self.0.lock();
        if known.len() == REGISTRATIONS_MAX {
            known.clear();
        }
        let registration = Registration {
            identity,
            until,
            unproven: 0,
        };
        known.insert((issuer.to_owned(), redirect.to_owned()), registration);
    }

    /// Records that a login with a client was successful.
    pub(crate) fn proven(&self, client_id: &str) {
        for known in self.0.lock().values_mut() {
            if known.identity.id == client_id {
                known.unproven = 0;
            }
        }
    }

    /// Forgets a client that an issuer may no longer accept.
    pub(crate) fn forget(&self, client_id: &str) {
        self.0
            .lock()
            .retain(|_, known| known.identity.id != client_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_without_successful_logins_is_registered_again() {
        let registrations = Registrations::default();
        let identity = Identity {
            id: "a".to_owned(),
            secret: None,
            in_form: false,
        };
        registrations.put("https://a", "r", identity, None);
        let begins = || registrations.get("https://a", "r").is_some();
        assert!(begins() && begins());
        registrations.proven("a");
        assert!(begins() && begins() && begins());
        assert!(!begins());
    }

    #[tokio::test(start_paused = true)]
    async fn a_registration_is_used_for_a_day_or_as_long_as_its_secret() {
        let registrations = Registrations::default();
        let identity = |id: &str| Identity {
            id: id.to_owned(),
            secret: None,
            in_form: false,
        };
        let hour = Duration::from_secs(3600);
        registrations.put("https://a", "r", identity("a"), None);
        registrations.put("https://b", "r", identity("b"), Some(hour));
        let get = |issuer| registrations.get(issuer, "r").map(|identity| identity.id);
        assert_eq!(get("https://a").as_deref(), Some("a"));
        assert_eq!(get("https://b").as_deref(), Some("b"));
        assert_eq!(registrations.get("https://a", "other"), None);
        tokio::time::advance(hour).await;
        assert_eq!(get("https://b"), None);
        assert_eq!(get("https://a").as_deref(), Some("a"));
        tokio::time::advance(LIFE).await;
        assert_eq!(get("https://a"), None);
        registrations.put("https://a", "r", identity("a"), None);
        registrations.forget("a");
        assert_eq!(get("https://a"), None);
        for number in 0..=REGISTRATIONS_MAX {
            registrations.put(&number.to_string(), "r", identity("x"), None);
        }
        assert!(registrations.0.lock().len() <= REGISTRATIONS_MAX);
    }
}

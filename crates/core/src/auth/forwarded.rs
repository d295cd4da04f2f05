//! Authentication by a user name that a trusted proxy forwards.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};

use super::certificate::CertificatePatterns;
use super::config::{AuthSetupError, ForwardedConfig};
use super::principal::Facts;
use super::{AuthError, AuthMethod, AuthOutcome, Credentials, Principal, PrincipalKind};
use crate::net::TrustedProxies;

/// Maximum length of a user name, in bytes.
const NAME_MAX_BYTES: usize = 256;
/// Maximum number of groups.
const GROUPS_MAX: usize = 256;

/// The method that reads the user header of a proxy. Headers from other peers are ignored.
#[derive(Debug)]
pub struct Forwarded {
    user: HeaderName,
    groups: Option<HeaderName>,
    trusted: TrustedProxies,
    /// Certificate names of trusted proxies.
    certificates: Option<CertificatePatterns>,
}

impl Forwarded {
    /// Returns `None` if no header is configured.
    pub fn new(
        config: &ForwardedConfig,
        trusted: &TrustedProxies,
    ) -> Result<Option<Self>, AuthSetupError> {
        let Some(user) = &config.user_header else {
            return Ok(None);
        };
        let certificates =
            CertificatePatterns::read("auth.forwarded.certificates", &config.certificates)?;
        if trusted.is_empty() && certificates.is_none() {
            return Err(AuthSetupError::ForwardedByNobody);
        }
        let name = |text: &String| {
            let name = text.parse::<HeaderName>().ok();
            // Requests with an underscore in a header name are rejected before authentication.
            name.filter(|name| !name.as_str().contains('_'))
                .ok_or_else(|| AuthSetupError::Header { name: text.clone() })
        };
        Ok(Some(Self {
            user: name(user)?,
            groups: config.groups_header.as_ref().map(name).transpose()?,
            trusted: trusted.clone(),
            certificates,
        }))
    }

    fn user(&self, presented: &Credentials<'_>) -> Result<Option<Principal>, AuthError> {
        let Some(name) = presented.header(&self.user)? else {
            return Ok(None);
        };
        let name = name.to_str().map_err(|_| BAD_NAME)?.trim();
        if name.is_empty() || NAME_MAX_BYTES < name.len() {
            return Err(BAD_NAME);
        }
        let principal = Principal::of(PrincipalKind::Forwarded, &format!("user:{name}"), &[name]);
        let header = self.groups.as_ref();
        let groups = header.map(|name| presented.header(name)).transpose()?;
        let groups = groups.flatten().map_or(Ok(""), HeaderValue::to_str);
        let groups = groups.map_err(|_| BAD_NAME)?;
        let groups = groups.split(',').map(str::trim).filter(|g| !g.is_empty());
        Ok(Some(principal.with_facts(Facts {
            groups: groups.take(GROUPS_MAX).map(Into::into).collect(),
            ..Facts::default()
        })))
    }
}

const BAD_NAME: AuthError = AuthError::Malformed("the forwarded name of the user is not legible");

impl AuthMethod for Forwarded {
    fn judge(&self, presented: &Credentials<'_>) -> AuthOutcome {
        let by_address = presented
            .peer()
            .is_some_and(|peer| self.trusted.contains(peer));
        let by_certificate = || {
            let names = self.certificates.as_ref()?;
            let certificate = presented.certificate()?;
            Some(names.fit(certificate))
        };
        if !by_address && by_certificate() != Some(true) {
            return AuthOutcome::Absent;
        }
        match self.user(presented) {
            Ok(Some(principal)) => AuthOutcome::Proven(Arc::new(principal)),
            Ok(None) => AuthOutcome::Absent,
            Err(error) => AuthOutcome::Refused(error),
        }
    }

    fn headers(&self) -> Vec<HeaderName> {
        let user = Some(self.user.clone());
        user.into_iter().chain(self.groups.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use http::{HeaderMap, HeaderValue};

    use super::*;

    fn proxy() -> Forwarded {
        let config = ForwardedConfig {
            user_header: Some("X-Forwarded-User".to_owned()),
            groups_header: Some("X-Forwarded-Groups".to_owned()),
            ..ForwardedConfig::default()
        };
        let trusted = TrustedProxies::from_iter(["10.0.0.0/8".parse().expect("a network")]);
        Forwarded::new(&config, &trusted)
            .expect("sound")
            .expect("configured")
    }

    fn judged(peer: Option<[u8; 4]>, pairs: &[(&'static str, &str)]) -> AuthOutcome {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(
                *name,
                HeaderValue::from_bytes(value.as_bytes()).expect("a value"),
            );
        }
        let peer = peer.map(IpAddr::from);
        let presented = Credentials::read(&headers, None, peer, 0).expect("well-formed");
        proxy().judge(&presented)
    }

    #[test]
    fn only_a_trusted_proxy_can_say_who_the_user_is() {
        let alice = [
            ("x-forwarded-user", "alice"),
            ("x-forwarded-groups", "a, b,,"),
        ];
        match judged(Some([10, 1, 2, 3]), &alice) {
            AuthOutcome::Proven(principal) => {
                assert_eq!(principal.name(), "user:alice");
                // It has no token, and APIs must not take it for the subject of one.
                assert_eq!(principal.subject(), None);
                assert_eq!(principal.groups().collect::<Vec<_>>(), ["a", "b"]);
            }
            other => panic!("{other:?}"),
        }
        for peer in [None, Some([11, 1, 2, 3]), Some([127, 0, 0, 1])] {
            assert!(
                matches!(judged(peer, &alice), AuthOutcome::Absent),
                "{peer:?}"
            );
        }
        assert!(matches!(
            judged(Some([10, 0, 0, 1]), &[]),
            AuthOutcome::Absent
        ));
    }

    #[test]
    fn names_that_may_mean_several_users_are_refused() {
        let long = "x".repeat(NAME_MAX_BYTES + 1);
        for pairs in [
            &[("x-forwarded-user", "alice"), ("x-forwarded-user", "bob")][..],
            &[("x-forwarded-user", "")],
            &[("x-forwarded-user", "\u{e9}")],
            &[("x-forwarded-user", &long)],
            &[
                ("x-forwarded-user", "a"),
                ("x-forwarded-groups", "a"),
                ("x-forwarded-groups", "b"),
            ],
        ] {
            let judged = judged(Some([10, 0, 0, 1]), pairs);
            assert!(
                matches!(judged, AuthOutcome::Refused(AuthError::Malformed(_))),
                "{judged:?}"
            );
        }
    }

    #[test]
    fn a_header_without_trusted_proxies_is_a_mistake() {
        let config = ForwardedConfig {
            user_header: Some("x-forwarded-user".to_owned()),
            ..ForwardedConfig::default()
        };
        let error = Forwarded::new(&config, &TrustedProxies::default()).expect_err("refused");
        assert!(
            error.to_string().contains("http.trusted_proxies"),
            "{error}"
        );
    }
}

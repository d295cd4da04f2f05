//! Authentication by TLS client certificate.

use std::sync::Arc;

use quick_cache::sync::Cache;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::client_certificate::{CertificateName, ClientCertificate};
use super::config::AuthSetupError;
use super::credential_cache::{Cacheable, FOREVER};
use super::principal::Facts;
use super::{AuthMethod, AuthOutcome, Credentials, Principal, PrincipalKind};
use crate::net::NamePatterns;

/// Client certificate authentication, if this server terminates TLS.
///
/// ```toml
/// [http.tls]
/// certificate = "/etc/tls/tls.crt"
/// key = "/etc/tls/tls.key"
/// client_ca = "/etc/tls/clients.crt"
///
/// [auth.certificate]
/// name = "uri"
/// ```
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CertificateConfig {
    /// Part of the certificate that names the principal: `common_name`, `subject`, `uri`, `dns`, `email` or
    /// `fingerprint`. The principal is `cert:` and this name; organizational units become groups. If unset,
    /// certificates do not authenticate.
    pub name: Option<CertificateName>,
    /// Accepted names, with `*` and `?` as wildcards. If empty, every certificate that the CA certificates verify is
    /// accepted.
    #[serde(deserialize_with = "crate::environment::list")]
    pub names: Vec<String>,
}

/// Patterns of certificate names, each with its kind: `uri:spiffe://example.org/*`, `dns:proxy.example.com`.
///
/// The kind is required because CAs do not verify all kinds alike: a holder may choose its common name but not its
/// URI.
#[derive(Debug)]
pub(super) struct CertificatePatterns(Vec<(CertificateName, NamePatterns)>);

impl CertificatePatterns {
    /// Returns `None` if there are no patterns.
    pub(super) fn read(setting: &str, patterns: &[String]) -> Result<Option<Self>, AuthSetupError> {
        let mut all = Vec::new();
        for pattern in patterns {
            let known = pattern.split_once(':').and_then(|(word, name)| {
                let mut kinds = CertificateName::ALL.iter();
                let (_, kind) = kinds.find(|(known, _)| *known == word)?;
                (!name.is_empty()).then_some((*kind, name))
            });
            let Some((kind, name)) = known else {
                return Err(AuthSetupError::CertificateKind {
                    setting: setting.to_owned(),
                    name: pattern.clone(),
                });
            };
            all.push((kind, name_globs(setting, &[name])?));
        }
        Ok((!all.is_empty()).then_some(Self(all)))
    }

    /// Returns true if a pattern matches the certificate.
    pub(super) fn fit(&self, certificate: &ClientCertificate) -> bool {
        self.0
            .iter()
            .any(|(kind, names)| certificate.has(*kind, names))
    }
}

/// Compiles name patterns with `*` and `?`.
fn name_globs(setting: &str, names: &[impl AsRef<str>]) -> Result<NamePatterns, AuthSetupError> {
    NamePatterns::new(names.iter().map(AsRef::as_ref)).map_err(|error| {
        AuthSetupError::CertificateName {
            setting: setting.to_owned(),
            name: error.pattern,
        }
    })
}

/// The certificate authentication method.
#[derive(Debug)]
pub(super) struct Certificates {
    name: CertificateName,
    /// Accepted names. Empty if all are.
    names: NamePatterns,
    /// Principals by fingerprint: each request of a connection has the same certificate.
    known: Cache<Box<str>, Arc<Principal>>,
}

/// Maximum number of cached principals.
const KNOWN_MAX: usize = 4096;

impl Certificates {
    /// Returns `None` if certificates are not an authentication method.
    pub(super) fn new(config: &CertificateConfig) -> Result<Option<Self>, AuthSetupError> {
        let Some(name) = config.name else {
            return Ok(None);
        };
        Ok(Some(Self {
            name,
            names: name_globs("auth.certificate.names", &config.names)?,
            known: Cache::new(KNOWN_MAX),
        }))
    }

    fn principal(&self, certificate: &ClientCertificate) -> AuthOutcome {
        if let Some(known) = self.known.get(certificate.fingerprint()) {
            return AuthOutcome::Proven(known);
        }
        let Some(name) = certificate.name(self.name) else {
            return AuthOutcome::refused(
                "the client's certificate does not say the name that is asked for here",
            );
        };
        if !self.names.is_empty() && !self.names.is_match(name) {
            return AuthOutcome::refused(
                "the subject of the client certificate is not allowed here",
            );
        }
        let principal = Principal::of(PrincipalKind::Certificate, &format!("cert:{name}"), &[name]);
        let principal = Arc::new(principal.with_facts(Facts {
            groups: certificate.units().map(Box::from).collect(),
            ..Facts::default()
        }));
        self.known
            .insert(certificate.fingerprint().into(), Arc::clone(&principal));
        AuthOutcome::Proven(principal)
    }
}

impl AuthMethod for Certificates {
    fn judge(&self, presented: &Credentials<'_>) -> AuthOutcome {
        match presented.certificate() {
            // A credential in the request takes precedence over the certificate of its connection.
            Some(certificate) if !presented.is_something() => self.principal(certificate),
            _ => AuthOutcome::Absent,
        }
    }
}

/// A connection has shown its certificate when it began.
impl Cacheable for Certificates {
    fn holds_until(&self, _: &Credentials<'_>) -> Option<u64> {
        Some(FOREVER)
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use http::HeaderMap;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    const HOLDER: &str = include_str!("../../../../tests/it/tls/holder.crt");
    const TWO_NAMES: &str = include_str!("../../../../tests/it/tls/two-names.crt");

    fn read(pem: &str) -> ClientCertificate {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
        ClientCertificate::read(&der).expect("legible")
    }

    fn judged(config: &CertificateConfig, pem: &str, headers: &HeaderMap) -> AuthOutcome {
        let certificate = read(pem);
        let presented = Credentials::read(headers, None, None, 0).expect("well-formed");
        let presented = presented.with_certificate(Some(&certificate));
        let proof = Certificates::new(config).expect("sound").expect("on");
        proof.judge(&presented)
    }

    fn named_by(name: CertificateName) -> CertificateConfig {
        CertificateConfig {
            name: Some(name),
            ..CertificateConfig::default()
        }
    }

    #[test]
    fn what_a_certificate_says_of_its_holder_is_read() {
        let certificate = read(HOLDER);
        assert_eq!(
            certificate.subject(),
            "CN=Ada\\, the holder,OU=dev,OU=ops,O=Example"
        );
        assert_eq!(certificate.common_name(), Some("Ada, the holder"));
        assert_eq!(certificate.units().collect::<Vec<_>>(), ["ops", "dev"]);
        assert_eq!(
            certificate.dns_names().collect::<Vec<_>>(),
            ["ada.example.org", "b.example.org"]
        );
        assert_eq!(
            certificate.uris().collect::<Vec<_>>(),
            ["spiffe://example.org/ada"]
        );
        assert_eq!(
            certificate.emails().collect::<Vec<_>>(),
            ["ada@example.org"]
        );
        assert_eq!(certificate.fingerprint().len(), 64);
        assert_eq!(ClientCertificate::read(b"nothing"), None);
    }

    #[test]
    fn the_holder_is_called_by_the_name_that_was_asked_for() {
        for (name, principal) in [
            (CertificateName::CommonName, "cert:Ada, the holder"),
            (CertificateName::Uri, "cert:spiffe://example.org/ada"),
            (CertificateName::Dns, "cert:ada.example.org"),
            (CertificateName::Email, "cert:ada@example.org"),
            (
                CertificateName::Subject,
                "cert:CN=Ada\\, the holder,OU=dev,OU=ops,O=Example",
            ),
        ] {
            match judged(&named_by(name), HOLDER, &HeaderMap::new()) {
                AuthOutcome::Proven(found) => {
                    assert_eq!(found.name(), principal);
                    assert_eq!(found.kind(), PrincipalKind::Certificate);
                    assert_eq!(found.groups().collect::<Vec<_>>(), ["ops", "dev"]);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn who_has_no_such_name_or_several_or_another_is_not_let_in() {
        let none = HeaderMap::new();
        for name in [CertificateName::Uri, CertificateName::CommonName] {
            let judged = judged(&named_by(name), TWO_NAMES, &none);
            assert!(matches!(judged, AuthOutcome::Refused(_)), "{judged:?}");
        }
        let only = |name: &str| CertificateConfig {
            names: vec![name.to_owned()],
            ..named_by(CertificateName::Uri)
        };
        let others = judged(&only("spiffe://example.com/*"), HOLDER, &none);
        assert!(matches!(others, AuthOutcome::Refused(_)), "{others:?}");
        let ours = judged(&only("spiffe://example.org/*"), HOLDER, &none);
        assert!(matches!(ours, AuthOutcome::Proven(_)), "{ours:?}");
        let nonsense = Certificates::new(&only("["));
        assert!(matches!(
            nonsense,
            Err(AuthSetupError::CertificateName { .. })
        ));
    }

    #[test]
    fn a_credential_that_was_sent_says_more_than_the_connection() {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", "Bearer abc".parse().expect("a value"));
        let judged = judged(&named_by(CertificateName::Uri), HOLDER, &headers);
        assert!(matches!(judged, AuthOutcome::Absent), "{judged:?}");
    }
}

//! Checks certificates and TLS versions.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, ProtocolVersion, RootCertStore,
    SignatureScheme, SupportedProtocolVersion,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::super::report::{Check, Finding, Report};
use super::wire::DiagnosedServer;
use crate::auth::CertificateValidity;
use crate::environment::unix_seconds;
use crate::protocol::counted;

const AREA: &str = "tls";

/// Data from a handshake.
pub(super) struct Handshake {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) version: Option<ProtocolVersion>,
    pub(super) speaks_http2: bool,
}

/// Public CA certificates, and the given ones, each file with its option or variable.
pub(super) fn roots(own: &[(&str, Vec<u8>)]) -> Result<Arc<RootCertStore>, String> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    for (origin, pem) in own {
        let before = roots.len();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| format!("{origin}: {error}"))?;
            roots
                .add(certificate)
                .map_err(|error| format!("{origin}: {error}"))?;
        }
        if roots.len() == before {
            return Err(format!(
                "{origin}: the file contains no certificate in PEM form"
            ));
        }
    }
    Ok(Arc::new(roots))
}

/// A TLS client that accepts any certificate: an invalid one is a finding and must not end the checks.
pub(crate) fn examining(
    versions: &[&'static SupportedProtocolVersion],
    with_http2: bool,
) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(default_provider());
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        .with_no_client_auth();
    config.alpn_protocols = if with_http2 {
        vec![b"h2".to_vec(), b"http/1.1".to_vec()]
    } else {
        vec![b"http/1.1".to_vec()]
    };
    Ok(Arc::new(config))
}

/// Accepts every certificate, but verifies handshake signatures.
#[derive(Debug)]
struct Anybody(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Verifies a chain at a point in time.
fn verify(
    chain: &[CertificateDer<'_>],
    host: &str,
    roots: &Arc<RootCertStore>,
    at: UnixTime,
) -> Result<(), Error> {
    let Some((end_entity, intermediates)) = chain.split_first() else {
        return Err(Error::NoCertificatesPresented);
    };
    let name = ServerName::try_from(host)
        .map_err(|_| Error::General("its host is not a name that a certificate can have".into()))?;
    let provider = Arc::new(default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), provider)
        .build()
        .map_err(|error| Error::General(error.to_string()))?;
    verifier
        .verify_server_cert(end_entity, intermediates, &name, &[], at)
        .map(drop)
}

/// Returns a finding about the expiry of a certificate, if it is near. `now` is a Unix time in seconds.
pub(in crate::doctor) fn judge_expiry(
    area: &'static str,
    validity: CertificateValidity,
    now: u64,
) -> Option<Finding> {
    let end = validity.not_after;
    const RENEW: &str = "renew it (cert-manager: kubectl describe certificate; certbot: certbot renew), and let the server reload it";
    match end.checked_sub(now) {
        None => Some(
            Check(area, "expiry")
                .failure(format!("the certificate expired at {}", date(end)))
                .advise(RENEW),
        ),
        Some(left) if validity.renewal() < now => Some(
            Check(area, "expiry")
                .warning(format!(
                    "the certificate expires in {}, at {}",
                    counted(usize::try_from(left / 86_400).unwrap_or(usize::MAX), "day"),
                    date(end)
                ))
                .advise(RENEW),
        ),
        Some(_) => None,
    }
}

fn date(time: u64) -> String {
    jiff::Timestamp::from_second(time.cast_signed())
        .map_or_else(|_| "an unknown time".to_owned(), |t| t.to_string())
}

pub(super) async fn examine(
    wire: &DiagnosedServer,
    roots: &Arc<RootCertStore>,
    report: &mut Report,
) -> Result<(), String> {
    let both = [&rustls::version::TLS13, &rustls::version::TLS12];
    let shown = wire.shown(examining(&both, true)?).await?;
    let chain = &shown.chain;
    report.add(match verify(chain, &wire.host, roots, UnixTime::now()) {
        Ok(()) => Check(AREA, "chain").ok(format!(
            "a chain of {} to a trusted CA",
            counted(chain.len(), "certificate")
        )),
        Err(error) => untrusted(&error, chain.len(), &wire.host),
    });
    if let Some(validity) = chain
        .first()
        .and_then(|leaf| CertificateValidity::read(leaf))
    {
        let end = date(validity.not_after);
        report.add(
            judge_expiry(AREA, validity, unix_seconds())
                .unwrap_or_else(|| Check(AREA, "expiry").ok(format!("valid until {end}"))),
        );
    }
    let mut spoken = Vec::new();
    for (version, word) in [
        (&rustls::version::TLS13, "1.3"),
        (&rustls::version::TLS12, "1.2"),
    ] {
        if wire.shown(examining(&[version], false)?).await.is_ok() {
            spoken.push(word);
        }
    }
    let http2 = if shown.speaks_http2 {
        "HTTP/2 and HTTP/1.1"
    } else {
        "HTTP/1.1"
    };
    let seen = format!("TLS {}; {http2}", spoken.join(" and "));
    report.add(match (&spoken[..], shown.version) {
        (["1.3", ..], Some(ProtocolVersion::TLSv1_3)) => Check(AREA, "versions").ok(seen),
        _ => Check(AREA, "versions").warning(format!("{seen}; not 1.3")).advise(
            "nginx: ssl_protocols TLSv1.2 TLSv1.3; GCP: an SSL policy of profile MODERN; AWS: ELBSecurityPolicy-TLS13-1-2-2021-06",
        ),
    });
    Ok(())
}

fn untrusted(error: &Error, sent: usize, host: &str) -> Finding {
    let failure = |seen: String| Check(AREA, "chain").failure(seen);
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) if sent == 1 => failure(
            "the server sent one certificate, which no trusted CA signed: it is self-signed, or intermediate certificates are missing"
                .to_owned(),
        )
        .advise("serve the whole chain: nginx: ssl_certificate fullchain.pem; Kubernetes: tls.crt with the intermediate certificates; http.tls.certificate")
        .advise("for a private CA: every client must trust it (here: --ca FILE, or LONGSHORE_CA_FILE)"),
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => failure(format!(
            "the server sent {sent} certificates, which do not lead to a trusted CA"
        ))
        .advise("for a private CA: every client must trust it (here: --ca FILE, or LONGSHORE_CA_FILE)"),
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => failure(format!("the certificate is not for {host}")).advise(format!(
            "issue one for {host}; ingress: spec.tls[].hosts must contain it, or a default certificate is served"
        )),
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => failure("the certificate has expired".to_owned()).advise("renew it"),
        error => failure(error.to_string()).advise("serve a certificate that clients accept"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::report::Status;
    use super::*;

    #[test]
    fn the_end_of_a_certificate_is_judged_at_its_edges() {
        let validity = CertificateValidity {
            not_before: 1_700_000_000,
            not_after: 1_800_000_000,
        };
        let status = |now| judge_expiry(AREA, validity, now).map(|finding| finding.status);
        assert_eq!(status(validity.renewal()), None);
        assert_eq!(status(validity.renewal() + 1), Some(Status::Warning));
        assert_eq!(status(validity.not_after), Some(Status::Warning));
        assert_eq!(status(validity.not_after + 1), Some(Status::Failure));
        let last = judge_expiry(AREA, validity, validity.not_after - 86_400);
        let last = last.expect("it expires soon").seen;
        assert!(last.contains("expires in 1 day, at"), "{last}");
    }

    #[test]
    fn a_file_without_certificates_is_named_by_its_option() {
        let problem = roots(&[("LONGSHORE_CA_FILE", b"hello".to_vec())]).map(drop);
        let expected = "LONGSHORE_CA_FILE: the file contains no certificate in PEM form";
        assert_eq!(problem, Err(expected.to_owned()));
        assert!(roots(&[]).is_ok());
    }

    #[test]
    fn what_is_wrong_with_a_chain_is_told_with_what_to_change() {
        let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
        assert!(untrusted(&unknown, 1, "h").advice[0].contains("fullchain.pem"));
        assert!(untrusted(&unknown, 2, "h").advice[0].contains("--ca"));
        let expired = Error::InvalidCertificate(CertificateError::Expired);
        assert_eq!(
            untrusted(&expired, 2, "h").seen,
            "the certificate has expired"
        );
        let name = Error::InvalidCertificate(CertificateError::NotValidForName);
        assert!(
            untrusted(&name, 1, "mcp.example.com")
                .seen
                .contains("mcp.example.com")
        );
    }
}

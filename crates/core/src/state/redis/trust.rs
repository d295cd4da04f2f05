//! TLS to the store: trusted CA certificates, client certificate, error descriptions.

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;

use redis::{ClientTlsConfig, RedisError, TlsCertificates};
use rustls::CertificateError;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::state::{OpenStateError, StateTlsConfig};

/// Contents of the certificate files. `None` if no file is configured.
pub(super) fn certificates(
    config: &StateTlsConfig,
) -> Result<Option<TlsCertificates>, OpenStateError> {
    let read_ca = |path| read_certificates("state.tls.ca", path);
    let root_cert = config.ca.as_deref().map(read_ca).transpose()?;
    let client_tls = match (&config.certificate, &config.key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some(ClientTlsConfig {
            client_cert: read_certificates("state.tls.certificate", certificate)?,
            client_key: read_key("state.tls.key", key)?,
        }),
        _ => return Err(OpenStateError::Half),
    };
    let is_any = root_cert.is_some() || client_tls.is_some();
    Ok(is_any.then_some(TlsCertificates {
        client_tls,
        root_cert,
    }))
}

fn read_certificates(setting: &'static str, path: &Path) -> Result<Vec<u8>, OpenStateError> {
    read(setting, path, |text| {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        match found {
            Ok(found) if found.is_empty() => Err("it contains no certificate".to_owned()),
            Ok(_) => Ok(()),
            Err(error) => Err(format!("no certificate can be read: {error}")),
        }
    })
}

fn read_key(setting: &'static str, path: &Path) -> Result<Vec<u8>, OpenStateError> {
    read(setting, path, |text| {
        PrivateKeyDer::from_pem_slice(text)
            .map(drop)
            .map_err(|error| format!("no private key can be read: {error}"))
    })
}

fn read(
    setting: &'static str,
    path: &Path,
    check: impl Fn(&[u8]) -> Result<(), String>,
) -> Result<Vec<u8>, OpenStateError> {
    let text = std::fs::read(path).map_err(|error| error.to_string());
    text.and_then(|text| check(&text).map(|()| text))
        .map_err(|problem| OpenStateError::File {
            setting,
            path: path.to_owned(),
            problem,
        })
}

/// Reason for which TLS rejected a connection, without names.
pub(super) fn problem(error: &RedisError) -> Option<&'static str> {
    // The cause is shared, and shows itself as what shares it.
    let shared = error
        .source()?
        .downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
    let cause = shared.downcast_ref::<io::Error>()?.get_ref()?;
    Some(match cause.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(problem) => match problem {
            CertificateError::UnknownIssuer => {
                "its certificate is not signed by a trusted CA (state.tls.ca)"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is for another name than that in state.url"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has ended"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet"
            }
            _ => "its certificate is not accepted",
        },
        rustls::Error::AlertReceived(_) => {
            "it rejects the TLS connection (it may require a client certificate: state.tls.certificate)"
        }
        rustls::Error::InvalidMessage(_) => "it does not respond over TLS",
        _ => "TLS with it fails",
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn file(name: &str) -> Option<PathBuf> {
        Some(PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/it/tls")).join(name))
    }

    fn refused(config: &StateTlsConfig) -> String {
        certificates(config)
            .expect_err("cannot be used")
            .to_string()
    }

    #[test]
    fn files_are_read_and_none_is_needed() {
        assert!(matches!(certificates(&StateTlsConfig::default()), Ok(None)));
        let all = StateTlsConfig {
            ca: file("ca.crt"),
            certificate: file("client.crt"),
            key: file("client.key"),
        };
        let read = certificates(&all).expect("good files").expect("some");
        assert!(read.root_cert.is_some() && read.client_tls.is_some());
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_with_its_setting() {
        for (config, parts) in [
            (
                StateTlsConfig {
                    ca: file("client.key"),
                    ..StateTlsConfig::default()
                },
                ["state.tls.ca names", "no certificate"],
            ),
            (
                StateTlsConfig {
                    ca: file("nowhere"),
                    ..StateTlsConfig::default()
                },
                ["state.tls.ca names", "No such file"],
            ),
            (
                StateTlsConfig {
                    certificate: file("client.crt"),
                    key: file("client.crt"),
                    ..StateTlsConfig::default()
                },
                ["state.tls.key names", "no private key"],
            ),
            (
                StateTlsConfig {
                    certificate: file("client.crt"),
                    ..StateTlsConfig::default()
                },
                ["state.tls.certificate and state.tls.key", "both or neither"],
            ),
        ] {
            let said = refused(&config);
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        }
    }
}

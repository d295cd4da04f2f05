//! The client certificate of a client: fixed, or in files that are read again when they change.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;

use super::{ClientError, trust};
use crate::environment::FileStamp;
use crate::net::lock::Mutex;

/// Minimum interval between checks of the files.
const LOOK: Duration = Duration::from_secs(10);

/// Returns a certificate and key in PEM format for use in handshakes.
pub(super) fn fixed(chain: &[u8], key: &[u8]) -> Result<Arc<dyn ResolvesClientCert>, ClientError> {
    Ok(Arc::new(SingleCertAndKey::from(parse(chain, key)?)))
}

fn parse(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, ClientError> {
    let chain = trust::certificates(chain)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| ClientError::NoKey)?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map_err(ClientError::Certificate)
}

/// A client certificate in files. Handshakes check for changes at most every ten seconds.
pub(super) struct IdentityFiles {
    certificate: PathBuf,
    key: PathBuf,
    current: Mutex<Current>,
}

struct Current {
    identity: Arc<CertifiedKey>,
    stamps: [Option<FileStamp>; 2],
    checked: Instant,
}

impl IdentityFiles {
    pub(super) fn read(certificate: &Path, key: &Path) -> Result<Self, ClientError> {
        // Before the contents, so that a file that changes meanwhile is read again.
        let stamps = [certificate, key].map(FileStamp::of);
        Ok(Self {
            current: Mutex::new(Current {
                identity: Arc::new(read(certificate, key)?),
                stamps,
                checked: Instant::now(),
            }),
            certificate: certificate.to_owned(),
            key: key.to_owned(),
        })
    }

    /// Returns the current certificate. The previous one stays in use if the new files are not usable.
    fn at(&self, now: Instant) -> Arc<CertifiedKey> {
        let mut current = self.current.lock();
        if now.saturating_duration_since(current.checked) < LOOK {
            return Arc::clone(&current.identity);
        }
        current.checked = now;
        let stamps = [&*self.certificate, &*self.key].map(FileStamp::of);
        if stamps != current.stamps {
            current.stamps = stamps;
            let certificate = self.certificate.display();
            match read(&self.certificate, &self.key) {
                Ok(identity) => {
                    current.identity = Arc::new(identity);
                    tracing::info!(%certificate, "the client certificate was reloaded");
                }
                Err(error) => {
                    let error = super::super::with_causes(&error);
                    tracing::warn!(%certificate, error, "the new client certificate cannot be used; the previous one stays in use");
                }
            }
        }
        Arc::clone(&current.identity)
    }
}

fn read(certificate: &Path, key: &Path) -> Result<CertifiedKey, ClientError> {
    let contents = |path: &Path| {
        std::fs::read(path).map_err(|source| ClientError::File {
            path: path.to_owned(),
            source,
        })
    };
    parse(&contents(certificate)?, &contents(key)?)
}

impl ResolvesClientCert for IdentityFiles {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.at(Instant::now()))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl fmt::Debug for IdentityFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentityFiles")
            .field("certificate", &self.certificate)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::CertificateDer;

    use super::*;

    fn example(name: &str) -> Vec<u8> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/it/tls");
        std::fs::read(folder.join(name)).expect("an example")
    }

    #[test]
    fn changed_files_are_read_again_and_unusable_ones_are_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let [certificate, key] = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
        let write = |which: &str| {
            for (path, end) in [(&certificate, "crt"), (&key, "key")] {
                std::fs::write(path, example(&format!("{which}.{end}"))).expect("written");
            }
        };
        let leaf = |name: &str| {
            let pem = example(name);
            CertificateDer::from_pem_slice(&pem).expect("a certificate")
        };
        write("client");
        let files = IdentityFiles::read(&certificate, &key).expect("usable files");
        let began = Instant::now();
        let used = |seconds: u64| files.at(began + Duration::from_secs(seconds)).cert[0].clone();
        assert_eq!(used(0), leaf("client.crt"));

        write("server");
        assert_eq!(used(1), leaf("client.crt"), "checked too early");
        assert_eq!(used(30), leaf("server.crt"));

        std::fs::write(&certificate, "no certificate").expect("written");
        assert_eq!(used(60), leaf("server.crt"));
        std::fs::remove_file(&key).expect("removed");
        assert_eq!(used(90), leaf("server.crt"));
        write("client");
        assert_eq!(used(120), leaf("client.crt"));
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let folder = tempfile::tempdir().expect("a folder");
        let missing = folder.path().join("missing");
        let error = IdentityFiles::read(&missing, &missing).expect_err("no file");
        assert!(matches!(error, ClientError::File { .. }), "{error}");
        let [certificate, key] = ["client.crt", "client.key"].map(example);
        let problem = |chain: &[u8], key: &[u8]| fixed(chain, key).expect_err("unusable");
        assert!(matches!(problem(b"", &key), ClientError::NoCertificate));
        assert!(matches!(problem(&certificate, b""), ClientError::NoKey));
        let other = example("server.key");
        assert!(matches!(
            problem(&certificate, &other),
            ClientError::Certificate(_)
        ));
        assert!(fixed(&certificate, &key).is_ok());
    }
}

//! The client certificate of a client: fixed, or in files that are read again when they change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;

use super::{ClientError, trust};
use crate::environment::read_file;
use crate::net::reread::Reread;

/// Maximum size of a file, in bytes.
const FILE_MAX_BYTES: u64 = 1024 * 1024;
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
#[derive(Debug)]
pub(super) struct IdentityFiles(Reread<CertifiedKey, 2>);

impl IdentityFiles {
    pub(super) fn read(certificate: &Path, key: &Path) -> Result<Self, ClientError> {
        let files = Self(Reread::new([certificate.into(), key.into()], LOOK));
        files.current()?;
        Ok(files)
    }

    /// Returns the current certificate. The previous one stays in use if the new files are not usable.
    fn current(&self) -> Result<Arc<CertifiedKey>, ClientError> {
        self.0.get(read, |[certificate, _], changed| {
            let certificate = certificate.display();
            match changed {
                Ok(()) => tracing::info!(%certificate, "the client certificate was reloaded"),
                Err(error) => {
                    let error = super::super::with_causes(&error);
                    tracing::warn!(%certificate, error, "the new client certificate cannot be used; the previous one stays in use");
                }
            }
        })
    }
}

fn read([certificate, key]: &[PathBuf; 2]) -> Result<CertifiedKey, ClientError> {
    let contents = |path: &Path| {
        read_file(path, FILE_MAX_BYTES).map_err(|source| ClientError::File {
            path: path.to_owned(),
            source,
        })
    };
    parse(&contents(certificate)?, &contents(key)?)
}

impl ResolvesClientCert for IdentityFiles {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.current().ok()
    }

    fn has_certs(&self) -> bool {
        true
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

    #[tokio::test(start_paused = true)]
    async fn changed_files_are_read_again_and_unusable_ones_are_not_used() {
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
        let used = || files.current().expect("usable files").cert[0].clone();
        assert_eq!(used(), leaf("client.crt"));

        write("server");
        assert_eq!(used(), leaf("client.crt"), "checked too early");
        tokio::time::advance(LOOK).await;
        assert_eq!(used(), leaf("server.crt"));

        std::fs::write(&certificate, "no certificate").expect("written");
        tokio::time::advance(LOOK).await;
        assert_eq!(used(), leaf("server.crt"));
        std::fs::remove_file(&key).expect("removed");
        tokio::time::advance(LOOK).await;
        assert_eq!(used(), leaf("server.crt"));
        write("client");
        tokio::time::advance(LOOK).await;
        assert_eq!(used(), leaf("client.crt"));
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

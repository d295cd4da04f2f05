//! The TLS acceptor: certificates, handshakes and client authentication (feature `tls`).

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::super::tcp_conn::TcpConn;
use super::super::timer::RunningSeconds;
use super::{TlsConfig, TlsError};
use crate::auth::{CertificateValidity, ClientCertificate};
use crate::environment::{FileStamp, unix_seconds};

/// Interval between checks of the files.
const LOOK: Duration = Duration::from_secs(10);
const DAY_SECONDS: u64 = 24 * 60 * 60;

/// Server certificate and client certificate policy.
#[derive(Debug)]
pub struct Tls {
    files: Files,
    /// State of the files before they were read first.
    loaded: FileStamps,
    current: ArcSwap<Loaded>,
    handshake_seconds: u32,
}

/// State of the files at one time.
type FileStamps = Vec<Option<FileStamp>>;

/// What a watch of the files has found.
struct FileWatch {
    /// State of the files when they were last used.
    loaded: FileStamps,
    /// State of the files that cannot be used, and their problem, if they have changed since.
    rejected: Option<(FileStamps, String)>,
}

/// Contents of the files.
#[derive(Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    /// `None` if the certificate cannot be parsed.
    validity: Option<CertificateValidity>,
}

/// A connection after its handshake.
#[derive(Debug)]
pub struct TlsConnection {
    pub(crate) stream: TlsStream,
    /// The certificate of the client, if it sent one.
    pub certificate: Option<ClientCertificate>,
    /// True if ALPN chose HTTP/2.
    pub(crate) multiplexed: bool,
}

/// The decrypted bytes of a connection.
pub(crate) type TlsStream = tokio_rustls::server::TlsStream<TcpConn>;

/// The socket below a TLS stream.
pub(crate) fn socket_of(stream: &TlsStream) -> &TcpConn {
    stream.get_ref().0
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
    client_optional: bool,
}

impl Tls {
    /// `None` if TLS is off.
    pub fn load(config: &TlsConfig) -> Result<Option<Self>, TlsError> {
        let files = match (&config.certificate, &config.key) {
            (None, None) if config.client_ca.is_none() => return Ok(None),
            (Some(certificate), Some(key)) => Files {
                certificate: certificate.clone(),
                key: key.clone(),
                client_ca: config.client_ca.clone(),
                client_optional: config.client_optional,
            },
            _ => return Err(TlsError::Half),
        };
        let loaded = files.seen();
        let current = files.read()?;
        Ok(Some(Self {
            current: ArcSwap::from_pointee(current),
            loaded,
            files,
            handshake_seconds: config.handshake_seconds,
        }))
    }

    /// Completes after `http.tls.handshake_seconds`.
    pub(crate) async fn handshake_timeout(&self) {
        RunningSeconds::begin().reach(self.handshake_seconds).await;
    }

    /// Performs the handshake.
    ///
    /// # Errors
    ///
    /// The error of the handshake, or of a client certificate that cannot be read.
    pub(crate) async fn accept(&self, stream: TcpConn) -> io::Result<TlsConnection> {
        let stream = TlsAcceptor::from(self.current()).accept(stream).await?;
        let (_, session) = stream.get_ref();
        // The certificate is verified; one that cannot be parsed still proves nothing.
        let certificate = match session.peer_certificates() {
            Some([certificate, ..]) => Some(
                ClientCertificate::read(certificate)
                    .ok_or_else(|| io::Error::other("the client's certificate cannot be read"))?,
            ),
            _ => None,
        };
        let multiplexed = session.alpn_protocol() == Some(HTTP_2);
        Ok(TlsConnection {
            stream,
            certificate,
            multiplexed,
        })
    }

    /// TLS configuration for the next connection.
    fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.load().config)
    }

    /// Validity of the certificate, if it is known.
    pub fn validity(&self) -> Option<CertificateValidity> {
        self.current.load().validity
    }

    /// Expiry of the certificate in Unix time, in seconds, if it is known.
    pub fn expiry(&self) -> Option<u64> {
        self.validity().map(|validity| validity.not_after)
    }

    /// Reads the files again whenever they change, and logs each day that the certificate expires soon.
    pub async fn watch_files(&self) -> Infallible {
        let mut watch = FileWatch {
            loaded: self.loaded.clone(),
            rejected: None,
        };
        let mut logged = None;
        loop {
            let expires = self.expires_soon(unix_seconds());
            if expires != logged {
                logged = expires;
                self.warn_of_expiry(expires);
            }
            tokio::time::sleep(LOOK).await;
            if let Some(error) = self.reload_if_changed(&mut watch) {
                tracing::warn!(%error, "the new certificate cannot be used; the one before stays");
            }
        }
    }

    /// Reloads the files if they have changed. Returns the problem of files that cannot be used, once for each change. They are
    /// read again until they can be used, since a change of their permissions does not show.
    fn reload_if_changed(&self, watch: &mut FileWatch) -> Option<String> {
        let now = self.files.seen();
        let mut rejected = None;
        if now != watch.loaded {
            match self.renew() {
                Ok(()) => watch.loaded = now,
                Err(error) => rejected = Some((now, error.to_string())),
            }
        }
        if rejected == watch.rejected {
            return None;
        }
        watch.rejected = rejected;
        watch.rejected.as_ref().map(|(_, problem)| problem.clone())
    }

    /// Returns the expiry of a certificate that expires soon, and the number of whole days left, which is negative for
    /// one that has expired.
    fn expires_soon(&self, now: u64) -> Option<(u64, i64)> {
        let validity = self.validity()?;
        let expiry = validity.not_after;
        let days = match expiry.checked_sub(now) {
            Some(left) => (left / DAY_SECONDS).cast_signed(),
            None => -1 - ((now - expiry) / DAY_SECONDS).cast_signed(),
        };
        (validity.renewal() < now).then_some((expiry, days))
    }

    fn warn_of_expiry(&self, expires: Option<(u64, i64)>) {
        const ADVICE: &str = "renew it; the file is reloaded when it changes";
        let Some((expiry, days)) = expires else {
            return;
        };
        let certificate = self.files.certificate.display();
        let at = jiff::Timestamp::from_second(expiry.cast_signed()).unwrap_or_default();
        if days < 0 {
            tracing::warn!(%certificate, "the certificate of http.tls expired at {at}, so clients reject it; {ADVICE}");
        } else {
            tracing::warn!(%certificate, "the certificate of http.tls expires in {days} days, at {at}; {ADVICE}");
        }
    }

    /// Reloads the files.
    fn renew(&self) -> Result<(), TlsError> {
        self.current.store(Arc::new(self.files.read()?));
        tracing::info!(certificate = %self.files.certificate.display(), "the certificate was reloaded");
        Ok(())
    }
}

impl Files {
    fn read(&self) -> Result<Loaded, TlsError> {
        let chain = certificates("http.tls.certificate", &self.certificate)?;
        let validity = chain
            .first()
            .and_then(|leaf| CertificateValidity::read(leaf));
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|e| TlsError::File {
            setting: "http.tls.key",
            path: self.key.clone(),
            problem: unreadable("private key", e),
        })?;
        let provider = Arc::new(default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Unusable)?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates("http.tls.client_ca", path)? {
                    let added = roots.add(authority);
                    added.map_err(|e| TlsError::Authorities(e.to_string()))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = match self.client_optional {
                    true => verifier.allow_unauthenticated(),
                    false => verifier,
                };
                let verifier = verifier.build();
                builder.with_client_cert_verifier(
                    verifier.map_err(|e| TlsError::Authorities(e.to_string()))?,
                )
            }
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(TlsError::Unusable)?;
        if self.client_ca.is_some() {
            // A resumed session restores its client certificate without a new check of its expiry.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        config.alpn_protocols = vec![HTTP_2.to_vec(), b"http/1.1".to_vec()];
        Ok(Loaded {
            config: Arc::new(config),
            validity,
        })
    }

    fn seen(&self) -> FileStamps {
        let files = [
            Some(&self.certificate),
            Some(&self.key),
            self.client_ca.as_ref(),
        ];
        let stamps = files.into_iter().map(|path| FileStamp::of(path?));
        stamps.collect()
    }
}

/// Describes the failure to read an item from a PEM file.
fn unreadable(what: &str, error: rustls::pki_types::pem::Error) -> String {
    match error {
        rustls::pki_types::pem::Error::Io(error) => format!("it cannot be read: {error}"),
        error => format!("it contains no readable {what}: {error}"),
    }
}

/// HTTP/2 as ALPN names it.
const HTTP_2: &[u8] = b"h2";

fn certificates(
    setting: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |problem: String| TlsError::File {
        setting,
        path: path.to_owned(),
        problem,
    };
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| failed(unreadable("certificate", e)))?;
    if certificates.is_empty() {
        return Err(failed("it contains no certificate".to_owned()));
    }
    Ok(certificates)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CERTIFICATE: &str = include_str!("../../../../tests/it/tls/server.crt");
    const KEY: &str = include_str!("../../../../tests/it/tls/server.key");
    const OTHER_CERTIFICATE: &str = include_str!("../../../../tests/it/tls/client.crt");

    fn written(texts: [&str; 2]) -> (tempfile::TempDir, TlsConfig) {
        let folder = tempfile::tempdir().expect("a folder");
        let [certificate, key] = ["a.crt", "a.key"].map(|name| folder.path().join(name));
        std::fs::write(&certificate, texts[0]).expect("written");
        std::fs::write(&key, texts[1]).expect("written");
        let config = TlsConfig {
            certificate: Some(certificate),
            key: Some(key),
            ..TlsConfig::default()
        };
        (folder, config)
    }

    fn problem(config: &TlsConfig) -> String {
        Tls::load(config).expect_err("cannot be used").to_string()
    }

    #[test]
    fn without_a_certificate_there_is_no_tls() {
        assert!(Tls::load(&TlsConfig::default()).expect("fine").is_none());
    }

    #[test]
    fn files_that_cannot_be_used_are_told_by_their_setting_and_never_by_what_is_in_them() {
        let (_folder, good) = written([CERTIFICATE, KEY]);
        assert!(Tls::load(&good).expect("good").is_some());
        let half = TlsConfig {
            key: None,
            ..good.clone()
        };
        assert!(problem(&half).contains("belong together"));
        let (_folder, swapped) = written([KEY, CERTIFICATE]);
        assert!(
            problem(&swapped).contains("http.tls.certificate"),
            "{}",
            problem(&swapped)
        );
        let (_folder, no_key) = written([CERTIFICATE, "secret canary"]);
        let said = problem(&no_key);
        assert!(
            said.contains("http.tls.key") && !said.contains("canary"),
            "{said}"
        );
        let (_folder, foreign) = written([OTHER_CERTIFICATE, KEY]);
        assert!(problem(&foreign).contains("cannot be used together"));
        let missing = TlsConfig {
            certificate: Some("/nowhere/a.crt".into()),
            ..good
        };
        assert!(problem(&missing).contains("/nowhere/a.crt"));
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_is_replaced_is_another_even_if_its_time_and_length_are_the_same() {
        let (folder, config) = written([CERTIFICATE, KEY]);
        let tls = Tls::load(&config).expect("good").expect("on");
        let before = tls.files.seen();
        let path = config.certificate.expect("named");
        let modified = std::fs::metadata(&path).and_then(|file| file.modified());
        let new = folder.path().join("new");
        let file = std::fs::File::create(&new).expect("created");
        std::fs::write(&new, CERTIFICATE).expect("written");
        file.set_modified(modified.expect("a time")).expect("set");
        assert_eq!(tls.files.seen(), before);
        std::fs::rename(&new, &path).expect("renamed");
        assert_ne!(tls.files.seen(), before);
    }

    #[test]
    fn a_certificate_is_reported_from_two_weeks_before_its_end_once_a_day() {
        let (_folder, config) = written([CERTIFICATE, KEY]);
        let tls = Tls::load(&config).expect("good").expect("on");
        let expiry = tls.expiry().expect("known");
        let days = |now| tls.expires_soon(now).map(|(_, days)| days);
        assert_eq!(days(expiry - 14 * DAY_SECONDS), None);
        assert_eq!(days(expiry - 14 * DAY_SECONDS + 1), Some(13));
        assert_eq!(days(expiry - 1), Some(0));
        assert_eq!(days(expiry + 1), Some(-1));
        assert_eq!(days(expiry + DAY_SECONDS), Some(-2));
        let config = tls.current();
        let validity = None;
        tls.current.store(Arc::new(Loaded { config, validity }));
        assert_eq!((tls.validity(), days(expiry)), (None, None));
        assert!(tls.renew().is_ok());
        assert_eq!(tls.expiry(), Some(expiry));
    }

    #[test]
    fn a_certificate_with_a_short_life_is_reported_after_two_thirds_of_it() {
        let six_days = CertificateValidity {
            not_before: 0,
            not_after: 6 * DAY_SECONDS,
        };
        assert_eq!(six_days.renewal(), 4 * DAY_SECONDS);
    }

    #[test]
    fn a_new_certificate_is_shown_and_a_bad_one_is_not() {
        let (_folder, config) = written([CERTIFICATE, KEY]);
        let tls = Tls::load(&config).expect("good").expect("on");
        let before = tls.current();
        let path = config.certificate.expect("named");
        std::fs::write(&path, "nonsense").expect("written");
        assert!(tls.renew().is_err());
        assert!(Arc::ptr_eq(&before, &tls.current()));
        std::fs::write(&path, CERTIFICATE).expect("written");
        assert!(tls.renew().is_ok());
        assert!(!Arc::ptr_eq(&before, &tls.current()));
    }

    #[test]
    fn a_certificate_that_cannot_be_used_is_reported_once_for_each_change() {
        let (_folder, config) = written([CERTIFICATE, KEY]);
        let tls = Tls::load(&config).expect("good").expect("on");
        let path = config.certificate.expect("named");
        let mut watch = FileWatch {
            loaded: tls.loaded.clone(),
            rejected: None,
        };
        let mut reported = |text: &str| {
            std::fs::write(&path, text).expect("written");
            let reported = [(); 3].map(|()| tls.reload_if_changed(&mut watch).is_some());
            (reported, watch.rejected.is_some())
        };
        let once = ([true, false, false], true);
        assert_eq!(reported("nonsense"), once);
        assert_eq!(reported("other nonsense"), once);
        let good = format!("{CERTIFICATE}\n");
        assert_eq!(reported(&good), ([false; 3], false));
        assert_eq!(reported("nonsense"), once);
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_that_was_replaced_before_the_watch_began_is_used() {
        let (_folder, config) = written([CERTIFICATE, KEY]);
        let tls = Tls::load(&config).expect("good").expect("on");
        let before = tls.current();
        let longer = format!("{CERTIFICATE}\n");
        let path = config.certificate.expect("named");
        std::fs::write(path, longer).expect("written");
        let watched = tokio::time::timeout(2 * LOOK, tls.watch_files());
        assert!(watched.await.is_err());
        assert!(!Arc::ptr_eq(&before, &tls.current()));
    }
}

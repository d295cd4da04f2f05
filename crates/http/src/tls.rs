//! TLS termination without a proxy: certificates that are reloaded when they change, and client certificates.

#[cfg_attr(not(feature = "tls"), path = "tls/absent.rs")]
mod acceptor;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use acceptor::Tls;
pub use acceptor::TlsStream;

/// TLS in the process itself. Off unless a certificate is named.
///
/// The files are looked at every ten seconds, and read again when they change; a new certificate that cannot be used is
/// told in the log, and the old one stays.
///
/// ```toml
/// [http.tls]
/// certificate = "/etc/tls/tls.crt"
/// key = "/etc/tls/tls.key"
/// ```
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TlsConfig {
    /// A file with the server's certificate and those that lead to its authority, in PEM. Default: none, no TLS.
    #[schemars(extend("x-path" = "file"))]
    pub certificate: Option<PathBuf>,
    /// A file with the certificate's private key, in PEM.
    #[schemars(extend("x-path" = "file"))]
    pub key: Option<PathBuf>,
    /// A file with certificates of authorities, in PEM: clients have to show one that leads to one of these. Default:
    /// none, clients show nothing.
    #[schemars(extend("x-path" = "file"))]
    pub client_ca: Option<PathBuf>,
    /// Whether clients may go without a certificate, so that they prove themselves otherwise; one that is shown has to be
    /// good all the same. Default: false.
    pub client_optional: bool,
    /// Seconds in which a client has to shake hands. Default: 10.
    pub handshake_seconds: u32,
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self {
            certificate: None,
            key: None,
            client_ca: None,
            client_optional: false,
            handshake_seconds: 10,
        }
    }
}

/// Reason for which TLS cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// Only one of certificate and key is set.
    #[error(
        "http.tls.certificate and http.tls.key belong together: name a file with the certificate and one with its key"
    )]
    Half,
    /// A file cannot be read or lacks the expected contents.
    #[error("{setting} = {path}: {problem}")]
    File {
        /// Setting that names the file.
        setting: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Description of the problem.
        problem: String,
    },
    /// Certificate and key do not match, or their type is not supported.
    #[cfg(feature = "tls")]
    #[error("the certificate and the key of http.tls cannot be used together")]
    Unusable(#[source] rustls::Error),
    /// This build has no TLS.
    #[cfg(not(feature = "tls"))]
    #[error(
        "http.tls requires the feature `tls`, which this build does not have; enable the feature, or terminate TLS in a proxy and remove the setting"
    )]
    NotBuilt,
    /// No client could ever be let in.
    #[error("the authorities of http.tls.client_ca cannot be used: {0}")]
    Authorities(String),
}

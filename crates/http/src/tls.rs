//! TLS termination without a proxy: certificates that are reloaded when they change, and client certificates.

#[cfg_attr(not(feature = "tls"), path = "tls/absent.rs")]
mod acceptor;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use acceptor::Tls;
pub(crate) use acceptor::{TlsStream, socket_of};

/// TLS termination in the process. Off unless a certificate is set.
///
/// The files are checked every ten seconds, and reloaded when they change. If a new certificate cannot be used, the
/// error is logged and the previous one stays in use.
///
/// ```toml
/// [http.tls]
/// certificate = "/etc/tls/tls.crt"
/// key = "/etc/tls/tls.key"
/// ```
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TlsConfig {
    /// File with the server's certificate and its chain, in PEM. If unset, TLS is off.
    #[schemars(extend("x-path" = "file"))]
    pub certificate: Option<PathBuf>,
    /// A file with the certificate's private key, in PEM.
    #[schemars(extend("x-path" = "file"))]
    pub key: Option<PathBuf>,
    /// File with CA certificates, in PEM: clients need a certificate that one of these has issued. If unset, client
    /// certificates are not requested.
    #[schemars(extend("x-path" = "file"))]
    pub client_ca: Option<PathBuf>,
    /// Allow clients without a certificate, which can authenticate otherwise. A certificate that is sent must still
    /// be valid.
    pub client_optional: bool,
    /// Time limit of a TLS handshake, in seconds.
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
    #[error("the CA certificates of http.tls.client_ca cannot be used: {0}")]
    Authorities(String),
}

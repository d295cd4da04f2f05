//! Stand-in for builds without the feature `tls`. A configuration with `http.tls` is rejected at start.

use std::convert::Infallible;
use std::io;

use super::super::tcp_conn::TcpConn;
use super::{TlsConfig, TlsError};
use crate::auth::ClientCertificate;

/// Uninhabited: this build has no TLS.
#[derive(Debug)]
pub enum Tls {}

/// A connection after its handshake. Never constructed.
#[derive(Debug)]
pub struct TlsConnection {
    pub(crate) stream: TlsStream,
    pub certificate: Option<ClientCertificate>,
    pub(crate) multiplexed: bool,
}

/// Placeholder for the type of decrypted streams. Never constructed as such.
pub(crate) type TlsStream = TcpConn;

pub(crate) fn socket_of(stream: &TlsStream) -> &TcpConn {
    stream
}

impl Tls {
    pub fn load(config: &TlsConfig) -> Result<Option<Self>, TlsError> {
        match (&config.certificate, &config.key, &config.client_ca) {
            (None, None, None) => Ok(None),
            _ => Err(TlsError::NotBuilt),
        }
    }

    pub fn expiry(&self) -> Option<u64> {
        match *self {}
    }

    pub(crate) async fn handshake_timeout(&self) {
        match *self {}
    }

    pub(crate) async fn accept(&self, _: TcpConn) -> io::Result<TlsConnection> {
        match *self {}
    }

    pub async fn watch_files(&self) -> Infallible {
        match *self {}
    }
}

//! Builds without the feature `tls`: nothing speaks TLS, and a configuration that asks for it does not start.

use std::convert::Infallible;
use std::io;

use tokio::net::TcpStream;

use super::{TlsConfig, TlsError};
use crate::auth::ClientCertificate;

/// There is none.
#[derive(Debug)]
pub(crate) enum Tls {}

/// There is none.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) stream: TlsStream,
    pub(crate) certificate: Option<ClientCertificate>,
    pub(crate) multiplexed: bool,
}

/// Stands for the type of connections that there are none of.
pub(crate) type TlsStream = TcpStream;

impl Tls {
    pub(crate) fn load(config: &TlsConfig) -> Result<Option<Self>, TlsError> {
        match (&config.certificate, &config.key, &config.client_authorities) {
            (None, None, None) => Ok(None),
            _ => Err(TlsError::NotBuilt),
        }
    }

    pub(crate) async fn accept(&self, _: TcpStream) -> io::Result<Accepted> {
        match *self {}
    }

    pub(crate) async fn keep_up(&self) -> Infallible {
        match *self {}
    }
}

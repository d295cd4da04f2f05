//! Who is at the other end of a connection.

use std::net::{IpAddr, SocketAddr};

/// Where a request has come from, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// `None` behind a proxy, whose word is about addresses, and of what is no port.
    pub(crate) port: Option<u16>,
}

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        Self {
            address,
            port: None,
        }
    }
}

impl From<SocketAddr> for Peer {
    fn from(at: SocketAddr) -> Self {
        Self {
            address: at.ip(),
            port: Some(at.port()),
        }
    }
}

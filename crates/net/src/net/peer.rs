//! Remote address of a connection.

use std::net::{IpAddr, SocketAddr};

/// Origin address of a request, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub address: IpAddr,
    /// `None` behind a proxy, which reports addresses only, and for sockets without a port.
    pub port: Option<u16>,
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

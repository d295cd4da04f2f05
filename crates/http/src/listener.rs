//! Listening sockets: a TCP port, or a Unix domain socket.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream as StdStream};
#[cfg(unix)]
use std::path::{Path, PathBuf};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};

use crate::net::Peer;

/// A socket that listens.
#[derive(Debug)]
pub enum BoundSocket {
    Port(TcpListener),
    #[cfg(unix)]
    File(SocketFile),
}

/// A client connection that was accepted.
#[derive(Debug)]
pub(super) enum AcceptedSocket {
    ByPort(TcpStream, Peer),
    #[cfg(unix)]
    ByFile(UnixStream),
}

/// A Unix domain socket file. A socket created here is removed at shutdown, unless another process has replaced the
/// file.
#[cfg(unix)]
#[derive(Debug)]
pub struct SocketFile {
    listener: UnixListener,
    /// Empty if it has none.
    path: PathBuf,
    /// Device and number of the file, if it was made here.
    identity: Option<(u64, u64)>,
}

/// Length of the kernel's accept queue, in connections.
pub(super) const BACKLOG: i32 = 1024;
/// Peer address of Unix socket clients, which are always on this machine.
const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

impl BoundSocket {
    /// Creates a listener for a TCP port.
    pub(super) fn port(listener: TcpListener) -> io::Result<Self> {
        // On Linux, accepted sockets inherit these options, which saves four system calls for each.
        #[cfg(target_os = "linux")]
        prepare(&listener)?;
        Ok(Self::Port(listener))
    }

    /// Local address; `None` for a Unix domain socket.
    pub fn address(&self) -> io::Result<Option<SocketAddr>> {
        match self {
            Self::Port(listener) => listener.local_addr().map(Some),
            #[cfg(unix)]
            Self::File(_) => Ok(None),
        }
    }

    /// Its path, if it is a file that has one.
    #[cfg(unix)]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Port(_) => None,
            Self::File(file) => Some(&*file.path).filter(|path| !path.as_os_str().is_empty()),
        }
    }

    /// Accepts the next connection. Those that have ended already are skipped.
    pub(super) async fn accept(&self) -> io::Result<AcceptedSocket> {
        loop {
            let accepted = match self {
                Self::Port(listener) => listener
                    .accept()
                    .await
                    .map(|(stream, peer)| AcceptedSocket::ByPort(stream, peer.into())),
                #[cfg(unix)]
                Self::File(file) => file
                    .listener
                    .accept()
                    .await
                    .map(|(stream, _)| AcceptedSocket::ByFile(stream)),
            };
            match accepted {
                Err(error) if is_of_one_connection(&error) => {}
                accepted => return accepted,
            }
        }
    }
}

/// Returns true if the error concerns one connection only, so that the next can be accepted at once.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

impl AcceptedSocket {
    pub(super) fn peer(&self) -> Peer {
        match self {
            Self::ByPort(_, peer) => *peer,
            #[cfg(unix)]
            Self::ByFile(_) => HERE.into(),
        }
    }

    /// Converts to a plain stream for serving. The caller only reads and writes, and uses nothing specific to one
    /// socket kind.
    pub(super) fn into_socket(self) -> io::Result<StdStream> {
        match self {
            Self::ByPort(stream, _) => {
                #[cfg(not(target_os = "linux"))]
                prepare(&stream)?;
                stream.into_std()
            }
            #[cfg(unix)]
            Self::ByFile(stream) => {
                let socket = std::os::fd::OwnedFd::from(stream.into_std()?);
                Ok(StdStream::from(socket))
            }
        }
    }
}

/// Number of bytes that the kernel takes before it has sent them, for each connection. Without this limit it takes megabytes
/// on fast networks, and reports a socket as writable only when a third of them is gone: a client that reads steadily, but
/// slowly, would look like one that does not read.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES: u32 = 64 * 1024;

/// Sets `TCP_NODELAY`, keep-alive probes, and the limit of unsent bytes.
fn prepare<'s>(socket: impl Into<SockRef<'s>>) -> io::Result<()> {
    let socket = socket.into();
    socket.set_tcp_nodelay(true)?;
    // Sandboxes may not know the option, and can do without.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Err(error) = socket.set_tcp_notsent_lowat(UNSENT_BYTES) {
        tracing::debug!(%error, "TCP_NOTSENT_LOWAT cannot be set");
    }
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(30))
        .with_interval(Duration::from_secs(10));
    socket.set_tcp_keepalive(&keepalive)
}

#[cfg(unix)]
impl SocketFile {
    /// Binds a Unix domain socket. A stale socket file is removed; a socket in use and any other file are kept.
    pub fn bind(path: &Path, mode: u32, backlog: i32) -> io::Result<Self> {
        use socket2::{Domain, SockAddr, Socket, Type};
        use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
        use std::os::unix::net::UnixStream as StdUnixStream;

        match std::fs::symlink_metadata(path) {
            Ok(there) if !there.file_type().is_socket() => {
                let problem = "a file that is not a socket exists at that path";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
            }
            Ok(_) => match StdUnixStream::connect(path) {
                Ok(_) => {
                    let problem = "another program listens on it";
                    return Err(io::Error::new(io::ErrorKind::AddrInUse, problem));
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path)?;
                }
                Err(error) => return Err(error),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SockAddr::unix(path)?)?;
        // Clients cannot connect before the socket listens.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        socket.listen(backlog)?;
        let file = std::fs::symlink_metadata(path)?;
        Ok(Self {
            listener: UnixListener::from_std(socket.into())?,
            path: path.to_owned(),
            identity: Some((file.dev(), file.ino())),
        })
    }

    /// Listens on a socket that another process has created and will remove.
    pub(crate) fn handed_over(listener: std::os::unix::net::UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self {
            path: address.as_pathname().unwrap_or(Path::new("")).to_owned(),
            listener: UnixListener::from_std(listener)?,
            identity: None,
        })
    }
}

#[cfg(unix)]
impl Drop for SocketFile {
    fn drop(&mut self) {
        use std::os::unix::fs::MetadataExt as _;

        let Some(identity) = self.identity else {
            return;
        };
        let is_ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|file| (file.dev(), file.ino()) == identity);
        if is_ours {
            // A failure is harmless: the next server removes the file.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_comes_in_is_answered_at_once_and_missed_when_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let door = BoundSocket::port(listener).expect("settings");
        let address = door.address().expect("bound").expect("a port");
        let _client = TcpStream::connect(address).await.expect("it listens");
        let arrived = door.accept().await.expect("a client");
        let socket = arrived.into_socket().expect("a socket");
        assert!(socket.nodelay().expect("a setting"));
        let socket = SockRef::from(&socket);
        assert!(socket.keepalive().expect("a setting"));
        #[cfg(target_os = "linux")]
        assert_eq!(
            socket.tcp_keepalive_time().expect("a setting"),
            Duration::from_secs(30)
        );
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_notsent_lowat().expect("a setting"), UNSENT_BYTES);
    }
}

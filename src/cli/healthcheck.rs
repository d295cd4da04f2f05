//! `longshore healthcheck`: for images that have no shell and no `curl`.

use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::run;
use crate::config::Flags;

/// What `healthcheck` is told.
#[derive(Debug, Args)]
pub(super) struct HealthcheckArgs {
    /// Read settings from a file, as `run` does, to learn where the server listens
    /// [env: LONGSHORE_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Ask this port [default: that of the settings]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,

    /// Ask only whether the process answers, not whether it takes requests
    #[arg(long)]
    live: bool,
}

/// How long the server has to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// How much of the answer is read.
const ANSWER_BYTES_MAX: u64 = 16 * 1024;

/// Asks the server on this machine how it is. Fails unless it says that it is well.
pub(super) fn healthcheck(args: &HealthcheckArgs) -> Result<String, String> {
    let flags = Flags {
        config: args.config.clone(),
        port: args.port,
        ..Flags::default()
    };
    let config = run::load(flags).map_err(|error| error.to_string())?.config;
    let path = if args.live { "/livez" } else { "/readyz" };
    let socket = config.http.unix_socket.filter(|_| args.port.is_none());
    let answer = match socket {
        Some(socket) => ask_at_file(&socket, path).map_err(|error| {
            format!(
                "the server at {} does not answer: {error}",
                socket.display()
            )
        })?,
        None => {
            let address = SocketAddr::new(reachable(config.http.host), config.http.port);
            ask(address, path)
                .map_err(|error| format!("the server at {address} does not answer: {error}"))?
        }
    };
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status == "200" {
        Ok(body.trim().to_owned())
    } else {
        Err(format!("{path} answered {status}: {}", body.trim()))
    }
}

/// Whether a server of ours answers at an address.
pub(super) fn is_served(address: SocketAddr) -> bool {
    let address = SocketAddr::new(reachable(address.ip()), address.port());
    ask(address, "/livez").is_ok_and(|answer| {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        head.split(' ').nth(1) == Some("200") && body.contains("\"ok\":")
    })
}

/// Nobody can connect to the address that stands for all of them.
fn reachable(host: IpAddr) -> IpAddr {
    match host {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        host => host,
    }
}

fn ask(address: SocketAddr, path: &str) -> io::Result<String> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    converse(stream, &address.to_string(), path)
}

#[cfg(unix)]
fn ask_at_file(socket: &Path, path: &str) -> io::Result<String> {
    let stream = std::os::unix::net::UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    converse(stream, "localhost", path)
}

#[cfg(not(unix))]
fn ask_at_file(_: &Path, _: &str) -> io::Result<String> {
    Err(io::ErrorKind::Unsupported.into())
}

fn converse(mut stream: impl io::Read + io::Write, host: &str, path: &str) -> io::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    Ok(answer)
}

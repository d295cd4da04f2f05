//! Requests as servers of tests get them.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::TcpStream;

/// A request that came over a connection.
pub(crate) struct Incoming {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    /// By their names in small letters.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// Reads the next request of a connection; `rest` holds earlier unread bytes. Returns `None` at the end.
pub(crate) fn read(stream: &mut TcpStream, rest: &mut Vec<u8>) -> Option<Incoming> {
    let mut buffer = [0; 64 * 1024];
    let end = loop {
        if let Some(end) = rest.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        match stream.read(&mut buffer) {
            Ok(read) if read > 0 => rest.extend_from_slice(&buffer[..read]),
            _ => return None,
        }
    };
    let head = String::from_utf8(rest[..end].to_vec()).ok()?;
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = headers
        .get("content-length")
        .map_or(0, |length| length.parse().expect("a length"));
    while rest.len() < end + 4 + length {
        match stream.read(&mut buffer) {
            Ok(read) if read > 0 => rest.extend_from_slice(&buffer[..read]),
            _ => return None,
        }
    }
    let body = rest[end + 4..end + 4 + length].to_vec();
    rest.drain(..end + 4 + length);
    Some(Incoming {
        method,
        target,
        headers,
        body,
    })
}

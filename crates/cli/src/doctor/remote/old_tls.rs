//! Checks for deprecated versions of TLS (RFC 8996).
//!
//! The TLS library supports none of them. So this module writes the first client message itself, and only checks
//! whether the server continues the handshake.

use std::net::IpAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::super::report::{Check, Report};
use super::wire::DiagnosedServer;
use crate::seal::random_bytes;

/// Names and wire values.
const OLD: [(&str, [u8; 2]); 2] = [("1.1", [3, 2]), ("1.0", [3, 1])];

pub(super) async fn examine(wire: &DiagnosedServer, report: &mut Report) {
    const AREA: &str = "tls";
    const CHECK: Check<'_> = Check(AREA, "old versions");
    let mut taken = Vec::new();
    for (name, version) in OLD {
        match first_bytes(wire, version).await {
            Ok(said) if goes_on(&said) => taken.push(name),
            Ok(_) => {}
            Err(problem) => {
                report.add(CHECK.skipped(problem));
                return;
            }
        }
    }
    report.add(if taken.is_empty() {
        CHECK.ok("TLS 1.1 and 1.0 are rejected")
    } else {
        CHECK.warning(format!("TLS {} is accepted, although it is deprecated (RFC 8996)", taken.join(" and ")))
        .advise("nginx: ssl_protocols TLSv1.2 TLSv1.3; GCP: an SSL policy with minTlsVersion TLS_1_2; AWS: ELBSecurityPolicy-TLS13-1-2-2021-06; Cloudflare: Minimum TLS Version 1.2")
    });
}

/// Returns the first bytes of the response, or nothing if the connection is closed.
async fn first_bytes(wire: &DiagnosedServer, version: [u8; 2]) -> Result<Vec<u8>, String> {
    let mut socket = wire.connect(wire.port).await?;
    let talk = async {
        let mut said = vec![0; ANSWER_BYTES];
        let sent = socket
            .write_all(&hello(&wire.host, version, random_bytes()))
            .await;
        match sent {
            Ok(()) => match socket.read_exact(&mut said).await {
                Ok(_) => said,
                Err(_) => Vec::new(),
            },
            Err(_) => Vec::new(),
        }
    };
    Ok(timeout(wire.patience, talk).await.unwrap_or_default())
}

/// Length of the part that contains the version.
const ANSWER_BYTES: usize = 11;

/// Returns true if the server continues the handshake with an old version, by a `ServerHello`. An alert is at most as
/// long.
fn goes_on(said: &[u8]) -> bool {
    const HANDSHAKE: u8 = 22;
    const SERVER_HELLO: u8 = 2;
    matches!(
        said,
        [HANDSHAKE, 3, _, _, _, SERVER_HELLO, _, _, _, 3, 1 | 2, ..]
    )
}

/// Builds the first message of a client that supports no later version (RFC 4346, 7.4.1.2; extensions of RFC 6066 and
/// 8422).
fn hello(host: &str, version: [u8; 2], random: [u8; 32]) -> Vec<u8> {
    // ECDHE and plain RSA with AES, and 3DES, which TLS 1.0 requires.
    const SUITES: [u8; 14] = [
        0xc0, 0x09, 0xc0, 0x0a, 0xc0, 0x13, 0xc0, 0x14, 0x00, 0x2f, 0x00, 0x35, 0x00, 0x0a,
    ];
    // X25519, P-256, P-384; points uncompressed; no renegotiation yet.
    const EXTENSIONS: [u8; 23] = [
        0x00, 0x0a, 0x00, 0x08, 0x00, 0x06, 0x00, 0x1d, 0x00, 0x17, 0x00, 0x18, 0x00, 0x0b, 0x00,
        0x02, 0x01, 0x00, 0xff, 0x01, 0x00, 0x01, 0x00,
    ];
    let mut extensions = Vec::new();
    if host.parse::<IpAddr>().is_err() {
        let name = with_length(2, host.as_bytes());
        let names = with_length(2, &[&[0][..], &name].concat());
        extensions.extend([0, 0]);
        extensions.extend(with_length(2, &names));
    }
    extensions.extend(EXTENSIONS);
    let body = [
        &version[..],
        &random,
        &[0],
        &with_length(2, &SUITES),
        &[1, 0],
        &with_length(2, &extensions),
    ]
    .concat();
    let message = [&[1][..], &with_length(3, &body)].concat();
    [&[22, 3, 1][..], &with_length(2, &message)].concat()
}

/// Prefixes bytes with their length, in a field of `width` bytes.
fn with_length(width: usize, bytes: &[u8]) -> Vec<u8> {
    let length = bytes.len().to_be_bytes();
    [&length[length.len() - width..], bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_of_an_old_version_says_which() {
        let said = hello("mcp.example.com", [3, 2], [7; 32]);
        assert_eq!(said[..3], [22, 3, 1]);
        assert_eq!(
            usize::from(u16::from_be_bytes([said[3], said[4]])),
            said.len() - 5
        );
        let inner = u32::from_be_bytes([0, said[6], said[7], said[8]]);
        assert_eq!((said[5], inner as usize), (1, said.len() - 9));
        assert_eq!(said[9..11], [3, 2]);
        let named = said.windows(15).any(|part| part == b"mcp.example.com");
        assert!(named);
        // An address is no name (RFC 6066, 3).
        assert!(hello("192.0.2.1", [3, 1], [7; 32]).len() + 24 == said.len());
    }

    #[test]
    fn only_a_handshake_that_goes_on_in_an_old_version_is_one() {
        assert!(goes_on(&[22, 3, 1, 0, 61, 2, 0, 0, 57, 3, 1]));
        assert!(goes_on(&[22, 3, 2, 0, 61, 2, 0, 0, 57, 3, 2]));
        // An alert, another version, HTTP, nothing.
        assert!(!goes_on(&[21, 3, 1, 0, 2, 2, 70]));
        assert!(!goes_on(&[22, 3, 3, 0, 61, 2, 0, 0, 57, 3, 3]));
        assert!(!goes_on(b"HTTP/1.1 400"));
        assert!(!goes_on(&[]));
    }
}

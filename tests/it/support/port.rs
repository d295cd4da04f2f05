//! Ports for servers that have to know theirs before they listen.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// The ports that are handed out. They are below those that the system chooses from, so nobody gets one of them who
/// asks for any port or connects to another.
const FIRST: u32 = 16_000;
const COUNT: u32 = 16_000;

/// Returns a port on which nobody listens, and that no other test gets.
pub(crate) fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    // Processes that run at the same time begin in different places.
    let begin = std::process::id().wrapping_mul(97);
    (0..COUNT)
        .map(|_| begin.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % COUNT)
        .filter_map(|number| u16::try_from(FIRST + number).ok())
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("a port is free")
}

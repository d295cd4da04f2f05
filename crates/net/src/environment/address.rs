//! IP addresses in settings.

use std::net::{IpAddr, Ipv4Addr};

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer};

/// Parses an IP address. `localhost` is 127.0.0.1; other names are not resolved.
pub fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<IpAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.eq_ignore_ascii_case("localhost") {
        return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    text.parse().map_err(|_| {
        D::Error::custom(format_args!(
            "invalid value: {text:?}, expected an IP address: 127.0.0.1 for this machine only, 0.0.0.0 or :: for all interfaces"
        ))
    })
}

//! Proxies in front of the server, whose word about a request counts.

use std::net::IpAddr;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The networks that trusted proxies speak from.
///
/// What a request says of where it came from (`Forwarded`, `X-Forwarded-*`, the name of a user) can be written by
/// anybody. It counts only if the socket's other end is one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct TrustedProxies(
    #[serde(deserialize_with = "networks")]
    #[schemars(with = "Vec<String>")]
    Vec<IpNet>,
);

impl TrustedProxies {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The networks.
    pub fn networks(&self) -> &[IpNet] {
        &self.0
    }

    /// Whether an address is a trusted proxy's. An IPv4 address written as IPv6 counts as what it stands for.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// The networks that hold most of the world, which no proxies are alone in.
    pub fn too_wide(&self) -> impl Iterator<Item = &IpNet> {
        self.0.iter().filter(|network| match network {
            IpNet::V4(network) => network.prefix_len() < 8,
            IpNet::V6(network) => network.prefix_len() < 16,
        })
    }
}

impl FromIterator<IpNet> for TrustedProxies {
    fn from_iter<I: IntoIterator<Item = IpNet>>(networks: I) -> Self {
        Self(networks.into_iter().collect())
    }
}

/// Reads networks; an address alone is a network of one.
fn networks<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let texts: Vec<String> = crate::environment::list(deserializer)?;
    let network = |text: &String| {
        let network: Option<IpNet> = match text.parse::<IpAddr>() {
            Ok(address) => Some(IpNet::from(address)),
            Err(_) => text.parse().ok(),
        };
        network.map(|network| network.trunc()).ok_or_else(|| {
            serde::de::Error::custom(format_args!(
                "invalid value: {text:?}, expected a network such as 10.0.0.0/8, or an address"
            ))
        })
    };
    texts.iter().map(network).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(text: &str) -> Result<TrustedProxies, String> {
        serde_json::from_value(serde_json::json!(text)).map_err(|e| e.to_string())
    }

    #[test]
    fn an_address_is_trusted_if_a_network_holds_it() {
        let trusted = proxies("10.1.0.0/16, 192.0.2.7,2001:db8::/32").expect("networks");
        for (address, good) in [
            ("10.1.255.1", true),
            ("10.2.0.1", false),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("::ffff:192.0.2.7", true),
            ("2001:db8::1", true),
            ("2001:db9::1", false),
        ] {
            let found = trusted.contains(address.parse().expect("an address"));
            assert_eq!(found, good, "{address}");
        }
        assert!(TrustedProxies::default().is_empty());
        assert!(!TrustedProxies::default().contains(IpAddr::from([127, 0, 0, 1])));
    }

    #[test]
    fn networks_that_hold_most_of_the_world_are_found() {
        for (text, wide) in [
            ("0.0.0.0/0", true),
            ("::/0", true),
            ("8.0.0.0/7", true),
            ("10.0.0.0/8", false),
            ("fc00::/7", true),
            ("fd00:1::/32", false),
        ] {
            let found = proxies(text).expect("a network").too_wide().count() > 0;
            assert_eq!(found, wide, "{text}");
        }
        assert!(proxies("10.0.0.0/33").unwrap_err().contains("10.0.0.0/8"));
        assert!(proxies("proxy.example.com").is_err());
    }
}

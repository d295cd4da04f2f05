//! Proxies in front of the server, whose word about a request counts.

use std::hash::BuildHasher as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use foldhash::fast::RandomState;
use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};
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
    /// Returns true if no networks are configured.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The networks.
    pub fn networks(&self) -> &[IpNet] {
        &self.0
    }

    /// Returns true if an address belongs to a trusted proxy. An IPv4-mapped IPv6 address is treated as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Returns the client address of a request: the socket's peer, or behind a trusted proxy the address in
    /// `X-Forwarded-For` or `Forwarded` (RFC 7239). Hops are read from the right, where the nearest proxy writes, and
    /// only while they are trusted. Entries further left may be forged. If both headers are present and disagree, both
    /// are ignored, since one may be forged.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        self.behind_proxy(peer, headers, None)
    }

    /// Same as [`client`](Self::client), but if both headers disagree, the one counts that the proxy writes, as far as
    /// earlier requests tell.
    #[doc(hidden)]
    pub fn client_by(
        &self,
        peer: IpAddr,
        headers: &HeaderMap,
        seen: &ForwardedHeadersSeen,
    ) -> IpAddr {
        self.behind_proxy(peer, headers, Some(seen))
    }

    fn behind_proxy(
        &self,
        peer: IpAddr,
        headers: &HeaderMap,
        seen: Option<&ForwardedHeadersSeen>,
    ) -> IpAddr {
        if !self.contains(peer) {
            return peer;
        }
        let one = self.behind(peer, &x_forwarded_for(headers));
        let other = self.behind(peer, &forwarded_for(headers));
        match (one, other) {
            (Some(one), Some(other)) if one != other => {
                match seen.map_or(0, |seen| seen.alone(peer)) {
                    X_ALONE => one,
                    FORWARDED_ALONE => other,
                    _ => {
                        warn_of_disagreement(peer);
                        peer
                    }
                }
            }
            (Some(both), Some(_)) => both,
            (None, None) => peer,
            (one, other) => {
                if let Some(seen) = seen {
                    seen.note(peer, one.map_or(FORWARDED_ALONE, |_| X_ALONE));
                }
                one.or(other).unwrap_or(peer)
            }
        }
    }

    /// Returns the first hop from the right that is not a trusted proxy. If a hop is not a valid address, returns the
    /// last known one. `None` if there are no hops.
    fn behind(&self, peer: IpAddr, hops: &[Option<IpAddr>]) -> Option<IpAddr> {
        let mut nearest = peer;
        for hop in hops.iter().rev() {
            let Some(hop) = hop else {
                return Some(nearest);
            };
            nearest = *hop;
            if !self.contains(nearest) {
                break;
            }
        }
        (!hops.is_empty()).then_some(nearest)
    }

    /// The networks that hold most of the world, which no proxies are alone in.
    pub fn too_wide(&self) -> impl Iterator<Item = &IpNet> {
        self.0.iter().filter(|network| match network {
            IpNet::V4(network) => network.prefix_len() < 8,
            IpNet::V6(network) => network.prefix_len() < 16,
        })
    }
}

const X_ALONE: u64 = 1;
const FORWARDED_ALONE: u64 = 2;
const FLAGS: u64 = X_ALONE | FORWARDED_ALONE;

/// Headers with client addresses that each trusted proxy has sent without the other one.
///
/// A proxy writes its header into each request. A request without a header therefore proves that this proxy does not write it,
/// and that clients have written it where it is present.
#[derive(Debug)]
pub struct ForwardedHeadersSeen {
    /// Hash of a proxy's address, with its flags in the lowest bits. A proxy can displace another, of which nothing is known
    /// then.
    proxies: Box<[AtomicU64; 256]>,
    hashes: RandomState,
}

impl Default for ForwardedHeadersSeen {
    fn default() -> Self {
        Self {
            proxies: Box::new([const { AtomicU64::new(0) }; 256]),
            hashes: RandomState::default(),
        }
    }
}

impl ForwardedHeadersSeen {
    /// Returns the headers that a proxy has sent alone. If it has sent both so, several proxies share its address.
    fn alone(&self, proxy: IpAddr) -> u64 {
        let (place, hash) = self.place(proxy);
        flags(place.load(Relaxed), hash)
    }

    /// Notes a header that came alone. Mostly it is known, so that threads only read.
    fn note(&self, proxy: IpAddr, header: u64) {
        let (place, hash) = self.place(proxy);
        let known = place.load(Relaxed);
        let noted = hash | flags(known, hash) | header;
        if noted != known {
            let _ = place.compare_exchange(known, noted, Relaxed, Relaxed);
        }
    }

    fn place(&self, proxy: IpAddr) -> (&AtomicU64, u64) {
        let hash = self.hashes.hash_one(proxy);
        (
            &self.proxies[usize::from(hash.to_be_bytes()[0])],
            hash & !FLAGS,
        )
    }
}

/// The flags of a proxy, if they are its own.
fn flags(known: u64, hash: u64) -> u64 {
    match known & !FLAGS == hash {
        true => known & FLAGS,
        false => 0,
    }
}

/// Logs once that a proxy passes on a header that it does not write. Clients can cause it with each request.
#[cold]
fn warn_of_disagreement(proxy: IpAddr) {
    static LOGGED: Once = Once::new();
    LOGGED.call_once(|| {
        tracing::warn!(
            %proxy,
            setting = "http.trusted_proxies",
            "X-Forwarded-For and Forwarded of a request name different clients, so it counts as one of the proxy, which limits of \
             public addresses do not apply to; let the proxy remove the header that it does not write"
        );
    });
}

impl FromIterator<IpNet> for TrustedProxies {
    fn from_iter<I: IntoIterator<Item = IpNet>>(networks: I) -> Self {
        Self(networks.into_iter().collect())
    }
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Parses all addresses of `X-Forwarded-For`, in order; `None` for an invalid entry.
fn x_forwarded_for(headers: &HeaderMap) -> Vec<Option<IpAddr>> {
    let mut hops = Vec::new();
    for value in headers.get_all(X_FORWARDED_FOR) {
        match value.to_str() {
            Ok(value) => hops.extend(value.split(',').map(address)),
            Err(_) => hops.push(None),
        }
    }
    hops
}

/// Parses the parameter `for` of each `Forwarded` element, in order.
fn forwarded_for(headers: &HeaderMap) -> Vec<Option<IpAddr>> {
    let mut hops = Vec::new();
    for value in headers.get_all(FORWARDED) {
        let Ok(value) = value.to_str() else {
            hops.push(None);
            continue;
        };
        hops.extend(value.split(',').map(|element| {
            element.split(';').find_map(|pair| {
                let (name, value) = pair.split_once('=')?;
                let is_for = name.trim().eq_ignore_ascii_case("for");
                is_for.then(|| address(value.trim().trim_matches('"')))?
            })
        }));
    }
    hops
}

/// An address, with a port or without, in brackets or not.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    let address = bare.unwrap_or(text).parse::<IpAddr>().ok();
    let address = address.or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()));
    address.map(|address| address.to_canonical())
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
    fn the_client_is_the_first_from_the_right_that_is_no_proxy() {
        let trusted = proxies("10.0.0.0/8, 2001:db8::/32").expect("networks");
        let (x, f) = ("x-forwarded-for", "forwarded");
        // A proxy, and a client that it speaks for.
        let (near, far) = ("10.0.0.1", "198.51.100.1");
        for (peer, headers, client) in [
            (near, &[][..], near),
            ("192.0.2.9", &[(x, far)], "192.0.2.9"),
            (near, &[(x, far)], far),
            ("::ffff:10.0.0.1", &[(x, far)], far),
            // What the client itself has written stands further left.
            (near, &[(x, "1.1.1.1, 198.51.100.1, 10.2.3.4")], far),
            (near, &[(x, "1.1.1.1"), (x, far)], far),
            (near, &[(x, "10.9.9.9, 10.2.3.4")], "10.9.9.9"),
            (near, &[(x, "198.51.100.1:4711")], far),
            (near, &[(x, "2001:db9::1")], "2001:db9::1"),
            (near, &[(x, "[2001:db9::1]:80")], "2001:db9::1"),
            (near, &[(x, "1.1.1.1, unknown")], near),
            (near, &[(x, "1.1.1.1, , 10.2.3.4")], "10.2.3.4"),
            (near, &[(x, "")], near),
            (near, &[(x, "\u{e9}")], near),
            (near, &[(f, "for=198.51.100.1;proto=https")], far),
            (
                "2001:db8::7",
                &[(f, "for=1.1.1.1, proto=http;For=\"[2001:db9::1]:4711\"")],
                "2001:db9::1",
            ),
            (near, &[(f, "for=1.1.1.1, for=_hidden")], near),
            (near, &[(f, "for=1.1.1.1, proto=http")], near),
            (near, &[(f, "for=198.51.100.1"), (x, far)], far),
            // One of the two was written by who knows whom.
            (near, &[(f, "for=1.1.1.1"), (x, far)], near),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                let value = http::HeaderValue::from_bytes(value.as_bytes()).expect("a value");
                map.append(*name, value);
            }
            let peer = peer.parse().expect("an address");
            let found = trusted.client(peer, &map);
            assert_eq!(
                found.to_canonical().to_string(),
                client,
                "{peer} {headers:?}"
            );
        }
    }

    #[test]
    fn the_header_that_the_proxies_write_counts_if_another_is_forged() {
        let trusted = proxies("10.0.0.0/8").expect("networks");
        let seen = ForwardedHeadersSeen::default();
        let client_of = |proxy: u8, x: Option<&'static str>, forwarded: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            let value = http::HeaderValue::from_static;
            headers.extend(x.map(|x| (X_FORWARDED_FOR, value(x))));
            headers.extend(forwarded.map(|forwarded| (FORWARDED, value(forwarded))));
            let peer = IpAddr::from([10, 0, 0, proxy]);
            trusted.client_by(peer, &headers, &seen).to_string()
        };
        let client = |x, forwarded| client_of(1, x, forwarded);
        let (real, forged) = (Some("198.51.100.1"), Some("for=203.0.113.9"));
        assert_eq!(client(real, forged), "10.0.0.1", "either may be forged");
        // Probes of the proxy itself prove nothing.
        assert_eq!(client(None, None), "10.0.0.1");
        assert_eq!(client(real, forged), "10.0.0.1");
        assert_eq!(client(Some("198.51.100.2"), None), "198.51.100.2");
        assert_eq!(client(real, forged), "198.51.100.1");
        assert_eq!(client_of(2, real, forged), "10.0.0.2", "another proxy");
        // Proxies with one address that write different headers.
        assert_eq!(client(None, forged), "203.0.113.9");
        assert_eq!(client(real, forged), "10.0.0.1");
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

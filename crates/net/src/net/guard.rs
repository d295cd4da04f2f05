//! Egress policy: the addresses that outgoing requests may reach.
//!
//! A URL is parsed once, and every address of its host is checked before a connection is made. The connection uses one
//! of the checked addresses, so that DNS rebinding has no effect. Addresses that are not public are rejected unless the
//! [`Guard`] permits them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::{Host, Url};

use super::FetchError;

/// Egress policy for all outgoing requests of one purpose.
///
/// # Defaults
///
/// `https` and `http` to every public address. Loopback, private, link-local, shared, documentation, multicast and
/// reserved addresses are rejected, in every notation and embedding.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    https_only: bool,
    hosts: Vec<HostRule>,
    denied_hosts: Vec<HostRule>,
    trusted: Vec<HostRule>,
    networks: Vec<IpNet>,
    loopback: bool,
    web_ports_only: bool,
}

/// Network access policy, as configured.
///
/// ```yaml
/// egress: { hosts: [api.example.com, "*.example.org"], networks: [10.20.0.0/16] }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EgressConfig {
    /// Hosts to allow: `api.example.com`, `*.example.com` for all subdomains, with `:8443` for one port only. If
    /// empty, all hosts are allowed.
    #[serde(deserialize_with = "crate::environment::list")]
    pub hosts: Vec<String>,
    /// Hosts to deny, in the same form. An IP address is also denied for names that resolve to it.
    #[serde(deserialize_with = "crate::environment::list")]
    pub denied_hosts: Vec<String>,
    /// Non-public networks to allow, such as `10.20.0.0/16`.
    #[schemars(with = "Vec<String>")]
    pub networks: Vec<IpNet>,
    /// Allow connections to this machine, for development.
    pub loopback: bool,
    /// Reject plain `http`.
    pub https_only: bool,
}

impl EgressConfig {
    /// The guard that this describes.
    ///
    /// # Errors
    ///
    /// A host that cannot be one, and how to write it.
    pub fn guard(&self) -> Result<Guard, HostRuleError> {
        let rules = |texts: &[String]| {
            let rules = texts.iter().map(|text| HostRule::parse(text));
            rules.collect::<Result<Vec<_>, _>>()
        };
        Ok(Guard {
            https_only: self.https_only,
            hosts: rules(&self.hosts)?,
            denied_hosts: rules(&self.denied_hosts)?,
            networks: self.networks.clone(),
            loopback: self.loopback,
            ..Guard::default()
        })
    }
}

/// The string is not a valid host rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} names no host; write api.example.com, *.example.com for all below a domain, or api.example.com:8443 for one port"
)]
pub struct HostRuleError {
    text: String,
}

impl Guard {
    /// Public addresses over `http` and `https`.
    pub fn public() -> Self {
        Self::default()
    }

    /// Rejects plain `http`.
    #[must_use]
    pub fn https_only(mut self) -> Self {
        self.https_only = true;
        self
    }

    /// Lets this machine itself be reached.
    #[must_use]
    pub fn allow_loopback(mut self) -> Self {
        self.loopback = true;
        self
    }

    /// Lets a network be reached that is not public.
    #[must_use]
    pub fn allow_network(mut self, network: IpNet) -> Self {
        self.networks.push(network);
        self
    }

    /// Rejects ports of other protocols, such as mail and printing, as browsers do: a server there could interpret
    /// request lines as commands. Ports named by a host rule stay permitted.
    #[must_use]
    pub fn web_ports_only(mut self) -> Self {
        self.web_ports_only = true;
        self
    }

    /// Trusts the host and port of a URL from the operator that no caller can change. It may use this machine, a
    /// private network or plain `http`. Its redirect targets are not trusted.
    ///
    /// Link-local addresses stay blocked, since cloud metadata services provide credentials there. Those need
    /// [`allow_network`](Self::allow_network).
    #[must_use]
    pub fn trust(mut self, url: &Url) -> Self {
        if let Some(host) = url.host() {
            self.trusted.push(HostRule {
                name: plain_host(&host),
                below: false,
                port: url.port_or_known_default(),
            });
        }
        self
    }

    /// Checks a URL by its text alone.
    ///
    /// # Errors
    ///
    /// The scheme is not permitted, the URL contains a user name, or the host is not permitted.
    pub fn check_url(&self, url: &Url) -> Result<(), FetchError> {
        let host = url.host().ok_or(FetchError::Url("it names no host"))?;
        let name = plain_host(&host);
        if HOST_CHARACTERS_MAX < name.len() {
            return Err(FetchError::Url("its host is longer than 253 characters"));
        }
        let port = url.port_or_known_default().unwrap_or_default();
        let trusted = self.trusts(&name, port);
        match url.scheme() {
            "https" => {}
            "http" if trusted || !self.https_only => {}
            "http" => return Err(FetchError::Url("only https may be used")),
            _ => return Err(FetchError::Url("only http and https may be used")),
        }
        if port == 0 {
            return Err(FetchError::Url("port 0 cannot be reached"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(FetchError::Url("it must not hold a user name or password"));
        }
        let named = || {
            let mut rules = self.hosts.iter();
            rules.any(|rule| rule.port.is_some() && rule.matches(&name, port))
        };
        if self.web_ports_only && PORTS_OF_OTHERS.contains(&port) && !trusted && !named() {
            return Err(FetchError::Url("its port belongs to another protocol"));
        }
        let matches = |rules: &[HostRule]| rules.iter().any(|rule| rule.matches(&name, port));
        if matches(&self.denied_hosts) {
            return Err(FetchError::Host { host: name });
        }
        if !trusted && !self.hosts.is_empty() && !matches(&self.hosts) {
            return Err(FetchError::Host { host: name });
        }
        let literal = match host {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(IpAddr::V4(address)),
            Host::Ipv6(address) => Some(IpAddr::V6(address)),
        };
        match literal {
            Some(address) if !self.permits(&name, port, address) => {
                Err(FetchError::Address { host: name })
            }
            _ => Ok(()),
        }
    }

    /// Returns true if a connection to an address is permitted for a host.
    pub fn permits(&self, host: &str, port: u16, address: IpAddr) -> bool {
        if self.denies(address, port) {
            return false;
        }
        if is_public(address)
            || self
                .networks
                .iter()
                .any(|network| network.contains(&address))
        {
            return true;
        }
        let loopback = is_loopback(address);
        if loopback && self.loopback {
            return true;
        }
        (loopback || is_private(address)) && self.trusts(host, port)
    }

    /// Returns true if a rule denies the address itself, which a name can resolve to.
    fn denies(&self, address: IpAddr, port: u16) -> bool {
        if self.denied_hosts.is_empty() {
            return false;
        }
        let embedded = match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => embedded_v4(&address.segments()).map(IpAddr::V4),
        };
        let all = [Some(address.to_canonical()), embedded];
        all.into_iter().flatten().any(|address| {
            let name = address.to_string();
            let mut rules = self.denied_hosts.iter();
            rules.any(|rule| rule.matches(&name, port))
        })
    }

    /// Returns true if [`trust`](Self::trust) was given a URL with this host and port.
    pub(super) fn trusts(&self, host: &str, port: u16) -> bool {
        self.trusted.iter().any(|rule| rule.matches(host, port))
    }
}

/// The ports that the Fetch standard calls bad ports.
#[rustfmt::skip]
const PORTS_OF_OTHERS: [u16; 82] = [
    1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109, 110,
    111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532,
    540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061,
    6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
];

/// The longest name that DNS has.
const HOST_CHARACTERS_MAX: usize = 253;

/// A host as it is compared: without brackets, and without the dot that ends a full name.
fn plain_host<S: AsRef<str>>(host: &Host<S>) -> String {
    match host {
        Host::Domain(name) => {
            let name = name.as_ref();
            name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
        }
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    }
}

/// Rule for one host or all hosts below a domain, with one port or any.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HostRule {
    name: String,
    below: bool,
    port: Option<u16>,
}

impl HostRule {
    fn parse(text: &str) -> Result<Self, HostRuleError> {
        let error = || HostRuleError {
            text: text.to_owned(),
        };
        let (host, below) = match text.strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let with_port = match host.rsplit_once(':') {
            Some((name, port)) if !name.contains(':') || name.ends_with(']') => {
                Some((name, port.parse().map_err(|_| error())?))
            }
            _ => None,
        };
        let (name, port) = match with_port {
            Some((name, port)) => (name, Some(port)),
            None => (host, None),
        };
        let host = match name.parse::<Ipv6Addr>() {
            Ok(address) => Host::Ipv6(address),
            Err(_) => Host::parse(name).map_err(|_| error())?,
        };
        let is_name = |name: &str| {
            name.bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
        };
        match &host {
            Host::Domain(name) if !is_name(name) => return Err(error()),
            Host::Ipv4(_) | Host::Ipv6(_) if below => return Err(error()),
            _ => {}
        }
        Ok(Self {
            name: plain_host(&host),
            below,
            port,
        })
    }

    fn matches(&self, host: &str, port: u16) -> bool {
        let host_matches = if self.below {
            host.strip_suffix(&*self.name)
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
        } else {
            host == self.name
        };
        host_matches && self.port.is_none_or(|only| only == port)
    }
}

/// Returns true if an address is globally reachable.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, d] = address.octets();
    let special = match (a, b, c) {
        (0 | 10 | 127, ..) => true,
        (100, 64..=127, _) => true,
        (169, 254, _) => true,
        (172, 16..=31, _) => true,
        (192, 0, 0 | 2) => true,
        // Deprecated 6to4 relay anycast.
        (192, 88, 99) => true,
        (192, 168, _) => true,
        (198, 18 | 19, _) | (198, 51, 100) => true,
        (203, 0, 113) => true,
        (224..=255, ..) => true,
        // Azure platform endpoint, reachable from its virtual machines.
        (168, 63, 129) => d == 16,
        _ => false,
    };
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    if let Some(embedded) = embedded_v4(&segments) {
        return is_public_v4(embedded);
    }
    // ISATAP, whose interfaces are named after an IPv4 address.
    if let [.., 0 | 0x0200, 0x5efe, high, low] = segments {
        let inner = Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
        if !is_public_v4(inner) {
            return false;
        }
    }
    match (segments[0], segments[1]) {
        // Teredo, ORCHID, benchmarks and other special assignments.
        (0x2001, 0..=0x01ff) => false,
        // Documentation.
        (0x2001, 0x0db8) | (0x3fff, 0..=0x0fff) => false,
        // 6to4, which holds an IPv4 address.
        (0x2002, _) => false,
        // Only 2000::/3 is allocated as global unicast. That excludes mapped, compatible, local, link-local and
        // multicast addresses.
        (first, _) => first & 0xe000 == 0x2000,
    }
}

/// The IPv4 address behind NAT64's well-known prefix, which is how a network without IPv4 reaches it.
fn embedded_v4(segments: &[u16; 8]) -> Option<Ipv4Addr> {
    let [0x64, 0xff9b, 0, 0, 0, 0, high, low] = *segments else {
        return None;
    };
    Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
}

fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => address == Ipv6Addr::LOCALHOST,
    }
}

/// Returns true if an address belongs to a private network.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [a, b, ..] = address.octets();
            // The Alibaba metadata address lies in the shared range and is excluded.
            let is_shared = a == 100 && (64..=127).contains(&b);
            address.is_private() || (is_shared && address.octets() != [100, 100, 100, 200])
        }
        // So are those of AWS and Google among the unique local ones.
        IpAddr::V6(address) => {
            let segments = address.segments();
            segments[0] & 0xfe00 == 0xfc00
                && !matches!(segments[..2], [0xfd00, 0x0ec2] | [0xfd20, 0x00ce])
        }
    }
}

#[cfg(test)]
mod tests;

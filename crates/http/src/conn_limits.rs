//! Connection counts by client address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::limit::{is_public, subnet};
use crate::net::{Mutex, TrustedProxies};

/// Connection counts by client network.
#[derive(Clone, Debug)]
pub(crate) struct ConnLimits {
    /// Maximum number; 0 for no limit, which disables counting.
    max: usize,
    /// True if shared addresses, such as private ones, are limited too.
    everywhere: bool,
    /// Trusted proxies, which share one address among many clients.
    trusted: TrustedProxies,
    counts: Arc<Mutex<HashMap<u128, usize>>>,
}

/// A counted connection of its network, released on drop.
#[derive(Debug)]
pub(crate) struct ConnPermit(Option<(u128, ConnLimits)>);

impl ConnLimits {
    /// Applies the configured limit; the default is 1024, for public addresses only. Trusted proxies have no limit,
    /// since many clients share them.
    pub fn new(max: Option<usize>, trusted: TrustedProxies) -> Self {
        Self {
            max: max.unwrap_or(1024),
            everywhere: max.is_some(),
            trusted,
            counts: Arc::default(),
        }
    }

    /// Counts a connection. Also returns true if the limit is exceeded.
    pub fn enter(&self, address: IpAddr) -> (ConnPermit, bool) {
        let is_limited = self.everywhere || is_public(address);
        if self.max == 0 || !is_limited || self.trusted.contains(address) {
            return (ConnPermit(None), false);
        }
        let network = subnet(address);
        let mut counts = self.counts.lock();
        let count = counts.entry(network).or_default();
        *count += 1;
        let too_many = self.max < *count;
        drop(counts);
        (ConnPermit(Some((network, self.clone()))), too_many)
    }
}

impl Drop for ConnPermit {
    fn drop(&mut self) {
        let Some((network, peers)) = self.0.take() else {
            return;
        };
        let mut counts = peers.counts.lock();
        if let Some(count) = counts.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_an_address_are_counted_to_the_one() {
        let address = |text: &str| -> IpAddr { text.parse().expect("an address") };
        let (one, other) = (address("192.0.2.1"), address("192.0.2.2"));
        let peers = ConnLimits::new(Some(2), TrustedProxies::default());
        let first = peers.enter(one);
        let second = peers.enter(one);
        let third = peers.enter(one);
        assert_eq!([first.1, second.1, third.1], [false, false, true]);
        assert!(!peers.enter(other).1);
        drop((first, third));
        assert!(!peers.enter(one).1);
        drop(second);
        assert!(peers.counts.lock().is_empty());
        let unlimited = ConnLimits::new(Some(0), TrustedProxies::default());
        let all: Vec<_> = (0..10).map(|_| unlimited.enter(one)).collect();
        assert!(all.iter().all(|(_, too_many)| !too_many));
    }

    #[test]
    fn trusted_proxies_have_as_many_as_they_want() {
        let proxy = "192.0.2.0/24".parse().expect("a network");
        let peers = ConnLimits::new(Some(1), TrustedProxies::from_iter([proxy]));
        let all: Vec<_> = (0..3).map(|_| peers.enter([192, 0, 2, 1].into())).collect();
        assert!(all.iter().all(|(_, too_many)| !too_many));
        let others: Vec<_> = (0..2).map(|_| peers.enter([192, 0, 3, 1].into())).collect();
        assert!(others[1].1);
    }

    #[test]
    fn by_default_only_public_addresses_are_counted() {
        let peers = ConnLimits::new(None, TrustedProxies::default());
        for (address, last) in [([192, 0, 2, 1], true), ([127, 0, 0, 1], false)] {
            let all: Vec<_> = (0..1025).map(|_| peers.enter(address.into())).collect();
            assert!(all[..1024].iter().all(|(_, too_many)| !too_many));
            assert_eq!(all[1024].1, last);
        }
    }
}

//! Name resolution without the system's resolver, which a static binary lacks.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::LookupIpStrategy;
use hickory_resolver::net::NetError;

use super::reread::Reread;

/// Looks up the addresses of names.
pub trait Resolve: Send + Sync + 'static {
    /// Resolves all addresses of a name, in both families. A name without addresses is an error.
    ///
    /// # Errors
    ///
    /// The name does not exist, or no name server responded.
    fn addresses<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// Resolver that reads `/etc/hosts` and then queries the name servers of `/etc/resolv.conf`. Both files are read on
/// first use, and again when they have changed. `localhost` and its subdomains always resolve to this machine (RFC 6761).
#[derive(Debug)]
pub struct SystemResolver {
    resolver: Reread<TokioResolver, { FILES.len() }>,
}

/// Files that the resolver reads.
const FILES: [&str; 2] = ["/etc/hosts", "/etc/resolv.conf"];
/// Interval at which changes of the files are looked for.
const LOOK: Duration = Duration::from_secs(5);

impl Default for SystemResolver {
    fn default() -> Self {
        Self {
            resolver: Reread::new(FILES.map(Into::into), LOOK),
        }
    }
}

impl SystemResolver {
    fn get(&self) -> io::Result<Arc<TokioResolver>> {
        let read = |_: &_| {
            let mut builder = TokioResolver::builder_tokio()?;
            // Every address is checked before one is used.
            builder.options_mut().ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
            builder.build()
        };
        let made = self.resolver.get(read, |_, _| {});
        made.map_err(|error| {
            io::Error::other(format!(
                "the system's list of name servers cannot be used: {error}"
            ))
        })
    }
}

impl Resolve for SystemResolver {
    fn addresses<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let plain = name.strip_suffix('.').unwrap_or(name);
            if plain == "localhost" || plain.ends_with(".localhost") {
                return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
            }
            let found = self
                .get()?
                .lookup_ip(name)
                .await
                .map_err(|error| io::Error::other(in_words(&error)))?;
            Ok(found.iter().collect())
        })
    }
}

/// An error of the resolver, whose own words for a name without addresses are a query in the form of its source code.
fn in_words(error: &NetError) -> String {
    match error {
        error if error.is_nx_domain() => "the name does not exist (NXDOMAIN)".to_owned(),
        error if error.is_no_records_found() => "the name has no addresses".to_owned(),
        NetError::Timeout => "the name servers did not respond in time".to_owned(),
        NetError::NoConnections => "no name server could be reached".to_owned(),
        error => error.to_string(),
    }
}

/// The resolver that all clients of this process share, so that they share what it has learned.
pub(super) fn shared() -> Arc<dyn Resolve> {
    static SHARED: LazyLock<Arc<SystemResolver>> = LazyLock::new(Arc::default);
    SHARED.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_resolver_are_told_in_words() {
        use hickory_resolver::net::{DnsError, NoRecords};
        use hickory_resolver::proto::op::{Query, ResponseCode};
        let reported = |code| {
            in_words(&DnsError::NoRecordsFound(NoRecords::new(Query::default(), code)).into())
        };
        assert_eq!(
            reported(ResponseCode::NXDomain),
            "the name does not exist (NXDOMAIN)"
        );
        assert_eq!(reported(ResponseCode::NoError), "the name has no addresses");
    }
}

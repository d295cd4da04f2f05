//! Name resolution without the system's resolver, which a static binary lacks.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::LookupIpStrategy;
use hickory_resolver::net::NetError;
use tokio::time::Instant;

use super::lock::Mutex;
use crate::environment::FileStamp;

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
#[derive(Debug, Default)]
pub struct SystemResolver {
    resolver: Reread<TokioResolver, [Option<FileStamp>; FILES.len()]>,
}

/// Files that the resolver reads.
const FILES: [&str; 2] = ["/etc/hosts", "/etc/resolv.conf"];
/// Interval at which changes of the files are looked for.
const LOOK: Duration = Duration::from_secs(5);

/// A value that is read from files, and again when their stamps have changed.
#[derive(Debug)]
struct Reread<T, S>(Mutex<Option<Known<T, S>>>);

#[derive(Debug)]
struct Known<T, S> {
    value: Arc<T>,
    stamps: S,
    looked: Instant,
}

impl<T, S> Default for Reread<T, S> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T, S: Copy + PartialEq> Reread<T, S> {
    /// Returns the value. If the files have changed and cannot be used, it is the previous one.
    fn get<E>(
        &self,
        stamps: impl FnOnce() -> S,
        read: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let mut known = self.0.lock();
        let now = Instant::now();
        let before = match &*known {
            Some(known) if now < known.looked + LOOK => return Ok(Arc::clone(&known.value)),
            Some(known) => Some((Arc::clone(&known.value), known.stamps)),
            None => None,
        };
        // Before the files are read, so that a change meanwhile is noticed.
        let mut stamps = stamps();
        let value = match before {
            Some((value, old)) if old == stamps => value,
            Some((value, old)) => read().map_or_else(
                |_| {
                    // The change is read at the next look.
                    stamps = old;
                    value
                },
                Arc::new,
            ),
            None => Arc::new(read()?),
        };
        *known = Some(Known {
            value: Arc::clone(&value),
            stamps,
            looked: now,
        });
        Ok(value)
    }
}

impl SystemResolver {
    fn get(&self) -> io::Result<Arc<TokioResolver>> {
        let stamps = || FILES.map(|file| FileStamp::of(Path::new(file)));
        let made = self.resolver.get(stamps, || {
            let mut builder = TokioResolver::builder_tokio()?;
            // Every address is checked before one is used.
            builder.options_mut().ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
            builder.build()
        });
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
    static SHARED: OnceLock<Arc<SystemResolver>> = OnceLock::new();
    SHARED.get_or_init(Arc::default).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn files_are_read_again_when_they_have_changed_or_could_not_be_read() {
        let read = Reread::default();
        let get = |length: Option<u64>, found: Result<u32, &'static str>| {
            read.get(|| length, || found).map(|value| *value)
        };
        assert_eq!(get(None, Err("missing")), Err("missing"));
        assert_eq!(get(Some(1), Ok(1)), Ok(1));
        // Not looked at again at once, and not read again unless they have changed.
        assert_eq!(get(Some(2), Ok(2)), Ok(1));
        tokio::time::advance(LOOK).await;
        assert_eq!(get(Some(1), Ok(2)), Ok(1));
        tokio::time::advance(LOOK).await;
        assert_eq!(get(Some(2), Ok(2)), Ok(2));
        tokio::time::advance(LOOK).await;
        assert_eq!(get(None, Err("missing")), Ok(2));
        tokio::time::advance(LOOK).await;
        assert_eq!(get(Some(3), Ok(3)), Ok(3));
    }

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

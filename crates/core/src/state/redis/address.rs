//! Addresses of servers: one, several that know which is the master, or a cluster.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisConnectionInfo};

/// Servers named by a URL.
#[derive(Clone)]
pub(super) enum Address {
    /// A single server.
    One(ConnectionInfo),
    /// Sentinels, which say who the master is.
    Sentinel {
        sentinels: Vec<ConnectionAddr>,
        /// Name of the master, as the sentinels know it.
        service: String,
        /// True if connections to the master use TLS. Connections to the sentinels then do too.
        is_secure: bool,
        /// For the master.
        login: Login,
        /// For the sentinels.
        sentinel_login: Login,
    },
    /// Nodes of a cluster.
    Cluster {
        nodes: Vec<ConnectionAddr>,
        is_secure: bool,
        login: Login,
    },
}

/// User, password and database.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: i64,
}

impl Login {
    pub(super) fn settings(&self) -> RedisConnectionInfo {
        let mut settings = RedisConnectionInfo::default().set_db(self.database);
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        settings
    }
}

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

impl Address {
    /// Returns true if the URL requires TLS.
    pub(super) fn is_secure(&self) -> bool {
        match self {
            Self::One(server) => matches!(server.addr(), ConnectionAddr::TcpTls { .. }),
            Self::Sentinel { is_secure, .. } | Self::Cluster { is_secure, .. } => *is_secure,
        }
    }

    /// Parses `redis://host:6379/0`, `redis+sentinel://host:26379,host/name/0` or `redis+cluster://host:6379,host`.
    /// Each can have `rediss` for TLS, and `user:password@` before the first host. `None` if the URL has another
    /// form.
    pub(super) fn parse(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let (is_secure, kind) = match scheme.strip_prefix("rediss") {
            Some(kind) => (true, kind),
            None => (false, scheme.strip_prefix("redis")?),
        };
        if kind.is_empty() {
            return url.into_connection_info().ok().map(Self::One);
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (read_login(login)?, hosts),
            None => (Login::default(), authority),
        };
        match kind {
            "+cluster" => {
                // A cluster has one database.
                if !matches!(path, "" | "0") || !query.is_empty() {
                    return None;
                }
                Some(Self::Cluster {
                    nodes: read_hosts(hosts, REDIS_PORT, is_secure)?,
                    is_secure,
                    login,
                })
            }
            "+sentinel" => {
                let (service, database) = path.split_once('/').unwrap_or((path, "0"));
                let service = decoded(service)?;
                if service.is_empty() {
                    return None;
                }
                let mut sentinel_login = Login::default();
                for pair in query.split('&').filter(|pair| !pair.is_empty()) {
                    match pair.split_once('=')? {
                        ("sentinel_user", user) => sentinel_login.user = Some(decoded(user)?),
                        ("sentinel_password", password) => {
                            sentinel_login.password = Some(decoded(password)?);
                        }
                        _ => return None,
                    }
                }
                Some(Self::Sentinel {
                    sentinels: read_hosts(hosts, SENTINEL_PORT, is_secure)?,
                    service,
                    is_secure,
                    login: Login {
                        database: database.parse().ok().filter(|number| 0 <= *number)?,
                        ..login
                    },
                    sentinel_login,
                })
            }
            _ => None,
        }
    }
}

/// `user:password`, `:password` or `user`.
fn read_login(text: &str) -> Option<Login> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let part = |text: &str| match text {
        "" => Some(None),
        text => decoded(text).map(Some),
    };
    Some(Login {
        user: part(user)?,
        password: part(password)?,
        database: 0,
    })
}

fn read_hosts(text: &str, port: u16, is_secure: bool) -> Option<Vec<ConnectionAddr>> {
    text.split(',')
        .map(|host| {
            let (host, port) = match host.strip_prefix('[') {
                Some(rest) => {
                    let (host, after) = rest.split_once(']')?;
                    match after.strip_prefix(':') {
                        Some(port) => (host, port.parse().ok()?),
                        None if after.is_empty() => (host, port),
                        None => return None,
                    }
                }
                None => match host.split_once(':') {
                    Some((host, port)) => (host, port.parse().ok()?),
                    None => (host, port),
                },
            };
            if host.is_empty() {
                return None;
            }
            let host = host.to_owned();
            Some(if is_secure {
                ConnectionAddr::TcpTls {
                    host,
                    port,
                    insecure: false,
                    tls_params: None,
                }
            } else {
                ConnectionAddr::Tcp(host, port)
            })
        })
        .collect()
}

fn decoded(text: &str) -> Option<String> {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    decoded.ok().map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(addresses: &[ConnectionAddr]) -> Vec<String> {
        addresses.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn one_server_is_what_it_was() {
        for url in ["redis://redis:6379", "rediss://u:p@redis:6379/2"] {
            assert!(
                matches!(Address::parse(url), Some(Address::One(_))),
                "{url}"
            );
        }
    }

    #[test]
    fn with_another_s_at_the_end_of_redis_it_is_tls() {
        for (url, is_secure) in [
            ("redis://redis:6379", false),
            ("rediss://u:p@redis:6379/2", true),
            ("redis+sentinel://one/m", false),
            ("rediss+sentinel://one/m", true),
            ("redis+cluster://one", false),
            ("rediss+cluster://one", true),
        ] {
            let address = Address::parse(url).expect("an address");
            assert_eq!(address.is_secure(), is_secure, "{url}");
        }
    }

    #[test]
    fn sentinels_and_what_they_call_the_master() {
        let Some(Address::Sentinel {
            sentinels,
            service,
            is_secure,
            login,
            sentinel_login,
        }) = Address::parse(
            "redis+sentinel://app:s%40cret@one:5000,two,[::1]:7/my%20master/3?sentinel_password=other",
        )
        else {
            panic!("it is an address");
        };
        assert_eq!(hosts(&sentinels), ["one:5000", "two:26379", "::1:7"]);
        assert_eq!((&*service, is_secure), ("my master", false));
        assert_eq!(
            (
                login.user.as_deref(),
                login.password.as_deref(),
                login.database
            ),
            (Some("app"), Some("s@cret"), 3)
        );
        assert_eq!(sentinel_login.password.as_deref(), Some("other"));
        assert_eq!(sentinel_login.user, None);
    }

    #[test]
    fn nodes_of_a_cluster() {
        let Some(Address::Cluster {
            nodes,
            is_secure,
            login,
        }) = Address::parse("rediss+cluster://:secret@one:7000,two")
        else {
            panic!("it is an address");
        };
        assert_eq!(hosts(&nodes), ["one:7000", "two:6379"]);
        assert!(is_secure);
        assert_eq!(
            (login.user, login.password.as_deref()),
            (None, Some("secret"))
        );
    }

    #[test]
    fn what_is_no_address_is_none() {
        for url in [
            "",
            "redis",
            "http://redis:6379",
            "redis+other://one",
            "redis+sentinel://one",
            "redis+sentinel://one/",
            "redis+sentinel://one/m/x",
            "redis+sentinel://one/m/-1",
            "redis+sentinel://one/m?tls=true",
            "redis+sentinel://one:port/m",
            "redis+sentinel:///m",
            "redis+cluster://",
            "redis+cluster://one,,two",
            "redis+cluster://one/1",
            "redis+cluster://[::1",
        ] {
            assert!(Address::parse(url).is_none(), "{url}");
        }
    }
}

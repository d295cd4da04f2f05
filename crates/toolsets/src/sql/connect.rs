//! Connection settings of a PostgreSQL database: its URL, and TLS.

use std::error::Error as StdError;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, SslNegotiation};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Idle time after which the system checks that a server is still there. Networks drop connections that are idle for
/// longer than some minutes, and do not say so.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 4;
/// The library's default for the idle time.
const KEEPALIVE_IDLE_UNSET: Duration = Duration::from_secs(2 * 60 * 60);

/// Reads a URL. The problem never quotes it, since it can hold a password.
pub(super) fn config(url: &str, has_ca_file: bool, timeout: Duration) -> Result<Config, String> {
    let mut config = parse(url)?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err("names no host".to_owned());
    }
    // A URL without `sslmode` means `prefer`. It would fall back to plain text over a network, and on this machine, where
    // no certificate is public, it would fail for each server that offers TLS.
    if config.get_ssl_mode() == SslMode::Prefer {
        let wants_tls = config.get_ssl_negotiation() == SslNegotiation::Direct;
        if wants_tls || !is_local(&config) {
            config.ssl_mode(SslMode::Require);
        } else if !has_ca_file && config.get_hostaddrs().is_empty() {
            config.ssl_mode(SslMode::Disable);
        }
    }
    if config.get_keepalives_idle() == KEEPALIVE_IDLE_UNSET {
        config.keepalives_idle(KEEPALIVE_IDLE);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(KEEPALIVE_INTERVAL);
    }
    if config.get_keepalives_retries().is_none() {
        config.keepalives_retries(KEEPALIVE_RETRIES);
    }
    config
        .application_name("longshore")
        .connect_timeout(timeout);
    Ok(config)
}

fn parse(url: &str) -> Result<Config, String> {
    let parsed = url.parse::<Config>().or_else(|error| {
        // Certificates and host names are always verified, which the library has no word for.
        let known = url
            .replace("sslmode=verify-full", "sslmode=require")
            .replace("sslmode=verify-ca", "sslmode=require");
        if is_invalid(&error, "sslmode") {
            known.parse()
        } else {
            Err(error)
        }
    });
    parsed.map_err(|error| {
        if is_invalid(&error, "sslmode") {
            "has an sslmode that is not known; write disable, require or verify-full".to_owned()
        } else if cause(&error).starts_with("unknown option") {
            "has a parameter that is not supported; the file of sslrootcert is set as ca_file"
                .to_owned()
        } else {
            "is not the URL of a PostgreSQL database; write postgres://USER:PASSWORD@HOST/DATABASE, with special characters of the password percent-encoded"
                .to_owned()
        }
    })
}

fn is_invalid(error: &tokio_postgres::Error, option: &str) -> bool {
    cause(error) == format!("invalid value for option `{option}`")
}

fn cause(error: &tokio_postgres::Error) -> String {
    error.source().map(ToString::to_string).unwrap_or_default()
}

/// Returns true if all connections go to this host. Explicit addresses take precedence over host names.
fn is_local(config: &Config) -> bool {
    let is_local = |host: &Host| match host {
        Host::Tcp(name) => {
            name == "localhost"
                || name
                    .parse::<std::net::IpAddr>()
                    .is_ok_and(|address| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    };
    match config.get_hostaddrs() {
        [] => config.get_hosts().iter().all(is_local),
        addresses => addresses.iter().all(std::net::IpAddr::is_loopback),
    }
}

pub(super) fn tls(ca_file: Option<&Path>) -> Result<MakeRustlsConnect, String> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            let shown = path.display();
            let certificates = CertificateDer::pem_file_iter(path)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|error| format!("names {shown}, which cannot be read: {error}"))?;
            let (added, _) = roots.add_parsable_certificates(certificates);
            if added == 0 {
                return Err(format!("names {shown}, which contains no certificate"));
            }
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("cannot be used: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Config, String> {
        config(url, false, Duration::from_secs(1))
    }

    #[test]
    fn a_server_elsewhere_is_spoken_to_by_tls_unless_the_url_says_otherwise() {
        for (url, mode) in [
            ("postgres://me@db.internal/shop", SslMode::Require),
            ("postgres://me@10.0.0.1/shop", SslMode::Require),
            // No certificate of this machine is public.
            ("postgres://me@localhost/shop", SslMode::Disable),
            ("postgres://me@127.0.0.1/shop", SslMode::Disable),
            ("postgres://me@[::1]/shop", SslMode::Disable),
            (
                "postgres://me@localhost/shop?sslmode=require",
                SslMode::Require,
            ),
            (
                "postgres://me@db.internal/shop?sslmode=disable",
                SslMode::Disable,
            ),
            ("postgres://me@localhost,db.internal/shop", SslMode::Require),
            // The word is not a parameter here.
            (
                "postgres://me:sslmode@db.internal/sslmode",
                SslMode::Require,
            ),
            (
                "postgres://me@db.internal/shop?sslmode=prefer",
                SslMode::Require,
            ),
            (
                "host=localhost hostaddr=10.0.0.1 user=me dbname=shop",
                SslMode::Require,
            ),
            // The other end of a tunnel can be anywhere.
            (
                "host=db.internal hostaddr=127.0.0.1 user=me dbname=shop",
                SslMode::Prefer,
            ),
        ] {
            assert_eq!(read(url).expect(url).get_ssl_mode(), mode, "{url}");
        }
        let with_ca = config("postgres://me@localhost/shop", true, Duration::from_secs(1));
        assert_eq!(with_ca.expect("a URL").get_ssl_mode(), SslMode::Prefer);
    }

    #[test]
    fn verification_can_be_asked_for_by_the_words_of_other_clients() {
        for url in [
            "postgres://me@localhost/shop?sslmode=verify-full",
            "postgres://me@db.internal/shop?sslmode=verify-ca&connect_timeout=3",
            "host=db.internal user=me sslmode=verify-full",
        ] {
            let config = read(url).expect(url);
            assert_eq!(config.get_ssl_mode(), SslMode::Require, "{url}");
        }
        let password = "postgres://me:sslmode=verify-full@db.internal/shop";
        let config = read(password).expect("a URL");
        assert_eq!(config.get_password(), Some(&b"sslmode=verify-full"[..]));
    }

    #[test]
    fn a_problem_names_the_parameter_but_not_the_url() {
        for (url, expected) in [
            ("postgres://me:hunter2@h/d?sslmode=allow", "an sslmode"),
            ("postgres://me:hunter2@h/d?sslrootcert=/ca", "ca_file"),
            ("postgres://me@h/d?hunter2=1", "not supported"),
            ("postgres://me:hunter2@h:port/d", "percent-encoded"),
            ("mysql://me:hunter2@h/d", "postgres://"),
        ] {
            let problem = read(url).expect_err(url);
            assert!(problem.contains(expected), "{url}: {problem}");
            assert!(!problem.contains("hunter2"), "{problem}");
        }
    }

    #[test]
    fn idle_connections_are_kept_alive() {
        let config = read("postgres://me@h/d").expect("a URL");
        assert_eq!(config.get_keepalives_idle(), KEEPALIVE_IDLE);
        let own = read("postgres://me@h/d?keepalives_idle=20&keepalives_retries=2").expect("a URL");
        assert_eq!(own.get_keepalives_idle(), Duration::from_secs(20));
        assert_eq!(own.get_keepalives_retries(), Some(2));
    }
}

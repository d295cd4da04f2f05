//! Binds the listeners of the transport and of the admin port.

use std::net::SocketAddr;

use super::super::error::AppError;
use super::super::warnings::warn_in_public;
use crate::config::{Config, Transport, is_exposed, validate_bound};
use crate::environment::Probe;
use crate::transport::http::{AdminListener, HttpConfig, Listener, Tls, TlsError};

/// Binds the listener of the transport, if it has one, and that of the admin port.
pub(super) fn bind_listeners(
    config: &Config,
) -> Result<(Option<Listener>, Option<AdminListener>), AppError> {
    let http = &config.http;
    let listener = match config.transport {
        Transport::Stdio => None,
        Transport::Http => Some(bind_http(http, load_tls(config)?)?),
    };
    let admin = AdminListener::bind(http).map_err(|source| {
        let address = http.admin.address(http.host);
        AppError::Bind {
            address: address.unwrap_or_else(|| SocketAddr::new(http.host, 0)),
            source,
        }
    })?;
    Ok((listener, admin))
}

/// Checks the address that was bound, and warns of what it exposes. Returns the settings with this address.
pub(super) fn check_listener(
    listener: &Listener,
    config: &Config,
    probe: &Probe,
    authenticates: bool,
    has_shared_keys: bool,
) -> Result<HttpConfig, AppError> {
    if let Some(address) = listener.address() {
        validate_bound(config, address, probe, authenticates)?;
    }
    let mut http = config.http.clone();
    listener.settle(&mut http);
    if is_exposed(&http) {
        warn_in_public(&http, authenticates, has_shared_keys);
    }
    Ok(http)
}

/// Loads the certificate of the server. Over standard input and output it has none.
pub(in super::super) fn load_tls(config: &Config) -> Result<Option<Tls>, TlsError> {
    match config.transport {
        Transport::Stdio => Ok(None),
        Transport::Http => Tls::load(&config.http.tls),
    }
}

fn bind_http(http: &HttpConfig, tls: Option<Tls>) -> Result<Listener, AppError> {
    Listener::bind(http, tls).map_err(|source| match http.unix_socket.clone() {
        Some(path) => AppError::BindFile { path, source },
        None => {
            let address = SocketAddr::new(http.host, http.port);
            AppError::Bind { address, source }
        }
    })
}

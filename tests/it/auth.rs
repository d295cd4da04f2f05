//! Authentication: API keys, users that a proxy forwards, and methods of the application.

mod authserver;
mod dpop;
mod introspection;
mod keys;
mod policy;
mod proxies;
mod scopes;
mod tokens;

use longshore::Config;
use longshore::auth::{ApiKeyConfig, KeyHash};
use longshore::seal::Secret;

use crate::support::{Running, Serve};

/// The key of `key:ci`.
pub(crate) const CI: &str = "lsk_the-key-of-the-one-that-is-called-ci";
/// The key of `key:bob`.
pub(crate) const BOB: &str = "lsk_the-key-of-the-one-that-is-called-bob";

/// A holder of one key, of which the server has the hash.
pub(crate) fn holder(name: &str, key: &str) -> ApiKeyConfig {
    ApiKeyConfig {
        name: name.to_owned(),
        keys: vec![Secret::from(KeyHash::of(key).to_string())],
        ..ApiKeyConfig::default()
    }
}

/// Lets `ci` and `bob` in.
pub(crate) fn with_keys(config: &mut Config) {
    config.auth.api_keys = vec![holder("ci", CI), holder("bob", BOB)];
}

/// A demo server that asks for keys.
fn locked() -> Running {
    Serve::new()
        .configured(|c| {
            c.toolsets.push("demo".to_owned());
            with_keys(c);
        })
        .start()
}

/// The value of `Authorization` for a key or a token.
pub(crate) fn bearer(credential: &str) -> String {
    format!("Bearer {credential}")
}

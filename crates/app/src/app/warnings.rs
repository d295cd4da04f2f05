//! Warnings at start about settings that may not have the intended effect.

use crate::auth::{Authentication, PolicyConfig};
use crate::config::{Config, open_to_others_in_container};
use crate::transport::http::HttpConfig;

/// Warns of rules for API keys that do not exist. Either the key follows later, or the name is misspelled.
pub(super) fn warn_of_nobody(policy: &PolicyConfig, auth: &Authentication) {
    for (at, rule) in policy.rules.iter().enumerate() {
        for principal in &rule.principals {
            let is_plain = !principal.contains(['*', '?', '[', '{']);
            if is_plain && principal.starts_with("key:") && auth.holder(principal).is_none() {
                tracing::warn!(
                    setting = %format_args!("policy.rules[{at}].principals"),
                    principal,
                    "no API key has that name, so the rule has no effect until one is added to auth.api_keys"
                );
            } else if is_plain && auth.holder(&format!("key:{principal}")).is_some() {
                tracing::warn!(
                    setting = %format_args!("policy.rules[{at}].principals"),
                    principal,
                    "the rule does not apply to the API key of that name; write key: in front of it"
                );
            }
        }
    }
}

/// Warns of secrets that others can read. Outside of a container the server does not start with them.
pub(super) fn warn_of_open_secrets(config: &Config) {
    for (setting, path) in open_to_others_in_container(config) {
        tracing::warn!(
            setting,
            path = %path.display(),
            "other users of this container can read it; remove that permission, for a mounted Secret with defaultMode: 0440"
        );
    }
}

/// Warns of the defaults of a server that other machines can reach.
pub(super) fn warn_in_public(http: &HttpConfig, proved: bool, keys_are_shared: bool) {
    if !proved {
        tracing::warn!(
            setting = "auth.api_keys",
            "authentication is off: everyone who reaches this address can use the tools"
        );
    }
    if http.allowed_hosts.is_empty() && http.public_url.is_none() {
        tracing::warn!(
            setting = "http.allowed_hosts",
            "requests for any host are accepted; pages that this server serves may call under an IP address or localhost, pages of other servers only if http.allowed_origins lists them"
        );
    }
    if !keys_are_shared {
        tracing::warn!(
            setting = "seal.keys",
            "sessions are sealed with a key made at start: other replicas, and this one after a restart, will not accept them"
        );
    }
}

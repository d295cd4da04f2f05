//! Warnings at start about settings that may not have the intended effect.

use crate::auth::Authentication;
use crate::config::{Config, open_to_others_in_container};
use crate::transport::http::HttpConfig;

/// Warns of rules for callers that do not exist. Either an API key follows later, or the name is misspelled.
/// `has_own_methods` is true if authentication methods of the application can name callers in any way.
pub(super) fn warn_of_nobody(config: &Config, auth: &Authentication, has_own_methods: bool) {
    let anonymous = config.auth.anonymous.as_deref().unwrap_or("anonymous");
    for (at, rule) in config.policy.rules.iter().enumerate() {
        for principal in &rule.principals {
            let is_plain = !principal.contains(WILDCARDS);
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
            } else if !has_own_methods && !can_name_a_caller(principal, anonymous) {
                tracing::warn!(
                    setting = %format_args!("policy.rules[{at}].principals"),
                    principal,
                    "no caller has such a name, so the rule has no effect; names begin with key:, oauth:, cert: or user:"
                );
            }
        }
    }
}

const WILDCARDS: [char; 4] = ['*', '?', '[', '{'];

/// Returns true if a pattern can match the name of a principal.
fn can_name_a_caller(pattern: &str, anonymous: &str) -> bool {
    let end = pattern.find(WILDCARDS);
    let start = &pattern[..end.unwrap_or(pattern.len())];
    let is_start_of = |name: &str| match end {
        Some(_) => name.starts_with(start),
        None => name == start,
    };
    let kinds = ["key:", "oauth:", "cert:", "user:"];
    let has_kind = |kind: &str| start.starts_with(kind) || end.is_some() && kind.starts_with(start);
    kinds.into_iter().any(has_kind) || is_start_of("local") || is_start_of(anonymous)
}

/// Warns of secrets that others can read. Outside of a container the server does not start with them.
pub(super) fn warn_of_open_secrets(config: &Config) {
    for (setting, path) in open_to_others_in_container(config) {
        tracing::warn!(
            setting,
            path = %path.display(),
            "other users of this container can read the secret; remove that permission, for a mounted Secret with defaultMode: 0440"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_callers_begin_with_their_kind() {
        for pattern in [
            "key:ci",
            "oauth:*",
            "*",
            "k*",
            "user:?",
            "{key,cert}:ci",
            "local",
            "guest",
            "[ku]*:a",
            "lo*",
        ] {
            assert!(can_name_a_caller(pattern, "guest"), "{pattern}");
        }
        for pattern in [
            "ci",
            "Key:ci",
            "api_key:ci",
            "anonymous",
            "ci*",
            "oauth2:*",
            "",
        ] {
            assert!(!can_name_a_caller(pattern, "guest"), "{pattern}");
        }
    }
}

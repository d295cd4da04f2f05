//! Settings whose cost is measured, and what clients have to show for them. The load generator has this file too.

use longshore::Config;
use longshore::auth::{ApiKeyConfig, Effect, KeyHash, RuleConfig};
use longshore::limit::ToolLimitConfig;
use longshore::seal::Secret;
use longshore::telemetry::MetricsPolicy;
use serde_json::json;

/// An issuer that does not exist, its key, which is used nowhere else, and a token of it that is valid until 2100.
pub(crate) const ISSUER: &str = "https://issuer.example";
pub(crate) const KEYS: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","alg":"EdDSA","x":"pPvFNLbQsh5W8G88yXqDKkLgx3k7XB1T8OwOAcVggDs"}]}"#;
pub(crate) const TOKEN: &str = concat!(
    "eyJhbGciOiJFZERTQSIsImtpZCI6IjEiLCJ0eXAiOiJhdCtqd3QifQ",
    ".eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwiYXVkIjoibG9hZHRlc3QiLCJzdWIiOiJsb2FkdGVzdCIsImNsaWVudF9pZCI6ImxvYWR0ZXN0Iiwic2NvcGUiOiJtY3AiLCJleHAiOjQxMDI0NDQ4MDB9",
    ".ntlYjlCJGM0Y_bxkXLEWrAc-MT2LJekDIuqEDjEfedvHVdvgYJ1N5Z-Wxr2aseXLdmftiZ624UuLMMKvMCUfDg",
);

/// Turns rate limits off, and metrics on, which are normally on for a reader, so that all servers do the same.
pub(crate) fn compare(config: &mut Config) {
    config.telemetry.metrics = MetricsPolicy::On;
    config.limits.principal.per_second = 0.0;
    config.limits.initialize_per_minute = Some(0);
}

/// Requires tokens of the issuer.
pub(crate) fn take_tokens(config: &mut Config) {
    config.auth.oauth.issuer = Some(ISSUER.to_owned());
    config.auth.oauth.audience = vec!["loadtest".to_owned()];
}

/// Requires a key, and sets rate limits of each kind, none of which is ever reached.
pub(crate) fn limit_everything(config: &mut Config) {
    const NEVER_EMPTY: f64 = 1e9;
    config.auth.api_keys = vec![holder(0)];
    config.limits.principal.per_second = NEVER_EMPTY;
    config.limits.server.per_second = NEVER_EMPTY;
    config.limits.address.per_second = NEVER_EMPTY;
    let tool = ToolLimitConfig {
        per_second: NEVER_EMPTY,
        ..ToolLimitConfig::default()
    };
    config.limits.tools.insert("echo".to_owned(), tool);
}

/// The API key of a role.
pub(crate) fn key(role: u32) -> String {
    format!("lsk_a-key-that-nobody-else-has-{role:05}")
}

/// The holder of the key of a role.
pub(crate) fn holder(role: u32) -> ApiKeyConfig {
    ApiKeyConfig {
        name: format!("holder-{role}"),
        keys: vec![Secret::from(KeyHash::of(&key(role)).to_string())],
        groups: vec![format!("role-{role}")],
        ..ApiKeyConfig::default()
    }
}

/// Returns a rule about tools for all callers.
pub(crate) fn rule(effect: Effect, tools: &[String]) -> RuleConfig {
    let rule = serde_json::from_value(json!({"effect": effect, "tools": tools}));
    rule.unwrap_or_else(|error| panic!("{error}"))
}

/// Returns a rule that allows the callers of a role its own tools.
pub(crate) fn own_tools(role: u32, tools: impl Iterator<Item = String>) -> RuleConfig {
    RuleConfig {
        groups: vec![format!("role-{role}")],
        ..rule(Effect::Allow, &tools.collect::<Vec<_>>())
    }
}

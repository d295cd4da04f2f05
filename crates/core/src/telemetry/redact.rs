//! Redaction of arguments and results for logs and traces.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::net::NamePatterns;

/// Replacement for a secret value.
const MASK: &str = "[redacted]";
/// Longer strings are cut.
const TEXT_MAX_BYTES: usize = 512;

/// Redaction rules: which members to omit, and how much to keep of the others.
#[derive(Debug)]
pub struct Redaction {
    names: NamePatterns,
    max_bytes: usize,
}

impl Redaction {
    /// Adds these patterns to the built-in ones; `*` and `?` are wildcards. `max_bytes` limits the output.
    ///
    /// # Errors
    ///
    /// The error is the first invalid pattern.
    pub fn new(names: &[String], max_bytes: usize) -> Result<Self, String> {
        let names = NamePatterns::ignoring_case(names.iter().map(String::as_str));
        let names = names.map_err(|error| error.pattern)?;
        Ok(Self { names, max_bytes })
    }

    /// Redacts arguments. If they are too large, the result states their size only. `marked` are names that schemas
    /// mark as secret.
    pub fn show(&self, json: &str, marked: &BTreeSet<String>) -> Value {
        // Invalid JSON is rejected elsewhere.
        let Ok(mut value) = serde_json::from_str::<Value>(json) else {
            return omitted(json);
        };
        self.redact(&mut value, marked);
        if self.max_bytes < value.to_string().len() {
            return omitted(json);
        }
        value
    }

    fn redact(&self, value: &mut Value, marked: &BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    if self.is_secret_name(name, marked) && !value.is_null() {
                        *value = MASK.into();
                    } else {
                        self.redact(value, marked);
                    }
                }
            }
            Value::Array(values) => values
                .iter_mut()
                .for_each(|value| self.redact(value, marked)),
            Value::String(text) if is_secret_text(text) => *text = MASK.to_owned(),
            Value::String(text) => {
                // Tools often repeat their structured result as a string of JSON.
                if let Some(mut inner) = document_in(text) {
                    self.redact(&mut inner, marked);
                    *text = inner.to_string();
                }
                if TEXT_MAX_BYTES < text.len() {
                    let shown = longshore_protocol::prefix(text, TEXT_MAX_BYTES);
                    *text = format!("{shown}... ({} bytes)", text.len());
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn is_secret_name(&self, name: &str, marked: &BTreeSet<String>) -> bool {
        is_named_like_a_secret(name) || marked.contains(name) || self.names.is_match(name)
    }
}

/// Returns true if the name is commonly used for secrets.
pub fn is_named_like_a_secret(name: &str) -> bool {
    const SECRET: [&str; 14] = [
        "password",
        "passwd",
        "passphrase",
        "pwd",
        "secret",
        "token",
        "apikey",
        "accesskey",
        "privatekey",
        "authorization",
        "bearer",
        "cookie",
        "credential",
        "signature",
    ];
    let letters = |c: char| c.is_ascii_alphanumeric().then(|| c.to_ascii_lowercase());
    let plain: String = name.chars().filter_map(letters).collect();
    SECRET.iter().any(|secret| plain.contains(secret)) || plain == "pin" || plain == "auth"
}

/// Returns the placeholder for omitted arguments, which states their size.
pub fn omitted(json: &str) -> Value {
    json!({ "omitted_bytes": json.len() })
}

/// Collects the names of properties that a schema marks as write-only or as passwords, also by a reference, in an
/// alternative or for the entries of a list.
pub fn secret_properties(schema: &Value, found: &mut BTreeSet<String>) {
    collect_secrets(schema, schema, found);
}

fn collect_secrets(schema: &Value, root: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::Object(properties)) = members.get("properties") {
                for (name, property) in properties {
                    if is_secret(property, root, PARTS_DEPTH_MAX) {
                        found.insert(name.clone());
                    }
                }
            }
            members
                .values()
                .for_each(|value| collect_secrets(value, root, found));
        }
        Value::Array(values) => values
            .iter()
            .for_each(|value| collect_secrets(value, root, found)),
        _ => {}
    }
}

/// Depth to which the parts of a property's schema are searched. References can form a circle.
const PARTS_DEPTH_MAX: usize = 4;

/// Returns true if a value of this schema, or an entry of it, is marked as secret.
fn is_secret(schema: &Value, root: &Value, depth: usize) -> bool {
    let Value::Object(members) = schema else {
        return false;
    };
    if members.get("writeOnly") == Some(&Value::Bool(true))
        || members
            .get("format")
            .is_some_and(|format| format == "password")
    {
        return true;
    }
    let Some(depth) = depth.checked_sub(1) else {
        return false;
    };
    let is_secret = |part: &Value| is_secret(part, root, depth);
    let target = members.get("$ref").and_then(Value::as_str);
    let target = target.and_then(|reference| root.pointer(reference.strip_prefix('#')?));
    let combined = ["anyOf", "oneOf", "allOf", "prefixItems"]
        .iter()
        .filter_map(|keyword| members.get(*keyword)?.as_array());
    let single = ["items", "additionalProperties"]
        .iter()
        .filter_map(|keyword| members.get(*keyword));
    target.is_some_and(is_secret)
        || combined.flatten().any(is_secret)
        || single.into_iter().any(is_secret)
}

/// Parses a string that contains a JSON object or array.
fn document_in(text: &str) -> Option<Value> {
    let begins = text.trim_start().starts_with(['{', '[']);
    begins.then(|| serde_json::from_str(text).ok()).flatten()
}

/// Returns true if a string has the format of a credential.
fn is_secret_text(text: &str) -> bool {
    const BEGINNINGS: [&str; 14] = [
        "lsk_",
        "sk-",
        "sk_live_",
        "rk_live_",
        "ghp_",
        "gho_",
        "ghs_",
        "github_pat_",
        "glpat-",
        "xoxb-",
        "xoxp-",
        "AKIA",
        "AIza",
        "-----BEGIN ",
    ];
    let text = text.trim_start();
    let scheme = |scheme: &str| {
        let beginning = text.get(..scheme.len());
        beginning.is_some_and(|b| b.eq_ignore_ascii_case(scheme))
    };
    let is_token = text.starts_with("eyJ") && text.split('.').count() >= 3 && !text.contains(' ');
    // A URL with a password.
    let has_userinfo = text.split_once("://").is_some_and(|(_, rest)| {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        authority
            .rsplit_once('@')
            .is_some_and(|(user, _)| user.contains(':'))
    });
    BEGINNINGS
        .iter()
        .any(|beginning| text.starts_with(beginning))
        || scheme("bearer ")
        || scheme("basic ")
        || is_token
        || has_userinfo
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown_with(names: &[&str], json: &str, schema: &Value) -> Value {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut marked = BTreeSet::new();
        secret_properties(schema, &mut marked);
        Redaction::new(&names, 4096)
            .expect("sound")
            .show(json, &marked)
    }

    fn shown(json: &str) -> Value {
        shown_with(&[], json, &Value::Null)
    }

    #[test]
    fn what_is_named_like_a_secret_is_left_out_at_any_depth() {
        let arguments = json!({
            "path": "/a", "Password": "canary", "api-key": "canary", "nested": [{"clientSecret": {"a": "canary"}}],
            "access_token": ["canary"], "pin": 1234, "auth": "canary", "pinned": true, "author": "Ada", "password": null,
        });
        let shown = shown(&arguments.to_string());
        assert!(!shown.to_string().contains("canary"), "{shown}");
        assert_eq!(shown["nested"][0]["clientSecret"], MASK);
        assert_eq!(shown["pin"], MASK);
        assert_eq!(
            (
                &shown["path"],
                &shown["pinned"],
                &shown["author"],
                &shown["password"]
            ),
            (&json!("/a"), &json!(true), &json!("Ada"), &Value::Null)
        );
    }

    #[test]
    fn what_is_json_within_a_text_is_looked_into() {
        let inner =
            json!({"password": "canary", "deeper": json!([{"token": "canary"}]).to_string()});
        let found = shown(&json!({"text": inner.to_string()}).to_string());
        let text = found["text"].as_str().expect("a text");
        assert!(
            text.contains("deeper") && !text.contains("canary"),
            "{text}"
        );
        for plain in ["{a}", "[1", "{\"password\":", "{} {}"] {
            assert_eq!(shown(&json!({"x": plain}).to_string())["x"], plain);
        }
    }

    #[test]
    fn what_has_the_form_of_a_credential_is_left_out_whatever_it_is_called() {
        for secret in [
            "Bearer abc",
            "basic YTpi",
            "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln",
            "ghp_abcdef",
            "sk-abc",
            "lsk_abc",
            "-----BEGIN PRIVATE KEY-----\nabc",
            "https://user:pass@example.com/a",
            "redis://:pass@host",
        ] {
            let shown = shown(&json!({"x": [secret]}).to_string());
            assert_eq!(shown["x"][0], MASK, "{secret}");
        }
        for plain in [
            "bear",
            "https://example.com/a:b@c",
            "eyJust.so",
            "a sk-8 skate",
            "mailto:a@b",
        ] {
            let shown = shown(&json!({"x": plain}).to_string());
            assert_eq!(shown["x"], plain);
        }
    }

    #[test]
    fn settings_and_schemas_add_names() {
        let schema = json!({"properties": {
            "key": {"type": "string", "writeOnly": true},
            "inner": {"type": "object", "properties": {"word": {"format": "password"}}},
        }});
        let arguments =
            json!({"card_number": 1, "ssn": "2", "key": "3", "inner": {"word": "4", "ward": "5"}});
        let shown = shown_with(&["card_*", "SSN"], &arguments.to_string(), &schema);
        assert_eq!(
            shown,
            json!({"card_number": MASK, "ssn": MASK, "key": MASK, "inner": {"word": MASK, "ward": "5"}})
        );
        let error = Redaction::new(&["[".to_owned()], 1).expect_err("no name");
        assert_eq!(error, "[");
    }

    #[test]
    fn a_mark_counts_in_alternatives_references_and_lists() {
        let password = json!({"type": "string", "format": "password", "writeOnly": true});
        let schema = json!({
            "properties": {
                "optional": {"anyOf": [password, {"type": "null"}]},
                "referred": {"$ref": "#/$defs/Phrase"},
                "both": {"anyOf": [{"$ref": "#/$defs/Phrase"}, {"type": "null"}]},
                "list": {"type": "array", "items": password},
                "map": {"additionalProperties": password},
                "circle": {"$ref": "#/$defs/Circle"},
                "plain": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            },
            "$defs": {
                "Phrase": {"type": "string", "writeOnly": true},
                "Circle": {"anyOf": [{"$ref": "#/$defs/Circle"}]},
            },
        });
        let mut found = BTreeSet::new();
        secret_properties(&schema, &mut found);
        let found: Vec<_> = found.iter().map(String::as_str).collect();
        assert_eq!(found, ["both", "list", "map", "optional", "referred"]);
    }

    #[test]
    fn long_texts_are_cut_and_what_is_still_too_large_is_counted_only() {
        let text = "ü".repeat(TEXT_MAX_BYTES);
        let json = json!({ "text": text }).to_string();
        let cut = shown(&json);
        assert!(
            cut["text"]
                .as_str()
                .is_some_and(|t| t.ends_with("... (1024 bytes)") && t.len() < 540)
        );
        let many = json!(vec![text; 20]).to_string();
        assert_eq!(shown(&many), json!({"omitted_bytes": many.len()}));
        assert_eq!(shown("{"), json!({"omitted_bytes": 1}));
    }
}

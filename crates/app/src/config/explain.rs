//! Every setting's value, and who gave it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use super::load::Loaded;
use super::schema::{self, Reload};
use super::value::{Content, Node, Origin};
use crate::environment::MASK;
use crate::telemetry::is_named_like_a_secret;

/// A setting in effect.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ResolvedSetting {
    /// Its path, such as `http.port`.
    pub setting: String,
    /// Its value; secrets are masked.
    pub value: Value,
    /// Description of its origin.
    pub from: String,
    /// When a change takes effect.
    pub reload: Reload,
    /// Structured form of `from`.
    #[serde(skip)]
    pub origin: Origin,
}

impl Loaded {
    /// Every setting with its value and where that comes from, in the order of the reference.
    pub fn explain(&self) -> Vec<ResolvedSetting> {
        let mut effective = Vec::new();
        self.each_value(&mut |path, value| {
            let origin = self.origin_at(path);
            let reload = schema::setting(path).map(|setting| setting.reload);
            effective.push(ResolvedSetting {
                setting: path.join("."),
                value: shown(
                    value,
                    self.node(path),
                    path.last().map_or("", String::as_str),
                ),
                from: origin.describe(self.file.as_deref()),
                reload: reload.unwrap_or_default(),
                origin,
            });
        });
        effective
    }

    /// Every setting with its value, as it is serialized: without masks but those of secrets.
    pub(super) fn values(&self) -> BTreeMap<Vec<String>, Value> {
        let mut all = BTreeMap::new();
        self.each_value(&mut |path, value| {
            all.insert(path.to_vec(), value.clone());
        });
        all
    }

    /// Passes each setting and its value to a function, in the order of the reference.
    fn each_value(&self, on: &mut dyn FnMut(&[String], &Value)) {
        fn walk(
            values: &Map<String, Value>,
            path: &mut Vec<String>,
            on: &mut dyn FnMut(&[String], &Value),
        ) {
            for (name, value) in values {
                path.push(name.clone());
                match value {
                    Value::Object(inner) if !inner.is_empty() => walk(inner, path, on),
                    value => on(path, value),
                }
                path.pop();
            }
        }
        if let Ok(Value::Object(values)) = serde_json::to_value(&self.config) {
            walk(&values, &mut Vec::new(), on);
        }
    }

    /// Returns the origin of a setting's value.
    pub fn origin(&self, setting: &str) -> Origin {
        self.origin_at(&super::value::parts(setting))
    }

    /// Returns the node of a setting, which can have an alias in the file.
    fn node(&self, path: &[String]) -> Option<&Node> {
        let aliased = || match path {
            [section, upstream, setting] if section == "upstreams" && setting == "url" => {
                let table = self.tree.get(&[section.clone(), upstream.clone()])?;
                let mut aliases = URL_ALIASES.iter();
                aliases.find_map(|alias| table.get(&[(*alias).to_owned()]))
            }
            _ => None,
        };
        self.tree.get(path).or_else(aliased)
    }

    fn origin_at(&self, path: &[String]) -> Origin {
        if let Some(node) = self.node(path) {
            return node.origin.clone();
        }
        // The value of a variable can be a whole table, in JSON.
        let written = (1..path.len()).rev().find_map(|length| {
            let node = self.tree.get(&path[..length])?;
            let value = node.to_value();
            let mut rest = path[length..].iter();
            let member = rest.try_fold(&value, |table, name| table.get(name));
            member.map(|_| node.origin.clone())
        });
        written.unwrap_or(Origin::Default)
    }
}

/// Names of other products for the URL of an upstream server.
const URL_ALIASES: [&str; 2] = ["serverUrl", "httpUrl"];

/// Replacement for a masked value.
const HIDDEN: &str = "***";

/// Returns true for settings with the arguments of a program, of which any can be a secret.
fn is_command_line(setting: &str) -> bool {
    matches!(setting, "args" | "argv")
}

/// Returns true for settings whose values are URLs, or parts of one.
fn is_url(setting: &str) -> bool {
    setting == "url" || setting.ends_with("_url")
}

/// Returns true if a variable can contain a part of the path of a URL. The URLs of some APIs contain a key there. `value` is
/// the string with its variables replaced.
fn has_variable_in_path(written: &str, value: &str, is_url: bool) -> bool {
    match written.split_once("://") {
        Some((scheme, rest)) if !scheme.contains("${") => match rest.split_once('/') {
            // The default of a variable in the host can contain a slash.
            Some((host, path)) => {
                path.contains("${") || host.matches("${").count() != host.matches('}').count()
            }
            None => is_url && rest.contains("${"),
        },
        _ => written.contains("${") && (is_url || value.contains("://")),
    }
}

/// Masks the parts of a string that can be secret: user and query of a URL, and the value after a flag named like a secret.
///
/// Variables in a command line and in the path of a URL are shown as written. `node` is the value in the file, if it is
/// there, and `setting` the last part of its name.
fn shown(value: &Value, node: Option<&Node>, setting: &str) -> Value {
    let text = value.as_str().unwrap_or_default();
    let written = node
        .and_then(|node| node.written.as_deref())
        .filter(|written| {
            text != MASK
                && (is_command_line(setting)
                    || has_variable_in_path(written, text, is_url(setting)))
        });
    let content = node.map(|node| &node.content);
    match value {
        Value::String(text) => {
            let text = written.unwrap_or(text);
            let masked = without_secrets(text);
            let masked = masked.or_else(|| without_secrets_as_written(written?));
            masked.map_or_else(|| text.into(), Value::from)
        }
        Value::Array(values) => {
            if let Some(written) = written {
                return written.into();
            }
            let nodes: &[Node] = match content {
                Some(Content::List(nodes)) => nodes,
                _ => &[],
            };
            let mut follows_flag = false;
            let values = values.iter().enumerate().map(|(position, value)| {
                let text = value.as_str().unwrap_or_default();
                let (flag, rest) = text
                    .split_once('=')
                    .map_or((text, None), |(flag, rest)| (flag, Some(rest)));
                let is_flag =
                    flag.starts_with('-') && is_named_like_a_secret(flag.trim_start_matches('-'));
                let hides = std::mem::replace(&mut follows_flag, is_flag && rest.is_none());
                match (is_flag, rest) {
                    (true, Some(_)) => format!("{flag}={HIDDEN}").into(),
                    _ if hides => HIDDEN.into(),
                    _ => shown(value, nodes.get(position), setting),
                }
            });
            values.collect()
        }
        Value::Object(members) => {
            let nodes: &[(String, Node)] = match content {
                Some(Content::Table(nodes)) => nodes,
                _ => &[],
            };
            let members = members.iter().map(|(name, value)| {
                let node = nodes.iter().find(|(known, _)| known == name);
                let node = node.map(|(_, node)| node);
                let value = match SENT.contains(&name.as_str()) {
                    true => without_named_secrets(value),
                    false => shown(value, node, name),
                };
                (name.clone(), value)
            });
            members.collect()
        }
        other => other.clone(),
    }
}

/// Settings of tools whose members are sent to an API under names of the API.
const SENT: [&str; 4] = ["headers", "query", "form", "json"];

/// Masks members that are named like a secret, except templates of a caller's arguments.
fn without_named_secrets(value: &Value) -> Value {
    let Value::Object(members) = value else {
        return match value {
            Value::Array(values) => values.iter().map(without_named_secrets).collect(),
            value => shown(value, None, ""),
        };
    };
    let members = members.iter().map(|(name, value)| {
        let hides = match value {
            Value::String(text) if text == MASK => false,
            Value::String(_) | Value::Array(_) => {
                is_named_like_a_secret(name) && !value.to_string().contains("{{")
            }
            _ => false,
        };
        let value = match hides {
            true => HIDDEN.into(),
            false => without_named_secrets(value),
        };
        (name.clone(), value)
    });
    members.collect()
}

/// Returns a URL with its user and the values of its query hidden, if it has any. As in the WHATWG parser, backslashes count as
/// slashes in URLs of web servers, and any number of them begins the host.
fn without_secrets(text: &str) -> Option<String> {
    let text: String = text.trim().chars().filter(|c| !c.is_control()).collect();
    if text.starts_with('/') {
        // The URL of a tool below the base URL of its source.
        let (path, query) = text.split_once('?')?;
        return Some(format!("{path}?{}", without_values(query)?));
    }
    let (scheme, rest) = text.split_once(':')?;
    let is_part = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.chars().all(is_part) {
        return None;
    }
    let is_slash = |c: char| matches!(c, '/' | '\\');
    let is_web = ["http", "https", "ws", "wss"]
        .iter()
        .any(|web| scheme.eq_ignore_ascii_case(web));
    let rest = match is_web {
        true => rest.trim_start_matches(is_slash),
        false => rest.strip_prefix("//")?,
    };
    let end = rest.find(|c| is_slash(c) || matches!(c, '?' | '#'));
    let (authority, rest) = rest.split_at(end.unwrap_or(rest.len()));
    if authority.is_empty() || authority.contains(char::is_whitespace) {
        return None;
    }
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user).filter(|user| !user.is_empty()), host),
        None => (None, authority),
    };
    let (rest, fragment) = match rest.split_once('#') {
        Some((rest, fragment)) => (rest, format!("#{fragment}")),
        None => (rest, String::new()),
    };
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let hidden = without_values(query);
    if user.is_none() && hidden.is_none() {
        return None;
    }
    let query = hidden.unwrap_or_else(|| query.to_owned());
    let user = user.map_or_else(String::new, |_| format!("{HIDDEN}@"));
    let query = match &*query {
        "" => String::new(),
        query => format!("?{query}"),
    };
    Some(format!("{scheme}://{user}{host}{path}{query}{fragment}"))
}

/// Masks the query of a URL that begins with a variable, and the default of a variable if it is a URL with a user.
fn without_secrets_as_written(written: &str) -> Option<String> {
    let scheme = written.split_once("://").map_or("", |(scheme, _)| scheme);
    if scheme.contains("${") && written.contains('@') {
        return Some(HIDDEN.to_owned());
    }
    let (rest, query) = written.split_once('?')?;
    Some(format!("{rest}?{}", without_values(query)?))
}

/// Masks the values of a query. `None` if there is none that can be secret.
fn without_values(query: &str) -> Option<String> {
    // Templates of a caller's arguments contain no secret yet.
    let is_hidden = |value: &str| !value.is_empty() && !value.contains('{');
    let mut hides = false;
    let query = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, value)) if is_hidden(value) => {
            hides = true;
            format!("{name}={HIDDEN}")
        }
        _ => pair.to_owned(),
    });
    let query = query.collect::<Vec<_>>().join("&");
    hides.then_some(query)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Flags;
    use crate::environment::Probe;

    #[test]
    fn what_is_secret_within_a_text_is_hidden() {
        let value = serde_json::json!({
            "a": "https://u:swordfish@a.example/mcp?api_key=swordfish&list",
            "b": ["run", "--token", "swordfish", "--password=swordfish", "--verbose", "yes"],
            "c": "https://a.example/search?q={query}",
            "d": "https://a.example/",
            "e": ["https://a.example/?k=swordfish", 7],
            "f": ["https:\\\\u:swordfish@a.example/", " https:/u:swordfish@a.example", "redis://:swordfish@a:6379/0#x"],
            "g": ["note: see a@b", "mailto:a@b.example", "urn:a?b=c"],
            "h": ["/search?q={{ q }}&key=swordfish", "/pets?limit={{ limit }}", "/etc/longshore"],
        });
        let expected = serde_json::json!({
            "a": "https://***@a.example/mcp?api_key=***&list",
            "b": ["run", "--token", "***", "--password=***", "--verbose", "yes"],
            "c": "https://a.example/search?q={query}",
            "d": "https://a.example/",
            "e": ["https://a.example/?k=***", 7],
            "f": ["https://***@a.example/", "https://***@a.example", "redis://***@a:6379/0#x"],
            "g": ["note: see a@b", "mailto:a@b.example", "urn:a?b=c"],
            "h": ["/search?q={{ q }}&key=***", "/pets?limit={{ limit }}", "/etc/longshore"],
        });
        assert_eq!(shown(&value, None, ""), expected);
    }

    #[test]
    fn what_a_tool_sends_is_hidden_if_it_is_named_like_a_secret() {
        let tool = serde_json::json!([{"http": {"tools": [{
            "name": "token",
            "headers": {"Authorization": "Bearer swordfish", "x-key-token": "[secret]", "x-user": "ann", "x-token": "{{ token }}"},
            "query": {"api_key": ["swordfish"], "limit": 7},
            "form": {"client_secret": "swordfish"},
            "json": {"login": {"password": "swordfish"}, "all": [{"pin": "1234"}], "max_tokens": 10, "tokens": {"max": 1}, "secret": null},
        }]}}]);
        let expected = serde_json::json!([{"http": {"tools": [{
            "name": "token",
            "headers": {"Authorization": "***", "x-key-token": "[secret]", "x-user": "ann", "x-token": "{{ token }}"},
            "query": {"api_key": "***", "limit": 7},
            "form": {"client_secret": "***"},
            "json": {"login": {"password": "***"}, "all": [{"pin": "***"}], "max_tokens": 10, "tokens": {"max": 1}, "secret": null},
        }]}}]);
        assert_eq!(shown(&tool, None, ""), expected);
    }

    #[test]
    fn every_setting_is_there_with_its_origin_and_no_secret() {
        let probe = Probe::of([
            ("LONGSHORE_HTTP__LIMITS__BODY_BYTES", "1000"),
            (
                "LONGSHORE_SEAL__KEYS",
                "swordfish swordfish swordfish swordfish",
            ),
            ("LONGSHORE_LIMITS__TOOLS", r#"{"getWeather": {"calls": 2}}"#),
            ("PORT", "80"),
        ]);
        let flags = Flags {
            workers: Some(3),
            ..Flags::default()
        };
        let explained = Loaded::read(&flags, &probe).expect("valid").explain();
        let shown = serde_json::to_string(&explained).expect("serialises");
        assert!(!shown.contains("swordfish"), "{shown}");
        for (setting, value, from) in [
            ("http.port", "80", "PORT"),
            ("http.workers", "3", "--workers"),
            (
                "http.limits.body_bytes",
                "1000",
                "LONGSHORE_HTTP__LIMITS__BODY_BYTES",
            ),
            ("seal.keys", r#"["[secret]"]"#, "LONGSHORE_SEAL__KEYS"),
            (
                "limits.tools.getWeather.calls",
                "2",
                "LONGSHORE_LIMITS__TOOLS",
            ),
            ("limits.tools.getWeather.burst", "0", "default"),
            ("stdio.framing", r#""auto""#, "default"),
        ] {
            let found = explained.iter().find(|one| one.setting == setting);
            let found = found.unwrap_or_else(|| panic!("{setting} is missing"));
            assert_eq!(
                (&*found.value.to_string(), &*found.from),
                (value, from),
                "{setting}"
            );
        }
        for setting in schema::settings().filter(|setting| !setting.path.contains(['[', '<'])) {
            assert!(
                explained.iter().any(|one| one.setting == setting.path
                    || one.setting.starts_with(&format!("{}.", setting.path))),
                "{}",
                setting.path
            );
        }
    }
}

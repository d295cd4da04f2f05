//! Endpoints beside `/mcp`: parts of the catalog, each with a path of its own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::{SCOPE_ADVICE, is_scope};
use crate::environment::Conflicts;
use crate::net::NamePatterns;

/// Endpoint at `/mcp/` and its name, with a part of the tools, resources and prompts. It acts as a server of its own:
/// sessions, cursors and tasks of other endpoints are unknown to it. Items that are not named do not exist there.
///
/// ```yaml
/// endpoints:
///   weather: { tools: ["weather__*"], instructions: Ask for one place at a time. }
/// ```
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EndpointConfig {
    /// Names of tools to offer; `*` matches any text.
    #[serde(deserialize_with = "crate::environment::list")]
    pub tools: Vec<String>,
    /// Names of tools to omit, in the same form.
    #[serde(deserialize_with = "crate::environment::list")]
    pub exclude_tools: Vec<String>,
    /// URIs of resources and resource templates to offer, in the same form. Views of its tools are always offered.
    #[serde(deserialize_with = "crate::environment::list")]
    pub resources: Vec<String>,
    /// Names of prompts to offer, in the same form.
    #[serde(deserialize_with = "crate::environment::list")]
    pub prompts: Vec<String>,
    /// Display name. If unset: `server.title`.
    pub title: Option<String>,
    /// Instructions for the model. If unset: `server.instructions`.
    pub instructions: Option<String>,
    /// Number of tools above which a caller's list has `search_tools`, `describe_tool` and `call_tool` instead. If
    /// unset, `server.search.above`.
    pub search_above: Option<usize>,
    /// Accepted audiences of access tokens. If empty: `auth.oauth.audience`; without that, the URL of this endpoint,
    /// and tokens for `/mcp` are not accepted here.
    #[serde(deserialize_with = "crate::environment::list")]
    pub audience: Vec<String>,
    /// Scopes that each request to the endpoint needs, in addition to `auth.oauth.scopes`.
    #[serde(deserialize_with = "crate::environment::list")]
    pub scopes: Vec<String>,
}

/// Paths below `/mcp` with another meaning.
const TAKEN: [&str; 3] = ["sse", "respond", "messages"];

/// Returns the problem with an endpoint's name, if it is invalid.
pub fn endpoint_name_problem(name: &str) -> Option<String> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    if TAKEN.contains(&name) {
        return Some(format!("/mcp/{name} is reserved; choose another name"));
    }
    let good = (1..=64).contains(&name.len()) && name.bytes().all(plain);
    (!good).then(|| {
        "a name has 1 to 64 characters of a-z, 0-9, '-' and '_', since it is a part of a path"
            .to_owned()
    })
}

/// Selection of catalog items for an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointFilter {
    tools: NamePatterns,
    excluded: NamePatterns,
    resources: NamePatterns,
    prompts: NamePatterns,
}

impl EndpointConfig {
    /// Reports the settings of the endpoint `name` that cannot be used.
    pub fn validate(&self, name: &str, conflicts: &mut Conflicts) {
        if let Some(problem) = endpoint_name_problem(name) {
            conflicts.add(
                format!("endpoints.{name} is not a valid name of an endpoint"),
                problem,
            );
        }
        if let Err((setting, problem)) = self.filter() {
            let dot = if setting.is_empty() { "" } else { "." };
            conflicts.add(
                format!("endpoints.{name}{dot}{setting} cannot be used"),
                problem,
            );
        }
        for scope in self.scopes.iter().filter(|scope| !is_scope(scope)) {
            conflicts.add(
                format!("endpoints.{name}.scopes has {scope:?}, which is not a valid scope"),
                SCOPE_ADVICE,
            );
        }
    }

    /// Compiles the patterns.
    ///
    /// # Errors
    ///
    /// The setting with an invalid pattern, or a filter without any pattern.
    pub fn filter(&self) -> Result<EndpointFilter, (&'static str, String)> {
        if self.tools.is_empty() && self.resources.is_empty() && self.prompts.is_empty() {
            return Err((
                "",
                "it selects nothing; set tools, resources or prompts".to_owned(),
            ));
        }
        let set = |setting, patterns: &[String]| {
            NamePatterns::new(patterns.iter().map(String::as_str))
                .map_err(|error| (setting, error.to_string()))
        };
        Ok(EndpointFilter {
            tools: set("tools", &self.tools)?,
            excluded: set("exclude_tools", &self.exclude_tools)?,
            resources: set("resources", &self.resources)?,
            prompts: set("prompts", &self.prompts)?,
        })
    }
}

impl EndpointFilter {
    pub fn has_tool(&self, name: &str) -> bool {
        self.tools.is_match(name) && !self.excluded.is_match(name)
    }

    pub fn has_resource(&self, uri: &str) -> bool {
        self.resources.is_match(uri)
    }

    pub fn has_prompt(&self, name: &str) -> bool {
        self.prompts.is_match(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parts_of_a_path_and_mean_nothing_else() {
        for name in ["weather", "a", "a-b_9", &"x".repeat(64)] {
            assert_eq!(endpoint_name_problem(name), None, "{name}");
        }
        for name in [
            "sse",
            "respond",
            "messages",
            "",
            "A",
            "a/b",
            "a.b",
            "a b",
            "..",
            &"x".repeat(65),
        ] {
            assert!(endpoint_name_problem(name).is_some(), "{name}");
        }
    }

    #[test]
    fn what_is_not_named_is_not_there() {
        let config = EndpointConfig {
            tools: vec!["a_*".to_owned(), "b".to_owned()],
            exclude_tools: vec!["a_x*".to_owned()],
            ..EndpointConfig::default()
        };
        let filter = config.filter().expect("valid");
        let tools = ["a_b", "a_xy", "b", "c"].map(|name| filter.has_tool(name));
        assert_eq!(tools, [true, false, true, false]);
        assert!(!filter.has_resource("x://y") && !filter.has_prompt("p"));
        let empty = EndpointConfig::default()
            .filter()
            .expect_err("it selects nothing; set tools, resources or prompts");
        assert_eq!(empty.0, "");
        let broken = EndpointConfig {
            prompts: vec!["[".to_owned()],
            ..EndpointConfig::default()
        };
        assert_eq!(
            broken
                .filter()
                .expect_err("which is not a pattern; write a name, with * and ? for anything")
                .0,
            "prompts"
        );
    }
}

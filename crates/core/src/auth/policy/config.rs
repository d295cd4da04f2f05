//! Access policy settings.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Access policy: which callers may see and use which tools, resources and prompts.
///
/// Without rules, every authenticated caller may use everything.
///
/// ```toml
/// [[policy.rules]]
/// effect = "allow"
/// groups = ["ops"]
/// tools = ["deploy_*"]
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyConfig {
    /// Effect where no rule applies. If unset: `deny` if any rule allows something, else `allow`.
    pub default: Option<Effect>,
    /// Rules, in any order: a denial takes precedence over an approval.
    pub rules: Vec<RuleConfig>,
    /// Tools to classify as reading, regardless of their hints and names: `["query_*"]`.
    #[serde(deserialize_with = "crate::environment::list")]
    pub read: Vec<String>,
    /// Tools to classify as writing, regardless of their hints and names.
    #[serde(deserialize_with = "crate::environment::list")]
    pub write: Vec<String>,
    /// Ignore names when classifying tools: tools without a hint count as writing.
    pub strict_classification: bool,
}

/// Effect of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// The item can be seen and used.
    Allow,
    /// The item is hidden and behaves as if it did not exist.
    Deny,
}

/// Class of a tool: reading or writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// The tool only reads.
    Read,
    /// The tool changes data, or its class is unknown.
    Write,
}

/// A rule: callers, items and an effect. An omitted condition matches all. In names and URIs, `*` matches any text, and
/// `?` one ASCII character; `[ab]` and `{a,b}` are alternatives.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleConfig {
    /// Name of the rule in explanations. If unset: its place in the list.
    #[serde(default)]
    pub name: Option<String>,
    /// Effect of the rule.
    pub effect: Effect,
    /// Names of principals: `key:ci`, `oauth:id.example.com#*`, `user:alice`, `local`.
    #[serde(default, deserialize_with = "crate::environment::list")]
    pub principals: Vec<String>,
    /// Groups of principals, without wildcards; one must match.
    #[serde(default, deserialize_with = "crate::environment::list")]
    pub groups: Vec<String>,
    /// OAuth clients, by the ID in the token: `claude-desktop`, `https://app.example.com/*`.
    #[serde(default, deserialize_with = "crate::environment::list")]
    pub clients: Vec<String>,
    /// Actors that use the token for its subject: subjects in its `act` claim (RFC 8693); one must match.
    #[serde(default, deserialize_with = "crate::environment::list")]
    pub actors: Vec<String>,
    /// Claims of tokens: each listed claim must have one of its values, without wildcards. A dot selects a member of an
    /// object: `realm_access.roles`.
    #[serde(default)]
    pub claims: BTreeMap<String, Vec<String>>,
    /// Scopes of principals; all are required.
    #[serde(default, deserialize_with = "crate::environment::list")]
    pub scopes: Vec<String>,
    /// Names of tools. A rule with tools, resources or prompts applies to these kinds only.
    #[serde(default, deserialize_with = "crate::environment::list")]
    pub tools: Vec<String>,
    /// URIs of resources.
    #[serde(default, deserialize_with = "crate::environment::list")]
    pub resources: Vec<String>,
    /// Names of prompts.
    #[serde(default, deserialize_with = "crate::environment::list")]
    pub prompts: Vec<String>,
    /// Class of tools: reading or writing. A rule with a class applies to tools only.
    #[serde(default)]
    pub access: Option<Access>,
    /// Additional scopes that the item requires. Callers without them see the item and receive the name of the missing
    /// scope.
    #[serde(default, deserialize_with = "crate::environment::list")]
    pub requires: Vec<String>,
}

/// Error in the policy settings.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The pattern is invalid.
    #[error(
        "{setting} has {pattern:?}, which is not a pattern; write a name, with * and ? for anything"
    )]
    Pattern {
        /// Name of the setting.
        setting: String,
        /// Its value.
        pattern: String,
    },
    /// A pattern that no tool and no prompt has.
    #[error("{setting} has {pattern:?}, which matches no {what}; correct or remove it")]
    Nothing {
        /// Name of the setting.
        setting: String,
        /// Its value.
        pattern: String,
        /// `tool` or `prompt`.
        what: &'static str,
    },
    /// A template of resources, whose variables would be read as alternatives.
    #[error(
        "{setting} has {pattern:?}, which is a template and matches none of its resources; write * for its variables"
    )]
    Template {
        /// Name of the setting.
        setting: String,
        /// Its value.
        pattern: String,
    },
    /// The class of tools beside items that have none.
    #[error(
        "{setting} is set, which selects tools only, and so the rule would not apply to its {others}; write a rule of their own for these"
    )]
    Access {
        /// Name of the setting.
        setting: String,
        /// `resources` or `prompts`.
        others: &'static str,
    },
    /// The value is not a valid scope.
    #[error("{setting} has {scope:?}, which is not a valid scope")]
    Scope {
        /// Name of the setting.
        setting: String,
        /// Its value.
        scope: String,
    },
}

impl PolicyError {
    /// Returns the name of the setting, such as `policy.rules[0].tools`.
    pub fn setting(&self) -> &str {
        match self {
            Self::Pattern { setting, .. }
            | Self::Nothing { setting, .. }
            | Self::Template { setting, .. }
            | Self::Access { setting, .. }
            | Self::Scope { setting, .. } => setting,
        }
    }
}

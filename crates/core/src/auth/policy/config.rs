//! What can be set about who sees and uses what.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who sees and uses what.
///
/// Without any rule, who is let in may use everything.
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
    /// What holds where no rule says anything. Default: `deny` if any rule allows something, else `allow`.
    pub default: Option<Effect>,
    /// The rules. Their order does not matter: what one denies, no other allows.
    pub rules: Vec<RuleConfig>,
    /// Tools that only read, whatever they and their names say: `["query_*"]`. Default: none.
    #[serde(deserialize_with = "crate::environment::list")]
    pub read: Vec<String>,
    /// Tools that change things, whatever they and their names say. Default: none.
    #[serde(deserialize_with = "crate::environment::list")]
    pub write: Vec<String>,
    /// Take nobody's name for a sign that it only reads: tools that say nothing of it count as changing things.
    /// Default: false.
    pub strict_classification: bool,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// Lets it be seen and used.
    Allow,
    /// Hides it. What is hidden is answered like what there is not.
    Deny,
}

/// Whether a tool changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// It only reads.
    Read,
    /// It changes things, or nobody knows.
    Write,
}

/// One rule: for whom, about what. What is left out holds for all; names may have `*` and `?` for anything.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleConfig {
    /// What it is called in explanations. Default: its place in the list.
    #[serde(default)]
    pub name: Option<String>,
    /// What it does.
    pub effect: Effect,
    /// For principals of one of these names: `key:ci`, `oauth:id.example.com#*`, `user:alice`, `local`.
    #[serde(default, deserialize_with = "crate::environment::list")]
    pub principals: Vec<String>,
    /// For principals in one of these groups.
    #[serde(default, deserialize_with = "crate::environment::list")]
    pub groups: Vec<String>,
    /// For principals whose tokens have one of these values in each of these claims.
    #[serde(default)]
    pub claims: BTreeMap<String, Vec<String>>,
    /// For principals that have all of these scopes.
    #[serde(default, deserialize_with = "crate::environment::list")]
    pub scopes: Vec<String>,
    /// About tools of one of these names. A rule that names tools, resources or prompts is about these only.
    #[serde(default, deserialize_with = "crate::environment::list")]
    pub tools: Vec<String>,
    /// About resources of one of these URIs.
    #[serde(default, deserialize_with = "crate::environment::list")]
    pub resources: Vec<String>,
    /// About prompts of one of these names.
    #[serde(default, deserialize_with = "crate::environment::list")]
    pub prompts: Vec<String>,
    /// About tools that only read, or about those that change things.
    #[serde(default)]
    pub access: Option<Access>,
    /// Scopes that a caller needs for it beside those that it needs anyway. Who lacks one sees it, and is told.
    #[serde(default, deserialize_with = "crate::environment::list")]
    pub requires: Vec<String>,
}

/// Why a policy cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A pattern that is none.
    #[error(
        "{setting} has {pattern:?}, which is no pattern; write a name, with * and ? for anything"
    )]
    Pattern {
        /// Which setting.
        setting: String,
        /// What it has.
        pattern: String,
    },
    /// A pattern that no tool and no prompt has.
    #[error(
        "{setting} has {pattern:?}, and there is no {what} of such a name; correct it, or take it out"
    )]
    Nothing {
        /// Which setting.
        setting: String,
        /// What it has.
        pattern: String,
        /// `tool` or `prompt`.
        what: &'static str,
    },
    /// What should be a scope is none.
    #[error("{setting} has {scope:?}, which is no scope")]
    Scope {
        /// Which setting.
        setting: String,
        /// What it has.
        scope: String,
    },
}

//! One rule.

use std::collections::BTreeMap;

use super::super::scopes::is_scope;
use super::super::{Principal, sha256};
use super::config::{Access, Effect, PolicyError, RuleConfig};
use super::names::{NameTable, Names};
use super::uri;
use super::{Kind, Target};

pub(super) struct Rule {
    pub(super) name: String,
    pub(super) effect: Effect,
    pub(super) principals: Option<Names>,
    pub(super) groups: Vec<String>,
    /// OAuth clients.
    pub(super) clients: Option<Names>,
    /// Subjects of the token's actors.
    pub(super) actors: Option<Names>,
    pub(super) claims: BTreeMap<String, Vec<String>>,
    pub(super) scopes: Vec<String>,
    pub(super) tools: Option<Names>,
    pub(super) resources: Option<Names>,
    pub(super) prompts: Option<Names>,
    pub(super) access: Option<Access>,
    pub(super) requires: Vec<String>,
    pub(super) digest: [u8; 32],
}

impl Rule {
    pub(super) fn new(at: usize, config: &RuleConfig) -> Result<Self, PolicyError> {
        let setting = |name: &str| format!("policy.rules[{at}].{name}");
        for (name, scopes) in [("scopes", &config.scopes), ("requires", &config.requires)] {
            if let Some(scope) = scopes.iter().find(|scope| !is_scope(scope)) {
                return Err(PolicyError::Scope {
                    setting: setting(name),
                    scope: scope.clone(),
                });
            }
        }
        let others = [
            ("resources", &config.resources),
            ("prompts", &config.prompts),
        ];
        let others = others.into_iter().find(|(_, names)| !names.is_empty());
        if let (Some(_), Some((others, _))) = (config.access, others) {
            return Err(PolicyError::Access {
                setting: setting("access"),
                others,
            });
        }
        let text = serde_json::to_vec(config).unwrap_or_default();
        let canonical = config.resources.iter().map(|p| uri::canonical_pattern(p));
        let canonical = canonical.flatten();
        let resources: Vec<_> = config.resources.iter().cloned().chain(canonical).collect();
        Ok(Self {
            name: config
                .name
                .clone()
                .unwrap_or_else(|| format!("policy.rules[{at}]")),
            effect: config.effect,
            principals: Names::read(&setting("principals"), &config.principals)?,
            groups: config.groups.clone(),
            clients: Names::read(&setting("clients"), &config.clients)?,
            actors: Names::read(&setting("actors"), &config.actors)?,
            claims: config.claims.clone(),
            scopes: config.scopes.clone(),
            tools: Names::read(&setting("tools"), &config.tools)?,
            resources: Names::read(&setting("resources"), &resources)?,
            prompts: Names::read(&setting("prompts"), &config.prompts)?,
            access: config.access,
            requires: config.requires.clone(),
            digest: sha256(&text),
        })
    }

    pub(super) fn is_for(&self, principal: &Principal) -> bool {
        let named = self.principals.as_ref();
        let in_group = |group: &String| principal.groups().any(|g| g == group);
        let has_claim = |(name, values): (&String, &Vec<String>)| {
            principal.claim_at(name).is_some_and(|claim| {
                let is_one = |claim: &serde_json::Value| match claim {
                    serde_json::Value::String(text) => values.contains(text),
                    other => values.contains(&other.to_string()),
                };
                match claim {
                    serde_json::Value::Array(list) => list.iter().any(is_one),
                    claim => is_one(claim),
                }
            })
        };
        let clients = self.clients.as_ref();
        let by_client = |clients: &Names| principal.client().is_some_and(|id| clients.is_match(id));
        let actors = self.actors.as_ref();
        let by_actor = |actors: &Names| principal.actors().any(|actor| actors.is_match(actor));
        named.is_none_or(|named| named.is_match(principal.name()))
            && clients.is_none_or(by_client)
            && actors.is_none_or(by_actor)
            && (self.groups.is_empty() || self.groups.iter().any(in_group))
            && self.claims.iter().all(has_claim)
            && self.scopes.iter().all(|scope| principal.has_scope(scope))
    }

    pub(super) fn is_about(&self, target: Target<'_>) -> bool {
        let names = self.names_of(target.kind);
        self.is_about_access(target)
            && names.is_some_and(|names| names.is_none_or(|names| names.is_match(target.name)))
    }

    /// Bit set of the entries of a table that the rule is about. Only patterns with wildcards inside a name are matched
    /// with every entry.
    pub(super) fn matches(&self, table: &NameTable<'_>) -> Box<[u64]> {
        let targets = table.targets();
        let mut bits = vec![0; targets.len().div_ceil(64)];
        let add = |at: usize| {
            bits[at / 64] |= u64::from(self.is_about_access(targets[at])) << (at % 64);
        };
        match targets.first().and_then(|first| self.names_of(first.kind)) {
            Some(Some(names)) => names.find(table, add),
            Some(None) => (0..targets.len()).for_each(add),
            None => {}
        }
        bits.into()
    }

    fn is_about_access(&self, target: Target<'_>) -> bool {
        let required = self.access;
        required.is_none_or(|access| target.kind == Kind::Tool && access == target.access)
    }

    /// Names of the kind that the rule lists. `Some(None)` means all of the kind, and `None` that the rule is about
    /// other kinds only.
    fn names_of(&self, kind: Kind) -> Option<Option<&Names>> {
        let names = match kind {
            Kind::Tool => &self.tools,
            Kind::Resource => &self.resources,
            Kind::Prompt => &self.prompts,
        };
        let names_nothing =
            self.tools.is_none() && self.resources.is_none() && self.prompts.is_none();
        (names.is_some() || names_nothing).then_some(names.as_ref())
    }
}

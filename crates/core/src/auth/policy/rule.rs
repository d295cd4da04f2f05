//! One rule.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};

use super::super::Principal;
use super::super::scopes::is_scope;
use super::config::{Access, Effect, PolicyError, RuleConfig};
use super::names::Names;
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
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, &text).as_ref());
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
            digest: hash,
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
        if let Some(access) = self.access
            && (target.kind != Kind::Tool || access != target.access)
        {
            return false;
        }
        let all = self.tools.is_none() && self.resources.is_none() && self.prompts.is_none();
        let named = match target.kind {
            Kind::Tool => &self.tools,
            Kind::Resource => &self.resources,
            Kind::Prompt => &self.prompts,
        };
        all || named
            .as_ref()
            .is_some_and(|named| named.is_match(target.name))
    }
}

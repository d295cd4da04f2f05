//! Immutable snapshot of everything that is served, replaced as a whole.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::config::ServerConfig;
use super::listings::Listings;
use super::resource_cache::ResourceCache;
use super::search::Search;
use super::visibility::PolicyView;
use crate::auth::{Decision, ItemKind, Policy, Principal};
use crate::catalog::{Catalog, ListItem, ListingFrame, Table};
use crate::protocol::{CacheScope, Implementation, Method, Revision};
use crate::seal::KeyRing;

/// A catalog and everything derived from it. Each request loads it once.
#[derive(Debug)]
pub struct Snapshot {
    /// Number of the snapshot, unique within the process.
    pub(super) number: u64,
    pub catalog: Catalog,
    pub tools: Listings,
    pub resources: Listings,
    pub templates: Listings,
    pub prompts: Listings,
    pub skills: Listings,
    /// Access policy; `None` if all callers see everything.
    pub(super) policy_view: Option<PolicyView>,
    /// Tool search; `None` if there are too few tools.
    pub(super) search: Option<Search>,
    /// Size of the tool list, computed on first use.
    tools_size: OnceLock<usize>,
    has_completions: bool,
    has_tasks: bool,
    /// Cached resource contents. Each snapshot starts with an empty cache.
    pub resource_cache: ResourceCache,
    /// Response to `initialize` after the id, by revision; empty for revisions without sessions.
    initialized: [Bytes; Revision::ALL.len()],
    /// Response to `initialize` for callers who may list their tasks.
    initialized_with_lists: [Bytes; Revision::ALL.len()],
    /// Response to `server/discover` after the id.
    pub discovered: Bytes,
    /// Members at the end of every result in the stateless lifecycle, with a leading comma.
    pub result_tail: String,
    /// Members at the end of every cacheable result in the stateless lifecycle.
    list_tail: String,
    /// True if some callers are rejected, or do not see everything.
    is_restricted: bool,
    /// `_meta` of results without one of their own, in the stateless lifecycle.
    pub result_meta: String,
    /// `serverInfo` in the `_meta` of results.
    pub server_info: Value,
    /// Capabilities, in the form of the newest revision.
    pub capabilities: Value,
    /// Instructions for the model.
    pub instructions: Option<String>,
}

/// Access rules and authentication requirement of an endpoint.
#[derive(Debug, Default)]
pub struct Admission {
    pub policy: Option<Policy>,
    /// True if callers must authenticate.
    pub proved: bool,
}

/// Lists that differ between two snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListChanges {
    pub tools: bool,
    pub resources: bool,
    pub prompts: bool,
}

/// Key of `serverInfo` in `_meta`.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

impl Snapshot {
    pub fn new(catalog: Catalog, config: &ServerConfig, admission: Admission) -> Self {
        let info = json(&config.implementation());
        let meta = json!({ SERVER_INFO: info });
        let result_tail = format!(r#","resultType":"complete","_meta":{meta}"#);
        let is_restricted = admission.proved || admission.policy.is_some();
        let list_tail = format!(
            r#","ttlMs":{},"cacheScope":"{}"{result_tail}"#,
            config.list_ttl_ms,
            shared_scope(CacheScope::Public, is_restricted).as_str(),
        );
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        Self {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            initialized: Revision::ALL
                .map(|revision| initialized(&catalog, config, revision, false)),
            initialized_with_lists: Revision::ALL
                .map(|revision| initialized(&catalog, config, revision, true)),
            discovered: discovered(&catalog, config, &list_tail),
            tools: Listings::default(),
            resources: Listings::default(),
            templates: Listings::default(),
            prompts: Listings::default(),
            skills: Listings::default(),
            policy_view: admission.policy.map(PolicyView::new),
            search: Search::new(
                &config.search,
                catalog.tools.iter().map(|entry| entry.tool.definition()),
            ),
            tools_size: OnceLock::new(),
            has_completions: catalog.has_completions(),
            has_tasks: catalog.has_tasks(),
            resource_cache: ResourceCache::new(config.contents_cache_bytes),
            capabilities: capabilities(&catalog, Revision::V2026_07_28, false),
            server_info: info,
            instructions: config.instructions.clone(),
            result_meta: meta.to_string(),
            catalog,
            result_tail,
            list_tail,
            is_restricted,
        }
    }

    /// Size of the tool list in bytes, in the newest revision and without a policy. With a search, its three tools.
    pub(super) fn tools_size(&self) -> usize {
        *self.tools_size.get_or_init(|| match &self.search {
            Some(search) => search.verbs.size(Revision::V2026_07_28),
            None => self.catalog.tools.size(Revision::V2026_07_28),
        })
    }

    /// Response to `initialize` after the id.
    pub fn initialized(&self, revision: Revision, lists_tasks: bool) -> Bytes {
        let all = match lists_tasks {
            true => &self.initialized_with_lists,
            false => &self.initialized,
        };
        all[revision as usize].clone()
    }

    /// Returns true if the method's capability is served. Otherwise the method is unknown (DISC-02).
    #[inline]
    pub fn offers(&self, method: Method) -> bool {
        match method {
            Method::Initialize
            | Method::Ping
            | Method::Discover
            | Method::ToolsList
            | Method::ToolsCall
            | Method::SetLogLevel
            | Method::Listen => true,
            Method::ResourcesList
            | Method::TemplatesList
            | Method::ResourcesRead
            | Method::ResourcesSubscribe
            | Method::ResourcesUnsubscribe => self.catalog.has_resources(),
            Method::PromptsList | Method::PromptsGet => self.catalog.has_prompts(),
            Method::Complete => self.has_completions,
            Method::TasksGet
            | Method::TasksUpdate
            | Method::TasksCancel
            | Method::TasksResult
            | Method::TasksList => self.has_tasks,
            Method::SkillsList | Method::SkillsGet | Method::DirectoryRead => {
                self.catalog.skills.len() > 0
            }
        }
    }

    /// Lists that differ from those of another snapshot, or may differ for some callers.
    pub fn changes(&self, other: &Self) -> ListChanges {
        let (mine, others) = (&self.catalog, &other.catalog);
        let policies = (&self.policy_view, &other.policy_view);
        let has_same_rules = match policies {
            (None, None) => true,
            (Some(mine), Some(others)) => mine.policy.has_rules_of(&others.policy),
            _ => false,
        };
        let search = |snapshot: &Self| snapshot.search.as_ref().map(|it| it.config.clone());
        let may_differ = |length: usize| !has_same_rules && 0 < length;
        ListChanges {
            tools: may_differ(mine.tools.len())
                || search(self) != search(other)
                || !mine.tools.looks_like(&others.tools),
            resources: may_differ(mine.resources.len() + mine.templates.len())
                || !mine.resources.looks_like(&others.resources)
                || !mine.templates.looks_like(&others.templates),
            prompts: may_differ(mine.prompts.len()) || !mine.prompts.looks_like(&others.prompts),
        }
    }

    /// Scope in which caches outside of this server may share contents.
    pub(super) fn shared_scope(&self, scope: CacheScope) -> CacheScope {
        shared_scope(scope, self.is_restricted)
    }

    /// Members at the end of every cacheable result in the stateless lifecycle.
    pub fn list_tail(&self) -> &str {
        &self.list_tail
    }

    /// Parameters that all pages of a revision share.
    pub fn frame<'a>(
        &'a self,
        revision: Revision,
        config: &ServerConfig,
        keys: &'a KeyRing,
        endpoint: &'a str,
    ) -> ListingFrame<'a> {
        ListingFrame {
            revision,
            page_size: config.page_size.max(1),
            tail: if revision.has_result_type() {
                &self.list_tail
            } else {
                ""
            },
            keys,
            endpoint,
        }
    }
}

impl Snapshot {
    /// Returns true if the caller sees the item at a position.
    #[inline]
    pub(super) fn sees(&self, principal: &Principal, shelf: ItemKind, place: usize) -> bool {
        match &self.policy_view {
            None => true,
            Some(view) => {
                let class = view.policy.class_of(principal);
                view.visible(&class, shelf, &self.catalog).sees(place)
            }
        }
    }

    /// Returns true if the caller sees the item with a key.
    #[inline]
    pub(super) fn sees_key<T: ListItem>(
        &self,
        principal: &Principal,
        shelf: ItemKind,
        table: &Table<T>,
        key: &str,
    ) -> bool {
        self.policy_view.is_none()
            || table
                .position(key)
                .is_some_and(|place| self.sees(principal, shelf, place))
    }

    /// Digest of the visible part of several lists. Returns `None` without a policy.
    pub(super) fn digest_of(&self, principal: &Principal, shelves: &[ItemKind]) -> Option<u64> {
        let view = self.policy_view.as_ref()?;
        let class = view.policy.class_of(principal);
        let catalog = &self.catalog;
        let digest = |shelf: ItemKind| {
            let of = (&*class, view.visible(&class, shelf, catalog));
            match shelf {
                ItemKind::Tools => view.digest(shelf, &catalog.tools, of),
                ItemKind::Resources => view.digest(shelf, &catalog.resources, of),
                ItemKind::Templates => view.digest(shelf, &catalog.templates, of),
                ItemKind::Prompts => view.digest(shelf, &catalog.prompts, of),
            }
        };
        let mut hasher = DefaultHasher::new();
        shelves
            .iter()
            .for_each(|shelf| digest(*shelf).hash(&mut hasher));
        Some(hasher.finish())
    }

    /// Returns true if the caller sees a URI. To read it, the caller may need [scopes](Self::scopes_for_uri).
    #[inline]
    pub(super) fn sees_uri(&self, principal: &Principal, uri: &str) -> bool {
        self.scopes_for_uri(principal, uri).is_some()
    }

    /// Returns the scopes that rules require to subscribe to a URI, or `None` if the caller does not see it, or the endpoint
    /// neither offers it nor would if there were such a resource. Such URIs must look unknown.
    pub(super) fn scopes_to_subscribe(
        &self,
        principal: &Principal,
        uri: &str,
    ) -> Option<Vec<String>> {
        let scopes = self.scopes_for_uri(principal, uri)?;
        self.catalog.selects_uri(principal, uri).then_some(scopes)
    }

    /// Returns true if the caller may be told of changes of a URI: it may read it, and the endpoint offers it.
    pub(super) fn may_watch(&self, principal: &Principal, uri: &str) -> bool {
        let scopes = self.scopes_to_subscribe(principal, uri);
        scopes.is_some_and(|scopes| scopes.iter().all(|scope| principal.has_scope(scope)))
    }

    /// Returns the scopes that rules require for a URI, or `None` if the caller does not see it.
    #[inline]
    pub(super) fn scopes_for_uri(&self, principal: &Principal, uri: &str) -> Option<Vec<String>> {
        let Some(view) = &self.policy_view else {
            return Some(Vec::new());
        };
        let class = view.policy.class_of(principal);
        let decision = view.policy.decide_uri(&class, uri);
        decision.allowed.then_some(decision.requires)
    }

    /// Returns the scopes that rules require for a resource with several URIs, or `None` if the caller does not see
    /// it.
    pub(super) fn scopes_for_any(
        &self,
        principal: &Principal,
        uris: &[String],
    ) -> Option<Vec<String>> {
        if self.policy_view.is_none() {
            return Some(Vec::new());
        }
        let decision = self.decide_any(principal, uris)?;
        decision.allowed.then_some(decision.requires)
    }

    /// Decides about a resource with several URIs. The caller sees it if one URI is allowed and no rule denies another.
    /// Returns `None` without a policy.
    pub(super) fn decide_any(&self, principal: &Principal, uris: &[String]) -> Option<Decision> {
        let policy = &self.policy_view.as_ref()?.policy;
        let class = policy.class_of(principal);
        let mut decided: Option<Decision> = None;
        for uri in uris {
            let mut decision = policy.decide_uri(&class, uri);
            if !decision.allowed && decision.rule.is_some() {
                return Some(decision);
            }
            decided = match decided {
                Some(mut known) if known.allowed => {
                    known.requires.append(&mut decision.requires);
                    Some(known)
                }
                _ => Some(decision),
            };
        }
        decided
    }

    /// Returns the scopes that rules require for the item with a key.
    pub(super) fn required_scopes<T: ListItem>(
        &self,
        principal: &Principal,
        shelf: ItemKind,
        table: &Table<T>,
        key: &str,
    ) -> Option<Arc<[String]>> {
        let view = self.policy_view.as_ref()?;
        let place = table.position(key)?;
        let class = view.policy.class_of(principal);
        let visible = view.visible(&class, shelf, &self.catalog);
        visible.requires(place).cloned()
    }
}

/// CACHE-04: a result must not be shared with callers who are rejected here, or see something else.
fn shared_scope(scope: CacheScope, is_restricted: bool) -> CacheScope {
    match is_restricted {
        true => CacheScope::Private,
        false => scope,
    }
}

fn initialized(
    catalog: &Catalog,
    config: &ServerConfig,
    revision: Revision,
    lists_tasks: bool,
) -> Bytes {
    if !revision.has_sessions() {
        return Bytes::new();
    }
    let mut result = Map::new();
    result.insert("protocolVersion".to_owned(), revision.as_str().into());
    let capabilities = capabilities(catalog, revision, lists_tasks);
    result.insert("capabilities".to_owned(), capabilities);
    result.insert("serverInfo".to_owned(), json(&config.implementation()));
    if let Some(instructions) = &config.instructions {
        result.insert("instructions".to_owned(), instructions.clone().into());
    }
    format!(r#","result":{}}}"#, Value::Object(result)).into()
}

fn discovered(catalog: &Catalog, config: &ServerConfig, tail: &str) -> Bytes {
    let instructions = match &config.instructions {
        Some(text) => format!(r#","instructions":{}"#, json!(text)),
        None => String::new(),
    };
    format!(
        r#","result":{{"supportedVersions":{},"capabilities":{}{instructions}{tail}}}}}"#,
        json!(supported_versions()),
        capabilities(catalog, Revision::V2026_07_28, false),
    )
    .into()
}

/// Capabilities of the server. Tools and logging are always present.
fn capabilities(catalog: &Catalog, revision: Revision, lists_tasks: bool) -> Value {
    let mut capabilities = json!({"tools": {"listChanged": true}, "logging": {}});
    if catalog.has_resources() {
        capabilities["resources"] = json!({"subscribe": true, "listChanged": true});
    }
    if catalog.has_prompts() {
        capabilities["prompts"] = json!({"listChanged": true});
    }
    if revision.announces_completions() && catalog.has_completions() {
        capabilities["completions"] = json!({});
    }
    if revision.has_core_tasks() && catalog.has_tasks() {
        capabilities["tasks"] = json!({"cancel": {}, "requests": {"tools": {"call": {}}}});
        if lists_tasks {
            capabilities["tasks"]["list"] = json!({});
        }
    }
    let extensions = catalog.extensions(revision);
    if !extensions.is_empty() {
        capabilities["extensions"] = extensions.into();
    }
    capabilities
}

/// All revisions, the stateless one first: only it can be requested by version.
pub fn supported_versions() -> Vec<&'static str> {
    let mut revisions = Revision::ALL;
    revisions.reverse();
    revisions.map(Revision::as_str).into()
}

fn json(implementation: &Implementation) -> Value {
    serde_json::to_value(implementation).unwrap_or_default()
}

//! Visibility of items under an access policy.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::sync::{Arc, OnceLock};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::auth::{Access, Class, ItemKind, Kind, Policy, Principal, Target, Visible};
use crate::catalog::{
    Catalog, CatalogTool, ListItem, ListingFrame, SerializedEntries, Table, page_of_seen,
    start_after,
};
use crate::net::SharedBytes;
use crate::protocol::Revision;

/// Maximum size of cached pages in bytes. Pages that share text count little. Others are built again.
const PAGES_MAX_BYTES: u64 = 32 * 1024 * 1024;

/// The access policy with its cached results.
#[derive(Debug)]
pub(crate) struct PolicyView {
    pub(super) policy: Policy,
    fragments: [[OnceLock<SerializedEntries>; Revision::ALL.len()]; 4],
    pages: Cache<PageKey, SharedBytes, PageWeight>,
    /// Access that each tool needs, by position.
    access: OnceLock<Box<[Access]>>,
    /// Digests of the visible part of each list, by class.
    digests: Cache<(u8, Arc<str>), u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PageKey {
    shelf: u8,
    revision: Revision,
    class: u64,
    start: usize,
}

#[derive(Clone, Debug)]
struct PageWeight;

impl Weighter<PageKey, SharedBytes> for PageWeight {
    fn weight(&self, _: &PageKey, page: &SharedBytes) -> u64 {
        let own = match page {
            SharedBytes::One(page) => page.len(),
            // Own memory of the page: at most the cursor and the members of every result.
            SharedBytes::Several(pieces) => size_of_val(&**pieces) + 512,
        };
        own as u64 + 256
    }
}

impl PolicyView {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            policy,
            fragments: Default::default(),
            pages: Cache::with_weighter(4096, PAGES_MAX_BYTES, PageWeight),
            access: OnceLock::new(),
            digests: Cache::new(4096),
        }
    }

    fn fragments<T: ListItem>(
        &self,
        shelf: ItemKind,
        table: &Table<T>,
        revision: Revision,
    ) -> &SerializedEntries {
        let all = &self.fragments[shelf as usize];
        all[revision as usize].get_or_init(|| {
            let mut fragments = SerializedEntries::new(table, revision);
            for other in all.iter().filter_map(OnceLock::get) {
                fragments.share(other);
            }
            fragments
        })
    }

    /// Page of a list for a class of callers. Returns `None` if the cursor belongs to another class.
    pub(super) fn page<T: ListItem>(
        &self,
        shelf: ItemKind,
        table: &Table<T>,
        frame: ListingFrame<'_>,
        (class, visible): (&Class, &Visible),
        cursor: Option<&str>,
    ) -> Option<SharedBytes> {
        let key = |start| PageKey {
            shelf: shelf as u8,
            revision: frame.revision,
            class: class.number,
            start,
        };
        if cursor.is_none()
            && let Some(page) = self.pages.get(&key(0))
        {
            return Some(page);
        }
        // The cursor is bound to the class, so that another class cannot continue with it.
        let endpoint = format!("{} {}", frame.endpoint, class.digest);
        let frame = ListingFrame {
            endpoint: &endpoint,
            ..frame
        };
        let sees = |place| visible.sees(place);
        let start = match cursor {
            Some(cursor) => start_after(table, frame, cursor, sees)?,
            None => 0,
        };
        let key = key(start);
        if let Some(page) = self.pages.get(&key) {
            return Some(page);
        }
        let fragments = self.fragments(shelf, table, frame.revision);
        let page = page_of_seen(table, fragments, frame, sees, start);
        self.pages.insert(key, page.clone());
        Some(page)
    }

    /// Digest of the part of a table that a class sees.
    pub(super) fn digest<T: ListItem>(
        &self,
        shelf: ItemKind,
        table: &Table<T>,
        (class, visible): (&Class, &Visible),
    ) -> u64 {
        let key = (shelf as u8, Arc::clone(&class.digest));
        if let Some(digest) = self.digests.get(&key) {
            return digest;
        }
        let mut hasher = DefaultHasher::new();
        for revision in [Revision::NEWEST_WITH_SESSIONS, Revision::V2026_07_28] {
            let fragments = self.fragments(shelf, table, revision);
            for place in (0..table.len()).filter(|place| visible.sees(*place)) {
                fragments.get(place).hash(&mut hasher);
            }
        }
        let digest = hasher.finish();
        self.digests.insert(key, digest);
        digest
    }

    /// Page of a list whose items are visible to callers who may read their URIs. `write` serializes an item.
    pub(super) fn page_by_uri<T: ListItem>(
        &self,
        table: &Table<T>,
        write: impl Fn(&T) -> String,
        frame: ListingFrame<'_>,
        principal: &Principal,
        cursor: Option<&str>,
    ) -> Option<SharedBytes> {
        let class = self.policy.class_of(principal);
        let endpoint = format!("{} {}", frame.endpoint, class.digest);
        let frame = ListingFrame {
            endpoint: &endpoint,
            ..frame
        };
        let sees = |place: usize| {
            let uri = table.entries()[place].key();
            self.policy.decide_uri(&class, uri).allowed
        };
        let start = match cursor {
            Some(cursor) => start_after(table, frame, cursor, sees)?,
            None => 0,
        };
        let fragments = SerializedEntries::of(table.iter().map(write));
        Some(page_of_seen(table, &fragments, frame, sees, start))
    }

    pub(super) fn visible<'c>(
        &self,
        class: &'c Class,
        shelf: ItemKind,
        catalog: &Catalog,
    ) -> &'c Visible {
        let count = match shelf {
            ItemKind::Tools => catalog.tools.len(),
            ItemKind::Resources => catalog.resources.len(),
            ItemKind::Templates => catalog.templates.len(),
            ItemKind::Prompts => catalog.prompts.len(),
        };
        let entries = || self.targets(shelf, catalog);
        self.policy.visible(class, shelf, count, entries)
    }

    /// All items of a table as policy targets.
    fn targets<'c>(&self, shelf: ItemKind, catalog: &'c Catalog) -> Vec<Target<'c>> {
        let only_read = |kind, name| Target {
            kind,
            name,
            access: Access::Read,
        };
        match shelf {
            ItemKind::Tools => {
                // Equal for all classes.
                let access = self.access.get_or_init(|| {
                    let definitions = catalog.tools.iter().map(|entry| entry.tool.definition());
                    definitions
                        .map(|d| tool_target(&self.policy, d).access)
                        .collect()
                });
                let tools = catalog.tools.iter().zip(access.iter());
                let target = |(entry, access): (&'c CatalogTool, &Access)| Target {
                    kind: Kind::Tool,
                    name: entry.tool.definition().name(),
                    access: *access,
                };
                tools.map(target).collect()
            }
            ItemKind::Resources => {
                let all = catalog.resources.iter();
                all.map(|entry| only_read(Kind::Resource, entry.key()))
                    .collect()
            }
            ItemKind::Templates => {
                let all = catalog.templates.iter();
                all.map(|entry| only_read(Kind::Resource, entry.key()))
                    .collect()
            }
            ItemKind::Prompts => {
                let all = catalog.prompts.iter();
                all.map(|entry| only_read(Kind::Prompt, entry.key()))
                    .collect()
            }
        }
    }
}

/// Policy target of a tool.
pub(crate) fn tool_target<'d>(
    policy: &Policy,
    definition: &'d crate::catalog::Definition,
) -> Target<'d> {
    let said = definition.annotations.read_only_hint;
    Target {
        kind: Kind::Tool,
        name: definition.name(),
        access: policy.classify(definition.name(), said).access,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::catalog::{Definition, IntoTool as _, ToolError, tool_fn};
    use crate::seal::KeyRing;
    use crate::server::{Admission, ServerConfig, Snapshot};

    const TOOLS: usize = 10_000;
    const ROLES: usize = 1_000;
    /// How many roles are tried; others take as much.
    const TRIED: usize = 12;

    fn snapshot() -> Snapshot {
        let schema = json!({"type": "object", "properties": {
            "path": {"type": "string", "description": "Where it is, from the root of the project"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
        }, "required": ["path"]});
        let tools = (0..TOOLS).map(|number| {
            let nothing =
                |_, _: Map<String, serde_json::Value>| async { Ok::<_, ToolError>(String::new()) };
            let definition = Definition::new(format!("tool_{}_{number}", number % ROLES))
                .description("Does one thing among ten thousand, and says so at some length.")
                .input_schema(schema.clone());
            tool_fn(definition, nothing).into_tool()
        });
        // Each role lacks something else, and sees nearly everything.
        let rules: Vec<_> = (0..ROLES)
            .map(|role| json!({"effect": "deny", "groups": [format!("role-{role}")], "tools": [format!("tool_{role}_*")]}))
            .collect();
        let policy = serde_json::from_value(json!({ "rules": rules })).expect("sound rules");
        let admission = Admission {
            policy: Policy::new(&policy).expect("sound rules"),
            proved: true,
        };
        let catalog = Catalog::new(tools).expect("good tools");
        Snapshot::new(catalog, &ServerConfig::default(), admission)
    }

    #[test]
    fn ten_thousand_tools_for_a_thousand_roles_are_listed_in_less_than_64_mib() {
        let (snapshot, config, keys) = (snapshot(), ServerConfig::default(), KeyRing::random());
        let view = snapshot.policy_view.as_ref().expect("rules");
        let tools = &snapshot.catalog.tools;
        let mut class_bytes = 0;
        for role in 0..TRIED {
            let principal =
                Principal::new(format!("one of role {role}")).with_groups([format!("role-{role}")]);
            let class = view.policy.class_of(&principal);
            let visible = view.visible(&class, ItemKind::Tools, &snapshot.catalog);
            assert!(
                !visible.everything
                    && !visible.sees(
                        tools
                            .position(&format!("tool_{role}_{role}"))
                            .expect("is there")
                    )
            );
            for revision in Revision::ALL {
                let frame = snapshot.frame(revision, &config, &keys, "mcp");
                let page = view.page(ItemKind::Tools, tools, frame, (&class, visible), None);
                assert!(page.is_some_and(|page| page.len() > 100_000));
            }
            class_bytes = class_bytes.max(class.bytes());
        }
        // Pages consist of what all roles have in common, so that those of all together take no more than this.
        let pages = usize::try_from(view.pages.weight()).expect("fits") * ROLES / TRIED;
        assert!(pages > 0 && pages < 8 * 1024 * 1024, "{pages}");
        let fragments: usize = view
            .fragments
            .iter()
            .flatten()
            .filter_map(OnceLock::get)
            .map(SerializedEntries::bytes)
            .sum();
        // What each rule is about is remembered too.
        let rules = ROLES * TOOLS.div_ceil(8);
        let all = pages + fragments + rules + ROLES * class_bytes;
        assert!(all < 64 * 1024 * 1024, "{pages} {fragments} {class_bytes}");
    }
}

//! What a caller sees of what is offered, where a policy says that it is not everything.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::sync::{Arc, OnceLock};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::generation::Generation;
use crate::auth::{Access, Class, Kind, Policy, Principal, Shelf, Target, Visible};
use crate::catalog::{
    Catalog, CatalogTool, Fragments, Listed, ListingFrame, Table, page_of_seen, start_after,
};
use crate::net::Common;
use crate::protocol::Revision;

/// How many bytes of pages are kept, of which those in stretches of a common text take few. Others are put together anew.
const PAGES_MAX_BYTES: u64 = 32 * 1024 * 1024;

/// The policy, and what was found out by it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(super) policy: Policy,
    fragments: [[OnceLock<Fragments>; Revision::ALL.len()]; 4],
    pages: Cache<PageKey, Common, ByLength>,
    /// Whether each tool changes anything.
    access: OnceLock<Box<[Access]>>,
    /// What classes see of lists, in short.
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
struct ByLength;

impl Weighter<PageKey, Common> for ByLength {
    fn weight(&self, _: &PageKey, page: &Common) -> u64 {
        let own = match page {
            Common::One(page) => page.len(),
            // At most the end is its own: a cursor, and what all results say.
            Common::Several(pieces) => size_of_val(&**pieces) + 512,
        };
        own as u64 + 256
    }
}

impl Seen {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            policy,
            fragments: Default::default(),
            pages: Cache::with_weighter(4096, PAGES_MAX_BYTES, ByLength),
            access: OnceLock::new(),
            digests: Cache::new(4096),
        }
    }

    fn fragments<T: Listed>(
        &self,
        shelf: Shelf,
        table: &Table<T>,
        revision: Revision,
    ) -> &Fragments {
        let all = &self.fragments[shelf as usize];
        all[revision as usize].get_or_init(|| {
            let mut fragments = Fragments::new(table, revision);
            for other in all.iter().filter_map(OnceLock::get) {
                fragments.share(other);
            }
            fragments
        })
    }

    /// The page of a list that a class sees. `None` if the cursor is not one that the class was given.
    pub(super) fn page<T: Listed>(
        &self,
        shelf: Shelf,
        table: &Table<T>,
        frame: ListingFrame<'_>,
        (class, visible): (&Class, &Visible),
        cursor: Option<&str>,
    ) -> Option<Common> {
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
        // Bound to the class, so that nobody goes on where somebody else has stopped.
        let mount = format!("{} {}", frame.mount, class.digest);
        let frame = ListingFrame {
            mount: &mount,
            ..frame
        };
        let start = match cursor {
            Some(cursor) => start_after(table, frame, cursor)?,
            None => 0,
        };
        let key = key(start);
        if let Some(page) = self.pages.get(&key) {
            return Some(page);
        }
        let fragments = self.fragments(shelf, table, frame.revision);
        let page = page_of_seen(table, fragments, frame, |place| visible.sees(place), start);
        self.pages.insert(key, page.clone());
        Some(page)
    }

    /// A digest of what a class sees of a table.
    fn digest<T: Listed>(
        &self,
        shelf: Shelf,
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

    /// The page of a list whose entries are seen by whoever may read what is at their URIs; `write` writes them.
    pub(super) fn page_by_uri<T: Listed>(
        &self,
        table: &Table<T>,
        write: impl Fn(&T) -> String,
        frame: ListingFrame<'_>,
        principal: &Principal,
        cursor: Option<&str>,
    ) -> Option<Common> {
        let class = self.policy.class_of(principal);
        let mount = format!("{} {}", frame.mount, class.digest);
        let frame = ListingFrame {
            mount: &mount,
            ..frame
        };
        let start = match cursor {
            Some(cursor) => start_after(table, frame, cursor)?,
            None => 0,
        };
        let fragments = Fragments::of(table.iter().map(write));
        let sees = |place: usize| {
            let uri = table.entries()[place].key();
            self.policy.decide_uri(&class, uri).allowed
        };
        Some(page_of_seen(table, &fragments, frame, sees, start))
    }

    pub(super) fn visible<'c>(
        &self,
        class: &'c Class,
        shelf: Shelf,
        catalog: &Catalog,
    ) -> &'c Visible {
        let count = match shelf {
            Shelf::Tools => catalog.tools.len(),
            Shelf::Resources => catalog.resources.len(),
            Shelf::Templates => catalog.templates.len(),
            Shelf::Prompts => catalog.prompts.len(),
        };
        let entries = || self.targets(shelf, catalog);
        self.policy.visible(class, shelf, count, entries)
    }

    /// Everything of a table, as rules see it.
    fn targets<'c>(&self, shelf: Shelf, catalog: &'c Catalog) -> Vec<Target<'c>> {
        let only_read = |kind, name| Target {
            kind,
            name,
            access: Access::Read,
        };
        match shelf {
            Shelf::Tools => {
                // The same for all classes.
                let access = self.access.get_or_init(|| {
                    let definitions = catalog.tools.iter().map(|entry| entry.tool.definition());
                    definitions.map(|d| tool(&self.policy, d).access).collect()
                });
                let tools = catalog.tools.iter().zip(access.iter());
                let target = |(entry, access): (&'c CatalogTool, &Access)| Target {
                    kind: Kind::Tool,
                    name: entry.tool.definition().name(),
                    access: *access,
                };
                tools.map(target).collect()
            }
            Shelf::Resources => {
                let all = catalog.resources.iter();
                all.map(|entry| only_read(Kind::Resource, entry.key()))
                    .collect()
            }
            Shelf::Templates => {
                let all = catalog.templates.iter();
                all.map(|entry| only_read(Kind::Resource, entry.key()))
                    .collect()
            }
            Shelf::Prompts => {
                let all = catalog.prompts.iter();
                all.map(|entry| only_read(Kind::Prompt, entry.key()))
                    .collect()
            }
        }
    }
}

/// A tool, as rules see it.
pub(crate) fn tool<'d>(policy: &Policy, definition: &'d crate::catalog::Definition) -> Target<'d> {
    let said = definition.annotations.read_only_hint;
    Target {
        kind: Kind::Tool,
        name: definition.name(),
        access: policy.classify(definition.name(), said).access,
    }
}

impl Generation {
    /// Whether a caller sees what stands at a place.
    #[inline]
    pub(super) fn sees(&self, principal: &Principal, shelf: Shelf, place: usize) -> bool {
        match &self.seen {
            None => true,
            Some(seen) => {
                let class = seen.policy.class_of(principal);
                seen.visible(&class, shelf, &self.catalog).sees(place)
            }
        }
    }

    /// Whether a caller sees what there is under a key.
    #[inline]
    pub(super) fn sees_key<T: Listed>(
        &self,
        principal: &Principal,
        shelf: Shelf,
        table: &Table<T>,
        key: &str,
    ) -> bool {
        self.seen.is_none()
            || table
                .position(key)
                .is_some_and(|place| self.sees(principal, shelf, place))
    }

    /// A digest of what a caller sees of some lists together. `None` if everybody sees everything.
    pub(super) fn digest_of(&self, principal: &Principal, shelves: &[Shelf]) -> Option<u64> {
        let seen = self.seen.as_ref()?;
        let class = seen.policy.class_of(principal);
        let catalog = &self.catalog;
        let digest = |shelf: Shelf| {
            let of = (&*class, seen.visible(&class, shelf, catalog));
            match shelf {
                Shelf::Tools => seen.digest(shelf, &catalog.tools, of),
                Shelf::Resources => seen.digest(shelf, &catalog.resources, of),
                Shelf::Templates => seen.digest(shelf, &catalog.templates, of),
                Shelf::Prompts => seen.digest(shelf, &catalog.prompts, of),
            }
        };
        let mut hasher = DefaultHasher::new();
        shelves
            .iter()
            .for_each(|shelf| digest(*shelf).hash(&mut hasher));
        Some(hasher.finish())
    }

    /// Whether a caller may read what is at a URI.
    #[inline]
    pub(super) fn sees_uri(&self, principal: &Principal, uri: &str) -> bool {
        match &self.seen {
            None => true,
            Some(seen) => {
                let class = seen.policy.class_of(principal);
                seen.policy.decide_uri(&class, uri).allowed
            }
        }
    }

    /// Whether a caller may read a resource that has several URIs: no rule denies one of them, and one is allowed.
    pub(super) fn sees_one_of(&self, principal: &Principal, uris: &[String]) -> bool {
        let Some(seen) = &self.seen else {
            return true;
        };
        let class = seen.policy.class_of(principal);
        let mut allowed = false;
        for uri in uris {
            let decision = seen.policy.decide_uri(&class, uri);
            if !decision.allowed && decision.rule.is_some() {
                return false;
            }
            allowed |= decision.allowed;
        }
        allowed
    }

    /// Scopes that rules demand for a tool.
    pub(super) fn required_for(&self, principal: &Principal, tool: &str) -> Option<Arc<[String]>> {
        let seen = self.seen.as_ref()?;
        let place = self.catalog.tools.position(tool)?;
        let class = seen.policy.class_of(principal);
        let visible = seen.visible(&class, Shelf::Tools, &self.catalog);
        visible.requires(place).cloned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::catalog::{Definition, IntoTool as _, ToolError, tool_fn};
    use crate::seal::KeyRing;
    use crate::server::{Admission, ServerConfig};

    const TOOLS: usize = 10_000;
    const ROLES: usize = 1_000;
    /// How many roles are tried; others take as much.
    const TRIED: usize = 12;

    fn generation() -> Generation {
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
        Generation::new(catalog, &ServerConfig::default(), admission)
    }

    #[test]
    fn ten_thousand_tools_for_a_thousand_roles_are_listed_in_less_than_64_mib() {
        let (generation, config, keys) = (generation(), ServerConfig::default(), KeyRing::random());
        let seen = generation.seen.as_ref().expect("rules");
        let tools = &generation.catalog.tools;
        let mut class_bytes = 0;
        for role in 0..TRIED {
            let principal =
                Principal::new(format!("one of role {role}")).with_groups([format!("role-{role}")]);
            let class = seen.policy.class_of(&principal);
            let visible = seen.visible(&class, Shelf::Tools, &generation.catalog);
            assert!(
                !visible.everything
                    && !visible.sees(
                        tools
                            .position(&format!("tool_{role}_{role}"))
                            .expect("is there")
                    )
            );
            for revision in Revision::ALL {
                let frame = generation.frame(revision, &config, &keys, "mcp");
                let page = seen.page(Shelf::Tools, tools, frame, (&class, visible), None);
                assert!(page.is_some_and(|page| page.len() > 100_000));
            }
            class_bytes = class_bytes.max(class.bytes());
        }
        // Pages consist of what all roles have in common, so that those of all together take no more than this.
        let pages = usize::try_from(seen.pages.weight()).expect("fits") * ROLES / TRIED;
        assert!(pages > 0 && pages < 8 * 1024 * 1024, "{pages}");
        let fragments: usize = seen
            .fragments
            .iter()
            .flatten()
            .filter_map(OnceLock::get)
            .map(Fragments::bytes)
            .sum();
        // What each rule is about is remembered too.
        let rules = ROLES * TOOLS.div_ceil(8);
        let all = pages + fragments + rules + ROLES * class_bytes;
        assert!(all < 64 * 1024 * 1024, "{pages} {fragments} {class_bytes}");
    }
}

//! Number of comparisons that the validation of a value takes.
//!
//! The validator applies a subschema to a value once for each path of references and combinations that leads there. The
//! number of paths can double with each level of a value. It remembers results only where a reference leads back to a
//! subschema that it is within. [`Graph::permits`] therefore counts the comparisons in advance, with each pair of a
//! subschema and a value visited once. Most schemas have a [bound](Graph::bound) that makes this unnecessary.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use super::survey::{Node, Part};

/// Maximum number of comparisons.
pub(super) const COMPARISONS_MAX: u64 = 5_000_000;

/// Maximum nesting of subschemas within combinations and parts of a value, which bounds the stack.
const DEPTH_MAX: u32 = 2_000;
/// Nesting of values that [`Graph::bound`] assumes.
const LEVELS: u64 = 128;
/// Maximum number of results that are kept during a count.
const KNOWN_MAX: usize = 500_000;
/// String bytes times pattern size that count as one comparison.
const PATTERN_STEPS: u64 = 1024;
/// Upper bound of the comparisons with any value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bound {
    /// Comparisons with one part of the value.
    comparisons: u64,
    /// Size of the largest pattern.
    pattern: u64,
}

impl Bound {
    /// Returns true if a value could take more than the maximum.
    #[inline]
    pub(super) fn could_exceed(self, value: &Value) -> bool {
        let mut left = COMPARISONS_MAX;
        !self.fits(&mut left, value)
    }

    /// Subtracts the comparisons; returns false if there are more.
    fn fits(self, left: &mut u64, value: &Value) -> bool {
        let text = |text: &str| {
            self.comparisons
                .saturating_mul(1 + steps(self.pattern, text))
        };
        let own = match value {
            Value::String(string) => text(string),
            _ => self.comparisons,
        };
        let Some(rest) = left.checked_sub(own) else {
            return false;
        };
        *left = rest;
        match value {
            Value::Array(items) => items.iter().all(|item| self.fits(left, item)),
            Value::Object(members) => members.iter().all(|(name, member)| {
                *left = left.saturating_sub(match self.pattern {
                    0 => 0,
                    _ => text(name),
                });
                self.fits(left, member)
            }),
            _ => true,
        }
    }
}

/// Subschemas and what they apply to.
#[derive(Debug)]
pub(super) struct Graph {
    nodes: Vec<Subschema>,
    bound: Bound,
}

#[derive(Debug, Default)]
struct Subschema {
    /// Comparisons with a value itself.
    own: u64,
    /// Size of the pattern of strings.
    pattern: u64,
    /// Comparisons with any value, if they do not depend on it.
    constant: Option<u64>,
    /// True if several others lead to it.
    is_shared: bool,
    /// Subschemas that apply to the same value; true for those whose results the validator remembers.
    applied: Vec<(usize, bool)>,
    /// Number of times that the validator applies these.
    rounds: u64,
    members: BTreeMap<String, usize>,
    other_members: Option<usize>,
    /// Subschemas of all members, with the sizes of patterns for their names.
    all_members: Vec<(usize, u64)>,
    items: Vec<usize>,
    other_items: Option<usize>,
    all_items: Vec<usize>,
}

/// Bounds of one subschema.
#[derive(Clone, Copy, Default)]
struct Bounds {
    /// Comparisons with the value itself.
    here: u64,
    /// Comparisons with one part of the value.
    within: u64,
    /// Longest chain of combinations.
    height: u64,
    /// Comparisons with any value, if they do not depend on it.
    constant: Option<u64>,
}

impl Bounds {
    fn most(self) -> u64 {
        self.here.max(self.within)
    }
}

impl Graph {
    pub(super) fn of(nodes: &[Node<'_>]) -> Self {
        let mut graph = Self {
            nodes: nodes.iter().map(Subschema::of).collect(),
            bound: Bound::default(),
        };
        graph.bound = Bound {
            comparisons: graph.survey(),
            pattern: graph
                .nodes
                .iter()
                .map(Subschema::pattern)
                .max()
                .unwrap_or(0),
        };
        graph
    }

    pub(super) fn bound(&self) -> Bound {
        self.bound
    }

    /// Finds the references that lead back, and returns the maximum number of comparisons with one part of a value.
    fn survey(&mut self) -> u64 {
        let mut bounds: Vec<Option<Bounds>> = vec![None; self.nodes.len()];
        let mut is_open = vec![false; self.nodes.len()];
        let mut is_reached = vec![false; self.nodes.len()];
        let mut recursive = HashSet::new();
        let mut is_bounded = true;
        let mut most = 1;
        // The way to a subschema: those on it, with their edges that are left. A chain of references can be long.
        let mut way = vec![(0, self.nodes[0].edges().into_iter().enumerate())];
        is_open[0] = true;
        while let Some((at, edges)) = way.last_mut() {
            let at = *at;
            let edge = edges.next();
            if let Some((_, next)) = edge {
                self.nodes[next].is_shared |= std::mem::replace(&mut is_reached[next], true);
            }
            match edge {
                Some((edge, next)) if is_open[next] => {
                    recursive.insert(next);
                    match self.nodes[at].applied.get_mut(edge) {
                        Some((_, is_remembered)) => *is_remembered = true,
                        None => is_bounded = false,
                    }
                }
                Some((_, next)) if bounds[next].is_none() => {
                    is_open[next] = true;
                    way.push((next, self.nodes[next].edges().into_iter().enumerate()));
                }
                Some(_) => {}
                None => {
                    let found = self.nodes[at].bounds(&bounds);
                    self.nodes[at].constant = found.constant;
                    most = most.max(found.most());
                    bounds[at] = Some(found);
                    is_open[at] = false;
                    way.pop();
                }
            }
        }
        if !is_bounded {
            return u64::MAX;
        }
        // The results that are remembered are those of each level.
        let levels = LEVELS.saturating_mul(recursive.len() as u64);
        most.saturating_mul(levels.saturating_add(1))
    }

    /// Returns true if the validation of a value takes at most the maximum number of comparisons.
    pub(super) fn permits(&self, value: &Value) -> bool {
        let mut count = Count {
            graph: self,
            known: HashMap::new(),
            remembered: HashSet::new(),
            left: COMPARISONS_MAX,
            depth: 0,
        };
        count.of(0, value) <= COMPARISONS_MAX
    }
}

impl Subschema {
    fn of(node: &Node<'_>) -> Self {
        let mut subschema = Self {
            own: 1,
            rounds: 1,
            applied: node
                .applied
                .iter()
                .map(|applied| (*applied, false))
                .collect(),
            ..Self::default()
        };
        for (part, within) in &node.parts {
            match part {
                Part::Member(name) => {
                    subschema.members.insert((*name).to_owned(), *within);
                }
                Part::OtherMembers => subschema.other_members = Some(*within),
                Part::Members(pattern) => {
                    let size = pattern.map_or(0, pattern_size);
                    subschema.all_members.push((*within, size));
                }
                Part::Item(_) => subschema.items.push(*within),
                Part::OtherItems => subschema.other_items = Some(*within),
                Part::Items => subschema.all_items.push(*within),
            }
        }
        let length = |keyword: &str| match node.schema.get(keyword) {
            Some(Value::Array(list)) => list.len() as u64,
            Some(Value::Object(members)) => members.len() as u64,
            _ => 0,
        };
        // A look-up of a name takes less time than the comparison of a value.
        subschema.own += length("enum") + (length("properties") + length("required")) / 4;
        let pattern = node.schema.get("pattern").and_then(Value::as_str);
        subschema.pattern = pattern.map_or(0, pattern_size);
        // These apply the combinations again, to find what has been evaluated.
        let has = |keyword| node.schema.get(keyword).is_some();
        if has("unevaluatedProperties") || has("unevaluatedItems") {
            subschema.rounds = 0;
        }
        subschema
    }

    /// Returns the subschemas that it leads to, those that apply to the same value first.
    fn edges(&self) -> Vec<usize> {
        let applied = self.applied.iter().map(|(node, _)| *node);
        let members = self.members.values().chain(&self.other_members).copied();
        let all_members = self.all_members.iter().map(|(node, _)| *node);
        let items = self.items.iter().chain(&self.other_items);
        let items = items.chain(&self.all_items).copied();
        let edges = applied.chain(members).chain(all_members);
        edges.chain(items).collect()
    }

    /// Returns the bounds from those of the subschemas at the ends of its edges. A reference that leads back has none yet.
    fn bounds(&mut self, known: &[Option<Bounds>]) -> Bounds {
        let of = |node: &usize| {
            known[*node].unwrap_or(Bounds {
                here: 1,
                ..Bounds::default()
            })
        };
        let applied = self.applied.iter().filter(|(_, remembered)| !remembered);
        let applied: Vec<Bounds> = applied.map(|(node, _)| of(node)).collect();
        let height = applied.iter().map(|one| one.height + 1).max().unwrap_or(0);
        if self.rounds == 0 {
            self.rounds = 1 + height;
        }
        let sum = |all: &mut dyn Iterator<Item = u64>| all.fold(0, u64::saturating_add);
        let most = |all: &mut dyn Iterator<Item = &usize>| all.map(|node| of(node).most()).max();
        let member = most(&mut self.members.values().chain(&self.other_members)).unwrap_or(0);
        let members = sum(&mut self
            .all_members
            .iter()
            .map(|(node, _)| of(node).most().saturating_add(1)));
        let item = most(&mut self.items.iter().chain(&self.other_items)).unwrap_or(0);
        let items = sum(&mut self.all_items.iter().map(|node| of(node).most()));
        let own = member
            .saturating_add(members)
            .max(item.saturating_add(items));
        let here = sum(&mut applied.iter().map(|one| one.here)).saturating_mul(self.rounds);
        let within = sum(&mut applied.iter().map(|one| one.within)).saturating_mul(self.rounds);
        let is_constant = self.pattern == 0
            && self.edges().len() == applied.len()
            && applied.iter().all(|one| one.constant.is_some());
        let here = here.saturating_add(self.own);
        Bounds {
            here,
            within: within.saturating_add(own),
            height,
            constant: is_constant.then_some(here),
        }
    }

    /// Returns the size of its largest pattern.
    fn pattern(&self) -> u64 {
        let names = self.all_members.iter().map(|(_, size)| *size);
        names.fold(self.pattern, u64::max)
    }
}

/// Estimates the size of a compiled pattern: its length times its largest number of repetitions.
fn pattern_size(pattern: &str) -> u64 {
    let counts = pattern.split('{').skip(1).filter_map(|rest| {
        let (counts, _) = rest.split_once('}')?;
        counts
            .rsplit(',')
            .find_map(|count| count.parse::<u64>().ok())
    });
    let repetitions = counts.max().unwrap_or(1).max(1);
    (pattern.len() as u64).saturating_mul(repetitions)
}

/// A count for one value.
struct Count<'g> {
    graph: &'g Graph,
    /// Results for arrays and objects, by their addresses.
    known: HashMap<(usize, *const Value), u64>,
    /// Results that the validator remembers.
    remembered: HashSet<(usize, *const Value)>,
    left: u64,
    depth: u32,
}

/// Stands for all numbers above the maximum.
const TOO_MANY: u64 = COMPARISONS_MAX + 1;

impl Count<'_> {
    /// Returns the number of comparisons of a value with a subschema, at most [`TOO_MANY`].
    fn of(&mut self, node: usize, value: &Value) -> u64 {
        let subschema = &self.graph.nodes[node];
        if let Some(count) = subschema.constant {
            return count.min(TOO_MANY);
        }
        let has_parts = matches!(value, Value::Array(_) | Value::Object(_));
        let is_known = has_parts && subschema.is_shared;
        let key = (node, std::ptr::from_ref(value));
        if is_known && let Some(known) = self.known.get(&key) {
            return *known;
        }
        // Each visit is a comparison.
        if self.left == 0 || self.depth == DEPTH_MAX || self.is_full() {
            return TOO_MANY;
        }
        self.left -= 1;
        self.depth += 1;
        let count = self.with_all(subschema, value, has_parts).min(TOO_MANY);
        self.depth -= 1;
        if is_known {
            self.known.insert(key, count);
        }
        count
    }

    fn is_full(&self) -> bool {
        KNOWN_MAX <= self.known.len() + self.remembered.len()
    }

    fn with_all(&mut self, subschema: &Subschema, value: &Value, has_parts: bool) -> u64 {
        let mut applied = 0_u64;
        for (node, is_remembered) in &subschema.applied {
            let key = (*node, std::ptr::from_ref(value));
            applied += match *is_remembered && has_parts && !self.remembered.insert(key) {
                true => 1,
                false => self.of(*node, value),
            };
        }
        let mut count = subschema
            .own
            .saturating_add(applied.saturating_mul(subschema.rounds));
        match value {
            Value::String(text) => count = count.saturating_add(steps(subschema.pattern, text)),
            Value::Object(members) => {
                for (name, member) in members {
                    let named = subschema.members.get(name);
                    if let Some(within) = named.or(subschema.other_members.as_ref()) {
                        count = count.saturating_add(self.of(*within, member));
                    }
                    for (within, pattern) in &subschema.all_members {
                        let name = 1 + steps(*pattern, name);
                        count = count.saturating_add(name.saturating_add(self.of(*within, member)));
                    }
                    if COMPARISONS_MAX < count {
                        break;
                    }
                }
            }
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    let indexed = subschema.items.get(at);
                    let one = indexed.or(subschema.other_items.as_ref());
                    for within in one.into_iter().chain(&subschema.all_items) {
                        count = count.saturating_add(self.of(*within, item));
                    }
                    if COMPARISONS_MAX < count {
                        break;
                    }
                }
            }
            _ => {}
        }
        count
    }
}

/// Returns the comparisons that a search for a pattern of this size counts as.
fn steps(pattern: u64, text: &str) -> u64 {
    pattern.saturating_mul(text.len() as u64) / PATTERN_STEPS
}

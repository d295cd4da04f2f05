//! Access policy: which principals may see and use which items.
//!
//! The rules that match a principal determine everything that it may see. Principals with the same matching rules
//! form one [`Class`]. The visibility of items is computed once for each class; lists and calls use the same result.

mod rule;
mod classify;
mod config;
mod names;
mod uri;

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use data_encoding::HEXLOWER;

use super::Principal;
use super::scopes::add_scopes;
use crate::digest::sha256;
use crate::net::Mutex;
pub use classify::Classified;
pub use config::{Access, Effect, PolicyConfig, PolicyError, RuleConfig};
use names::{NameTable, Names};
use rule::Rule;

/// Maximum number of cached classes.
const CLASSES_MAX: usize = 4096;

/// Kind of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A tool, by name.
    Tool,
    /// A resource or resource template, by URI.
    Resource,
    /// A prompt, by name.
    Prompt,
}

/// An item as policy rules see it.
#[derive(Clone, Copy, Debug)]
pub struct Target<'t> {
    /// Kind of the item.
    pub kind: Kind,
    /// Name or URI.
    pub name: &'t str,
    /// Class of the tool. Items of other kinds only read.
    pub access: Access,
}

/// Decision about an item, and the rule that caused it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decision {
    /// True if the item is visible.
    pub allowed: bool,
    /// Name of the deciding rule, or `None` if no rule matched.
    pub rule: Option<String>,
    /// Scopes that rules require for the item.
    pub requires: Vec<String>,
}

impl Decision {
    fn denial(rule: Option<&Rule>) -> Self {
        Self {
            allowed: false,
            rule: rule.map(|rule| rule.name.clone()),
            requires: Vec::new(),
        }
    }
}

/// All rules, compiled.
pub struct Policy {
    rules: Vec<Rule>,
    default: Effect,
    read: Names,
    write: Names,
    strict: bool,
    /// Settings that it was compiled from.
    config: PolicyConfig,
    /// Unique number of this policy in the process, so that results cached for one policy are not used for another.
    edition: u64,
    classes: Mutex<HashMap<Box<[u64]>, Arc<Class>>>,
    /// Matches of each rule in each table, computed once for all classes that have the rule.
    about: [Box<[Matches]>; ItemKind::COUNT],
}

/// Bit set of the table entries that a rule matches, computed on first use.
type Matches = OnceLock<Box<[u64]>>;

/// All principals that the same rules match.
#[derive(Debug)]
pub struct Class {
    /// Bit set of the matching rules.
    rules: Box<[u64]>,
    /// Digest of the rules, equal on all replicas.
    pub digest: Arc<str>,
    /// The digest as a number.
    pub number: u64,
    /// By [`ItemKind`].
    visible: [OnceLock<Visible>; ItemKind::COUNT],
}

/// Visible items of a class in one table.
#[derive(Debug, Default)]
pub struct Visible {
    bits: Box<[u64]>,
    /// True if all items are visible.
    pub everything: bool,
    /// Required scopes, by index in the table.
    requires: HashMap<usize, Arc<[String]>>,
}

/// A table of catalog items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    Tools,
    Resources,
    Templates,
    Prompts,
}

impl ItemKind {
    /// Number of variants.
    const COUNT: usize = Self::Prompts as usize + 1;
}

/// Class of a principal in the policy that was last evaluated for it.
#[derive(Default)]
pub(super) struct ClassCache(ArcSwapOption<(u64, Arc<Class>)>);

/// A copy has to find out for itself: it may have other groups.
impl Clone for ClassCache {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("rules", &self.rules.len())
            .field("default", &self.default)
            .finish_non_exhaustive()
    }
}

impl Policy {
    /// Compiles the rules. Returns `None` without rules: everything is allowed.
    pub fn new(config: &PolicyConfig) -> Result<Option<Self>, PolicyError> {
        let policy = Self::build(config)?;
        let says_nothing = policy.rules.is_empty() && policy.default == Effect::Allow;
        Ok((!says_nothing).then_some(policy))
    }

    /// Compiles the rules, even an empty set.
    pub fn build(config: &PolicyConfig) -> Result<Self, PolicyError> {
        static EDITIONS: AtomicU64 = AtomicU64::new(1);
        let rules = config.rules.iter().enumerate();
        let rules = rules
            .map(|(at, rule)| Rule::new(at, rule))
            .collect::<Result<Vec<_>, _>>()?;
        let allows = rules.iter().any(|rule| rule.effect == Effect::Allow);
        let default = config
            .default
            .unwrap_or(if allows { Effect::Deny } else { Effect::Allow });
        let about = |_| rules.iter().map(|_| OnceLock::new()).collect();
        Ok(Self {
            about: std::array::from_fn(about),
            rules,
            default,
            read: Names::read("policy.read", &config.read)?.unwrap_or_default(),
            write: Names::read("policy.write", &config.write)?.unwrap_or_default(),
            strict: config.strict_classification,
            config: config.clone(),
            edition: EDITIONS.fetch_add(1, Ordering::Relaxed),
            classes: Mutex::default(),
        })
    }

    /// Returns true if another policy has the same rules.
    pub fn has_rules_of(&self, other: &Self) -> bool {
        self.config == other.config
    }

    /// Classifies a tool. `said` is its own read-only hint.
    pub fn classify(&self, name: &str, said: Option<bool>) -> Classified {
        classify::classify(name, said, &self.read, &self.write, self.strict)
    }

    /// Returns the class of a principal, computed once for each.
    pub fn class_of(&self, principal: &Principal) -> Arc<Class> {
        let standing = principal.standing();
        if let Some(known) = &*standing.0.load()
            && known.0 == self.edition
        {
            return Arc::clone(&known.1);
        }
        let class = self.find_class(principal);
        standing
            .0
            .store(Some(Arc::new((self.edition, Arc::clone(&class)))));
        class
    }

    fn find_class(&self, principal: &Principal) -> Arc<Class> {
        let mut mask = vec![0_u64; self.rules.len().div_ceil(64).max(1)];
        for (at, rule) in self.rules.iter().enumerate() {
            if rule.is_for(principal) {
                mask[at / 64] |= 1 << (at % 64);
            }
        }
        let mask = mask.into_boxed_slice();
        let mut classes = self.classes.lock();
        if let Some(class) = classes.get(&mask) {
            return Arc::clone(class);
        }
        let class = Arc::new(self.new_class(mask.clone()));
        if classes.len() < CLASSES_MAX {
            classes.insert(mask, Arc::clone(&class));
        }
        class
    }

    fn new_class(&self, mask: Box<[u64]>) -> Class {
        let mut all: Vec<u8> = vec![self.default as u8];
        for rule in self.rules_of(&mask) {
            all.extend_from_slice(&rule.digest);
        }
        let mut beginning = [0; 8];
        beginning.copy_from_slice(&sha256(&all)[..8]);
        Class {
            rules: mask,
            digest: HEXLOWER.encode(&beginning).into(),
            number: u64::from_be_bytes(beginning),
            visible: [const { OnceLock::new() }; ItemKind::COUNT],
        }
    }

    fn rules_of<'p>(&'p self, mask: &'p [u64]) -> impl Iterator<Item = &'p Rule> {
        ones(mask).filter_map(|at| self.rules.get(at))
    }

    /// Returns what a class sees of a table. `entries` returns its `count` entries, which have one kind.
    pub fn visible<'c, 't>(
        &self,
        class: &'c Class,
        shelf: ItemKind,
        count: usize,
        entries: impl Fn() -> Vec<Target<'t>>,
    ) -> &'c Visible {
        let visible = &class.visible[shelf as usize];
        visible.get_or_init(|| self.evaluate(class, shelf, count, entries))
    }

    /// Evaluates [`decide`](Self::decide) for all entries of a table. Each rule is matched with each entry once.
    fn evaluate<'t>(
        &self,
        class: &Class,
        shelf: ItemKind,
        count: usize,
        entries: impl Fn() -> Vec<Target<'t>>,
    ) -> Visible {
        let places = count.div_ceil(64);
        let mut allowed = vec![0_u64; places];
        if self.default == Effect::Allow {
            (0..count).for_each(|at| allowed[at / 64] |= 1 << (at % 64));
        }
        let mut denied = vec![0_u64; places];
        let mut demanded: HashMap<usize, Vec<String>> = HashMap::new();
        let table = OnceCell::new();
        for at in ones(&class.rules) {
            let Some(rule) = self.rules.get(at) else {
                continue;
            };
            let about = self.about[shelf as usize][at]
                .get_or_init(|| rule.matches(table.get_or_init(|| NameTable::new(entries()))));
            let all = match rule.effect {
                Effect::Allow => &mut allowed,
                Effect::Deny => &mut denied,
            };
            all.iter_mut()
                .zip(about.iter())
                .for_each(|(all, about)| *all |= about);
            if rule.effect == Effect::Allow && !rule.requires.is_empty() {
                for place in ones(about) {
                    add_scopes(demanded.entry(place).or_default(), &rule.requires);
                }
            }
        }
        let pairs = allowed.iter_mut().zip(&denied);
        pairs.for_each(|(allowed, denied)| *allowed &= !denied);
        let is_denied = |place: usize| denied[place / 64] & (1 << (place % 64)) != 0;
        demanded.retain(|place, _| !is_denied(*place));
        let demanded = demanded.into_iter();
        Visible {
            everything: ones(&allowed).count() == count,
            bits: allowed.into(),
            requires: demanded
                .map(|(place, scopes)| (place, scopes.into()))
                .collect(),
        }
    }

    /// Decides about one item. A denial takes precedence over an approval.
    pub fn decide(&self, class: &Class, target: Target<'_>) -> Decision {
        let mut allowed = None;
        let mut requires = Vec::new();
        for rule in self
            .rules_of(&class.rules)
            .filter(|rule| rule.is_about(target))
        {
            match rule.effect {
                Effect::Deny => return Decision::denial(Some(rule)),
                Effect::Allow => {
                    allowed.get_or_insert_with(|| rule.name.clone());
                    add_scopes(&mut requires, &rule.requires);
                }
            }
        }
        Decision {
            allowed: allowed.is_some() || self.default == Effect::Allow,
            rule: allowed,
            requires,
        }
    }

    /// Decides about a resource by the URI that the caller sent. Every [form](uri::Forms) that a server may interpret
    /// it as must not be denied, and its meaning must be allowed. The scopes that rules require for any form are
    /// required.
    pub fn decide_uri(&self, class: &Class, uri: &str) -> Decision {
        let target = |name| Target {
            kind: Kind::Resource,
            name,
            access: Access::Read,
        };
        let mut decision = self.decide(class, target(uri));
        if !decision.allowed {
            return decision;
        }
        let Some(forms) = uri::forms(uri) else {
            return Decision::denial(None);
        };
        for form in forms.meant.iter().filter(|form| *form != uri) {
            let meant = self.decide(class, target(form));
            if !meant.allowed {
                return meant;
            }
            add_scopes(&mut decision.requires, &meant.requires);
        }
        for rule in self.rules_of(&class.rules) {
            let has_effect = rule.effect == Effect::Deny || !rule.requires.is_empty();
            if !has_effect || !forms.lenient.iter().any(|form| rule.is_about(target(form))) {
                continue;
            }
            if rule.effect == Effect::Deny {
                return Decision::denial(Some(rule));
            }
            add_scopes(&mut decision.requires, &rule.requires);
        }
        decision
    }

    /// Checks that each tool or prompt name in a rule matches an existing item.
    pub fn check_names<'n>(
        config: &PolicyConfig,
        tools: &[&'n str],
        prompts: &[&'n str],
    ) -> Result<(), PolicyError> {
        let mut settings = vec![
            ("policy.read".to_owned(), &config.read, tools, "tool"),
            ("policy.write".to_owned(), &config.write, tools, "tool"),
        ];
        for (at, rule) in config.rules.iter().enumerate() {
            let setting = |kind| format!("policy.rules[{at}].{kind}");
            settings.push((setting("tools"), &rule.tools, tools, "tool"));
            settings.push((setting("prompts"), &rule.prompts, prompts, "prompt"));
        }
        // Most patterns are plain names, which a set finds without a scan.
        let known = |names: &[&'n str]| -> HashSet<&'n str> { names.iter().copied().collect() };
        let (known_tools, known_prompts) = (known(tools), known(prompts));
        for (setting, patterns, names, what) in settings {
            let known = match what {
                "tool" => &known_tools,
                _ => &known_prompts,
            };
            for pattern in patterns {
                if known.contains(pattern.as_str()) {
                    continue;
                }
                let one = Names::read(&setting, std::slice::from_ref(pattern))?.unwrap_or_default();
                // A pattern that matches everything is not checked.
                if pattern != "*" && !names.iter().any(|name| one.is_match(name)) {
                    return Err(PolicyError::Nothing {
                        setting,
                        pattern: pattern.clone(),
                        what,
                    });
                }
            }
        }
        Ok(())
    }
}

/// Indexes of the set bits, so that rules for other principals cost nothing.
fn ones(words: &[u64]) -> impl Iterator<Item = usize> {
    let words = words.iter().enumerate();
    words.flat_map(|(word, bits)| {
        let nonzero = |bits: u64| (bits != 0).then_some(bits);
        let rests = std::iter::successors(nonzero(*bits), move |bits| nonzero(bits & (bits - 1)));
        rests.map(move |bits| word * 64 + bits.trailing_zeros() as usize)
    })
}

impl Class {
    /// Returns the memory of the class and its visible items.
    #[cfg(any(test, feature = "testing"))]
    pub fn bytes(&self) -> usize {
        let seen: usize = self
            .visible
            .iter()
            .filter_map(OnceLock::get)
            .map(|visible| size_of_val(&*visible.bits) + visible.requires.len() * 64)
            .sum();
        size_of::<Self>() + size_of_val(&*self.rules) + self.digest.len() + seen
    }
}

impl Visible {
    /// Returns true if the entry at this index is visible.
    #[inline]
    pub fn sees(&self, place: usize) -> bool {
        let word = self.bits.get(place / 64);
        word.is_some_and(|word| word & (1 << (place % 64)) != 0)
    }

    /// Returns the scopes that rules require for the entry at this index.
    pub fn requires(&self, place: usize) -> Option<&Arc<[String]>> {
        if self.requires.is_empty() {
            return None;
        }
        self.requires.get(&place)
    }
}

#[cfg(test)]
mod tests;

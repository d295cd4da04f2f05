//! Who sees and uses what.
//!
//! A rule is for some principals and about some things. Which rules are for a principal decides about everything that it
//! sees: all principals with the same rules are one [`Class`]. What a class sees is found out once, and lists and calls
//! ask the same.

mod classify;
mod config;
mod names;
mod uri;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwapOption;
use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;

pub use classify::Classified;
pub use config::{Access, Effect, PolicyConfig, PolicyError, RuleConfig};
use names::Names;

use super::Principal;
use super::scopes::is_scope;

/// How many classes are remembered. More are found out anew each time.
const CLASSES_MAX: usize = 4096;

/// What may be seen and used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A tool, by its name.
    Tool,
    /// A resource or a template of resources, by its URI.
    Resource,
    /// A prompt, by its name.
    Prompt,
}

/// One thing that is offered, as rules see it.
#[derive(Clone, Copy, Debug)]
pub struct Target<'t> {
    /// What it is.
    pub kind: Kind,
    /// Its name or URI.
    pub name: &'t str,
    /// Whether it changes anything; what is no tool only reads.
    pub access: Access,
}

/// What was decided about a thing, and because of which rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether it may be seen.
    pub allowed: bool,
    /// The name of the rule that decided; `None` if no rule said anything.
    pub rule: Option<String>,
    /// Scopes that rules demand for it.
    pub requires: Vec<String>,
}

/// All rules, ready to be asked.
pub struct Policy {
    rules: Vec<Rule>,
    default: Effect,
    read: Names,
    write: Names,
    strict: bool,
    /// Tells this policy from all others of the process, so that what a principal remembers of one is not taken for
    /// what holds in another.
    edition: u64,
    classes: Mutex<HashMap<Box<[u64]>, Arc<Class>>>,
    /// What each rule is about, of each table: found out once for all classes that have the rule.
    about: [Box<[Matches]>; Shelf::COUNT],
}

/// The entries of a table that a rule is about, a bit for each, once somebody has asked.
type Matches = OnceLock<Box<[u64]>>;

struct Rule {
    name: String,
    effect: Effect,
    principals: Option<Names>,
    groups: Vec<String>,
    claims: BTreeMap<String, Vec<String>>,
    scopes: Vec<String>,
    tools: Option<Names>,
    resources: Option<Names>,
    prompts: Option<Names>,
    access: Option<Access>,
    requires: Vec<String>,
    digest: [u8; 32],
}

/// All principals for whom the same rules are.
#[derive(Debug)]
pub struct Class {
    /// The rules that are for it.
    rules: Box<[u64]>,
    /// The same for the same rules, on every replica.
    pub digest: Arc<str>,
    /// The digest as a number.
    pub number: u64,
    tools: OnceLock<Visible>,
    resources: OnceLock<Visible>,
    templates: OnceLock<Visible>,
    prompts: OnceLock<Visible>,
}

/// What a class sees of one table.
#[derive(Debug, Default)]
pub struct Visible {
    bits: Box<[u64]>,
    /// Whether it sees all there is.
    pub everything: bool,
    /// Scopes that rules demand, by place in the table.
    requires: HashMap<usize, Arc<[String]>>,
}

/// A table of things that are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shelf {
    Tools,
    Resources,
    Templates,
    Prompts,
}

impl Shelf {
    /// How many there are.
    const COUNT: usize = Self::Prompts as usize + 1;
}

/// What a principal remembers of the policy that it was last asked about.
#[derive(Default)]
pub(super) struct Standing(ArcSwapOption<(u64, Arc<Class>)>);

/// A copy has to find out for itself: it may have other groups.
impl Clone for Standing {
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
    /// Reads the rules. `None` if there are none and everything is allowed.
    pub fn new(config: &PolicyConfig) -> Result<Option<Self>, PolicyError> {
        let policy = Self::build(config)?;
        let says_nothing = policy.rules.is_empty() && policy.default == Effect::Allow;
        Ok((!says_nothing).then_some(policy))
    }

    /// Reads the rules, even if there are none.
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
        let about = || rules.iter().map(|_| OnceLock::new()).collect();
        Ok(Self {
            about: [about(), about(), about(), about()],
            rules,
            default,
            read: Names::read("policy.read", &config.read)?.unwrap_or_default(),
            write: Names::read("policy.write", &config.write)?.unwrap_or_default(),
            strict: config.strict_classification,
            edition: EDITIONS.fetch_add(1, Ordering::Relaxed),
            classes: Mutex::default(),
        })
    }

    /// The class of a tool. `said` is its own hint that it only reads.
    pub fn classify(&self, name: &str, said: Option<bool>) -> Classified {
        classify::classify(name, said, &self.read, &self.write, self.strict)
    }

    /// The class of a principal. It is found out once for each.
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
        let mut classes = self.classes.lock().unwrap_or_else(PoisonError::into_inner);
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
        let digest = digest(&SHA256, &all);
        let mut beginning = [0; 8];
        beginning.copy_from_slice(&digest.as_ref()[..8]);
        Class {
            rules: mask,
            digest: HEXLOWER.encode(&beginning).into(),
            number: u64::from_be_bytes(beginning),
            tools: OnceLock::new(),
            resources: OnceLock::new(),
            templates: OnceLock::new(),
            prompts: OnceLock::new(),
        }
    }

    fn rules_of<'p>(&'p self, mask: &'p [u64]) -> impl Iterator<Item = &'p Rule> {
        ones(mask).filter_map(|at| self.rules.get(at))
    }

    /// What a class sees of a table of so many entries, which are in order.
    pub fn visible<'c, 't>(
        &self,
        class: &'c Class,
        shelf: Shelf,
        count: usize,
        entries: impl Fn() -> Vec<Target<'t>>,
    ) -> &'c Visible {
        let visible = match shelf {
            Shelf::Tools => &class.tools,
            Shelf::Resources => &class.resources,
            Shelf::Templates => &class.templates,
            Shelf::Prompts => &class.prompts,
        };
        visible.get_or_init(|| self.look(class, shelf, count, entries))
    }

    /// What [`decide`](Self::decide) says of all entries of a table, each rule being asked about each of them once.
    fn look<'t>(
        &self,
        class: &Class,
        shelf: Shelf,
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
        for at in ones(&class.rules) {
            let Some(rule) = self.rules.get(at) else {
                continue;
            };
            let about = self.about[shelf as usize][at].get_or_init(|| {
                let mut about = vec![0_u64; places];
                for (at, entry) in entries().into_iter().enumerate().take(count) {
                    about[at / 64] |= u64::from(rule.is_about(entry)) << (at % 64);
                }
                about.into()
            });
            let all = match rule.effect {
                Effect::Allow => &mut allowed,
                Effect::Deny => &mut denied,
            };
            all.iter_mut()
                .zip(about.iter())
                .for_each(|(all, about)| *all |= about);
            if rule.effect == Effect::Allow && !rule.requires.is_empty() {
                for place in ones(about) {
                    let scopes = demanded.entry(place).or_default();
                    for scope in &rule.requires {
                        if !scopes.contains(scope) {
                            scopes.push(scope.clone());
                        }
                    }
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

    /// Decides about one thing. What one rule denies, no other allows.
    pub fn decide(&self, class: &Class, target: Target<'_>) -> Decision {
        let mut allowed = None;
        let mut requires = Vec::new();
        for rule in self
            .rules_of(&class.rules)
            .filter(|rule| rule.is_about(target))
        {
            match rule.effect {
                Effect::Deny => {
                    return Decision {
                        allowed: false,
                        rule: Some(rule.name.clone()),
                        requires: Vec::new(),
                    };
                }
                Effect::Allow => {
                    allowed.get_or_insert_with(|| rule.name.clone());
                    for scope in &rule.requires {
                        if !requires.contains(scope) {
                            requires.push(scope.clone());
                        }
                    }
                }
            }
        }
        Decision {
            allowed: allowed.is_some() || self.default == Effect::Allow,
            rule: allowed,
            requires,
        }
    }

    /// Decides about a resource by the URI that a caller has written. The decision holds for each [form](uri::Forms) that
    /// another reader may take it for: none is denied, and what it means is allowed.
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
        let denied = |rule: Option<String>| Decision {
            allowed: false,
            rule,
            requires: Vec::new(),
        };
        let Some(forms) = uri::forms(uri) else {
            return denied(None);
        };
        for form in forms.meant.iter().filter(|form| *form != uri) {
            let meant = self.decide(class, target(form));
            if !meant.allowed {
                return meant;
            }
            for scope in meant.requires {
                if !decision.requires.contains(&scope) {
                    decision.requires.push(scope);
                }
            }
        }
        let mut rules = self.rules_of(&class.rules);
        let denying = rules.find(|rule| {
            rule.effect == Effect::Deny
                && forms.lenient.iter().any(|form| rule.is_about(target(form)))
        });
        match denying {
            Some(rule) => denied(Some(rule.name.clone())),
            None => decision,
        }
    }

    /// Checks that each name of a tool or prompt in a rule is one of something.
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
            settings.push((
                format!("policy.rules[{at}].tools"),
                &rule.tools,
                tools,
                "tool",
            ));
            settings.push((
                format!("policy.rules[{at}].prompts"),
                &rule.prompts,
                prompts,
                "prompt",
            ));
        }
        // Most patterns are names, which are found without going through all.
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
                // What fits everything fits nothing in particular.
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

/// The places of the bits that are set, so that a thousand rules for others cost nothing.
fn ones(words: &[u64]) -> impl Iterator<Item = usize> {
    let words = words.iter().enumerate();
    words.flat_map(|(word, bits)| Ones(*bits).map(move |bit| word * 64 + bit))
}

/// The same of one word.
struct Ones(u64);

impl Iterator for Ones {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let place = (self.0 != 0).then(|| self.0.trailing_zeros() as usize)?;
        self.0 &= self.0 - 1;
        Some(place)
    }
}

impl Class {
    /// How much memory it takes, with what it sees.
    #[cfg(any(test, feature = "testing"))]
    pub fn bytes(&self) -> usize {
        let seen = [&self.tools, &self.resources, &self.templates, &self.prompts];
        let seen: usize = seen
            .into_iter()
            .filter_map(OnceLock::get)
            .map(|visible| size_of_val(&*visible.bits) + visible.requires.len() * 64)
            .sum();
        size_of::<Self>() + size_of_val(&*self.rules) + self.digest.len() + seen
    }
}

impl Visible {
    /// Whether the entry at a place is seen.
    #[inline]
    pub fn sees(&self, place: usize) -> bool {
        let word = self.bits.get(place / 64);
        word.is_some_and(|word| word & (1 << (place % 64)) != 0)
    }

    /// Scopes that rules demand for the entry at a place.
    pub fn requires(&self, place: usize) -> Option<&Arc<[String]>> {
        if self.requires.is_empty() {
            return None;
        }
        self.requires.get(&place)
    }
}

impl Rule {
    fn new(at: usize, config: &RuleConfig) -> Result<Self, PolicyError> {
        let setting = |name: &str| format!("policy.rules[{at}].{name}");
        for (name, scopes) in [("scopes", &config.scopes), ("requires", &config.requires)] {
            if let Some(scope) = scopes.iter().find(|scope| !is_scope(scope)) {
                return Err(PolicyError::Scope {
                    setting: setting(name),
                    scope: scope.clone(),
                });
            }
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

    fn is_for(&self, principal: &Principal) -> bool {
        let named = self.principals.as_ref();
        let in_group = |group: &String| principal.groups().any(|g| g == group);
        let has_claim = |(name, values): (&String, &Vec<String>)| {
            principal.claim(name).is_some_and(|claim| {
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
        named.is_none_or(|named| named.is_match(principal.name()))
            && (self.groups.is_empty() || self.groups.iter().any(in_group))
            && self.claims.iter().all(has_claim)
            && self.scopes.iter().all(|scope| principal.has_scope(scope))
    }

    fn is_about(&self, target: Target<'_>) -> bool {
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

#[cfg(test)]
mod tests;

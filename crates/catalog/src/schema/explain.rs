//! Error messages for invalid values, written for models. Validation has already failed; this only explains. It may
//! therefore stop early, which bounds its time: the validator would list each invalid item of an array of a million.

mod tags;
mod types;
mod values;

use std::collections::HashMap;
use std::rc::Rc;

use jsonschema::{Draft, Validator};
use longshore_protocol::counted;
use serde_json::{Map, Value};

use types::{has_type, same, types};

/// Returns the first few violations, each with its path and the expected value.
pub(super) fn explain(schema: &Value, value: &Value) -> String {
    let mut explanation = Explanation {
        root: schema,
        steps_left: STEPS,
        found: Vec::new(),
        path: Vec::new(),
        dialect: super::dialect(schema).unwrap_or(Draft::Draft202012),
        compiled: HashMap::new(),
        checks_left: CHECKS,
        depth: 0,
    };
    explanation.visit(schema, value);
    if explanation.found.is_empty() {
        return "the arguments do not match the input schema of the tool".to_owned();
    }
    let mut message = String::new();
    for violation in &explanation.found {
        if !message.is_empty() {
            message.push_str("; ");
        }
        if !violation.path.is_empty() {
            message.push('`');
            message.push_str(&violation.path);
            message.push_str("`: ");
        }
        message.push_str(&violation.message);
    }
    message
}

/// Maximum number of violations.
const VIOLATIONS: usize = 5;
/// Maximum number of comparisons between a subschema and a part of the value.
const STEPS: usize = 20_000;
/// Maximum number of names or values in a message.
const LISTED: usize = 20;
/// Maximum number of subschemas compiled for keywords that depend on another schema's result.
const COMPILED: usize = 32;
/// Maximum number of evaluations of one such subschema.
const CHECKS: usize = 2_000;
/// Maximum nesting of subschemas.
const DEPTH_MAX: usize = 256;
/// Maximum length of a quoted subschema, in characters.
const SHOWN_SCHEMA: usize = 200;

struct Explanation<'a> {
    root: &'a Value,
    steps_left: usize,
    found: Vec<Violation>,
    path: Vec<Step<'a>>,
    dialect: Draft,
    /// Subschemas by the addresses of what they are made of; `None` where one cannot be compiled by itself.
    compiled: HashMap<*const (), Option<Rc<Validator>>>,
    checks_left: usize,
    depth: usize,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Member(&'a str),
    Item(usize),
}

struct Violation {
    path: String,
    depth: usize,
    message: String,
    /// The value is of another type than it has to be.
    is_type: bool,
}

impl<'a> Explanation<'a> {
    fn visit(&mut self, schema: &'a Value, value: &'a Value) {
        if self.is_done() || self.depth == DEPTH_MAX {
            return;
        }
        self.depth += 1;
        self.look_here(schema, value);
        self.depth -= 1;
    }

    fn look_here(&mut self, schema: &'a Value, value: &'a Value) {
        self.steps_left -= 1;
        let members = match schema {
            Value::Bool(false) => return self.add("is not allowed here".to_owned()),
            Value::Object(members) => members,
            _ => return,
        };
        if let Some(expected) = members.get("type")
            && !has_type(expected, value)
        {
            self.add(format!("{} is not {}", brief(value), types(expected)));
            if let Some(last) = self.found.last_mut() {
                last.is_type = true;
            }
            return;
        }
        let before = self.found.len();
        self.look_at_values(members, value);
        match value {
            Value::Number(number) => self.look_at_number(members, number),
            Value::String(text) => self.look_at_text(members, text),
            Value::Array(items) => self.look_at_items(members, items),
            Value::Object(object) => self.look_at_members(members, object),
            _ => {}
        }
        self.look_at_combinations(members, value);
        if let Some(target) = self.target(schema) {
            self.visit(target, value);
        }
        self.look_at_conditions(members, value);
        let has = |keyword: &str| members.contains_key(keyword);
        if before == self.found.len() && (has("unevaluatedProperties") || has("unevaluatedItems")) {
            self.look_at_unevaluated(schema, value);
        }
    }

    /// The schema that a reference leads to.
    fn target(&self, schema: &Value) -> Option<&'a Value> {
        let reference = schema.get("$ref")?.as_str()?;
        self.root.pointer(reference.strip_prefix('#')?)
    }

    /// A subschema that can be held against values, with what it may refer to.
    fn compiled(&mut self, schema: &'a Value) -> Option<Rc<Validator>> {
        self.compiled_as(schema, |schema| schema.clone())
    }

    /// Explains a keyword's value as a schema with only that keyword.
    fn compiled_keyword(&mut self, keyword: &str, value: &'a Value) -> Option<Rc<Validator>> {
        self.compiled_as(value, |value| Value::from_iter([(keyword, value.clone())]))
    }

    fn compiled_as<K>(
        &mut self,
        key: &'a K,
        schema: impl FnOnce(&K) -> Value,
    ) -> Option<Rc<Validator>> {
        let address = std::ptr::from_ref(key).cast::<()>();
        if let Some(known) = self.compiled.get(&address) {
            return known.clone();
        }
        if self.compiled.len() == COMPILED {
            return None;
        }
        let mut whole = Map::new();
        for name in ["$schema", "$defs", "definitions"] {
            if let Some(shared) = self.root.get(name) {
                whole.insert(name.to_owned(), shared.clone());
            }
        }
        whole.insert("allOf".to_owned(), vec![schema(key)].into());
        let built = super::options(self.dialect).build(&whole.into()).ok();
        let built = built.map(Rc::new);
        self.compiled.insert(address, built.clone());
        built
    }

    /// Returns true if a schema accepts the value; `None` if that cannot be decided.
    fn holds(&mut self, schema: &'a Value, value: &Value) -> Option<bool> {
        if let Value::Bool(holds) = schema {
            return Some(*holds);
        }
        self.checks_left = self.checks_left.checked_sub(1)?;
        Some(self.compiled(schema)?.is_valid(value))
    }

    /// Keywords that say what holds where something else does, or does not.
    fn look_at_conditions(&mut self, schema: &'a Map<String, Value>, value: &'a Value) {
        if let Some(not) = schema.get("not")
            && self.holds(not, value) == Some(true)
        {
            self.add(match not {
                Value::Bool(_) => "is not allowed here".to_owned(),
                not => format!(
                    "{} matches a schema that is not allowed here: {}",
                    brief(value),
                    shown(not)
                ),
            });
        }
        if let Some(condition) = schema.get("if")
            && let Some(holds) = self.holds(condition, value)
            && let Some(then) = schema.get(if holds { "then" } else { "else" })
        {
            self.visit(then, value);
        }
    }

    /// Members that no part of a schema describes, if that is the only violation. It is found by validating without
    /// them, since listing all violations could take very long.
    fn look_at_unevaluated(&mut self, schema: &'a Value, value: &'a Value) {
        if self.steps_left == 0 || self.holds(schema, value) != Some(false) {
            return;
        }
        match value {
            Value::Object(object) => {
                let named = schema.get("properties").and_then(Value::as_object);
                let surplus = object
                    .keys()
                    .filter(|name| !named.is_some_and(|named| named.contains_key(*name)));
                let surplus: Vec<&String> = surplus.take(LISTED).collect();
                for name in &surplus {
                    let mut rest = object.clone();
                    rest.shift_remove(*name);
                    if self.holds(schema, &rest.into()) == Some(true) {
                        return self.add(format!("{} is not a known property", quoted(name)));
                    }
                }
                let surplus: Vec<String> = surplus.iter().map(|name| quoted(name)).collect();
                self.add(format!(
                    "has unknown properties, among them {}",
                    surplus.join(", ")
                ));
            }
            Value::Array(items) => {
                let count = counted(items.len(), "item");
                self.add(format!("has {count}, of which some are not allowed"));
            }
            _ => {}
        }
    }

    fn look_at_values(&mut self, schema: &Map<String, Value>, value: &Value) {
        if let Some(Value::Array(allowed)) = schema.get("enum")
            && !allowed.iter().any(|a| same(a, value))
        {
            self.add(format!(
                "{} is not one of {}",
                brief(value),
                listed(allowed)
            ));
        }
        if let Some(only) = schema.get("const")
            && !same(only, value)
        {
            self.add(format!("{} is not {}", brief(value), brief(only)));
        }
    }

    fn look_at_combinations(&mut self, schema: &'a Map<String, Value>, value: &'a Value) {
        // Keywords of an object depend on its members.
        if let Value::Object(object) = value {
            for keyword in ["dependentSchemas", "dependencies"] {
                let dependent = schema.get(keyword).and_then(Value::as_object);
                for (_, schema) in dependent
                    .into_iter()
                    .flatten()
                    .filter(|(name, schema)| object.contains_key(*name) && !schema.is_array())
                {
                    self.visit(schema, value);
                }
            }
        }
        if let Some(Value::Array(all)) = schema.get("allOf") {
            for schema in all {
                self.visit(schema, value);
            }
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(Value::Array(branches)) = schema.get(keyword) {
                let before = self.found.len();
                self.look_at_branches(branches, value);
                if keyword == "oneOf" && before == self.found.len() {
                    self.look_at_surplus(branches, value);
                }
            }
        }
    }

    /// Reports a second match where exactly one branch may match.
    fn look_at_surplus(&mut self, branches: &'a [Value], value: &'a Value) {
        let mut holding = 0;
        for branch in branches {
            match self.holds(branch, value) {
                Some(holds) => holding += usize::from(holds),
                None => return,
            }
        }
        if 1 < holding {
            self.add(format!(
                "{} matches {holding} of the forms allowed here, and may match only one",
                brief(value)
            ));
        }
    }

    /// Explains the nearest of several branches: the one whose first violation is deepest in the value.
    fn look_at_branches(&mut self, branches: &'a [Value], value: &'a Value) {
        if self.look_at_tagged(branches, value) {
            return;
        }
        let mut failures = Vec::new();
        let earlier = std::mem::take(&mut self.found);
        for branch in branches {
            self.visit(branch, value);
            failures.push(std::mem::take(&mut self.found));
        }
        self.found = earlier;
        if failures.iter().any(Vec::is_empty) {
            return;
        }
        let here = self.path.len();
        let is_choice = |violation: &Violation| violation.depth == here;
        let nearest = failures
            .iter()
            .enumerate()
            .filter(|(_, violations)| !violations.iter().any(is_choice))
            .min_by_key(|(_, violations)| violations.len())
            .map(|(i, _)| i)
            .filter(|nearest| is_only_one(&failures, *nearest, is_choice));
        // Else the one that is of the value's type, if there is but one.
        let is_other_type = |violation: &Violation| is_choice(violation) && violation.is_type;
        let mut of_type = failures
            .iter()
            .enumerate()
            .filter(|(_, violations)| !violations.iter().any(is_other_type));
        let nearest = nearest.or_else(|| {
            let (only, _) = of_type.next()?;
            of_type.next().is_none().then_some(only)
        });
        match nearest {
            Some(nearest) => {
                self.found.append(&mut failures.swap_remove(nearest));
                self.found.truncate(VIOLATIONS);
            }
            None => {
                let words = values_of(branches).map_or_else(
                    || format!("{} matches none of the forms allowed here", brief(value)),
                    |values| format!("{} is not one of {}", brief(value), listed(&values)),
                );
                self.add(words);
            }
        }
    }

    fn look_within(&mut self, step: Step<'a>, schema: &'a Value, value: &'a Value) {
        self.path.push(step);
        self.visit(schema, value);
        self.path.pop();
    }

    fn is_done(&self) -> bool {
        self.found.len() >= VIOLATIONS || self.steps_left == 0
    }

    fn add(&mut self, message: String) {
        if self.found.len() >= VIOLATIONS {
            return;
        }
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Member(name) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(name);
                }
                Step::Item(i) => path.push_str(&format!("[{i}]")),
            }
        }
        self.found.push(Violation {
            path,
            depth: self.path.len(),
            message,
            is_type: false,
        });
    }
}

/// Returns true if all other branches fail at the value itself, and not in a part of it.
fn is_only_one(
    failures: &[Vec<Violation>],
    nearest: usize,
    is_choice: impl Fn(&Violation) -> bool,
) -> bool {
    failures
        .iter()
        .enumerate()
        .all(|(i, violations)| i == nearest || violations.iter().any(&is_choice))
}

/// The values that branches of `const` and `enum` allow, if that is all they say.
fn values_of(branches: &[Value]) -> Option<Vec<Value>> {
    let mut values = Vec::new();
    for branch in branches {
        match (branch.get("const"), branch.get("enum")) {
            (Some(only), None) => values.push(only.clone()),
            (None, Some(Value::Array(some))) => values.extend(some.iter().cloned()),
            _ => return None,
        }
    }
    Some(values)
}

fn limit(schema: &Map<String, Value>, keyword: &str) -> Option<usize> {
    usize::try_from(schema.get(keyword)?.as_u64()?).ok()
}

/// A value as it was written, cut short.
fn brief(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => format!("an array of {}", counted(items.len(), "item")),
        Value::Object(_) => "an object".to_owned(),
        other => other.to_string(),
    }
}

/// A subschema, cut short.
fn shown(schema: &Value) -> String {
    let text = schema.to_string();
    match text.char_indices().nth(SHOWN_SCHEMA) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

fn quoted(text: &str) -> String {
    const SHOWN: usize = 40;
    match text.char_indices().nth(SHOWN) {
        None => Value::from(text).to_string(),
        Some((end, _)) => Value::from(format!("{}…", &text[..end])).to_string(),
    }
}

fn listed(values: &[Value]) -> String {
    let mut list: Vec<_> = values.iter().take(LISTED).map(brief).collect();
    if values.len() > LISTED {
        list.push("…".to_owned());
    }
    list.join(", ")
}

fn names<'n>(names: impl Iterator<Item = &'n String>) -> String {
    let list: Vec<_> = names.take(LISTED).map(|name| quoted(name)).collect();
    if list.is_empty() {
        String::new()
    } else {
        format!("; there are {}", list.join(", "))
    }
}

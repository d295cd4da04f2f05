//! Says what is wrong with a value, to a model that is to do better.
//!
//! Whether something is wrong is settled before; this is for words. So it may stop early, which bounds it: the
//! validator would list each wrong item of an array of a million.

use serde_json::{Map, Value};

/// The first few violations, each with its path and what was expected.
pub(super) fn explain(schema: &Value, value: &Value) -> String {
    let mut explanation = Explanation {
        root: schema,
        steps_left: STEPS,
        found: Vec::new(),
        path: Vec::new(),
    };
    explanation.look(schema, value);
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

/// How many violations are told.
const VIOLATIONS: usize = 5;
/// How many subschemas are held against how many parts of the value, at most.
const STEPS: usize = 20_000;
/// How many names or values are listed.
const LISTED: usize = 20;

struct Explanation<'a> {
    root: &'a Value,
    steps_left: usize,
    found: Vec<Violation>,
    path: Vec<Step<'a>>,
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
}

impl<'a> Explanation<'a> {
    fn look(&mut self, schema: &'a Value, value: &'a Value) {
        if self.found.len() >= VIOLATIONS || self.steps_left == 0 {
            return;
        }
        self.steps_left -= 1;
        let members = match schema {
            Value::Bool(false) => return self.add("is not allowed here".to_owned()),
            Value::Object(members) => members,
            _ => return,
        };
        if let Some(expected) = members.get("type")
            && !has_type(expected, value)
        {
            return self.add(format!("{} is not {}", brief(value), types(expected)));
        }
        self.look_at_values(members, value);
        match value {
            Value::Number(number) => self.look_at_number(members, number),
            Value::String(text) => self.look_at_text(members, text),
            Value::Array(items) => self.look_at_items(members, items),
            Value::Object(object) => self.look_at_members(members, object),
            _ => {}
        }
        self.look_at_combinations(members, value);
        if let Some(target) = members
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|reference| reference.strip_prefix('#'))
            .and_then(|pointer| self.root.pointer(pointer))
        {
            self.look(target, value);
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

    fn look_at_number(&mut self, schema: &Map<String, Value>, number: &serde_json::Number) {
        let Some(value) = number.as_f64() else {
            return;
        };
        type IsWrong = fn(f64, f64) -> bool;
        let bounds: [(&str, IsWrong, &str); 4] = [
            ("minimum", |v, b| v < b, "is less than the minimum of"),
            ("maximum", |v, b| v > b, "is greater than the maximum of"),
            ("exclusiveMinimum", |v, b| v <= b, "is not greater than"),
            ("exclusiveMaximum", |v, b| v >= b, "is not less than"),
        ];
        for (keyword, is_wrong, words) in bounds {
            if let Some(bound) = schema.get(keyword)
                && bound.as_f64().is_some_and(|bound| is_wrong(value, bound))
            {
                self.add(format!("{number} {words} {bound}"));
            }
        }
        if let Some(step) = schema.get("multipleOf")
            && let (Some(value), Some(by)) = (number.as_i64(), step.as_i64())
            && by != 0
            && value % by != 0
        {
            self.add(format!("{number} is not a multiple of {step}"));
        }
    }

    fn look_at_text(&mut self, schema: &Map<String, Value>, text: &str) {
        let length = text.chars().count();
        if let Some(least) = limit(schema, "minLength")
            && length < least
        {
            self.add(format!(
                "{} is shorter than {}",
                quoted(text),
                counted(least, "character")
            ));
        }
        if let Some(most) = limit(schema, "maxLength")
            && length > most
        {
            self.add(format!(
                "{} is longer than {}",
                quoted(text),
                counted(most, "character")
            ));
        }
        if let Some(Value::String(pattern)) = schema.get("pattern")
            && super::options(jsonschema::Draft::Draft202012)
                .build(&Value::from_iter([("pattern", pattern.as_str())]))
                .is_ok_and(|validator| !validator.is_valid(&Value::from(text)))
        {
            self.add(format!(
                "{} does not match the pattern {pattern}",
                quoted(text)
            ));
        }
    }

    fn look_at_items(&mut self, schema: &'a Map<String, Value>, items: &'a [Value]) {
        if let Some(least) = limit(schema, "minItems")
            && items.len() < least
        {
            self.add(format!(
                "has {}, and needs at least {least}",
                counted(items.len(), "item")
            ));
        }
        if let Some(most) = limit(schema, "maxItems")
            && items.len() > most
        {
            self.add(format!(
                "has {}, and may have at most {most}",
                counted(items.len(), "item")
            ));
        }
        if schema.get("uniqueItems") == Some(&Value::Bool(true)) && items.len() <= LISTED {
            let repeated = items
                .iter()
                .enumerate()
                .find(|(i, item)| items[..*i].contains(item));
            if let Some((_, item)) = repeated {
                self.add(format!("has {} more than once", brief(item)));
            }
        }
        let tuple = match schema.get("prefixItems").or_else(|| schema.get("items")) {
            Some(Value::Array(schemas)) => schemas.as_slice(),
            _ => &[],
        };
        for (i, (schema, item)) in tuple.iter().zip(items).enumerate() {
            self.look_within(Step::Item(i), schema, item);
        }
        if let Some(schema @ (Value::Object(_) | Value::Bool(_))) = schema.get("items") {
            for (i, item) in items.iter().enumerate().skip(tuple.len()) {
                if self.is_done() {
                    break;
                }
                self.look_within(Step::Item(i), schema, item);
            }
        }
    }

    fn look_at_members(&mut self, schema: &'a Map<String, Value>, object: &'a Map<String, Value>) {
        let properties = schema.get("properties").and_then(Value::as_object);
        let is_named = |name: &str| properties.is_some_and(|p| p.contains_key(name));
        if let Some(Value::Array(required)) = schema.get("required") {
            for name in required.iter().filter_map(Value::as_str) {
                if !object.contains_key(name) {
                    self.add(format!("{} is missing", quoted(name)));
                }
            }
        }
        if !schema.contains_key("patternProperties") {
            match schema.get("additionalProperties") {
                Some(Value::Bool(false)) => {
                    for name in object.keys().filter(|name| !is_named(name)) {
                        let known = properties.map_or_else(String::new, |p| names(p.keys()));
                        self.add(format!("there is no property {}{known}", quoted(name)));
                    }
                }
                Some(schema) => {
                    for (name, member) in object.iter().filter(|(name, _)| !is_named(name)) {
                        if self.is_done() {
                            break;
                        }
                        self.look_within(Step::Member(name), schema, member);
                    }
                }
                None => {}
            }
        }
        for (name, schema) in properties.into_iter().flatten() {
            if let Some(member) = object.get(name) {
                self.look_within(Step::Member(name), schema, member);
            }
        }
    }

    fn look_at_combinations(&mut self, schema: &'a Map<String, Value>, value: &'a Value) {
        if let Some(Value::Array(all)) = schema.get("allOf") {
            for schema in all {
                self.look(schema, value);
            }
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(Value::Array(branches)) = schema.get(keyword) {
                self.look_at_branches(branches, value);
            }
        }
    }

    /// Of several ways to be right, tells what is wrong with the one that comes nearest: the one whose first
    /// violation lies deepest in the value.
    fn look_at_branches(&mut self, branches: &'a [Value], value: &'a Value) {
        let mut failures = Vec::new();
        let earlier = std::mem::take(&mut self.found);
        for branch in branches {
            self.look(branch, value);
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
            .map(|(i, _)| i);
        match nearest {
            Some(nearest) if is_only_one(&failures, nearest, is_choice) => {
                self.found.append(&mut failures.swap_remove(nearest));
                self.found.truncate(VIOLATIONS);
            }
            _ => {
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
        self.look(schema, value);
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
        });
    }
}

/// Whether all other branches are wrong about the value itself, and not about a part of it.
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

fn has_type(expected: &Value, value: &Value) -> bool {
    match expected {
        Value::String(name) => match (name.as_str(), value) {
            ("null", Value::Null)
            | ("boolean", Value::Bool(_))
            | ("string", Value::String(_))
            | ("array", Value::Array(_))
            | ("object", Value::Object(_))
            | ("number", Value::Number(_)) => true,
            ("integer", Value::Number(number)) => {
                number.is_i64()
                    || number.is_u64()
                    || number.as_f64().is_some_and(|n| n.fract() == 0.0)
            }
            _ => false,
        },
        Value::Array(names) => names.iter().any(|name| has_type(name, value)),
        _ => true,
    }
}

fn types(expected: &Value) -> String {
    let one = |name: &Value| match name.as_str() {
        Some("null") => "null".to_owned(),
        Some(name @ ("integer" | "array" | "object")) => format!("an {name}"),
        Some(name) => format!("a {name}"),
        None => name.to_string(),
    };
    match expected {
        Value::Array(names) => names.iter().map(one).collect::<Vec<_>>().join(" or "),
        name => one(name),
    }
}

/// Equal as JSON Schema has it: `1` and `1.0` are the same.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
    }
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

fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}

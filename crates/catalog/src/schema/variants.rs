//! Enumerations as one list of constants, in the order that the type declares.
//!
//! Where only some variants of a Rust enum have documentation, `schemars` puts those without into one branch, and that branch
//! first. Clients show choices in the order of the schema, and some know `const` branches only.
//!
//! At run time the declared order is known to `serde` alone, which names all variants when it refuses an unknown one. So the
//! type is given a sample that has an unknown variant in this place, and its refusal is read. Where that fails, the order
//! stays as it is.

use serde_json::{Map, Value, json};

use super::parts;

/// Deserialises a sample value, and returns the error message of the type.
pub(super) type DeserializeError = fn(Value) -> Option<String>;

/// A variant that no type has.
const UNKNOWN: &str = "a variant that no type has";
/// Subschemas that one sample may take a look at.
const STEPS_MAX: usize = 2_000;

/// Replaces each enumeration of strings in which several values share a branch by one branch for each value.
pub(super) fn flatten(schema: &mut Value, refusal: Option<DeserializeError>) {
    let mut found = Vec::new();
    collect(schema, &mut found);
    for branches in found {
        let mut flat = flattened(&branches);
        if let Some(refusal) = refusal
            && let Some(sample) = Sampler::new(schema, &branches).sample()
            && let Some(message) = refusal(sample)
        {
            let order = names_in(&message);
            let place = |branch: &Value| order.iter().position(|name| branch["const"] == **name);
            if flat.iter().all(|branch| place(branch).is_some()) {
                flat.sort_by_key(place);
            }
        }
        replace(schema, &branches, &flat);
    }
}

/// Finds enumerations that are not flat.
fn collect(schema: &Value, found: &mut Vec<Vec<Value>>) {
    if let Some(Value::Array(branches)) = schema.get("oneOf")
        && is_mixed(branches)
        && !found.contains(branches)
    {
        found.push(branches.clone());
    }
    // Branches that are strings hold no other enumerations.
    parts(schema).for_each(|part| collect(part, found));
}

/// Returns true for branches that are strings all of them, of which some have several values and nothing else to say.
fn is_mixed(branches: &[Value]) -> bool {
    let is_string = |branch: &Value| branch.get("type").is_some_and(|t| t == "string");
    let is_list = |branch: &Value| {
        let values = branch.get("enum").and_then(Value::as_array);
        values.is_some_and(|values| values.iter().all(Value::is_string))
            && branch.as_object().is_some_and(|b| b.len() == 2)
    };
    let is_const = |branch: &Value| branch.get("const").is_some_and(Value::is_string);
    branches.iter().all(is_string)
        && branches.iter().any(is_list)
        && branches.iter().all(|b| is_list(b) || is_const(b))
}

fn flattened(branches: &[Value]) -> Vec<Value> {
    let mut flat = Vec::new();
    for branch in branches {
        match branch.get("enum").and_then(Value::as_array) {
            Some(values) => flat.extend(
                values
                    .iter()
                    .map(|value| json!({"type": "string", "const": value})),
            ),
            None => flat.push(branch.clone()),
        }
    }
    flat
}

fn replace(schema: &mut Value, branches: &[Value], flat: &[Value]) {
    match schema {
        Value::Object(members) => {
            for (keyword, member) in members {
                match member {
                    Value::Array(there) if keyword == "oneOf" && there == branches => {
                        *there = flat.to_vec();
                    }
                    member => replace(member, branches, flat),
                }
            }
        }
        Value::Array(items) => {
            let items = items.iter_mut();
            items.for_each(|item| replace(item, branches, flat));
        }
        _ => {}
    }
}

/// The names in a message such as "unknown variant `x`, expected one of `a`, `b`".
fn names_in(message: &str) -> Vec<&str> {
    let Some((_, expected)) = message.rsplit_once("expected ") else {
        return Vec::new();
    };
    expected.split('`').skip(1).step_by(2).collect()
}

/// Makes a value that a schema allows but for one enumeration, of which it has an unknown variant.
struct Sampler<'s> {
    root: &'s Value,
    target: &'s [Value],
    steps: usize,
    /// References that are being followed.
    within: Vec<&'s str>,
}

/// A value, and whether the unknown variant is in it.
type Sample = (Value, bool);

impl<'s> Sampler<'s> {
    fn new(root: &'s Value, target: &'s [Value]) -> Self {
        Self {
            root,
            target,
            steps: 0,
            within: Vec::new(),
        }
    }

    fn sample(mut self) -> Option<Value> {
        let (value, is_hit) = self.of(self.root);
        (is_hit && self.steps < STEPS_MAX).then_some(value)
    }

    fn of(&mut self, schema: &'s Value) -> Sample {
        const NOTHING: Sample = (Value::Null, false);
        self.steps += 1;
        let Value::Object(members) = schema else {
            return NOTHING;
        };
        if self.steps >= STEPS_MAX {
            return NOTHING;
        }
        if let Some(Value::String(reference)) = members.get("$ref") {
            let target = reference
                .strip_prefix('#')
                .and_then(|p| self.root.pointer(p));
            let Some(target) = target.filter(|_| !self.within.contains(&&**reference)) else {
                return NOTHING;
            };
            self.within.push(reference);
            let sample = self.of(target);
            self.within.pop();
            return sample;
        }
        if let Some(Value::Array(branches)) = members.get("oneOf").or(members.get("anyOf")) {
            if branches == self.target {
                return (UNKNOWN.into(), true);
            }
            let mut samples = branches.iter().map(|branch| self.of(branch));
            let first = samples.next().unwrap_or(NOTHING);
            return match first.1 {
                true => first,
                false => samples.find(|(_, is_hit)| *is_hit).unwrap_or(first),
            };
        }
        let fixed = members.get("const").or_else(|| members.get("enum")?.get(0));
        if let Some(value) = fixed {
            return (value.clone(), false);
        }
        let kind = match members.get("type") {
            Some(Value::Array(kinds)) => kinds.iter().find(|kind| **kind != "null"),
            kind => kind,
        };
        match kind.and_then(Value::as_str) {
            Some("object") => self.of_object(members),
            Some("array") => self.of_array(members),
            Some("string") => (text(members).into(), false),
            Some("boolean") => (false.into(), false),
            Some("integer" | "number") => {
                (members.get("minimum").cloned().unwrap_or(json!(1)), false)
            }
            _ => NOTHING,
        }
    }

    fn of_object(&mut self, schema: &'s Map<String, Value>) -> Sample {
        let required = schema.get("required").and_then(Value::as_array);
        let mut object = Map::new();
        let mut is_hit = false;
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            let (value, hits) = self.of(property);
            if hits || required.is_some_and(|names| names.iter().any(|n| n == name)) {
                object.insert(name.clone(), value);
            }
            is_hit |= hits;
        }
        if let Some(further) = schema.get("additionalProperties")
            && let (value, true) = self.of(further)
        {
            object.insert("a".to_owned(), value);
            is_hit = true;
        }
        (object.into(), is_hit)
    }

    fn of_array(&mut self, schema: &'s Map<String, Value>) -> Sample {
        let mut is_hit = false;
        let mut array = Vec::new();
        if let Some(Value::Array(items)) = schema.get("prefixItems") {
            for item in items {
                let (value, hits) = self.of(item);
                array.push(value);
                is_hit |= hits;
            }
        }
        if let Some(item) = schema.get("items") {
            let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0);
            let (value, hits) = self.of(item);
            let count = least.max(u64::from(hits)).min(64) as usize;
            array.resize(array.len().max(count), value);
            is_hit |= hits;
        }
        (array.into(), is_hit)
    }
}

fn text(schema: &Map<String, Value>) -> String {
    let example = match schema.get("format").and_then(Value::as_str) {
        Some("date-time") => "2000-01-01T00:00:00Z",
        Some("date") => "2000-01-01",
        Some("time") => "00:00:00Z",
        Some("duration") => "PT1S",
        Some("uuid") => "00000000-0000-4000-8000-000000000000",
        Some("uri" | "url" | "iri") => "https://example.com/",
        Some("email") => "a@example.com",
        Some("ip" | "ipv4") => "192.0.2.1",
        Some("ipv6") => "2001:db8::1",
        _ => {
            let length = schema.get("minLength").and_then(Value::as_u64);
            return "a".repeat(length.unwrap_or(1).clamp(1, 4_096) as usize);
        }
    };
    example.to_owned()
}

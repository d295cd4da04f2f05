//! Violations by one value: number, text, list or object.

use serde_json::{Map, Value};

use super::{Explanation, LISTED, Step, brief, counted, limit, names, quoted, shown};

impl<'a> Explanation<'a> {
    pub(super) fn look_at_number(
        &mut self,
        schema: &'a Map<String, Value>,
        number: &serde_json::Number,
    ) {
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
        if let Some(step) = schema.get("multipleOf") {
            let is_multiple = match (number.as_i64(), step.as_i64()) {
                (Some(value), Some(by)) if by != 0 => value % by == 0,
                _ => {
                    let value = Value::Number(number.clone());
                    self.compiled_keyword("multipleOf", step)
                        .is_none_or(|compiled| compiled.is_valid(&value))
                }
            };
            if !is_multiple {
                self.add(format!("{number} is not a multiple of {step}"));
            }
        }
    }

    pub(super) fn look_at_text(&mut self, schema: &'a Map<String, Value>, text: &str) {
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
        if let Some(keyword @ Value::String(pattern)) = schema.get("pattern")
            && self
                .compiled_keyword("pattern", keyword)
                .is_some_and(|compiled| !compiled.is_valid(&Value::from(text)))
        {
            self.add(format!(
                "{} does not match the pattern {pattern}",
                quoted(text)
            ));
        }
    }

    pub(super) fn look_at_items(&mut self, schema: &'a Map<String, Value>, items: &'a [Value]) {
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
        if let Some(keyword @ Value::Bool(true)) = schema.get("uniqueItems")
            && LISTED < items.len()
        {
            let whole = Value::from(items);
            if self
                .compiled_keyword("uniqueItems", keyword)
                .is_some_and(|compiled| !compiled.is_valid(&whole))
            {
                self.add("has an item more than once".to_owned());
            }
        } else if schema.get("uniqueItems") == Some(&Value::Bool(true)) {
            let repeated = items
                .iter()
                .enumerate()
                .find(|(i, item)| items[..*i].contains(item));
            if let Some((_, item)) = repeated {
                self.add(format!("has {} more than once", brief(item)));
            }
        }
        self.look_at_contents(schema, items);
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

    /// Checks the number of items with a required form.
    fn look_at_contents(&mut self, schema: &'a Map<String, Value>, items: &'a [Value]) {
        let Some(wanted) = schema.get("contains") else {
            return;
        };
        let mut count = 0;
        for item in items {
            match self.holds(wanted, item) {
                Some(holds) => count += usize::from(holds),
                None => return,
            }
        }
        let least = limit(schema, "minContains").unwrap_or(1);
        let most = limit(schema, "maxContains");
        let bound = match most {
            _ if count < least => format!("needs at least {least}"),
            Some(most) if most < count => format!("may have at most {most}"),
            _ => return,
        };
        let count = counted(count, "item");
        self.add(format!("has {count} like {}, and {bound}", shown(wanted)));
    }

    /// Checks the number of members, their names, and their dependencies.
    fn look_at_names(&mut self, schema: &'a Map<String, Value>, object: &'a Map<String, Value>) {
        let count = match object.len() {
            1 => "1 property".to_owned(),
            count => format!("{count} properties"),
        };
        if let Some(least) = limit(schema, "minProperties")
            && object.len() < least
        {
            self.add(format!("has {count}, and needs at least {least}"));
        }
        if let Some(most) = limit(schema, "maxProperties")
            && most < object.len()
        {
            self.add(format!("has {count}, and may have at most {most}"));
        }
        if let Some(wanted) = schema.get("propertyNames") {
            for name in object.keys() {
                if self.is_done() {
                    break;
                }
                if self.holds(wanted, &Value::from(name.as_str())) == Some(false) {
                    let name = quoted(name);
                    self.add(format!(
                        "no property may be called {name}; names match {}",
                        shown(wanted)
                    ));
                }
            }
        }
        // Up to draft 7, one keyword had what two have now.
        for keyword in ["dependentRequired", "dependencies"] {
            let dependent = schema.get(keyword).and_then(Value::as_object);
            for (name, needed) in dependent.into_iter().flatten() {
                let needed = needed.as_array().filter(|_| object.contains_key(name));
                for other in needed.into_iter().flatten().filter_map(Value::as_str) {
                    if !object.contains_key(other) {
                        let (other, name) = (quoted(other), quoted(name));
                        self.add(format!("{other} is missing, which is required with {name}"));
                    }
                }
            }
        }
    }

    /// The schemas of `patternProperties` that are for a name; `None` where that cannot be told.
    fn patterns_of(
        &mut self,
        schema: &'a Map<String, Value>,
        name: &str,
    ) -> Option<Vec<&'a Value>> {
        let mut found = Vec::new();
        let patterns = schema.get("patternProperties").and_then(Value::as_object);
        for (pattern, schema) in patterns.into_iter().flatten() {
            let compiled = self.compiled_as(pattern, |pattern| {
                Value::from_iter([("pattern", pattern.as_str())])
            })?;
            if compiled.is_valid(&Value::from(name)) {
                found.push(schema);
            }
        }
        Some(found)
    }

    pub(super) fn look_at_members(
        &mut self,
        schema: &'a Map<String, Value>,
        object: &'a Map<String, Value>,
    ) {
        let properties = schema.get("properties").and_then(Value::as_object);
        let is_named = |name: &str| properties.is_some_and(|p| p.contains_key(name));
        if let Some(Value::Array(required)) = schema.get("required") {
            for name in required.iter().filter_map(Value::as_str) {
                if !object.contains_key(name) {
                    self.add(format!("{} is missing", quoted(name)));
                }
            }
        }
        self.look_at_names(schema, object);
        let additional = schema.get("additionalProperties");
        let has_patterns = schema.contains_key("patternProperties");
        if additional.is_some() || has_patterns {
            for (name, member) in object {
                if self.is_done() {
                    break;
                }
                let Some(patterns) = self.patterns_of(schema, name) else {
                    break;
                };
                for schema in &patterns {
                    self.look_within(Step::Member(name), schema, member);
                }
                if is_named(name) || !patterns.is_empty() {
                    continue;
                }
                match additional {
                    Some(Value::Bool(false)) => {
                        let mut known = properties.map_or_else(String::new, |p| names(p.keys()));
                        if let Some(Value::Object(patterns)) = schema.get("patternProperties") {
                            let patterns: Vec<_> = patterns.keys().take(LISTED).cloned().collect();
                            known += &format!("; others match {}", patterns.join(" or "));
                        }
                        self.add(format!("{} is not a known property{known}", quoted(name)));
                    }
                    Some(schema) => self.look_within(Step::Member(name), schema, member),
                    None => {}
                }
            }
        }
        for (name, schema) in properties.into_iter().flatten() {
            if let Some(member) = object.get(name) {
                self.look_within(Step::Member(name), schema, member);
            }
        }
    }
}

//! Alternatives that a tag tells apart: a member with another constant in each, as in the schemas of enums.

use serde_json::Value;

use super::types::{has_type, same};
use super::{Explanation, Step, brief, listed, quoted};

impl<'a> Explanation<'a> {
    /// Explains the branch whose tag an object has. Returns false if that explains nothing.
    pub(super) fn look_at_tagged(&mut self, branches: &'a [Value], value: &'a Value) -> bool {
        let targets = branches.iter().map(|b| self.target(b).unwrap_or(b));
        let is_of_type = |form: &&Value| form.get("type").is_none_or(|t| has_type(t, value));
        let forms: Vec<_> = targets.filter(is_of_type).collect();
        let (Value::Object(object), Some((tag, constants))) = (value, tag(&forms)) else {
            return false;
        };
        let before = self.found.len();
        let tags = listed(&constants);
        match object.get_key_value(tag) {
            None => self.add(format!("{} is missing; it is one of {tags}", quoted(tag))),
            Some((name, given)) => match constants.iter().position(|one| same(one, given)) {
                Some(place) => self.visit(forms[place], value),
                None => {
                    self.path.push(Step::Member(name));
                    self.add(format!("{} is not one of {tags}", brief(given)));
                    self.path.pop();
                }
            },
        }
        before < self.found.len()
    }
}

/// Returns the first required member that has another constant in each of several forms, with its constants.
fn tag<'a>(forms: &[&'a Value]) -> Option<(&'a str, Vec<Value>)> {
    let names = forms.first()?.get("properties")?.as_object()?.keys();
    names.into_iter().find_map(|name| {
        let mut constants: Vec<Value> = Vec::with_capacity(forms.len());
        for form in forms {
            let constant = constant(form, name)?;
            if constants.contains(constant) {
                return None;
            }
            constants.push(constant.clone());
        }
        (1 < forms.len()).then_some((name.as_str(), constants))
    })
}

/// Returns the only value that a form allows for a member that it requires.
fn constant<'a>(form: &'a Value, name: &str) -> Option<&'a Value> {
    let mut required = form.get("required")?.as_array()?.iter();
    let property = form.get("properties")?.get(name)?;
    let values = property.get("enum").and_then(Value::as_array);
    let only = match values.map(Vec::as_slice) {
        Some([only]) => Some(only),
        _ => property.get("const"),
    };
    only.filter(|_| required.any(|required| required == name))
}

//! Conflicts in the settings, which the room of each setting reports.

use std::fmt;
use std::ops::RangeInclusive;

use serde::Serialize;
use serde_json::Value;

/// Conflicting settings, with advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Description of the conflict.
    pub problem: String,
    /// Advice.
    pub advice: String,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.advice)
    }
}

/// Collector for the conflicts that validation finds. All are reported at once.
#[derive(Debug, Default)]
pub struct Conflicts(Vec<Conflict>);

impl Conflicts {
    /// Adds a conflict.
    pub fn add(&mut self, problem: impl Into<String>, advice: impl Into<String>) {
        self.0.push(Conflict {
            problem: problem.into(),
            advice: advice.into(),
        });
    }

    /// Adds a conflict for each of these settings whose value is 0.
    pub fn nonzero<const N: usize>(&mut self, settings: [(&str, u64); N]) {
        for (setting, value) in settings {
            if value == 0 {
                self.add(
                    format!("{setting} is 0"),
                    "set it to at least 1, or remove it for the default",
                );
            }
        }
    }

    /// Adds a conflict for each of these settings whose value is out of range.
    pub fn within<const N: usize>(&mut self, settings: [(&str, u64, RangeInclusive<u64>); N]) {
        for (setting, value, range) in settings {
            if !range.contains(&value) {
                let (min, max) = (range.start(), range.end());
                self.add(
                    format!("{setting} is {value}"),
                    format!("set it to {min} to {max}"),
                );
            }
        }
    }

    /// Adds a conflict about one setting, with its value. `table` is the table of settings that has the name `name`.
    pub fn invalid(&mut self, name: &str, table: &impl Serialize, setting: &str, advice: &str) {
        let within = setting.strip_prefix(name).and_then(|s| s.strip_prefix('.'));
        let value = within.map(|within| value_of(table, within));
        let value = value.unwrap_or_default();
        self.add(format!("{setting} is {value}"), advice);
    }

    /// Returns all conflicts.
    pub fn into_vec(self) -> Vec<Conflict> {
        self.0
    }
}

/// Returns the value of a setting in a table. Names may contain dots, such as the names of tools.
fn value_of(table: &impl Serialize, setting: &str) -> Value {
    let mut value = serde_json::to_value(table).unwrap_or_default();
    let mut rest = setting;
    while let Some(settings) = value.as_object_mut().filter(|_| !rest.is_empty()) {
        let leads = |name: &&String| {
            let after = rest.strip_prefix(name.as_str());
            after.is_some_and(|after| after.is_empty() || after.starts_with('.'))
        };
        let Some(name) = settings
            .keys()
            .filter(leads)
            .max_by_key(|name| name.len())
            .cloned()
        else {
            return Value::Null;
        };
        rest = rest[name.len()..].trim_start_matches('.');
        value = settings.remove(&name).unwrap_or_default();
    }
    value
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_are_reported_with_their_values() {
        let mut conflicts = Conflicts::default();
        conflicts.nonzero([("a.zero", 0), ("a.one", 1)]);
        conflicts.within([
            ("a.low", 1, 2..=3),
            ("a.high", 4, 2..=3),
            ("a.fits", 3, 2..=3),
        ]);
        let table = json!({"tools": {"a": {"rate": 1}, "a.b": {"rate": -1.0}}});
        conflicts.invalid(
            "limits",
            &table,
            "limits.tools.a.b.rate",
            "use a positive rate",
        );
        let problems: Vec<_> = conflicts
            .into_vec()
            .into_iter()
            .map(|c| c.to_string())
            .collect();
        assert_eq!(
            problems,
            [
                "a.zero is 0; set it to at least 1, or remove it for the default",
                "a.low is 1; set it to 2 to 3",
                "a.high is 4; set it to 2 to 3",
                "limits.tools.a.b.rate is -1.0; use a positive rate",
            ]
        );
    }
}

//! Named strings that a caller gave.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;

/// Named strings: the arguments of a prompt, or the values of a URI template's variables.
///
/// They come from a stranger. The value of a variable is percent-decoded; it may be `..`, and may hold slashes.
///
/// ```
/// use longshore::Parameters;
///
/// let parameters: Parameters = [("page", "7")].into_iter().collect();
/// assert_eq!(parameters.get("page"), Some("7"));
/// assert_eq!(parameters.parse::<u32>("page"), Ok(7));
/// assert_eq!(parameters.parse_optional::<u32>("line"), Ok(None));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(BTreeMap<String, String>);

/// A parameter that is missing or cannot be read as what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` {problem}")]
pub struct InvalidParameter {
    name: String,
    problem: String,
}

impl Parameters {
    /// The value of a name. `None` if it was not given.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All of them, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns the number of parameters.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no parameters.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads a value as `T`.
    ///
    /// # Errors
    ///
    /// It was not given, or is no `T`.
    pub fn parse<T>(&self, name: &str) -> Result<T, InvalidParameter>
    where
        T: FromStr<Err: fmt::Display>,
    {
        self.parse_optional(name)?
            .ok_or_else(|| InvalidParameter::new(name, "is required"))
    }

    /// Reads a value as `T`, if it was given.
    ///
    /// # Errors
    ///
    /// It is no `T`.
    pub fn parse_optional<T>(&self, name: &str) -> Result<Option<T>, InvalidParameter>
    where
        T: FromStr<Err: fmt::Display>,
    {
        self.get(name)
            .map(str::parse)
            .transpose()
            .map_err(|e: T::Err| InvalidParameter::new(name, format!("cannot be read: {e}")))
    }
}

impl InvalidParameter {
    pub fn new(name: &str, problem: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            problem: problem.into(),
        }
    }

    /// Name of the parameter.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Parameters {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        Self(
            pairs
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

/// From an object of strings, in which no name appears twice.
impl<'de> Deserialize<'de> for Parameters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Strings;

        impl<'de> Visitor<'de> for Strings {
            type Value = Parameters;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Parameters, A::Error> {
                let mut parameters = BTreeMap::new();
                while let Some(name) = members.next_key::<String>()? {
                    let Value::String(value) = members.next_value()? else {
                        return Err(A::Error::custom(format_args!("`{name}` is a string")));
                    };
                    if parameters.contains_key(&name) {
                        return Err(A::Error::custom(format_args!("`{name}` appears twice")));
                    }
                    parameters.insert(name, value);
                }
                Ok(Parameters(parameters))
            }
        }

        deserializer.deserialize_map(Strings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_is_wrong_and_with_which() {
        let parameters: Parameters = [("n", "x"), ("m", "3")].into_iter().collect();
        assert_eq!(parameters.parse::<u8>("m"), Ok(3));
        let error = parameters.parse::<u8>("n").expect_err("no number");
        assert_eq!(
            error.to_string(),
            "`n` cannot be read: invalid digit found in string"
        );
        let error = parameters.parse::<u8>("o").expect_err("not there");
        assert_eq!(
            (error.name(), &*error.to_string()),
            ("o", "`o` is required")
        );
    }

    #[test]
    fn prm_03_are_strings_and_appear_once() {
        let read = |json| serde_json::from_str::<Parameters>(json).map_err(|e| e.to_string());
        assert_eq!(read(r#"{"a":"1"}"#), Ok([("a", "1")].into_iter().collect()));
        for (json, problem) in [
            (r#"{"a":1}"#, "`a` is a string"),
            (r#"{"a":null}"#, "`a` is a string"),
            (r#"{"a":"1","\u0061":"2"}"#, "`a` appears twice"),
            ("[]", "expected an object of strings"),
        ] {
            let error = read(json).expect_err(json);
            assert!(error.contains(problem), "{json}: {error}");
        }
    }
}

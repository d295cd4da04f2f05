//! Client capabilities.

use std::fmt;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::lenient;

/// A client's capabilities, as far as this server has a use for them: one bit each.
///
/// Members that are not known here are tolerated, as the specification demands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCapabilities(u16);

impl ClientCapabilities {
    pub(crate) const ROOTS: Self = Self(1);
    pub(crate) const SAMPLING: Self = Self(1 << 1);
    pub(crate) const SAMPLING_TOOLS: Self = Self(1 << 2);
    pub(crate) const SAMPLING_CONTEXT: Self = Self(1 << 3);
    pub(crate) const ELICITATION_FORM: Self = Self(1 << 4);
    pub(crate) const ELICITATION_URL: Self = Self(1 << 5);
    /// The extension; before 2026-07-28 it means nothing.
    pub const TASKS: Self = Self(1 << 6);

    pub fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    pub fn bits(self) -> u16 {
        self.0
    }

    /// Returns true if all of `other` are declared.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

crate::named_enum! {
    /// A client feature that a server may use once the client has declared it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum ClientAbility {
        /// Says in which places it works.
        Roots = "roots",
        /// Samples the client's model.
        Sampling = "sampling",
        /// Samples the client's model with tools.
        SamplingTools = "sampling.tools",
        /// Shows its model more than what it is sent.
        SamplingContext = "sampling.context",
        /// Shows a form to a person.
        ElicitationForm = "elicitation",
        /// Shows a page to a person.
        ElicitationUrl = "elicitation.url",
    }
    /// As it is called in the specification.
    pub fn as_str;
}

impl ClientAbility {
    pub fn bit(self) -> ClientCapabilities {
        match self {
            Self::Roots => ClientCapabilities::ROOTS,
            Self::Sampling => ClientCapabilities::SAMPLING,
            Self::SamplingTools => ClientCapabilities::SAMPLING_TOOLS,
            Self::SamplingContext => ClientCapabilities::SAMPLING_CONTEXT,
            Self::ElicitationForm => ClientCapabilities::ELICITATION_FORM,
            Self::ElicitationUrl => ClientCapabilities::ELICITATION_URL,
        }
    }

    /// The capabilities that a client has to declare (META-04): an object keyed by capability.
    pub fn required(self) -> Value {
        let mut path = self.as_str().split('.');
        let (name, part) = (path.next().unwrap_or_default(), path.next());
        match part {
            Some(part) => json!({ name: { part: {} } }),
            None => json!({ name: {} }),
        }
    }
}

impl fmt::Display for ClientAbility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ClientCapabilities {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let declared: Declared = lenient::object(deserializer)?.unwrap_or_default();
        let mut all = 0;
        let mut add = |declared: bool, bit: Self| all |= if declared { bit.0 } else { 0 };
        add(declared.roots.is_some(), Self::ROOTS);
        if let Some(sampling) = declared.sampling {
            add(true, Self::SAMPLING);
            add(sampling.tools.is_some(), Self::SAMPLING_TOOLS);
            add(sampling.context.is_some(), Self::SAMPLING_CONTEXT);
        }
        let tasks = declared.extensions.and_then(|extensions| extensions.tasks);
        add(tasks.is_some(), Self::TASKS);
        if let Some(elicitation) = declared.elicitation {
            add(elicitation.url.is_some(), Self::ELICITATION_URL);
            // An empty object means forms.
            let form = elicitation.form.is_some() || elicitation.url.is_none();
            add(form, Self::ELICITATION_FORM);
        }
        Ok(Self(all))
    }
}

#[derive(Default, Deserialize)]
#[serde(expecting = "an object", default)]
struct Declared {
    roots: Option<IgnoredAny>,
    #[serde(deserialize_with = "lenient::object")]
    sampling: Option<Sampling>,
    #[serde(deserialize_with = "lenient::object")]
    elicitation: Option<Elicitation>,
    #[serde(deserialize_with = "lenient::object")]
    extensions: Option<Extensions>,
}

#[derive(Default, Deserialize)]
#[serde(expecting = "an object")]
struct Extensions {
    #[serde(rename = "io.modelcontextprotocol/tasks")]
    tasks: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(expecting = "an object")]
struct Sampling {
    tools: Option<IgnoredAny>,
    context: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(expecting = "an object")]
struct Elicitation {
    form: Option<IgnoredAny>,
    url: Option<IgnoredAny>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_knows_and_tolerates_the_rest() {
        let read =
            |json: &str| serde_json::from_str::<ClientCapabilities>(json).expect("capabilities");
        assert_eq!(read("{}"), ClientCapabilities::default());
        assert_eq!(
            read(r#"{"experimental":{"x":1},"vendor":[]}"#),
            ClientCapabilities::default()
        );
        assert!(read(r#"{"roots":{"listChanged":true}}"#).contains(ClientCapabilities::ROOTS));
        assert!(read(r#"{"sampling":{"tools":{}}}"#).contains(ClientCapabilities::SAMPLING_TOOLS));
        assert!(!read(r#"{"sampling":{}}"#).contains(ClientCapabilities::SAMPLING_CONTEXT));
        assert_eq!(
            read(r#"{"elicitation":{}}"#),
            ClientCapabilities::ELICITATION_FORM
        );
        assert_eq!(
            read(r#"{"elicitation":{"url":{}}}"#),
            ClientCapabilities::ELICITATION_URL
        );
        for wrong in [r#"{"sampling":true}"#, r#"{"sampling":["tools"]}"#, "[1]"] {
            let read = serde_json::from_str::<ClientCapabilities>(wrong);
            let error = read.expect_err(wrong).to_string();
            assert!(error.contains("expected an object"), "{error}");
        }
    }

    #[test]
    fn an_empty_list_is_an_empty_object() {
        let read =
            |json: &str| serde_json::from_str::<ClientCapabilities>(json).expect("capabilities");
        assert_eq!(read("[]"), ClientCapabilities::default());
        assert_eq!(read(r#"{"sampling":[]}"#), ClientCapabilities::SAMPLING);
        assert_eq!(
            read(r#"{"elicitation":[],"sampling":null}"#),
            ClientCapabilities::ELICITATION_FORM
        );
    }
}

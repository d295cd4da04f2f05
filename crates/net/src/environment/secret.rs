//! Texts that are never shown.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

/// A text that is never shown: not by `Debug`, not when it is serialised.
///
/// A setting of this type, or a list of it, may also be read from a file: `LONGSHORE_SEAL__KEYS_FILE` names one for
/// `seal.keys`.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

/// What stands in its place.
pub const MASK: &str = "[secret]";

impl Secret {
    /// The text itself. Do not log it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Secrets that the documentation shows, so that everybody knows them. A test holds each key that it shows to be one of these,
/// or of a form that is refused anyway.
pub const SAMPLES: [&str; 2] = [
    "a long random secret shared by all replicas",
    "a long random secret that all of them have",
];

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(MASK)
    }
}

impl JsonSchema for Secret {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "writeOnly": true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_and_never_shown() {
        let secret: Secret = serde_json::from_str("\"swordfish\"").expect("a text");
        assert_eq!(secret.expose(), "swordfish");
        assert_eq!(format!("{secret:?}"), MASK);
        assert_eq!(
            serde_json::to_value(&secret).expect("serialises"),
            serde_json::json!(MASK)
        );
    }
}

//! Secret strings.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

/// A secret string, masked in `Debug` output and serialization.
///
/// A setting of this type, or a list of it, may also be read from a file: `LONGSHORE_SEAL__KEYS_FILE` names one for
/// `seal.keys`.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

/// Replacement for the secret.
pub const MASK: &str = "[secret]";

impl Secret {
    /// Returns the secret. Do not log it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Keys in the documentation, which are public and therefore rejected. A test checks that each documented key is
/// listed here or is rejected for its form.
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

//! The arguments of one call.

use std::borrow::Cow;

use bytes::Bytes;
use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde_json::{Map, Value};

use crate::catalog::strict;

/// The `arguments` object of one `tools/call`: well-formed JSON that nobody has made a tree of yet.
#[derive(Clone, Debug)]
pub struct Arguments(Form);

#[derive(Clone, Debug)]
enum Form {
    /// The text of an object, cut out of the request's body.
    Raw(Bytes),
    Tree(Map<String, Value>),
}

/// Documents from this size on are parsed into trees by `simd-json`, smaller ones by `serde_json`.
///
/// Measured by `benches/parts.rs`; see `docs/performance.md`.
pub const SIMD_THRESHOLD_BYTES: usize = 16 * 1024;

impl Arguments {
    /// No arguments: `{}`.
    pub fn none() -> Self {
        Self(Form::Raw(Bytes::from_static(b"{}")))
    }

    /// The text of a JSON object that has been checked to be one.
    pub(crate) fn from_checked(object: Bytes) -> Self {
        Self(Form::Raw(object))
    }

    /// Reads the arguments as `T`.
    ///
    /// # Errors
    ///
    /// Names the path and what was expected there, for example
    /// `place.latitude: invalid type: string "north", expected a number`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, InvalidArguments> {
        match &self.0 {
            Form::Raw(object) => {
                let mut json = serde_json::Deserializer::from_slice(object);
                // Tracking the path costs on every field, so it is done once it is known to be needed.
                strict::deserialize(&mut json).or_else(|_| {
                    let mut json = serde_json::Deserializer::from_slice(object);
                    with_path(&mut json)
                })
            }
            Form::Tree(object) => strict::deserialize(object).or_else(|_| with_path(object)),
        }
    }

    /// The arguments as a tree.
    ///
    /// # Errors
    ///
    /// A number that no `f64` holds, such as `1e400`.
    pub fn to_map(&self) -> Result<Map<String, Value>, InvalidArguments> {
        match &self.0 {
            Form::Tree(object) => Ok(object.clone()),
            Form::Raw(object) if object.len() >= SIMD_THRESHOLD_BYTES => {
                simd_json::serde::from_slice(&mut object.to_vec())
                    .map_err(|e| InvalidArguments::new(e.to_string()))
            }
            Form::Raw(object) => {
                serde_json::from_slice(object).map_err(|e| InvalidArguments::new(e.to_string()))
            }
        }
    }

    /// The arguments as JSON text.
    pub fn to_json(&self) -> String {
        match &self.0 {
            Form::Raw(object) => String::from_utf8_lossy(object).into_owned(),
            Form::Tree(object) => Value::Object(object.clone()).to_string(),
        }
    }
}

/// Deserialises, and on failure says where.
fn with_path<'de, T, D>(deserializer: D) -> Result<T, InvalidArguments>
where
    T: Deserialize<'de>,
    D: Deserializer<'de, Error = serde_json::Error>,
{
    let mut track = serde_path_to_error::Track::new();
    strict::deserialize(serde_path_to_error::Deserializer::new(
        deserializer,
        &mut track,
    ))
    .map_err(|e| InvalidArguments::at(&track.path().to_string(), &e))
}

impl From<Map<String, Value>> for Arguments {
    fn from(object: Map<String, Value>) -> Self {
        Self(Form::Tree(object))
    }
}

/// Arguments that a tool's schema does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidArguments {
    message: String,
}

impl InvalidArguments {
    /// Says what was wrong and where, in words for a model that wants to do better.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
        }
    }

    fn at(path: &str, cause: &serde_json::Error) -> Self {
        let cause = cause.to_string();
        // The position counts from the start of the arguments, which nobody has at hand.
        let cause = cause.split(" at line ").next().unwrap_or(&cause);
        let cause = in_json_words(cause);
        if path == "." {
            Self::new(cause.into_owned())
        } else {
            Self::new(format!("{path}: {cause}"))
        }
    }
}

/// Says "a number" where serde names one of Rust's types, which a model need not know.
fn in_json_words(cause: &str) -> Cow<'_, str> {
    let Some((found, expected)) = cause.rsplit_once("expected ") else {
        return Cow::Borrowed(cause);
    };
    let json = match expected {
        "f32" | "f64" => "a number",
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "an integer",
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => "an integer that is not negative",
        _ if expected.starts_with("struct ") => "an object",
        _ if expected.starts_with("enum ") => "one of the values in the schema",
        _ => return Cow::Borrowed(cause),
    };
    Cow::Owned(format!("{found}expected {json}"))
}

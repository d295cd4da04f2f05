//! The arguments of one call.

use std::borrow::Cow;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::catalog::path_deserializer::{PathDeserializer, PathSegment, PathTracker, TypeMismatch};
use crate::catalog::{SharedText, fast_arguments, strict};
use crate::protocol::push_string;
use crate::protocol::scan::{ScanError, Scanner, has_long_number};

/// The `arguments` object of one `tools/call`: well-formed JSON, not parsed into a tree yet.
#[derive(Clone, Debug)]
pub struct Arguments(Representation);

#[derive(Clone, Debug)]
enum Representation {
    /// The text of an object, cut out of the request's body.
    Raw(Bytes),
    /// A long one.
    Text(SharedText),
    /// An object.
    Tree(Value),
}

/// Documents from this size on are parsed into trees by `simd-json`, smaller ones by `serde_json`: 1 MiB.
///
/// Measured by `benches/parts.rs`; see `docs/performance.md`.
pub const SIMD_THRESHOLD_BYTES: usize = 1024 * 1024;

impl Arguments {
    /// No arguments: `{}`.
    pub fn none() -> Self {
        Self(Representation::Raw(Bytes::from_static(b"{}")))
    }

    /// The text of a JSON object that has been checked to be one.
    pub fn from_checked(object: Bytes) -> Self {
        Self(Representation::Raw(object))
    }

    /// Likewise, of a text that is known to be UTF-8.
    #[doc(hidden)]
    pub fn from_checked_text(object: SharedText) -> Self {
        Self(Representation::Text(object))
    }

    /// Reads the arguments as `T`.
    ///
    /// # Errors
    ///
    /// Names the path and what was expected there, for example
    /// `place.latitude: invalid type: string "north", expected a number`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, InvalidArguments> {
        match &self.0 {
            Representation::Raw(object) => {
                // At once for all of it, instead of string by string.
                let object = utf_8(object)
                    .ok_or_else(|| InvalidArguments::new("the arguments are not UTF-8"))?;
                by_text(object)
            }
            Representation::Text(object) => by_text(object.as_str()),
            Representation::Tree(object) => {
                by_tree(object).or_else(|misfit| match without_nulls(object.clone(), &misfit) {
                    Some((read, _)) => Ok(read),
                    None => Err(InvalidArguments::at(&misfit)),
                })
            }
        }
    }

    /// The arguments as a tree.
    ///
    /// # Errors
    ///
    /// A number that no `f64` holds, such as `1e400`.
    pub fn to_map(&self) -> Result<Map<String, Value>, InvalidArguments> {
        match &self.0 {
            Representation::Tree(Value::Object(object)) => Ok(object.clone()),
            Representation::Tree(_) => Ok(Map::new()),
            Representation::Raw(object) => tree(object),
            Representation::Text(object) => tree(object.as_str().as_bytes()),
        }
    }

    /// Returns true if the text may have a number with more digits than a number of a tree keeps. Digits in a string also
    /// count.
    pub(crate) fn may_have_long_numbers(&self) -> bool {
        match &self.0 {
            Representation::Raw(object) => has_long_number(object),
            Representation::Text(object) => has_long_number(object.as_str().as_bytes()),
            Representation::Tree(_) => false,
        }
    }

    /// Returns the arguments without the members that a tree of them does not have any more. Numbers stay as they are written.
    #[cold]
    pub(crate) fn limited_to(self, tree: &Value) -> Self {
        match limited(&self.to_json(), tree) {
            Ok(text) => Self::from_checked(text.into()),
            // The text has been scanned before.
            Err(_) => self,
        }
    }

    /// The arguments as JSON text.
    pub fn to_json(&self) -> String {
        match &self.0 {
            Representation::Raw(object) => String::from_utf8_lossy(object).into_owned(),
            Representation::Text(object) => object.as_str().to_owned(),
            Representation::Tree(object) => object.to_string(),
        }
    }
}

/// Returns a document without the members that are missing in its tree.
fn limited(text: &str, tree: &Value) -> Result<Vec<u8>, ScanError> {
    let mut out = Vec::with_capacity(text.len());
    push_limited(&mut out, text, tree)?;
    Ok(out)
}

fn push_limited(out: &mut Vec<u8>, text: &str, tree: &Value) -> Result<(), ScanError> {
    let mut scanner = Scanner::new(text);
    match tree {
        Value::Object(members) => {
            out.push(b'{');
            let mut begun = false;
            while let Some(key) = scanner.next_key(&mut begun)? {
                let name = key.text().unwrap_or_default();
                let value = scanner.value()?;
                if let Some(member) = members.get(&*name) {
                    if out.last() != Some(&b'{') {
                        out.push(b',');
                    }
                    push_string(out, &name);
                    out.push(b':');
                    push_limited(out, value, member)?;
                }
            }
            out.push(b'}');
            Ok(())
        }
        Value::Array(items) => {
            out.push(b'[');
            let mut items = items.iter();
            scanner.array(|scanner| {
                let (item, value) = (items.next().unwrap_or(&Value::Null), scanner.value()?);
                if out.last() != Some(&b'[') {
                    out.push(b',');
                }
                push_limited(out, value, item)
            })?;
            out.push(b']');
            Ok(())
        }
        _ => {
            out.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
}

/// A short text is scanned faster without vector instructions.
#[inline]
fn utf_8(bytes: &[u8]) -> Option<&str> {
    const SHORT_BYTES: usize = 64;
    if bytes.len() < SHORT_BYTES {
        std::str::from_utf8(bytes).ok()
    } else {
        simdutf8::basic::from_utf8(bytes).ok()
    }
}

/// Parses an object's text into a tree. The result does not depend on the size of the text.
fn tree(object: &[u8]) -> Result<Map<String, Value>, InvalidArguments> {
    if SIMD_THRESHOLD_BYTES <= object.len()
        && let Some(tree) = tree_by_simd_json(object)
    {
        return Ok(tree);
    }
    serde_json::from_slice(object).map_err(|e| InvalidArguments::new(e.to_string()))
}

/// The tree that `serde_json` would make. `None` where the two differ: `simd-json` refuses integers of more than
/// 64 bits, which `serde_json` reads as floating point, and takes `-0` for the integer 0.
pub fn tree_by_simd_json(object: &[u8]) -> Option<Map<String, Value>> {
    if may_have_negative_zero(object) {
        return None;
    }
    simd_json::serde::from_slice(&mut object.to_vec()).ok()
}

/// Returns true if the text contains `-0` that does not begin a longer number. A match inside a string also counts.
fn may_have_negative_zero(text: &[u8]) -> bool {
    let next = |by: usize| text.get(by..).unwrap_or_default();
    // No early end, so that it compiles to vector instructions.
    text.iter()
        .zip(next(1))
        .zip(next(2))
        .fold(false, |any, ((minus, zero), after)| {
            any | (*minus == b'-' && *zero == b'0' && !matches!(*after, b'0'..=b'9' | b'.'))
        })
}

#[inline]
fn by_text<T: DeserializeOwned>(object: &str) -> Result<T, InvalidArguments> {
    strict::deserialize(fast_arguments::Object(object)).or_else(|_| by_serde_json(object))
}

/// Deserialises arguments that the fast path rejects, with an error that names the invalid part.
#[cold]
fn by_serde_json<T: DeserializeOwned>(object: &str) -> Result<T, InvalidArguments> {
    let mut json = serde_json::Deserializer::from_str(object);
    strict::deserialize(&mut json).or_else(|refusal| {
        // Only a tree yields the path of an error, and a tree cannot report repeated members.
        let tree = serde_json::from_str::<Value>(object);
        match tree.map(|tree| (by_tree::<T>(&tree), tree)) {
            Ok((Err(misfit), tree)) => {
                let read = match has_long_number(object.as_bytes()) {
                    true => without_nulls_of_text(object, tree),
                    false => without_nulls(tree, &misfit).map(|(read, _)| read),
                };
                read.ok_or_else(|| InvalidArguments::at(&misfit))
            }
            Ok((Ok(_), _)) | Err(_) => Err(InvalidArguments::somewhere(&refusal)),
        }
    })
}

/// Maximum number of nulls that are left out.
const NULLS_MAX: usize = 100;

/// Deserialises mismatched arguments without the nulls that do not match, if that is possible. Returns the remaining arguments
/// too. Some clients send null for each optional argument that the model leaves out.
#[cold]
fn without_nulls<T: DeserializeOwned>(
    mut rest: Value,
    mismatch: &TypeMismatch,
) -> Option<(T, Value)> {
    let mut name = name_of_null(&rest, mismatch)?;
    for _ in 0..NULLS_MAX {
        rest.as_object_mut()?.shift_remove(&name);
        match by_tree(&rest) {
            Ok(read) => return Some((read, rest)),
            Err(mismatch) => name = name_of_null(&rest, &mismatch)?,
        }
    }
    None
}

/// Like [`without_nulls`], for a text with numbers that its tree rounds. The tree only shows which nulls do not match.
#[cold]
fn without_nulls_of_text<T: DeserializeOwned>(object: &str, mut tree: Value) -> Option<T> {
    replace_long_numbers(&mut tree);
    let mismatch = by_tree::<T>(&tree).err()?;
    let (_, rest) = without_nulls::<T>(tree, &mismatch)?;
    let text = limited(object, &rest).ok()?;
    strict::deserialize(&mut serde_json::Deserializer::from_slice(&text)).ok()
}

/// Replaces integers of more than 64 bits, which a tree has as floating point, by one that every number type accepts.
fn replace_long_numbers(tree: &mut Value) {
    match tree {
        Value::Number(number)
            if number
                .as_f64()
                .is_some_and(|value| number.is_f64() && 2_f64.powi(63) <= value.abs()) =>
        {
            *number = 1.into();
        }
        Value::Array(items) => items.iter_mut().for_each(replace_long_numbers),
        Value::Object(members) => members.values_mut().for_each(replace_long_numbers),
        _ => {}
    }
}

/// Returns the name of a mismatched argument, if it is null.
fn name_of_null(object: &Value, mismatch: &TypeMismatch) -> Option<String> {
    let mut path = mismatch.path.pieces();
    match (path.next(), path.next()) {
        (Some(PathSegment::Member(name)), None) => {
            object.get(name)?.is_null().then(|| name.clone())
        }
        _ => None,
    }
}

/// Reads a tree as the schema of its type has it.
pub(super) fn by_tree<T: DeserializeOwned>(object: &Value) -> Result<T, TypeMismatch> {
    let track = PathTracker::default();
    strict::deserialize(PathDeserializer::new(object, &track))
        .map_err(|cause| track.ended_by(cause))
}

impl From<Map<String, Value>> for Arguments {
    fn from(object: Map<String, Value>) -> Self {
        Self(Representation::Tree(Value::Object(object)))
    }
}

/// Arguments that a tool's schema does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidArguments {
    message: String,
}

/// Longest path in a message.
const PATH_MAX_BYTES: usize = 200;

impl InvalidArguments {
    /// Describes the invalid part and its path, for a model that corrects its arguments.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
        }
    }

    /// Names the path of a member that appears twice in its object.
    pub fn repeated(path: &str) -> Self {
        Self::new(format!(
            "{}: the member appears more than once; send it once",
            longshore_protocol::prefix(path, PATH_MAX_BYTES)
        ))
    }

    fn at(misfit: &TypeMismatch) -> Self {
        let Self { message } = Self::somewhere(&misfit.cause);
        let path = misfit.path.to_string();
        if path == "." {
            Self { message }
        } else {
            Self::new(format!("{path}: {message}"))
        }
    }

    fn somewhere(cause: &serde_json::Error) -> Self {
        Self::new(in_words(cause))
    }
}

/// Describes an invalid document without the names of Rust types.
pub fn in_words(cause: &serde_json::Error) -> String {
    let cause = cause.to_string();
    // The reported position counts from the start of a document that the reader does not have.
    let cause = cause.split(" at line ").next().unwrap_or(&cause);
    in_json_words(cause).into_owned()
}

/// Says "a number" where serde names one of Rust's types, which a model need not know.
fn in_json_words(cause: &str) -> Cow<'_, str> {
    if cause.starts_with("data did not match any variant of untagged enum") {
        return Cow::Borrowed("the value matches none of the forms in the schema");
    }
    let Some((found, expected)) = cause.rsplit_once("expected ") else {
        return Cow::Borrowed(cause);
    };
    let json = match expected {
        "f32" | "f64" => "a number",
        "i8" => "an integer from -128 to 127",
        "i16" => "an integer from -32768 to 32767",
        "i32" => "an integer from -2147483648 to 2147483647",
        "i64" | "i128" | "isize" => "an integer",
        "u8" => "an integer from 0 to 255",
        "u16" => "an integer from 0 to 65535",
        "u32" => "an integer from 0 to 4294967295",
        "u64" | "u128" | "usize" => "an integer that is not negative",
        _ if expected.starts_with("struct ") => "an object",
        _ if expected.starts_with("enum ") => "one of the values in the schema",
        _ => return Cow::Borrowed(cause),
    };
    Cow::Owned(format!("{found}expected {json}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Floating point to the last bit, and objects in their order.
    fn shown(tree: &Map<String, Value>) -> String {
        format!("{tree:?}")
    }

    fn by_serde_json(object: &str) -> Map<String, Value> {
        serde_json::from_str(object).expect(object)
    }

    #[test]
    fn both_parsers_make_the_same_tree_of_what_they_take() {
        for (object, taken) in [
            (r#"{"a":9007199254740993,"b":-9007199254740993}"#, true),
            (
                r#"{"a":18446744073709551615,"b":-9223372036854775808}"#,
                true,
            ),
            (r#"{"a":18446744073709551616}"#, false),
            (r#"{"a":-9223372036854775809}"#, false),
            (r#"{"a":123456789012345678901234567890.5e-10}"#, true),
            (
                r#"{"a":0.1,"b":1e-400,"c":5e-324,"d":1.7976931348623157e308}"#,
                true,
            ),
            (r#"{"a":-0.0,"b":-0.5}"#, true),
            (r#"{"a":-0}"#, false),
            (r#"{"a":[-0e1]}"#, false),
            (r#"{"a":"2026-07-28","b":"1-0 = 1"}"#, false),
            (r#"{"a":"2026-07-28"}"#, true),
            (r#"{"twice":1,"other":2,"twice":{"a":1,"a":2}}"#, true),
            (r#"{"":"\u0000\ud83d\ude00\/\n","\u0061":1,"a":2}"#, true),
            ("{ \n\t}", true),
        ] {
            let simd = tree_by_simd_json(object.as_bytes());
            assert_eq!(simd.is_some(), taken, "{object}");
            if let Some(simd) = simd {
                assert_eq!(shown(&simd), shown(&by_serde_json(object)), "{object}");
            }
        }
    }

    #[test]
    fn the_tree_does_not_depend_on_the_size() {
        let filler = " ".repeat(SIMD_THRESHOLD_BYTES);
        for members in [
            r#""a":18446744073709551616"#,
            r#""a":-0"#,
            r#""a":0.30000000000000004,"a":1"#,
            r#""a":1e400"#,
        ] {
            let trees = [String::new(), filler.clone()].map(|filler| {
                let object = Bytes::from(format!("{{{members}{filler}}}"));
                Arguments::from_checked(object)
                    .to_map()
                    .map(|tree| shown(&tree))
            });
            assert_eq!(trees[0], trees[1], "{members}");
        }
    }

    #[test]
    fn numbers_are_read_to_the_last_bit() {
        for number in [
            "0.1",
            "5.018e-11",
            "1.2345678901234567e300",
            "31.245270191439438",
        ] {
            let object = Bytes::from(format!("{{\"a\":{number}}}"));
            let tree = Arguments::from_checked(object).to_map().expect(number);
            assert_eq!(tree["a"].as_f64(), number.parse().ok(), "{number}");
        }
    }

    #[test]
    fn members_are_left_out_of_a_text_whose_numbers_stay_as_written() {
        let text = r#" { "a" : 12345678901234567890123, "b":null , "\u0063":[ {"d":null,"e":1.0e0}, "x\n" ],"f":{ "g":null} } "#;
        let tree = serde_json::json!({"a": 1, "c": [{"e": 1.0}, "x\n"], "f": {}});
        let rest = Arguments::from_checked(Bytes::from_static(text.as_bytes())).limited_to(&tree);
        assert_eq!(
            rest.to_json(),
            r#"{"a":12345678901234567890123,"c":[{"e":1.0e0},"x\n"],"f":{}}"#
        );
    }

    #[test]
    fn null_stands_for_an_optional_argument_that_is_left_out() {
        #[derive(Debug, PartialEq, serde::Deserialize)]
        struct Greeting {
            name: String,
            #[serde(default)]
            words: Vec<String>,
            title: Option<String>,
            #[serde(default, deserialize_with = "present")]
            cleared: Option<Option<u8>>,
        }
        fn present<'de, D>(value: D) -> Result<Option<Option<u8>>, D::Error>
        where
            D: serde::Deserializer<'de>,
        {
            serde::Deserialize::deserialize(value).map(Some)
        }
        let parse = |text: &'static str| {
            Arguments::from_checked(Bytes::from_static(text.as_bytes())).parse::<Greeting>()
        };
        let expected = Greeting {
            name: "a".to_owned(),
            words: Vec::new(),
            title: None,
            cleared: Some(None),
        };
        let read = parse(r#"{"name":"a","cleared":null,"words":null,"title":null}"#);
        assert_eq!(read.as_ref(), Ok(&expected));
        for (text, message) in [
            (
                r#"{"name":null,"words":null}"#,
                "name: invalid type: null, expected a string",
            ),
            (
                r#"{"name":"a","words":1,"title":null}"#,
                "words: invalid type: integer `1`, expected a sequence",
            ),
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn an_untagged_enum_is_not_named() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(untagged)]
        #[expect(dead_code, reason = "only the error is looked at")]
        enum Limit {
            Number(u8),
            Word(String),
        }
        let arguments = Arguments::from_checked(Bytes::from_static(br#"{"limit":true}"#));
        let error = arguments.parse::<std::collections::BTreeMap<String, Limit>>();
        assert_eq!(
            error.expect_err("no form").to_string(),
            "limit: the value matches none of the forms in the schema"
        );
    }

    #[test]
    fn nulls_beside_long_numbers_are_left_out_and_the_numbers_keep_all_digits() {
        use serde_json::value::RawValue;

        #[derive(Debug, serde::Deserialize)]
        struct Transfer {
            amount: u128,
            exact: Box<RawValue>,
            small: f64,
            #[serde(default)]
            words: Vec<String>,
        }
        let parse = |text: &'static str| {
            Arguments::from_checked(Bytes::from_static(text.as_bytes())).parse::<Transfer>()
        };
        for text in [
            r#"{"amount":340282366920938463463374607431768211455,"exact":0.12345678901234567890,"small":0.5,"words":null}"#,
            r#"{"words":null,"small":0.5,"exact":0.12345678901234567890,"amount":340282366920938463463374607431768211455}"#,
        ] {
            let read = parse(text).expect("numbers of the types");
            assert_eq!((read.amount, read.small), (u128::MAX, 0.5));
            assert_eq!(read.exact.get(), "0.12345678901234567890");
            assert!(read.words.is_empty());
        }
        let short = r#"{"amount":1,"exact":1234567890123456.5,"small":1,"words":null}"#;
        assert_eq!(
            parse(short).expect("read").exact.get(),
            "1234567890123456.5"
        );
        let negative = r#"{"amount":-1,"exact":12345678901234567890123,"small":1,"words":null}"#;
        assert!(parse(negative).is_err());
    }

    /// The text of a value such as the scanner lets through.
    fn value() -> impl Strategy<Value = String> {
        let number = "-?(0|[1-9][0-9]{0,24})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?";
        let string = r#"[a-c0-9 \-\[{,:\u{e9}\u{1F600}]{0,12}(\\(["\\/bfnrt]|u00[0-9a-f]{2}|ud83d\\ude00))?"#;
        let leaf = prop_oneof![
            number,
            string.prop_map(|text| format!("\"{text}\"")),
            "true|false|null",
        ];
        leaf.prop_recursive(6, 40, 6, |value| {
            let members = prop::collection::vec(("[a-c]{0,2}", value.clone()), 0..6);
            prop_oneof![
                prop::collection::vec(value, 0..6)
                    .prop_map(|items| format!("[{}]", items.join(" , "))),
                members.prop_map(|members| object(&members)),
            ]
        })
    }

    fn object(members: &[(String, String)]) -> String {
        let members = members
            .iter()
            .map(|(key, value)| format!("\"{key}\" :{value}"));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    }

    proptest! {
        #[test]
        fn simd_json_takes_nothing_that_serde_json_refuses_or_reads_otherwise(
            members in prop::collection::vec(("[a-c]{0,2}", value()), 0..8),
            depth in 0_usize..60,
        ) {
            let inner = object(&members);
            let text = format!("{}{inner}{}", r#"{"d":["#.repeat(depth / 2), "]}".repeat(depth / 2));
            prop_assert!(Scanner::new(&text).value().is_ok(), "{text}");
            if let Some(simd) = tree_by_simd_json(text.as_bytes()) {
                let serde = serde_json::from_str::<Map<String, Value>>(&text);
                prop_assert_eq!(Some(shown(&simd)), serde.ok().map(|tree| shown(&tree)), "{}", text);
            }
        }

        #[test]
        fn floating_point_is_the_same_to_the_last_bit(bits in any::<u64>()) {
            let number = f64::from_bits(bits);
            prop_assume!(number.is_finite() && number != 0.0);
            for text in [format!("{{\"a\":{number:e}}}"), format!("{{\"a\":{number:?}}}")] {
                let simd = tree_by_simd_json(text.as_bytes());
                if let Some(simd) = simd {
                    prop_assert_eq!(simd["a"].as_f64(), Some(number), "{}", text);
                }
                prop_assert_eq!(by_serde_json(&text)["a"].as_f64(), Some(number), "{}", text);
            }
        }
    }
}

use std::collections::BTreeMap;
use std::fmt;

use proptest::prelude::*;
use serde::{Deserialize, de};
use serde_json::json;
use serde_json::value::RawValue;

use super::*;

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    number: Option<u8>,
    float: Option<f64>,
    text: Option<String>,
    is: Option<bool>,
    letter: Option<char>,
    bytes: Option<Vec<u8>>,
    unit: Option<()>,
    name: Option<Name>,
    pair: Option<(i64, String)>,
    shapes: Option<Vec<Shape>>,
    tagged: Option<Tagged>,
    either: Option<Either>,
    by_number: Option<BTreeMap<i16, Value>>,
    by_truth: Option<BTreeMap<bool, u8>>,
    by_name: Option<BTreeMap<Word, Name>>,
    inner: Option<Box<Whole>>,
    any: Option<Value>,
}

#[derive(Debug, PartialEq, PartialOrd, Eq, Ord, Deserialize)]
struct Name(String);

#[derive(Debug, PartialEq, PartialOrd, Eq, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    A,
    B,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Shape {
    Point,
    Name(String),
    Pair(u8, u8),
    Place { x: u8 },
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
enum Tagged {
    Plain,
    Full { a: u8 },
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Either {
    Number(i32),
    Words(Vec<Word>),
}

/// What was read, or what is wrong and where.
fn here<T: DeserializeOwned>(tree: &Value) -> Result<T, (String, String)> {
    read(tree).map_err(|misfit| (misfit.path.to_string(), misfit.cause.to_string()))
}

fn there<T: DeserializeOwned>(tree: &Value) -> Result<T, (String, String)> {
    serde_path_to_error::deserialize(tree)
        .map_err(|error| (error.path().to_string(), error.inner().to_string()))
}

#[test]
fn it_reads_and_refuses_as_serde_json_does_except_for_arrays_as_structs_and_says_where() {
    let mut refused = 0;
    let members = [
        "number",
        "float",
        "text",
        "is",
        "letter",
        "bytes",
        "unit",
        "name",
        "pair",
        "shapes",
        "tagged",
        "either",
        "by_number",
        "by_truth",
        "by_name",
        "inner",
        "any",
        "unknown",
    ];
    let values = [
        json!(null),
        json!(true),
        json!(7),
        json!(-7),
        json!(700),
        json!(0.5),
        json!(1e300),
        json!(u64::MAX),
        json!("a"),
        json!("long"),
        json!([]),
        json!([1]),
        json!([1, "two"]),
        json!([1, "two", 3]),
        json!(["a", "b"]),
        json!(["point", {"name": "n"}, {"pair": [1, 2]}, {"place": {"x": 1}}]),
        json!(["point", {"name": 1}]),
        json!([{"pair": [1]}]),
        json!([{"pair": []}]),
        json!([{"pair": [1, 2, 3]}]),
        json!([{"pair": 7}]),
        json!([{"place": {"x": 700}}]),
        json!([{"place": {"y": 1}}]),
        json!([{"place": [1]}]),
        json!([{"point": null}, {"point": 1}]),
        json!(["name", "pair"]),
        json!(["pair"]),
        json!(["place"]),
        json!(["circle"]),
        json!([{}]),
        json!([{"point": null, "name": "n"}]),
        json!({}),
        json!({"kind": "plain"}),
        json!({"kind": "full", "a": 1}),
        json!({"kind": "full", "a": "1"}),
        json!({"kind": "full", "b": 1}),
        json!({"kind": 1}),
        json!({"1": 2, "-1": [3]}),
        json!({"100000": 1}),
        json!({"x": 1}),
        json!({"": 1}),
        json!({"true": 1, "false": 2}),
        json!({"true": "x"}),
        json!({"a": "x", "b": "y"}),
        json!({"a": 1}),
        json!({"number": 700}),
        json!({"number": 1, "inner": {"inner": {"shapes": ["point", {"name": []}]}}}),
        json!({"inner": {"other": 1}}),
    ];
    for value in &values {
        for member in members {
            let tree = json!({ member: value });
            let read = here::<Whole>(&tree);
            refused += usize::from(read.is_err());
            if member == "inner" && value.is_array() {
                let (path, why) = read.expect_err("an array");
                let refusal = "invalid type: sequence, expected struct Whole";
                assert_eq!((&*path, &*why), ("inner", refusal));
            } else if member.starts_with("by_") {
                // There keys that are no strings have no names, or others than what is written.
                let why = |refused: (String, String)| refused.1;
                let there = there::<Whole>(&tree).map_err(why);
                assert_eq!(read.map_err(why), there, "{tree}");
            } else {
                assert_eq!(read, there::<Whole>(&tree), "{tree}");
            }
        }
        if !value.is_array() {
            assert_eq!(here::<Whole>(value), there::<Whole>(value), "{value}");
        }
        assert_eq!(here::<Shape>(value), there::<Shape>(value), "{value}");
        assert_eq!(here::<Value>(value), there::<Value>(value), "{value}");
    }
    assert!(300 < refused, "{refused}");
}

#[test]
fn a_key_is_named_as_it_is_written() {
    let tree = json!({"by_number": {"1 ": 1}});
    let (path, _) = here::<Whole>(&tree).expect_err("a blank in a number");
    assert_eq!(path, "by_number.1 ");
}

#[test]
fn a_raw_value_is_the_json_of_what_stands_there() {
    let tree = json!({"a": {"b": [1, null]}, "c": "d"});
    let raw: BTreeMap<String, Box<RawValue>> = read(&tree).expect("raw values");
    assert_eq!(raw["a"].get(), r#"{"b":[1,null]}"#);
    assert_eq!(raw["c"].get(), r#""d""#);
}

proptest! {
    #[test]
    fn a_path_leads_to_what_was_refused(path in prop::collection::vec(prop_oneof![
        "[a-c]{1,3}".prop_map(PathSegment::Member),
        (0_usize..4).prop_map(PathSegment::Item),
    ], 0..6)) {
        /// Anything but `true`, however deep.
        #[derive(Debug)]
        struct Untrue;
        impl<'de> Deserialize<'de> for Untrue {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Self)
            }
        }
        impl<'de> Visitor<'de> for Untrue {
            type Value = Self;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything else")
            }
            fn visit_unit<E: de::Error>(self) -> Result<Self, E> {
                Ok(self)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
                while items.next_element::<Self>()?.is_some() {}
                Ok(self)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
                while members.next_entry::<String, Self>()?.is_some() {}
                Ok(self)
            }
        }
        let tree = path.iter().rev().fold(json!(true), |inner, piece| match piece {
            PathSegment::Item(index) => {
                let mut items = vec![Value::Null; *index];
                items.push(inner);
                Value::Array(items)
            }
            PathSegment::Member(name) | PathSegment::Variant(name) => json!({"z": null, name: inner}),
        });
        let misfit = read::<Untrue>(&tree).expect_err("true");
        prop_assert_eq!(misfit.path.pieces().cloned().collect::<Vec<_>>(), path);
    }
}

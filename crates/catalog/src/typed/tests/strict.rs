//! Deserialising is the check: it accepts what the schema allows.

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Place, Tense, Unit, arguments, call, composites, input};
use crate::catalog::schema::{self, Compiled};
use crate::catalog::{Arguments, InvalidArguments};

#[tokio::test]
async fn deserialising_is_as_strict_as_the_schema() {
    let good = json!({
        "unit": "celsius",
        "place": {"latitude": 1, "longitude": 2.5},
        "tense": "Past",
        "tags": [],
        "pair": [7.0, "x"],
        "map": {},
        "anything": null,
    });
    let compiled = Compiled::input(input(&composites)).expect("is sound");
    compiled.check(&good).expect("is allowed");
    call(&composites, good.clone()).await.expect("is read");
    for (name, wrong, message) in [
        (
            "place",
            json!([1, 2]),
            "invalid type: sequence, expected an object",
        ),
        (
            "place",
            json!(null),
            "invalid type: null, expected an object",
        ),
        (
            "unit",
            json!({"celsius": null}),
            "invalid type: map, expected a string, since this variant has no data",
        ),
        (
            "unit",
            json!(0),
            "invalid type: integer `0`, expected one of the values in the schema",
        ),
        (
            "tense",
            json!("Future"),
            "unknown variant `Future`, expected `Present` or `Past`",
        ),
        (
            "pair",
            json!([7.5, "x"]),
            "invalid type: floating point `7.5`, expected an integer",
        ),
        (
            "pair",
            json!([7]),
            "invalid length 1, expected a tuple of size 2",
        ),
        (
            "map",
            json!({"a": 1}),
            "invalid type: integer `1`, expected a boolean",
        ),
    ] {
        let mut arguments = good.clone();
        arguments[name] = wrong;
        compiled.check(&arguments).expect_err("is not allowed");
        let error = call(&composites, arguments).await.expect_err("is refused");
        assert!(error.starts_with(name), "{error}");
        assert!(error.ends_with(message), "{error}");
    }
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
enum Data {
    Unit,
    Newtype(u8),
    Tuple(u8, String),
    Struct { a: u8 },
}

#[test]
fn variants_with_data_are_objects_with_one_member() {
    let read = |value: Value| arguments(&json!({"data": value})).parse::<BTreeMap<String, Data>>();
    for (value, expected) in [
        (json!("Unit"), Data::Unit),
        (json!({"Newtype": 1.0}), Data::Newtype(1)),
        (json!({"Tuple": [1, "x"]}), Data::Tuple(1, "x".to_owned())),
        (json!({"Struct": {"a": 1}}), Data::Struct { a: 1 }),
    ] {
        assert_eq!(read(value).expect("is read")["data"], expected);
    }
    for value in [
        json!({"Unit": null}),
        json!("Newtype"),
        json!({}),
        json!({"Newtype": 1, "Unit": null}),
        json!({"Struct": [1]}),
        json!(["Unit"]),
    ] {
        read(value.clone()).expect_err(&value.to_string());
    }
}

/// All that [`schema::says_no_more_than_type`] is to understand.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only read")]
struct Everything {
    place: Place,
    unit: Unit,
    tense: Option<Tense>,
    #[serde(default)]
    deep: Vec<Option<Everything>>,
    pair: (bool, i8),
    map: BTreeMap<String, Unit>,
    count: u16,
    any: Value,
    nothing: (),
}

/// Values like those that the type takes, and not quite like them.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        (-300_i64..70_000).prop_map(Value::from),
        prop_oneof![Just(1.0), Just(0.5), Just(-128.0), Just(1e300)].prop_map(Value::from),
        prop_oneof![Just("celsius"), Just("Past"), Just("x")].prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 9, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            members(inner).prop_map(Value::Object),
        ]
    })
}

fn members(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    let names = prop_oneof![
        Just("place"),
        Just("unit"),
        Just("tense"),
        Just("deep"),
        Just("pair"),
        Just("map"),
        Just("latitude"),
        Just("longitude"),
        Just("celsius"),
        Just("Past"),
        Just("other"),
    ];
    let right = prop_oneof![
        Just(json!({"latitude": 1, "longitude": 2.5, "displayName": null})),
        Just(json!("celsius")),
        Just(json!([true, 1])),
        Just(json!({})),
        Just(json!([])),
        Just(json!([null])),
    ];
    prop::collection::btree_map(names, prop_oneof![right, value], 0..6).prop_map(|members| {
        members
            .into_iter()
            .map(|(n, v)| (n.to_owned(), v))
            .collect()
    })
}

/// A value of the type, with up to two members replaced.
fn nearly_right() -> impl Strategy<Value = Map<String, Value>> {
    let right = json!({
        "place": {"latitude": 1, "longitude": 2.5, "displayName": "x"},
        "unit": "celsius",
        "tense": "Past",
        "deep": [null],
        "pair": [true, 1],
        "map": {"a": "celsius"},
        "count": 1.0,
        "any": 7,
        "nothing": null,
    });
    let names = vec![
        "place", "unit", "tense", "deep", "pair", "map", "count", "nothing",
    ];
    let replacements = prop::collection::vec((prop::sample::select(names), values()), 0..3);
    (replacements, any::<bool>()).prop_map(move |(replacements, is_deep)| {
        let mut value = right.clone();
        for (name, replacement) in replacements {
            value[name] = replacement;
        }
        if is_deep {
            let mut outer = right.clone();
            outer["deep"] = json!([value]);
            value = outer;
        }
        value.as_object().cloned().unwrap_or_default()
    })
}

/// Without the member that may be left out, where it is null.
fn without_null(mut value: Map<String, Value>) -> Map<String, Value> {
    value.retain(|name, value| name != "tense" || !value.is_null());
    for inner in value
        .get_mut("deep")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Value::Object(members) = inner {
            *members = without_null(std::mem::take(members));
        }
    }
    value
}

proptest! {
    #[test]
    fn what_deserialises_is_what_the_schema_allows(mut value in prop_oneof![nearly_right(), members(values())]) {
        let schema = schema::of_arguments::<Everything>();
        prop_assert!(schema::says_no_more_than_type(&schema));
        let compiled = Compiled::input(&schema).expect("is sound");
        let read: Result<Everything, InvalidArguments> = Arguments::from(value.clone()).parse();
        // A null for what may be left out is taken although the schema does not mention it; for a list, of arguments only.
        value.retain(|name, value| name != "deep" || !value.is_null());
        let allowed = compiled.check(&Value::Object(without_null(value)));
        match (read, allowed) {
            (Ok(_), Ok(())) | (Err(_), Err(_)) => {}
            // The type may know better, but not less: `1e300` is an integer for the schema, and no `i8`.
            (Err(_), Ok(())) => {}
            (Ok(read), Err(refusal)) => prop_assert!(false, "{refusal}: {read:?}"),
        }
    }
}

#[test]
fn a_set_says_more_than_its_type_checks() {
    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Tags {
        tags: HashSet<String>,
    }
    let schema = schema::of_arguments::<Tags>();
    assert!(!schema::says_no_more_than_type(&schema));
}

//! Round trip of values of every type through a component that returns its argument.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::subsequence;
use serde_json::{Map, Value, json};

use super::super::shape::{JsonType, ValueDirection, Width};
use super::super::value::{MemoryBudget, lower};
use super::{collected, value};
use crate::catalog::schema::Compiled;

/// Generates types of limited size.
fn shapes() -> impl Strategy<Value = JsonType> {
    let names = |least: usize| (least..9_usize).prop_map(names);
    let leaf = prop_oneof![
        Just(JsonType::Bool),
        Just(JsonType::F32),
        Just(JsonType::F64),
        Just(JsonType::Char),
        Just(JsonType::Text),
        Just(JsonType::Bytes),
        prop_oneof![
            Just(Width::U8),
            Just(Width::U16),
            Just(Width::U32),
            Just(Width::U64),
            Just(Width::S8),
            Just(Width::S16),
            Just(Width::S32),
            Just(Width::S64),
        ]
        .prop_map(JsonType::Integer),
        names(1).prop_map(JsonType::Enum),
        names(1).prop_map(JsonType::Flags),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let maybe = || proptest::option::of(inner.clone());
        prop_oneof![
            inner.clone().prop_map(list_of),
            inner
                .clone()
                .prop_map(|some| JsonType::Option(Box::new(some))),
            vec(inner.clone(), 1..4).prop_map(JsonType::Tuple),
            vec(inner.clone(), 1..4).prop_map(|fields| JsonType::Record(names_of(fields))),
            vec(maybe(), 1..4).prop_map(|cases| JsonType::Variant(names_of(cases))),
            (maybe(), maybe())
                .prop_map(|(good, bad)| JsonType::Result(good.map(Box::new), bad.map(Box::new))),
        ]
    })
}

/// Returns the type of a list. A list of bytes has its own.
fn list_of(element: JsonType) -> JsonType {
    match element {
        JsonType::Integer(Width::U8) => JsonType::Bytes,
        element => JsonType::List(Box::new(element)),
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("n{n}-x")).collect()
}

fn names_of<T>(each: Vec<T>) -> Vec<(String, T)> {
    names(each.len()).into_iter().zip(each).collect()
}

/// Generates values of a type.
fn values(shape: &JsonType) -> BoxedStrategy<Value> {
    match shape {
        JsonType::Bool => any::<bool>().prop_map(Value::from).boxed(),
        JsonType::Integer(width) => match width {
            Width::U8 => any::<u8>().prop_map(Value::from).boxed(),
            Width::U16 => any::<u16>().prop_map(Value::from).boxed(),
            Width::U32 => any::<u32>().prop_map(Value::from).boxed(),
            Width::U64 => prop_oneof![any::<u64>(), Just(u64::MAX)]
                .prop_map(Value::from)
                .boxed(),
            Width::S8 => any::<i8>().prop_map(Value::from).boxed(),
            Width::S16 => any::<i16>().prop_map(Value::from).boxed(),
            Width::S32 => any::<i32>().prop_map(Value::from).boxed(),
            Width::S64 => prop_oneof![any::<i64>(), Just(i64::MIN), Just(i64::MAX)]
                .prop_map(Value::from)
                .boxed(),
        },
        JsonType::F32 => any::<f32>()
            .prop_filter("finite", |x| x.is_finite())
            .prop_map(|x| serde_json::from_str(&format!("{x:?}")).expect("a number"))
            .boxed(),
        JsonType::F64 => any::<f64>()
            .prop_filter("finite", |x| x.is_finite())
            .prop_map(Value::from)
            .boxed(),
        JsonType::Char => any::<char>().prop_map(|c| c.to_string().into()).boxed(),
        JsonType::Text => any::<String>().prop_map(Value::from).boxed(),
        JsonType::Bytes => vec(any::<u8>(), 0..20)
            .prop_map(|bytes| data_encoding::BASE64.encode(&bytes).into())
            .boxed(),
        JsonType::List(element) => vec(values(element), 0..4).prop_map(Value::from).boxed(),
        JsonType::Record(fields) => fields
            .iter()
            .map(|(name, shape)| (Just(name.clone()), values(shape)))
            .collect::<Vec<_>>()
            .prop_map(|members| members.into_iter().collect::<Map<_, _>>().into())
            .boxed(),
        JsonType::Tuple(shapes) => shapes
            .iter()
            .map(values)
            .collect::<Vec<_>>()
            .prop_map(Value::from)
            .boxed(),
        JsonType::Variant(cases) => {
            let each = cases.iter().map(|(name, payload)| match payload {
                None => Just(Value::from(name.clone())).boxed(),
                Some(shape) => {
                    let name = name.clone();
                    values(shape)
                        .prop_map(move |value| json!({ &name: value }))
                        .boxed()
                }
            });
            proptest::strategy::Union::new(each).boxed()
        }
        JsonType::Enum(names) => proptest::sample::select(names.clone())
            .prop_map(Value::from)
            .boxed(),
        JsonType::Option(some) => {
            let nested = some.has_null();
            let some = values(some).prop_map(move |value| match nested {
                true => json!({ "some": value }),
                false => value,
            });
            prop_oneof![Just(Value::Null), some].boxed()
        }
        JsonType::Result(good, bad) => {
            let side = |name: &'static str, shape: &Option<Box<JsonType>>| {
                let value = match shape {
                    Some(shape) => values(shape),
                    None => Just(Value::Null).boxed(),
                };
                value.prop_map(move |value| json!({ name: value }))
            };
            prop_oneof![side("ok", good), side("err", bad)].boxed()
        }
        JsonType::Flags(names) => subsequence(names.clone(), 0..=names.len())
            .prop_map(Value::from)
            .boxed(),
    }
}

/// Writes a type in text format, preceded by the definitions that it needs.
fn wat(shape: &JsonType, definitions: &mut Vec<String>) -> String {
    let define = |body: String, definitions: &mut Vec<String>| {
        let n = definitions.len();
        definitions.push(format!(
            "(type $t{n}' {body})\n(export $t{n} \"t{n}\" (type $t{n}'))"
        ));
        format!("$t{n}")
    };
    let quoted = |names: &[String]| {
        let each: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
        each.join(" ")
    };
    match shape {
        JsonType::Bool => "bool".to_owned(),
        JsonType::Integer(width) => format!("{width:?}").to_lowercase(),
        JsonType::F32 => "f32".to_owned(),
        JsonType::F64 => "f64".to_owned(),
        JsonType::Char => "char".to_owned(),
        JsonType::Text => "string".to_owned(),
        JsonType::Bytes => "(list u8)".to_owned(),
        JsonType::List(element) => format!("(list {})", wat(element, definitions)),
        JsonType::Option(some) => format!("(option {})", wat(some, definitions)),
        JsonType::Tuple(shapes) => {
            let each: Vec<String> = shapes.iter().map(|one| wat(one, definitions)).collect();
            format!("(tuple {})", each.join(" "))
        }
        JsonType::Result(good, bad) => {
            let good = good
                .as_ref()
                .map_or(String::new(), |good| wat(good, definitions));
            let bad = bad.as_ref().map_or(String::new(), |bad| {
                format!("(error {})", wat(bad, definitions))
            });
            format!("(result {good} {bad})")
        }
        JsonType::Record(fields) => {
            let each: Vec<String> = fields
                .iter()
                .map(|(name, shape)| format!("(field \"{name}\" {})", wat(shape, definitions)))
                .collect();
            define(format!("(record {})", each.join(" ")), definitions)
        }
        JsonType::Variant(cases) => {
            let each: Vec<String> = cases
                .iter()
                .map(|(name, payload)| {
                    let payload = payload.as_ref();
                    let payload = payload.map_or(String::new(), |shape| wat(shape, definitions));
                    format!("(case \"{name}\" {payload})")
                })
                .collect();
            define(format!("(variant {})", each.join(" ")), definitions)
        }
        JsonType::Enum(names) => define(format!("(enum {})", quoted(names)), definitions),
        JsonType::Flags(names) => define(format!("(flags {})", quoted(names)), definitions),
    }
}

/// Returns a component whose only function returns its argument. Seventeen extra bytes force every value to be passed
/// in memory, so that the same few instructions work for each type.
fn identity(shape: &JsonType) -> String {
    let mut definitions = Vec::new();
    let kind = wat(shape, &mut definitions);
    let padded = format!("(tuple {kind} (tuple {}))", ["u8"; 17].join(" "));
    format!(
        "(component
           (core module $code
             (memory (export \"memory\") 4)
             (global $next (mut i32) (i32.const 8))
             (func (export \"realloc\") (param i32 i32 i32 i32) (result i32)
               (local $at i32)
               (local.set $at (i32.and
                 (i32.add (global.get $next) (i32.sub (local.get 2) (i32.const 1)))
                 (i32.sub (i32.const 0) (local.get 2))))
               (global.set $next (i32.add (local.get $at) (local.get 3)))
               (local.get $at))
             (func (export \"same\") (param i32) (result i32) (local.get 0)))
           (core instance $code (instantiate $code))
           {}
           (func (export \"same\") (param \"x\" {padded}) (result {padded})
             (canon lift (core func $code \"same\") (memory (core memory $code \"memory\")) (realloc (core func $code \"realloc\")))))",
        definitions.join("\n")
    )
}

/// Returns the value with omitted members as null, for comparison.
fn with_nulls(shape: &JsonType, value: &Value) -> Value {
    match (shape, value) {
        (JsonType::Record(fields), Value::Object(members)) => {
            let each = fields.iter().map(|(name, shape)| {
                let value = members.get(name).unwrap_or(&Value::Null);
                (name.clone(), with_nulls(shape, value))
            });
            each.collect::<Map<_, _>>().into()
        }
        (_, other) => other.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn values_come_back_as_they_went_and_fit_their_schemas(
        (shape, value_in) in shapes().prop_flat_map(|shape| {
            let values = values(&shape);
            (Just(shape), values)
        })
    ) {
        let component = collected(&identity(&shape), json!({}));
        prop_assert!(component.offered.refused.is_empty(), "{:?}", component.offered.refused);
        let arguments = json!({"x": [value_in, vec![0; 17]]});
        let same = super::tool(&component, "same");
        let definition = same.definition();
        let input = Compiled::input(&definition.input_schema).expect("a schema");
        prop_assert!(input.check(&arguments).is_ok(), "{:?}", input.check(&arguments));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let given = runtime.block_on(value(&component, "same", arguments));
        let output = Compiled::output(definition.output_schema.as_ref().expect("a schema")).expect("a schema");
        prop_assert!(output.check(&given).is_ok(), "{:?}", output.check(&given));
        prop_assert_eq!(&given[0], &with_nulls(&shape, &value_in));
    }

    /// Every JSON value is either converted to the type or rejected.
    #[test]
    fn what_the_schema_refuses_is_refused_here_too(
        (shape, other) in (shapes(), shapes().prop_flat_map(|shape| values(&shape)))
    ) {
        let schema = shape.schema(ValueDirection::Argument);
        let fits = Compiled::output(&schema).expect("a schema").check(&other).is_ok();
        let lowered = lower(&shape, &other, &mut MemoryBudget::new(1_000_000));
        if lowered.is_ok() {
            prop_assert!(fits, "{schema}: {other}");
        }
    }
}

#[test]
fn what_may_be_left_out_may_also_be_null_and_nested_options_stay_apart() {
    let option = |shape| JsonType::Option(Box::new(shape));
    let record = JsonType::Record(vec![
        ("a".to_owned(), option(JsonType::Text)),
        ("b".to_owned(), option(option(JsonType::Bool))),
    ]);
    let schema = Compiled::output(&record.schema(ValueDirection::Argument)).expect("a schema");
    for (value, good) in [
        (json!({}), true),
        (json!({"a": null, "b": null}), true),
        (json!({"a": "x", "b": {"some": null}}), true),
        (json!({"b": {"some": true}}), true),
        (json!({"b": true}), false),
        (json!({"c": 1}), false),
    ] {
        assert_eq!(schema.check(&value).is_ok(), good, "{value}");
        let lowered = lower(&record, &value, &mut MemoryBudget::new(10_000));
        assert_eq!(lowered.is_ok(), good, "{value}: {lowered:?}");
    }
}

#[test]
fn misfits_say_where_and_what() {
    let shape = JsonType::Record(vec![
        (
            "list".to_owned(),
            JsonType::List(Box::new(JsonType::Integer(Width::S8))),
        ),
        (
            "kind".to_owned(),
            JsonType::Variant(names_of(vec![None, Some(JsonType::F32)])),
        ),
    ]);
    for (value, reported) in [
        (
            json!({"list": [1, -129], "kind": "n0-x"}),
            "list.1: it must be a whole number from -128 to 127",
        ),
        (
            json!({"list": [1.5], "kind": "n0-x"}),
            "list.0: it must be a whole number from -128 to 127",
        ),
        (json!({"list": []}), "kind: it is missing"),
        (
            json!({"list": [], "kind": "n1-x"}),
            "kind.n1-x: it must be an object with the case's value",
        ),
        (
            json!({"list": [], "kind": {"n0-x": 1}}),
            "kind.n0-x: it must be the case's name alone, as a text",
        ),
        (
            json!({"list": [], "kind": {"n1-x": 1e300}}),
            "kind.n1-x: it is too large for a float of 32 bits",
        ),
        (
            json!({"list": [2.0, 3], "kind": "other"}),
            "kind.other: it has no such case",
        ),
        (
            json!({"list": [], "kind": "n0-x", "more": 1}),
            "more: it has no such member",
        ),
        (json!([]), "it must be an object"),
    ] {
        let misfit = lower(&shape, &value, &mut MemoryBudget::new(10_000)).expect_err("a misfit");
        assert_eq!(misfit.to_string(), reported);
    }
}

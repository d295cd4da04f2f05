//! What types become: the schemas of `#[tool]` functions and of `tool_fn`, and who checks the arguments.

mod strict;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Map;

use super::*;
use crate::catalog::ToolErrorKind;
use crate::catalog::schema::Compiled;
use crate::tool;

fn input(tool: &impl Tool) -> &Value {
    &tool.definition().input_schema
}

fn output(tool: &impl Tool) -> Value {
    tool.definition().output_schema.clone().unwrap_or_default()
}

fn arguments(value: &Value) -> Arguments {
    Arguments::from(value.as_object().cloned().expect("arguments are an object"))
}

/// Calls a tool with arguments as they come from the wire, and as they come from a tree.
async fn call(tool: &impl Tool, value: Value) -> Result<Output, String> {
    let context = || Arc::new(CallContext::for_test());
    let text = Arguments::from_checked(value.to_string().into());
    let from_text = tool.call(context(), text).await;
    let from_tree = tool.call(context(), arguments(&value)).await;
    let words = |error: ToolError| error.message().to_owned();
    let (from_text, from_tree) = (from_text.map_err(words), from_tree.map_err(words));
    assert_eq!(from_text, from_tree);
    from_text
}

fn text(text: &str) -> Result<Output, String> {
    Ok(Output::text(text))
}

// === Schemas of parameters ===

/// How hot it is.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Unit {
    Celsius,
    Fahrenheit,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Place {
    /// Degrees north.
    latitude: f64,
    longitude: f64,
    display_name: Option<String>,
}

/// A verb in another form.
#[derive(Debug, Deserialize, JsonSchema)]
enum Tense {
    /// I go.
    Present,
    /// I went.
    Past,
}

#[tool]
async fn primitives(
    text: String,
    letter: char,
    yes: bool,
    byte: u8,
    count: u64,
    index: usize,
    signed: i32,
    ratio: f32,
) -> String {
    format!("{text} {letter} {yes} {byte} {count} {index} {signed} {ratio}")
}

#[tool]
async fn composites(
    unit: Unit,
    place: Place,
    tense: Tense,
    tags: Vec<String>,
    pair: (i64, String),
    map: BTreeMap<String, bool>,
    anything: Value,
) -> String {
    format!("{unit:?} {place:?} {tense:?} {tags:?} {pair:?} {map:?} {anything}")
}

#[tool]
async fn optional(
    /// Left out, it is metric.
    unit: Option<Unit>,
    place: Option<Place>,
    tense: Option<Tense>,
    count: Option<u8>,
    #[arg(default = 10)] limit: u32,
    #[arg(default = "en")] language: String,
    #[arg(default)] tags: Vec<String>,
) -> String {
    format!("{unit:?} {place:?} {tense:?} {count:?} {limit} {language} {tags:?}")
}

#[test]
fn primitive_parameters_have_the_schemas_of_their_types() {
    assert_eq!(
        *input(&primitives),
        json!({
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "letter": {"type": "string", "minLength": 1, "maxLength": 1},
                "yes": {"type": "boolean"},
                "byte": {"type": "integer", "minimum": 0, "maximum": 255},
                "count": {"type": "integer", "minimum": 0},
                "index": {"type": "integer", "minimum": 0},
                "signed": {"type": "integer", "minimum": -2_147_483_648_i64, "maximum": 2_147_483_647},
                "ratio": {"type": "number"},
            },
            "required": ["text", "letter", "yes", "byte", "count", "index", "signed", "ratio"],
            "additionalProperties": false,
        })
    );
}

#[test]
fn composite_parameters_keep_their_definitions() {
    assert_eq!(
        *input(&composites),
        json!({
            "type": "object",
            "properties": {
                "unit": {"$ref": "#/$defs/Unit"},
                "place": {"$ref": "#/$defs/Place"},
                "tense": {"$ref": "#/$defs/Tense"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "pair": {
                    "type": "array",
                    "prefixItems": [{"type": "integer"}, {"type": "string"}],
                    "minItems": 2,
                    "maxItems": 2
                },
                "map": {"type": "object", "additionalProperties": {"type": "boolean"}},
                "anything": true,
            },
            "required": ["unit", "place", "tense", "tags", "pair", "map", "anything"],
            "additionalProperties": false,
            "$defs": {
                "Unit": {
                    "description": "How hot it is.",
                    "type": "string",
                    "enum": ["celsius", "fahrenheit"]
                },
                "Place": {
                    "type": "object",
                    "properties": {
                        "latitude": {
                            "description": "Degrees north.",
                            "type": "number"
                        },
                        "longitude": {"type": "number"},
                        "displayName": {"type": ["string", "null"]},
                    },
                    "additionalProperties": false,
                    "required": ["latitude", "longitude"]
                },
                "Tense": {
                    "description": "A verb in another form.",
                    "oneOf": [
                        {"description": "I go.", "type": "string", "const": "Present"},
                        {"description": "I went.", "type": "string", "const": "Past"}
                    ]
                },
            }
        })
    );
    assert!(composites.validates_arguments());
}

/// Where an order is.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Status {
    /// Not paid yet.
    Open,
    Paid,
    Shipped,
    /// Sent back.
    Returned,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is looked at")]
struct Order {
    id: std::num::NonZeroU8,
    at: std::net::IpAddr,
    /// Recursion ends.
    replaces: Option<Box<Order>>,
    history: Vec<(String, Status)>,
}

#[tool]
async fn orders(orders: Vec<Order>, status: Option<Status>) -> Status {
    status.unwrap_or_else(|| panic!("{orders:?}"))
}

#[test]
fn variants_are_one_list_of_constants_in_the_order_that_is_declared() {
    let status = json!({
        "description": "Where an order is.",
        "oneOf": [
            {"description": "Not paid yet.", "type": "string", "const": "open"},
            {"type": "string", "const": "paid"},
            {"type": "string", "const": "shipped"},
            {"description": "Sent back.", "type": "string", "const": "returned"},
        ]
    });
    assert_eq!(input(&orders)["$defs"]["Status"], status);
    Compiled::input(input(&orders)).expect("is sound");
    // The type of a result is not read, so its undocumented variants come first.
    let mut names: Vec<_> = output(&orders)["oneOf"]
        .as_array()
        .expect("variants")
        .iter()
        .map(|variant| variant["const"].as_str().expect("a constant").to_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["open", "paid", "returned", "shipped"]);
}

#[test]
fn optional_parameters_are_not_required_and_have_no_null() {
    assert_eq!(input(&optional).get("required"), None);
    assert_eq!(
        input(&optional)["properties"],
        json!({
            "unit": {"description": "Left out, it is metric.", "$ref": "#/$defs/Unit"},
            "place": {"$ref": "#/$defs/Place"},
            "tense": {"$ref": "#/$defs/Tense"},
            "count": {"type": "integer", "minimum": 0, "maximum": 255},
            "limit": {"type": "integer", "minimum": 0, "default": 10, "maximum": 4_294_967_295_u32},
            "language": {"type": "string", "default": "en"},
            "tags": {"type": "array", "items": {"type": "string"}, "default": []},
        })
    );
    assert!(optional.validates_arguments());
}

#[tokio::test]
async fn what_is_left_out_or_null_is_none_or_the_default() {
    let expected = text("None None None None 10 en []");
    assert_eq!(call(&optional, json!({})).await, expected);
    let nulls = json!({"unit": null, "place": null, "tense": null, "count": null});
    assert_eq!(call(&optional, nulls).await, expected);
    let given = json!({"unit": "celsius", "count": 3, "limit": 1, "language": "de", "tags": ["a"]});
    assert_eq!(
        call(&optional, given).await,
        text("Some(Celsius) None None Some(3) 1 de [\"a\"]")
    );
    let nulls = json!({"limit": null, "language": null, "tags": null});
    assert_eq!(call(&optional, nulls).await, expected);
    assert_eq!(
        call(&optional, json!({"limit": "x", "tags": null})).await,
        Err(
            "limit: invalid type: string \"x\", expected an integer from 0 to 4294967295"
                .to_owned()
        )
    );
}

#[tool]
async fn renamed(
    #[arg(rename = "from")] from_place: String,
    /// Overruled.
    #[arg(description = "Whereto.")]
    #[serde(rename = "to")]
    to_place: String,
    #[schemars(range(min = 1, max = 5))] passengers: Option<u8>,
    #[arg(header = "Region")] region: Option<Unit>,
    #[arg(header = "Count")] count: i64,
    r#type: bool,
) -> String {
    format!("{from_place} {to_place} {passengers:?} {region:?} {count} {type}")
}

#[tokio::test]
async fn parameters_can_be_renamed_described_bounded_and_mirrored() {
    assert_eq!(
        input(&renamed)["properties"],
        json!({
            "from": {"type": "string"},
            "to": {"type": "string", "description": "Whereto."},
            // It says more than the type, so the server checks it, and is told of `null`.
            "passengers": {"type": ["integer", "null"], "minimum": 1, "maximum": 5},
            "region": {
                "description": "How hot it is.",
                "type": "string",
                "enum": ["celsius", "fahrenheit"],
                "x-mcp-header": "Region"
            },
            "count": {"type": "integer", "x-mcp-header": "Count"},
            "type": {"type": "boolean"},
        })
    );
    assert!(!renamed.validates_arguments());
    let mirrored = schema::header_parameters(input(&renamed)).expect("obeys the rules");
    assert_eq!(mirrored.len(), 2);
    let given = json!({"from": "A", "to": "B", "passengers": null, "count": 1, "type": true});
    Compiled::input(input(&renamed))
        .expect("is sound")
        .check(&given)
        .expect("allows null");
    assert_eq!(call(&renamed, given).await, text("A B None None 1 true"));
}

#[tool]
async fn nothing() {}

#[tool(additional_properties)]
async fn open(a: Option<i64>) -> String {
    format!("{a:?}")
}

#[tokio::test]
async fn unknown_arguments_are_refused_unless_opted_out() {
    assert_eq!(
        *input(&nothing),
        json!({"type": "object", "additionalProperties": false})
    );
    assert!(call(&nothing, json!({"a": 1})).await.is_err());
    assert_eq!(
        *input(&open),
        json!({"type": "object", "properties": {"a": {"type": "integer"}}})
    );
    assert_eq!(call(&open, json!({"a": 1, "b": 2})).await, text("Some(1)"));
}

#[tool]
async fn flattened(#[arg(flatten)] place: Place) -> String {
    format!("{place:?}")
}

#[test]
fn a_flattened_struct_is_the_input_schema() {
    assert_eq!(
        *input(&flattened),
        json!({
            "type": "object",
            "properties": {
                "latitude": {"description": "Degrees north.", "type": "number"},
                "longitude": {"type": "number"},
                "displayName": {"type": "string"},
            },
            "required": ["latitude", "longitude"],
            "additionalProperties": false,
        })
    );
    assert!(flattened.validates_arguments());
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(title = "A tree")]
struct Tree {
    children: Vec<Tree>,
}

#[tool]
async fn recursive(#[arg(flatten)] tree: Tree) -> usize {
    tree.children.len()
}

#[test]
fn a_title_of_the_users_own_and_a_recursive_type_are_kept() {
    assert_eq!(
        *input(&recursive),
        json!({
            "title": "A tree",
            "type": "object",
            "properties": {"children": {"type": "array", "items": {"$ref": "#"}}},
            "required": ["children"],
        })
    );
    Compiled::input(input(&recursive)).expect("is sound");
}

#[test]
fn every_schema_made_from_a_type_is_sound() {
    let tools: [&dyn Tool; 8] = [
        &primitives,
        &composites,
        &optional,
        &renamed,
        &nothing,
        &open,
        &flattened,
        &recursive,
    ];
    for tool in tools {
        Compiled::input(&tool.definition().input_schema).expect("is sound");
    }
}

// === Schemas of results ===

#[derive(Serialize, JsonSchema)]
struct Report {
    place: Place,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

#[tool]
async fn reports() -> Result<Report, ToolError> {
    Err(ToolError::new("not today"))
}

#[test]
fn a_structured_result_has_the_schema_of_its_type() {
    assert_eq!(
        output(&reports),
        json!({
            "type": "object",
            "properties": {
                "place": {"$ref": "#/$defs/Place"},
                "note": {"type": ["string", "null"]},
            },
            "required": ["place"],
            "$defs": {"Place": {
                "type": "object",
                "properties": {
                    "latitude": {
                        "description": "Degrees north.",
                        "type": "number"
                    },
                    "longitude": {"type": "number"},
                    "displayName": {"type": ["string", "null"]},
                },
                "additionalProperties": false,
                "required": ["latitude", "longitude", "displayName"]
            }}
        })
    );
    assert_eq!(output(&recursive)["type"], "integer");
}

#[test]
fn text_and_content_blocks_have_no_output_schema() {
    assert_eq!(output(&primitives), Value::Null);
    assert_eq!(output(&nothing), Value::Null);
    assert_eq!(<&'static str>::output_schema(), None);
    assert_eq!(<Cow<'static, str>>::output_schema(), None);
    assert_eq!(Content::output_schema(), None);
    assert_eq!(<Vec<Content>>::output_schema(), None);
    assert_eq!(Output::output_schema(), None);
    assert_eq!(
        <Vec<String>>::output_schema().expect("has one")["type"],
        "array"
    );
    assert_eq!(bool::output_schema(), Some(json!({"type": "boolean"})));
}

// === By hand ===

#[tokio::test]
async fn a_tool_written_by_hand_is_like_one_written_by_the_macro() {
    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Add {
        a: i64,
        b: i64,
    }
    let sum = tool_fn(Definition::new("sum"), |_, add: Add| async move {
        Ok(add.a + add.b)
    });
    assert!(sum.validates_arguments());
    assert_eq!(input(&sum)["properties"]["a"], json!({"type": "integer"}));
    assert_eq!(output(&sum), json!({"type": "integer"}));
    let written = Output::structured(&3).map_err(|e| e.to_string());
    assert_eq!(call(&sum, json!({"a": 1, "b": 2})).await, written);
    let error = sum
        .call(Arc::new(CallContext::for_test()), Arguments::none())
        .await
        .expect_err("is refused");
    assert_eq!(error.kind(), ToolErrorKind::InvalidArguments);
    assert_eq!(format!("{sum:?}"), "TypedTool(\"sum\")");
}

#[test]
fn schemas_of_ones_own_are_kept_and_checked_by_the_server() {
    let own = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let tool = tool_fn(
        Definition::new("own")
            .input_schema(own.clone())
            .output_schema(json!(true)),
        |_, _: Map<String, Value>| async { Ok(1) },
    );
    assert_eq!(*input(&tool), own);
    assert_eq!(output(&tool), json!(true));
    assert!(!tool.validates_arguments());
}

//! Documents crafted to consume memory or time.

use std::time::{Duration, Instant};

use super::*;
use crate::source::openapi::document::parse_within;

const MEBIBYTE: usize = 1 << 20;
/// Generous timeout for bounded work, even on a busy machine.
const LONG: Duration = Duration::from_secs(60);

fn room(schemas: usize) -> ImportLimits {
    ImportLimits {
        schemas,
        ..ImportLimits::new(&OpenApiSourceConfig::default(), 0)
    }
}

fn import_into(room: ImportLimits, document: Value) -> SourceBuilder {
    let config = OpenApiSourceConfig::default();
    let document = Document::new(document, None).expect("a document");
    let mut collector = SourceBuilder::new("api", "sources[0]", Some(""));
    import(&config, &document, room, &mut collector);
    collector
}

#[test]
fn what_is_nested_without_end_is_refused_and_not_followed() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":", "}]")] {
        let depth = 300_000;
        let text = format!("{{\"a\":{}0{}}}", open.repeat(depth), close.repeat(depth));
        assert!(parse_within(text.as_bytes(), usize::MAX).is_err(), "{open}");
        let yaml = format!("a: {}0{}", open.repeat(depth), close.repeat(depth));
        assert!(parse_within(yaml.as_bytes(), usize::MAX).is_err(), "{open}");
    }
    let strings = format!("{{\"a\":\"{}\"}}", "[\\\"{\\\\".repeat(100_000));
    let (value, _) = parse_within(strings.as_bytes(), 8 * MEBIBYTE).expect("one string");
    assert_eq!(value["a"].as_str().map(str::len), Some(400_000));
}

#[test]
fn a_tree_that_would_be_larger_than_its_room_is_not_made() {
    let start = Instant::now();
    for text in [
        format!("{{\"a\":[{}0]}}", "0,".repeat(4 * MEBIBYTE)),
        format!("{{\"a\":[{}0]}}", "[],".repeat(2 * MEBIBYTE)),
        format!("{{\"a\":[{}0]}}", "{\"a\":1},".repeat(MEBIBYTE)),
    ] {
        let problem = parse_within(text.as_bytes(), 128 * MEBIBYTE).expect_err("too large");
        assert!(problem.contains("openapi.document_bytes"), "{problem}");
    }
    let yaml = format!("a:\n{}", "- {b: 1}\n".repeat(200_000));
    assert!(parse_within(yaml.as_bytes(), MEBIBYTE).is_err());
    let aliases = format!("a: &a [0,0,0,0,0,0,0,0]\nb:\n{}", "- *a\n".repeat(500_000));
    assert!(parse_within(aliases.as_bytes(), 512 * MEBIBYTE).is_err());
    assert!(start.elapsed() < LONG);
}

#[test]
fn the_memory_of_the_process_bounds_an_import_too() {
    let config = OpenApiSourceConfig::default();
    let text = format!("{{\"a\":[{}0]}}", "0,".repeat(MEBIBYTE));
    let free = ImportLimits::new(&config, 0);
    assert!(parse_within(text.as_bytes(), free.tree).is_ok());
    let little = crate::telemetry::memory_bytes().expect("on Linux") + 64 * MEBIBYTE as u64;
    let bound = ImportLimits::new(&config, little);
    assert!(bound.schemas < free.schemas);
    let problem = parse_within(text.as_bytes(), bound.tree).expect_err("too large");
    assert!(problem.contains("limits.memory_bytes"), "{problem}");
    assert_eq!(ImportLimits::new(&config, 1).tree, 0);
}

#[test]
fn large_values_are_copied_into_no_schema() {
    let values: Vec<String> = (0..200_000)
        .map(|number| format!("value{number}"))
        .collect();
    let long = "x".repeat(MEBIBYTE);
    let schema = json!({
        "type": "object",
        "title": long, "description": long,
        "required": values,
        "properties": {
            "a": {"type": "string", "enum": values, "default": long, "description": long},
            "b": {"const": values},
        },
    });
    let mut document = with_responses(&[]);
    document["components"] = json!({"schemas": {"Large": schema}});
    for number in 0..50 {
        let operation = json!({
            "operationId": format!("op{number}"), "summary": long, "description": long, "responses": {},
            "parameters": [{"name": "q", "in": "query", "description": long, "schema": {"$ref": "#/components/schemas/Large"}}],
            "requestBody": {"description": long, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Large"}}}},
        });
        document["paths"][format!("/p{number}")] = json!({"post": operation});
    }
    let start = Instant::now();
    let collector = import_into(room(32 * MEBIBYTE), document);
    assert_eq!(
        collector.offered.tools.len(),
        50,
        "{:?}",
        refusals(&collector)
    );
    assert!(start.elapsed() < LONG);
    for tool in &collector.offered.tools {
        let definition = tool.definition();
        let size = serde_json::to_string(&definition.input_schema)
            .expect("JSON")
            .len();
        assert!(size < 128 * 1024, "{size}");
        let words = [&definition.title, &definition.description];
        assert!(
            words
                .iter()
                .all(|text| text.as_ref().is_some_and(|text| text.len() <= 4000))
        );
    }
    // The cut schema accepts every value that the whole one does.
    let schema = schema_of(&collector, "op0");
    let compiled = Compiled::input(schema).expect("sound");
    compiled
        .check(&json!({"q": {"a": "value7", "b": 1}}))
        .expect("the API knows");
}

#[test]
fn references_that_multiply_are_followed_so_far() {
    let mut schemas = Map::new();
    for level in 0..12 {
        let next = json!({"$ref": format!("#/components/schemas/L{}", level + 1)});
        schemas.insert(format!("L{level}"), json!({"allOf": vec![next; 30]}));
    }
    schemas.insert(
        "L12".to_owned(),
        json!({"type": "object", "properties": {"x": {}}}),
    );
    let mut document = with_responses(&[]);
    for (number, kind) in [
        "multipart/form-data",
        "application/x-www-form-urlencoded",
        "application/json",
    ]
    .into_iter()
    .enumerate()
    {
        let content = json!({kind: {"schema": {"$ref": "#/components/schemas/L0"}}});
        document["paths"][format!("/p{number}")] = json!({"post": {"operationId": format!("op{number}"), "requestBody": {"content": content}, "responses": {}}});
    }
    document["components"] = json!({"schemas": schemas});
    let start = Instant::now();
    let collector = import_into(room(32 * MEBIBYTE), document);
    assert!(start.elapsed() < LONG);
    let reported = refusals(&collector);
    for (reported, part) in reported.iter().zip([
        "too many schemas",
        "too many schemas",
        "more than 10000 subschemas",
    ]) {
        assert!(reported.contains(part), "{reported}");
    }
}

#[test]
fn tools_stay_within_what_their_schemas_may_take_together() {
    let mut document = with_responses(&[]);
    for number in 0..200 {
        let operation = json!({"operationId": format!("op{number}"), "responses": {}});
        document["paths"][format!("/p{number}")] = json!({"get": operation});
    }
    let collector = import_into(room(100_000), document);
    let count = collector.offered.tools.len();
    assert!((10..200).contains(&count), "{count}");
    let reported = refusals(&collector);
    assert_eq!(reported.len(), 1, "{reported:?}");
    let rest = format!("{} operations became no tools", 200 - count);
    assert!(
        reported[0].contains(&rest) && reported[0].contains("openapi.include"),
        "{reported:?}"
    );
}

#[test]
fn parameters_and_refusals_are_bounded() {
    let many: Vec<Value> = (0..2_000)
        .map(|number| json!({"name": format!("p{number}"), "in": "query", "schema": {}}))
        .collect();
    let mut document = with_responses(&[("many", json!({}))]);
    document["paths"]["/many"]["get"]["parameters"] = many.into();
    for number in 0..6_000 {
        let lost = json!({"parameters": [{"$ref": "#/nowhere"}], "responses": {}});
        document["paths"][format!("/p{number}")] = json!({"get": lost});
    }
    let collector = import_into(room(32 * MEBIBYTE), document);
    let reported = refusals(&collector);
    assert_eq!(reported.len(), 5_001);
    assert!(reported[0].contains("2000 parameters"), "{}", reported[0]);
    assert!(
        reported[5_000].contains("more tools are rejected than listed here"),
        "{}",
        reported[5_000]
    );
}

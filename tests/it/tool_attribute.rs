//! `#[tool]` as the crate of a stranger uses it: calls, results, hints, and names that get in the way.
//! What it makes of types is tested beside `catalog::typed`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longshore::catalog::ToolErrorKind;
use longshore::{
    Arguments, CallContext, Content, Definition, Icon, IntoTool, Output, Tool, ToolError, tool,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

fn arguments(value: Value) -> Arguments {
    let Value::Object(object) = value else {
        panic!("arguments are an object")
    };
    Arguments::from(object)
}

async fn call(tool: impl Tool, value: Value) -> Result<Output, ToolError> {
    tool.call(Arc::new(CallContext::for_test()), arguments(value))
        .await
}

/// The message of the refusal.
async fn refused(tool: impl Tool, value: Value) -> String {
    let error = call(tool, value).await.expect_err("is refused");
    assert_eq!(error.kind(), ToolErrorKind::InvalidArguments);
    error.message().to_owned()
}

fn structured(value: impl Serialize) -> Output {
    Output::structured(&value).expect("writes")
}

// === Calls ===

/// Adds two integers.
#[tool]
async fn add(a: i64, b: i64) -> Result<i64, ToolError> {
    a.checked_add(b).ok_or_else(|| ToolError::new("too large"))
}

#[tool]
async fn whoami(greeting: String, context: &CallContext, mut times: u8) -> String {
    let mut text = String::new();
    while times > 0 {
        text += &format!("{greeting} {}. ", context.principal().name());
        times -= 1;
    }
    text
}

/// Adds two integers.
#[deprecated(note = "use `add`")]
#[tool]
async fn sum(a: i64, b: i64) -> i64 {
    a + b
}

#[tokio::test]
#[expect(
    deprecated,
    reason = "the use of the tool is warned of, and its definition is not"
)]
async fn a_deprecated_tool_is_warned_of_where_it_is_used() {
    assert_eq!(sum(1, 2).await, 3);
}

#[tokio::test]
async fn a_tool_is_still_a_function() {
    assert_eq!(add(1, 2).await.expect("fits"), 3);
    let error = add(i64::MAX, 2).await.expect_err("does not fit");
    assert_eq!(error.message(), "too large");
    let context = CallContext::for_test();
    assert_eq!(
        whoami("Hello".to_owned(), &context, 1).await,
        "Hello anonymous. "
    );
}

#[tokio::test]
async fn a_call_reads_arguments_and_writes_the_result() {
    let output = call(add, json!({"a": 40, "b": 2})).await.expect("adds");
    assert_eq!(output, structured(42));
    let output = call(whoami, json!({"times": 2, "greeting": "Hi"})).await;
    assert_eq!(
        output.expect("answers"),
        Output::text("Hi anonymous. Hi anonymous. ")
    );
}

#[tokio::test]
async fn wrong_arguments_are_refused_by_path() {
    assert_eq!(refused(add, json!({"a": 40})).await, "missing field `b`");
    assert_eq!(
        refused(add, json!({"a": 40, "b": "two"})).await,
        "b: invalid type: string \"two\", expected an integer"
    );
    assert_eq!(
        refused(add, json!({"a": 40, "b": 2, "c": 3})).await,
        "c: unknown field `c`, expected `a` or `b`"
    );
}

// === Hints ===

#[tool(
    name = "all.of-it",
    title = "All of it",
    description = "Not the doc comment.",
    read_only,
    destructive = false,
    idempotent,
    open_world = false,
    timeout = "250ms",
    scopes("calc:use", "calc:all"),
    icon = "https://example.com/a.png",
    icon = "data:image/png;base64,AA==",
    meta(
        "com.example/cost" = 3,
        "com.example/tags" = ["a", {"b": 1}],
        "com.example/limits" = {"cpu": 3}
    )
)]
/// The doc comment.
async fn everything() {}

#[test]
fn every_option_reaches_the_definition() {
    let expected = Definition::new("all.of-it")
        .title("All of it")
        .description("Not the doc comment.")
        .read_only(true)
        .destructive(false)
        .idempotent(true)
        .open_world(false)
        .timeout(Duration::from_millis(250))
        .scope("calc:use")
        .scope("calc:all")
        .icon(Icon::new("https://example.com/a.png"))
        .icon(Icon::new("data:image/png;base64,AA=="))
        .meta("com.example/cost", json!(3))
        .meta("com.example/tags", json!(["a", {"b": 1}]))
        .meta("com.example/limits", json!({"cpu": 3}));
    assert_eq!(
        format!("{:?}", everything.definition()),
        format!("{expected:?}")
    );
}

#[test]
fn a_tool_is_registered_by_its_name() {
    let tools: Vec<Arc<dyn Tool>> = vec![add.into_tool(), everything.into_tool().into_tool()];
    let names: Vec<_> = tools.iter().map(|tool| tool.definition().name()).collect();
    assert_eq!(names, ["add", "all.of-it"]);
}

// === Return types ===

#[derive(Serialize, longshore::JsonSchema)]
#[schemars(crate = "longshore::schemars")]
struct Report {
    degrees: f64,
}

#[derive(Serialize)]
struct WithoutSchema {
    degrees: f64,
}

#[derive(Debug)]
struct OnlyWords;

impl fmt::Display for OnlyWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("only words")
    }
}

type Aliased<T> = Result<T, std::io::Error>;

#[tool]
async fn returns_nothing() {}

#[tool]
async fn returns_text() -> String {
    "text".to_owned()
}

#[tool]
async fn returns_static_text() -> &'static str {
    "text"
}

#[tool]
async fn returns_block() -> Content {
    Content::text("block")
}

#[tool]
async fn returns_blocks() -> Result<Vec<Content>, ToolError> {
    Ok(vec![
        Content::text("one"),
        Content::image(b"2", "image/png"),
    ])
}

#[tool]
async fn returns_output() -> Output {
    Output::text("built by hand")
}

#[tool]
async fn returns_struct() -> Report {
    Report { degrees: 21.5 }
}

#[tool]
async fn returns_list() -> Vec<u8> {
    vec![1, 2]
}

#[tool]
async fn returns_value() -> Value {
    json!({"free": true})
}

#[tool]
async fn returns_without_schema() -> Result<WithoutSchema, ToolError> {
    Ok(WithoutSchema { degrees: 21.5 })
}

#[tool]
async fn returns_alias(fail: bool) -> Aliased<Report> {
    if fail {
        return Err(std::io::Error::other("the disk is full"));
    }
    Ok(Report { degrees: 1.0 })
}

#[tool]
async fn fails_with_text() -> Result<String, String> {
    Err("in words".to_owned())
}

#[tool]
async fn fails_with_words() -> Result<(), OnlyWords> {
    Err(OnlyWords)
}

#[tool]
async fn fails_with_box() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    Err("boxed".into())
}

#[tokio::test]
async fn each_kind_of_result_becomes_an_output() {
    let none = json!({});
    let outputs = [
        (call(returns_nothing, none.clone()).await, Output::default()),
        (call(returns_text, none.clone()).await, Output::text("text")),
        (
            call(returns_static_text, none.clone()).await,
            Output::text("text"),
        ),
        (
            call(returns_block, none.clone()).await,
            Output::blocks([Content::text("block")]),
        ),
        (
            call(returns_blocks, none.clone()).await,
            Output::blocks([Content::text("one"), Content::image(b"2", "image/png")]),
        ),
        (
            call(returns_output, none.clone()).await,
            Output::text("built by hand"),
        ),
        (
            call(returns_struct, none.clone()).await,
            structured(json!({"degrees": 21.5})),
        ),
        (call(returns_list, none.clone()).await, structured([1, 2])),
        (
            call(returns_value, none.clone()).await,
            structured(json!({"free": true})),
        ),
        (
            call(returns_without_schema, none.clone()).await,
            structured(json!({"degrees": 21.5})),
        ),
        (
            call(returns_alias, json!({"fail": false})).await,
            structured(json!({"degrees": 1.0})),
        ),
    ];
    for (output, expected) in outputs {
        assert_eq!(output.expect("succeeds"), expected);
    }
}

#[tokio::test]
async fn each_kind_of_error_becomes_words_for_the_model() {
    let none = json!({});
    let errors = [
        (
            call(returns_alias, json!({"fail": true})).await,
            "the disk is full",
        ),
        (call(fails_with_text, none.clone()).await, "in words"),
        (call(fails_with_words, none.clone()).await, "only words"),
        (call(fails_with_box, none.clone()).await, "boxed"),
    ];
    for (result, expected) in errors {
        let error = result.expect_err("fails");
        assert_eq!(error.kind(), ToolErrorKind::Failed);
        assert_eq!(error.message(), expected);
    }
}

// === Functions that block ===

static IS_MORNING: AtomicBool = AtomicBool::new(false);

/// Sleeps on a blocking thread until it is morning.
#[tool(blocking)]
fn nap(milliseconds: u64, context: &CallContext) -> String {
    let begun = Instant::now();
    while !IS_MORNING.load(Ordering::SeqCst) {
        if Duration::from_millis(milliseconds) <= begun.elapsed() {
            return "it is night".to_owned();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    format!("good morning, {}", context.principal().name())
}

#[tool(blocking)]
fn stumbles() -> String {
    panic!("over its own feet")
}

#[tokio::test]
async fn a_blocking_function_runs_beside_the_worker() {
    // This runtime has one thread, which turns to others while the function sleeps.
    let others = async { IS_MORNING.store(true, Ordering::SeqCst) };
    let (napped, ()) = tokio::join!(call(nap, json!({"milliseconds": 20_000})), others);
    assert_eq!(
        napped.expect("wakes up"),
        Output::text("good morning, anonymous")
    );
    assert_eq!(nap(0, &CallContext::for_test()), "good morning, anonymous");
}

#[tokio::test]
async fn a_panic_in_a_blocking_function_is_the_panic_of_the_call() {
    let panicked = tokio::spawn(call(stumbles, json!({}))).await;
    let panic = panicked.expect_err("panics").into_panic();
    assert_eq!(panic.downcast_ref(), Some(&"over its own feet"));
}

// === Whole objects ===

#[derive(Deserialize, longshore::JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "longshore::schemars")]
struct Place {
    latitude: f64,
    longitude: f64,
}

#[tool]
async fn locate(#[arg(flatten)] place: Place, _context: &CallContext) -> String {
    format!("{} {}", place.latitude, place.longitude)
}

#[tokio::test]
async fn one_struct_may_be_the_whole_arguments_object() {
    let output = call(locate, json!({"latitude": 1.5, "longitude": 2})).await;
    assert_eq!(output.expect("locates"), Output::text("1.5 2"));
    assert_eq!(
        refused(
            locate,
            json!({"latitude": 1.5, "longitude": 2, "height": 3})
        )
        .await,
        "height: unknown field `height`, expected `latitude` or `longitude`"
    );
}

// === Tools that announce themselves ===

#[tool(collect)]
async fn second() {}

#[tool(collect, name = "a-first")]
async fn first() {}

#[test]
fn only_tools_that_ask_for_it_are_collected() {
    let names: Vec<_> = longshore::collected_tools()
        .iter()
        .map(|tool| tool.definition().name().to_owned())
        .collect();
    assert_eq!(names, ["a-first", "arguments", "second"]);
}

// === Hygiene ===

/// A crate may have its own idea of every name that the expansion uses.
mod hostile {
    #![allow(dead_code, non_camel_case_types, clippy::module_name_repetitions)]

    use ::longshore as renamed;

    pub(super) mod core {}
    pub(super) mod std {}
    pub(super) mod serde {}
    pub(super) mod schemars {}
    pub(super) mod longshore {}
    pub(super) struct Box;
    pub(super) struct Vec;
    pub(super) struct String;
    pub(super) struct Arc;
    pub(super) struct Send;
    pub(super) struct Tool;
    pub(super) struct Output;
    pub(super) struct Arguments;
    pub(super) struct Deserialize;
    pub(super) struct JsonSchema;
    pub(super) enum Option {}
    pub(super) enum Result {}
    pub(super) fn drop() {}

    /// Methods that everything has.
    pub(super) trait Everywhere {
        fn call(&self) {}
        fn parse(&self) {}
        fn definition(&self) {}
        fn output(&self) {}
        fn schema(&self) {}
        fn trim(&self) {}
    }

    impl<T: ?Sized> Everywhere for T {}

    /// Its parameters have the names of tools, types and keywords.
    #[renamed::tool(timeout = "1h", meta("a" = 1), collect)]
    pub(super) async fn arguments(
        r#type: i64,
        value: bool,
        this: u8,
        #[arg(default = 7)] context: i64,
        #[arg(default = "word")] text: ::std::string::String,
        ctx: &renamed::CallContext,
    ) -> i64 {
        let _ = (value, text, ctx.request_id());
        r#type + context + i64::from(this)
    }
}

#[tokio::test]
async fn names_of_the_users_do_not_get_in_the_way() {
    let output = call(
        hostile::arguments,
        json!({"type": 1, "value": true, "this": 2}),
    )
    .await;
    assert_eq!(output.expect("adds"), structured(10));
}

/// Tools with the names of variables in what `schemars` derives.
mod named_as_variables {
    use longshore::tool;

    #[tool]
    pub(super) async fn schema(#[arg(default = map())] object: u8) -> u8 {
        object
    }

    fn map() -> u8 {
        1
    }

    #[tool]
    pub(super) async fn d(#[arg(default = 2)] value: u8) -> u8 {
        // The tool, and not what hides it from the derived code.
        generator(value).await
    }

    #[tool]
    pub(super) async fn generator(#[schemars(range(max = 9))] d: u8) -> u8 {
        d
    }

    #[tool]
    pub(super) async fn object() {}

    #[tool]
    pub(super) async fn value() {}
}

#[tokio::test]
async fn tools_may_have_the_names_of_variables_in_derived_code() {
    use named_as_variables::{d, object, schema, value};

    let [of_schema, of_d] = [call(schema, json!({})).await, call(d, json!({})).await];
    assert_eq!(of_schema.expect("a default"), structured(1));
    assert_eq!(of_d.expect("a default"), structured(2));
    assert_eq!(
        call(object, json!({})).await.expect("nothing"),
        Output::default()
    );
    assert_eq!(
        call(value, json!({})).await.expect("nothing"),
        Output::default()
    );
}

// === Numbers that JSON does not have ===

/// Statistics of a list.
#[derive(Serialize, longshore::JsonSchema)]
#[schemars(crate = "longshore::schemars")]
struct Statistics {
    name: Option<String>,
    mean: f64,
    deviation: Option<f64>,
}

#[tool]
async fn statistics(numbers: Vec<f64>) -> Vec<Statistics> {
    let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
    vec![Statistics {
        name: None,
        mean,
        deviation: Some(f64::NAN),
    }]
}

#[tool]
async fn divide(dividend: f64, divisor: f64) -> f64 {
    dividend / divisor
}

#[tokio::test]
async fn a_result_with_nan_or_infinity_is_an_error_where_the_schema_requires_a_number() {
    let server = longshore::App::new().tool(statistics).tool(divide);
    let server = server.harness().expect("valid");
    let called = async |tool: &str, arguments: Value| {
        let result = server.call(tool, arguments).await.expect("a result");
        (
            result.is_error(),
            result.text(),
            result["structuredContent"].clone(),
        )
    };
    let message = |place: &str| {
        format!(
            "the result has a number{place} that is NaN or infinite, which JSON cannot represent"
        )
    };
    let failed = |place| (true, message(place), Value::Null);
    let (is_error, _, content) = called("statistics", json!({"numbers": [1, 3]})).await;
    assert!(!is_error);
    assert_eq!(
        content,
        json!([{"name": null, "mean": 2.0, "deviation": null}])
    );
    let of_none = called("statistics", json!({"numbers": []})).await;
    assert_eq!(of_none, failed(" at `[0].mean`"));
    let by_zero = called("divide", json!({"dividend": 1, "divisor": 0})).await;
    assert_eq!(by_zero, failed(""));
    let (_, text, _) = called("divide", json!({"dividend": 1, "divisor": 2})).await;
    assert_eq!(text, "0.5");
}

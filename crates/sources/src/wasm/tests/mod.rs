//! Calls components in text format as tools.

mod roundtrip;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{ComponentSourceConfig, collect};
use crate::catalog::{CallContext, Output, OutputContent, Tool};
use crate::source::builder::{BuiltSource, SourceBuilder};

/// Returns a source of one component with these settings.
pub(super) fn collected(text: &str, settings: Value) -> BuiltSource {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("component.wasm");
    std::fs::write(&path, text).expect("written");
    of_file(&path, settings)
}

fn of_file(path: &Path, mut settings: Value) -> BuiltSource {
    settings["path"] = path.to_str().expect("UTF-8").into();
    let component: ComponentSourceConfig = serde_json::from_value(settings).expect("a source");
    let mut builder = SourceBuilder::new("c", "sources[0]", None);
    collect(&component, &mut builder);
    builder.finish()
}

pub(super) fn plain(settings: Value) -> BuiltSource {
    collected(include_str!("plain.wat"), settings)
}

fn touching(settings: Value) -> BuiltSource {
    collected(include_str!("touching.wat"), settings)
}

pub(super) fn tool(collected: &BuiltSource, name: &str) -> Arc<dyn Tool> {
    let name = format!("c__{name}");
    let tools = &collected.offered.tools;
    let found = tools.iter().find(|tool| tool.definition().name == name);
    let refused = &collected.offered.refused;
    Arc::clone(found.unwrap_or_else(|| panic!("there is no {name}: {refused:?}")))
}

pub(super) async fn call(
    collected: &BuiltSource,
    name: &str,
    arguments: Value,
) -> Result<Output, String> {
    let Value::Object(arguments) = arguments else {
        panic!("an object")
    };
    tool(collected, name)
        .call(Arc::new(CallContext::for_test()), arguments.into())
        .await
        .map_err(|error| error.message().to_owned())
}

/// Calls a tool and returns its result as a JSON value.
pub(super) async fn value(collected: &BuiltSource, name: &str, arguments: Value) -> Value {
    let output = call(collected, name, arguments).await.expect("a result");
    match (&output.content, &output.structured) {
        (OutputContent::Text(text), None) => text.as_str().into(),
        (OutputContent::Structured, Some(json)) => serde_json::from_str(json).expect("JSON"),
        other => panic!("{other:?}"),
    }
}

async fn failure(collected: &BuiltSource, name: &str, arguments: Value) -> String {
    call(collected, name, arguments)
        .await
        .expect_err("a failure")
}

fn problem(collected: &BuiltSource) -> String {
    let refused = &collected.offered.refused;
    let refused: Vec<String> = refused.iter().map(ToString::to_string).collect();
    refused.join("\n")
}

#[test]
fn every_function_becomes_a_tool_and_what_cannot_be_one_says_why() {
    let component = plain(json!({"exclude": ["much-*", "many-*"]}));
    let names: Vec<&str> = component
        .offered
        .tools
        .iter()
        .map(|tool| &*tool.definition().name)
        .collect();
    assert_eq!(
        names,
        [
            "c__docs_numbers_sums_0_1_0_sum",
            "c__docs_numbers_sums_1_0_0_sum",
            "c__add",
            "c__echo",
            "c__check",
            "c__is-good",
            "c__count",
            "c__nothing",
            "c__spin",
            "c__trap",
            "c__deep",
            "c__hoard",
            "c__bytes",
            "c__no-number",
        ]
    );
    assert_eq!(
        problem(&component),
        "source c, sources[0].component (docs:numbers/things@0.1.0#make): its result is a resource, which has no JSON form"
    );
    let add = tool(&component, "add");
    let byte = json!({"type": "integer", "minimum": 0, "maximum": 255});
    assert_eq!(
        add.definition().input_schema,
        json!({
            "type": "object", "properties": {"left": byte, "right": byte},
            "required": ["left", "right"], "additionalProperties": false,
        })
    );
    assert_eq!(add.definition().output_schema, Some(byte));
    assert_eq!(
        add.definition().description.as_deref(),
        Some("add(left: u8, right: u8) -> u8")
    );
    assert_eq!(add.definition().annotations.read_only_hint, Some(true));
    assert_eq!(tool(&component, "echo").definition().output_schema, None);
}

#[test]
fn what_is_told_of_a_function_is_what_its_tool_says() {
    let component = plain(json!({
        "include": ["add", "docs:numbers/*", "echo"],
        "exclude": ["*things*"],
        "tools": {
            "add": {"name": "plus", "title": "Plus", "description": "Adds.", "arguments": {"left": "The first one."},
                    "read_only": false, "idempotent": true},
            "docs:numbers/sums@1.0.0#sum": {"name": "sum"},
            "echo": {"arguments": {"words": "None of its arguments."}},
            "substract": {},
        },
    }));
    let names: Vec<&str> = component
        .offered
        .tools
        .iter()
        .map(|tool| &*tool.definition().name)
        .collect();
    assert_eq!(
        names,
        ["c__docs_numbers_sums_0_1_0_sum", "c__sum", "c__plus"]
    );
    let plus = tool(&component, "plus");
    let definition = plus.definition();
    assert_eq!(definition.title.as_deref(), Some("Plus"));
    assert_eq!(definition.description.as_deref(), Some("Adds."));
    assert_eq!(
        definition.input_schema["properties"]["left"]["description"],
        "The first one."
    );
    assert_eq!(definition.annotations.read_only_hint, Some(false));
    assert_eq!(definition.annotations.idempotent_hint, Some(true));
    let problem = problem(&component);
    for part in [
        "sources[0].component (echo): component.tools describes an argument words, which the function does not have: echo(text: string) -> string",
        "sources[0].component.tools.substract: it exports no such function; it exports docs:numbers/sums@0.1.0#sum, ",
    ] {
        assert!(problem.contains(part), "{problem}");
    }
}

#[test]
fn what_is_no_component_is_refused_with_what_to_do() {
    let core = "\0asm\u{1}\0\0\0";
    for (text, part) in [
        (
            core,
            "it is a core module and no component; make one of it with `wasm-tools component new`",
        ),
        ("(module)", "it is a core module and no component"),
        ("", "it cannot be compiled"),
        (
            "\0asm\r\0\u{1}\0 and then nonsense",
            "it cannot be compiled",
        ),
        (
            "(component (import \"wasi:http/types@0.2.0\" (instance (export \"f\" (func)))))",
            "it imports wasi:http/types@0.2.0, which is not offered",
        ),
        (
            "(component (import \"host\" (func)) (import \"acme:secrets/store\" (instance (export \"f\" (func)))))",
            "it imports host, acme:secrets/store, which is not offered",
        ),
        (
            "(component (import \"wasi:cli/environment@0.2.0\" (instance (export \"no-such\" (func)))))",
            "build it for WASI 0.2",
        ),
        ("(component)", "no function of the component became a tool"),
    ] {
        let component = collected(text, json!({}));
        assert!(component.offered.tools.is_empty(), "{text}");
        let problem = problem(&component);
        assert!(problem.contains(part), "{text}: {problem}");
    }
    let missing = of_file(Path::new("/nonexistent.wasm"), json!({}));
    assert!(
        problem(&missing)
            .contains("sources[0].component.path: /nonexistent.wasm: it cannot be read"),
        "{}",
        problem(&missing)
    );
    assert!(problem(&of_file(Path::new("/tmp"), json!({}))).contains("it is not a regular file"));
    assert!(
        problem(&of_file(Path::new(""), json!({})))
            .contains("it does not exist; name the file of the component")
    );
}

#[test]
fn settings_that_cannot_be_are_named() {
    for (settings, part) in [
        (
            json!({"limits": {"memory_bytes": 1000}}),
            "component.limits.memory_bytes: a component needs at least 65536",
        ),
        (
            json!({"limits": {"output_bytes": 0}}),
            "component.limits.output_bytes",
        ),
        (
            json!({"environment": {"A=B": "c"}}),
            "component.environment.A=B: \"A=B\" is not a valid variable name",
        ),
        (
            json!({"directories": [{"path": "/nonexistent"}]}),
            "component.directories[0].path: /nonexistent does not exist",
        ),
        (
            json!({"directories": [{"path": "/tmp"}, {"path": "/usr", "at": "/tmp"}]}),
            "component.directories[1].at: \"/tmp\"",
        ),
    ] {
        let problem = problem(&plain(settings));
        assert!(problem.contains(part), "{problem}");
    }
}

#[test]
fn types_that_double_with_each_step_are_refused_before_they_are_described() {
    let mut text = "(component (type $t0 (tuple u32 u32))".to_owned();
    for step in 1..14 {
        let last = step - 1;
        text.push_str(&format!("(type $t{step} (tuple $t{last} $t{last}))"));
    }
    text.push_str(
        "(core module $m (memory (export \"memory\") 1)
           (func (export \"f\") (param i32)) (func (export \"r\") (param i32 i32 i32 i32) (result i32) unreachable))
         (core instance $m (instantiate $m))
         (func (export \"f\") (param \"x\" $t13)
           (canon lift (core func $m \"f\") (memory (core memory $m \"memory\")) (realloc (core func $m \"r\")))))",
    );
    let problem = problem(&collected(&text, json!({})));
    assert!(
        problem.contains("its argument x is of a type of more than 4000 parts"),
        "{problem}"
    );
}

#[tokio::test]
async fn results_are_texts_values_and_errors() {
    let component = plain(json!({}));
    assert_eq!(
        value(&component, "add", json!({"left": 3, "right": 4})).await,
        7
    );
    let text = "Grüße, \u{1f980}\n\"";
    assert_eq!(value(&component, "echo", json!({"text": text})).await, text);
    assert_eq!(value(&component, "check", json!({"text": "a"})).await, "a");
    assert_eq!(
        failure(&component, "check", json!({"text": ""})).await,
        "nothing"
    );
    assert_eq!(
        value(&component, "is-good", json!({"good": true})).await,
        "done"
    );
    assert!(
        failure(&component, "is-good", json!({"good": false}))
            .await
            .contains("does not say why")
    );
    assert_eq!(value(&component, "nothing", json!({})).await, "done");
    assert_eq!(
        value(&component, "bytes", json!({"data": "AAEC/w=="})).await,
        "AAEC/w=="
    );
    assert_eq!(value(&component, "no-number", json!({})).await, "NaN");
    let no_base64 = failure(
        &component,
        "bytes",
        json!({"data": "it is not Base64 with padding"}),
    )
    .await;
    assert_eq!(no_base64, "data: it is not Base64 with padding");
    let too_large = failure(&component, "add", json!({"left": 256, "right": 0})).await;
    assert_eq!(too_large, "left: it must be a whole number from 0 to 255");
}

#[tokio::test]
async fn each_call_begins_anew() {
    let component = plain(json!({}));
    for _ in 0..3 {
        assert_eq!(value(&component, "count", json!({})).await, 1);
    }
}

#[tokio::test]
async fn what_goes_wrong_inside_ends_one_call_with_a_reason() {
    let component = plain(json!({"limits": {
        "timeout_seconds": 1, "memory_bytes": 4_000_000, "output_bytes": 100_000,
    }}));
    for (name, arguments, part) in [
        (
            "trap",
            json!({}),
            "the component failed: wasm `unreachable` instruction executed",
        ),
        (
            "deep",
            json!({}),
            "the component failed: call stack exhausted",
        ),
        ("spin", json!({}), "longer than 1 s"),
        ("hoard", json!({}), "more than 4000000 bytes of memory"),
        (
            "much-text",
            json!({"bytes": 5_000_000}),
            "more than 4000000 bytes of memory",
        ),
        (
            "much-text",
            json!({"bytes": 100_001}),
            "larger than 100000 bytes",
        ),
        (
            "much-data",
            json!({"bytes": 80_000}),
            "larger than 100000 bytes",
        ),
        (
            "much-data",
            json!({"bytes": 3_000_000}),
            "larger than 100000 bytes",
        ),
        (
            "many-texts",
            json!({"texts": 1000}),
            "larger than 100000 bytes",
        ),
        (
            "echo",
            json!({"text": "x".repeat(5_000_000)}),
            "larger than the component's memory",
        ),
        (
            "bytes",
            json!({"data": "AAAA".repeat(100_000)}),
            "larger than the component's memory",
        ),
    ] {
        let reported = failure(&component, name, arguments).await;
        assert!(
            reported.contains(part) && !reported.contains('/'),
            "{name}: {reported}"
        );
    }
    assert_eq!(
        value(&component, "much-text", json!({"bytes": 9})).await,
        "\0".repeat(9)
    );
    let figures = component.gauges[0].figures().expect("it is there");
    assert_eq!(
        (figures.bulkhead.under_way, figures.bulkhead.refused_tripped),
        (0, 0)
    );
}

#[tokio::test]
async fn a_component_sees_what_it_is_given_and_nothing_else() {
    let bare = touching(json!({}));
    assert_eq!(value(&bare, "variables", json!({})).await, json!([]));
    assert_eq!(
        value(
            &bare,
            "open",
            json!({"path": "/etc/passwd", "write": false})
        )
        .await,
        -2
    );
    assert_eq!(value(&bare, "is-time", json!({})).await, true);
    for kind in ["tcp", "udp"] {
        assert_eq!(value(&bare, kind, json!({})).await, 1, "denied");
    }
    let given = touching(json!({"environment": {"TOKEN": "s3cret"}}));
    assert_eq!(
        value(&given, "variables", json!({})).await,
        json!([["TOKEN", "s3cret"]])
    );
    assert!(!format!("{given:?}").contains("s3cret"));
}

#[cfg(unix)]
#[tokio::test]
async fn a_folder_is_not_left_and_not_written_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let (inside, outside) = (folder.path().join("inside"), folder.path().join("outside"));
    std::fs::create_dir_all(inside.join("sub")).expect("made");
    std::fs::create_dir(&outside).expect("made");
    std::fs::write(inside.join("file"), "a").expect("written");
    std::fs::write(outside.join("secret"), "b").expect("written");
    for (target, link) in [
        (outside.join("secret"), "absolute"),
        ("../outside/secret".into(), "relative"),
        ("../outside".into(), "folder"),
        ("sub/../../outside/secret".into(), "winding"),
        ("file".into(), "within"),
    ] {
        std::os::unix::fs::symlink(target, inside.join(link)).expect("linked");
    }
    let opened = async |settings: &Value, path: &str, write: bool| {
        let component = touching(settings.clone());
        value(&component, "open", json!({"path": path, "write": write})).await
    };
    let read_only = json!({"directories": [{"path": inside, "at": "/data"}]});
    for path in ["file", "sub", "within", "sub/../file"] {
        assert_eq!(opened(&read_only, path, false).await, -1, "{path}");
    }
    for path in [
        "../outside/secret",
        "/etc/passwd",
        "absolute",
        "relative",
        "folder/secret",
        "winding",
        "sub/../../outside/secret",
        "..",
        "sub/../..",
        "/",
        "./../outside/secret",
    ] {
        let code = opened(&read_only, path, false).await;
        assert!(
            code.as_i64().is_some_and(|code| code >= 0),
            "{path}: {code}"
        );
    }
    for path in ["file", "new", "relative"] {
        let code = opened(&read_only, path, true).await;
        assert!(
            code.as_i64().is_some_and(|code| code >= 0),
            "{path}: {code}"
        );
    }
    assert!(!inside.join("new").exists());
    let writable = json!({"directories": [{"path": inside, "at": "/data", "writable": true}]});
    assert_eq!(opened(&writable, "new", true).await, -1);
    assert!(inside.join("new").exists());
    let code = opened(&writable, "../outside/new", true).await;
    assert!(code != -1 && !outside.join("new").exists(), "{code}");
    let hints = |settings| {
        tool(&touching(settings), "open")
            .definition()
            .annotations
            .read_only_hint
    };
    assert_eq!(
        (hints(read_only), hints(writable)),
        (Some(true), Some(false))
    );
}

#[cfg(unix)]
#[tokio::test]
async fn a_named_pipe_is_not_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo runs").success());
    std::os::unix::fs::symlink("pipe", folder.path().join("link")).expect("linked");
    std::fs::write(folder.path().join("file"), "a").expect("written");
    let component = touching(json!({
        "directories": [{"path": folder.path(), "at": "/data", "writable": true}],
        "limits": {"timeout_seconds": 10},
    }));
    let opened = async |path: &str, write: bool| {
        value(&component, "open", json!({"path": path, "write": write})).await
    };
    let touched = async |path: &str| value(&component, "touch", json!({ "path": path })).await;
    /// Number of the error `not-permitted`.
    const NOT_PERMITTED: i64 = 31;
    for path in ["pipe", "link"] {
        for write in [false, true] {
            assert_eq!(opened(path, write).await, NOT_PERMITTED, "{path}");
        }
        assert_eq!(touched(path).await, NOT_PERMITTED, "{path}");
    }
    assert_eq!(opened("file", true).await, -1);
    assert_eq!(touched("file").await, -1);
    assert_eq!(opened("new", true).await, -1);
    assert!(problem(&of_file(&pipe, json!({}))).contains("it is not a regular file"));
}

#[tokio::test]
async fn what_it_writes_is_for_the_log_and_bounded() {
    let component = touching(json!({}));
    let result = tool(&component, "complain")
        .call(
            Arc::new(CallContext::for_test()),
            serde_json::Map::from_iter([("times".to_owned(), json!(10_000))]).into(),
        )
        .await;
    let error = result.expect_err("it traps");
    assert!(!error.message().contains("somebody"), "{}", error.message());
    let cause = error.source().expect("what it wrote").to_string();
    assert!(cause.contains("panicked at /home/somebody"), "{cause}");
    assert!(cause.len() < 3000, "{}", cause.len());
    let left = failure(&component, "leave", json!({})).await;
    assert!(left.contains("ended itself with status 1"), "{left}");
}

/// Waits until `under_way` calls are in progress.
async fn until(component: &BuiltSource, under_way: usize) {
    let reached = async {
        while component.gauges[0].figures().map(|f| f.bulkhead.under_way) != Some(under_way) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reached)
        .await
        .expect("within 20 s");
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_ends_and_leaves_its_place() {
    let component = plain(json!({"limits": {"concurrency": 1, "queue_ms": 1}}));
    {
        let endless = call(&component, "spin", json!({}));
        tokio::pin!(endless);
        tokio::select! {
            ended = &mut endless => panic!("it ends: {ended:?}"),
            () = until(&component, 1) => {}
        }
        let second = failure(&component, "count", json!({})).await;
        assert!(second.contains("too many calls"), "{second}");
    }
    until(&component, 0).await;
    assert_eq!(value(&component, "count", json!({})).await, 1);
}

#[tokio::test]
async fn endless_calls_take_turns_with_others() {
    let component = plain(json!({"limits": {"concurrency": 64}}));
    let endless: Vec<_> = (0..16)
        .map(|_| Box::pin(call(&component, "spin", json!({}))))
        .collect();
    let endless = futures_util::future::select_all(endless);
    let others = async {
        until(&component, 16).await;
        futures_util::future::join_all(
            (0..8).map(|n| value(&component, "add", json!({"left": n, "right": 1}))),
        )
        .await
    };
    tokio::select! {
        _ = endless => panic!("one of them ends"),
        sums = others => assert_eq!(sums, (1..9).map(Value::from).collect::<Vec<_>>()),
    }
}

#[test]
fn what_has_not_changed_is_not_compiled_again() {
    let host = super::host::host().expect("a host");
    let compiled = std::cell::Cell::new(0);
    let load = |key| {
        host.compiled([key; 32], || {
            compiled.set(compiled.get() + 1);
            super::load::compile(host, b"(component)")
        })
        .map(|known| Arc::as_ptr(&known))
    };
    let held = host.compiled([201; 32], || super::load::compile(host, b"(component)"));
    assert_eq!(
        load(201),
        held.as_ref().map(Arc::as_ptr).map_err(Clone::clone)
    );
    assert_eq!(compiled.get(), 0);
    drop(held);
    load(201).expect("compiled");
    assert_eq!(compiled.get(), 1, "nobody had it any longer");
}

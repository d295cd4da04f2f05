//! The parts of a request, and what else could have been used for each.
//!
//! `cargo bench -p longshore-benches --bench parts -- scan` runs those with `scan` in their names.
#![expect(
    clippy::wildcard_imports,
    reason = "one file, one module for each part that is measured"
)]

use bytes::Bytes;
use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use longshore::bench::{self, Seals};
use longshore_benches::words;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use simd_json::prelude::ValueAsScalar as _;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    divan::main();
}

/// Envelope scanners: what finds id, method, name and arguments of a `tools/call`.
mod scan {
    use super::*;

    /// A call of 2025-06-18 and one of 2026-07-28 with a short argument, then calls with long ones.
    const BODIES: [&str; 6] = ["103 B", "283 B", "1 KiB", "16 KiB", "64 KiB", "1 MiB"];

    fn body(name: &str) -> String {
        let meta = r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"longshore-loadtest","version":"0.1.0"},"io.modelcontextprotocol/clientCapabilities":{}}"#;
        let (length, meta) = match name {
            "103 B" => (5, ""),
            "283 B" => (5, meta),
            name => (size(name) - 103, ""),
        };
        let text = words(length);
        format!(
            r#"{{"jsonrpc":"2.0","id":1001,"method":"tools/call","params":{{"name":"echo","arguments":{{"message":"{text}"}}{meta}}}}}"#
        )
    }

    fn run(bencher: Bencher<'_, '_>, name: &str, scan: impl Fn(&[u8]) -> Option<usize> + Sync) {
        let body = body(name);
        assert!(scan(body.as_bytes()).is_some());
        bencher
            .counter(BytesCount::of_str(&body))
            .bench(|| scan(black_box(body.as_bytes())));
    }

    /// Ours: one pass, strict, counts members and levels, no tree.
    #[divan::bench(args = BODIES)]
    fn longshore(bencher: Bencher<'_, '_>, name: &str) {
        run(bencher, name, bench::scan);
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Typed<'a> {
        #[serde(rename = "jsonrpc")]
        _jsonrpc: &'a str,
        #[serde(borrow)]
        id: &'a RawValue,
        method: &'a str,
        #[serde(borrow)]
        params: Params<'a>,
    }

    #[derive(Deserialize)]
    struct Params<'a> {
        name: &'a str,
        #[serde(borrow)]
        arguments: &'a RawValue,
        #[serde(borrow, rename = "_meta")]
        _meta: Option<Meta<'a>>,
    }

    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
        _version: Option<&'a str>,
        #[serde(borrow, rename = "io.modelcontextprotocol/clientCapabilities")]
        _capabilities: Option<&'a RawValue>,
    }

    /// Parses in one pass with serde_json into structs for a method known in advance.
    #[divan::bench(args = BODIES)]
    fn serde_json_typed(bencher: Bencher<'_, '_>, name: &str) {
        run(bencher, name, |body| {
            let typed: Typed<'_> = serde_json::from_slice(body).ok()?;
            let (id, arguments) = (typed.id.get(), typed.params.arguments.get());
            Some(id.len() + typed.method.len() + typed.params.name.len() + arguments.len())
        });
    }

    /// Parameters left raw by serde_json, then read by the method's own type.
    #[divan::bench(args = BODIES)]
    fn serde_json_raw(bencher: Bencher<'_, '_>, name: &str) {
        #[derive(Deserialize)]
        struct Raw<'a> {
            #[serde(borrow)]
            id: &'a RawValue,
            method: &'a str,
            #[serde(borrow)]
            params: &'a RawValue,
        }
        run(bencher, name, |body| {
            let raw: Raw<'_> = serde_json::from_slice(body).ok()?;
            let params: Params<'_> = serde_json::from_str(raw.params.get()).ok()?;
            let (id, arguments) = (raw.id.get(), params.arguments.get());
            Some(id.len() + raw.method.len() + params.name.len() + arguments.len())
        });
    }

    /// A tree of everything.
    #[divan::bench(args = BODIES)]
    fn serde_json_value(bencher: Bencher<'_, '_>, name: &str) {
        run(bencher, name, |body| {
            let value: Value = serde_json::from_slice(body).ok()?;
            let params = &value["params"];
            Some(value["method"].as_str()?.len() + params["name"].as_str()?.len())
        });
    }

    /// simd-json's tape. It works in place, so the body is copied first.
    #[divan::bench(args = BODIES)]
    fn simd_json_tape(bencher: Bencher<'_, '_>, name: &str) {
        let mut buffers = simd_json::Buffers::default();
        let body = body(name);
        bencher.counter(BytesCount::of_str(&body)).bench_local(|| {
            let mut copy = black_box(body.as_bytes()).to_vec();
            let tape = simd_json::to_tape_with_buffers(&mut copy, &mut buffers).ok()?;
            let value = tape.as_value();
            let object = value.as_object()?;
            let params = object.get("params")?;
            let name = params.as_object()?.get("name")?.as_str()?.len();
            Some(object.get("method")?.as_str()?.len() + name)
        });
    }

    /// sonic-rs into structs with lazy values.
    #[divan::bench(args = BODIES)]
    fn sonic_rs_typed(bencher: Bencher<'_, '_>, name: &str) {
        #[derive(Deserialize)]
        struct Typed<'a> {
            #[serde(borrow)]
            id: sonic_rs::LazyValue<'a>,
            method: &'a str,
            #[serde(borrow)]
            params: Params<'a>,
        }
        #[derive(Deserialize)]
        struct Params<'a> {
            name: &'a str,
            #[serde(borrow)]
            arguments: sonic_rs::LazyValue<'a>,
        }
        run(bencher, name, |body| {
            let typed: Typed<'_> = sonic_rs::from_slice(body).ok()?;
            let (id, arguments) = (typed.id.as_raw_str(), typed.params.arguments.as_raw_str());
            Some(id.len() + typed.method.len() + typed.params.name.len() + arguments.len())
        });
    }
}

/// Arguments that have to become a tree, and the size from which on simd-json pays.
mod tree {
    use super::*;

    const SIZES: [&str; 9] = [
        "200 B", "500 B", "1 KiB", "2 KiB", "4 KiB", "8 KiB", "16 KiB", "64 KiB", "1 MiB",
    ];

    /// Records of the kinds that tools are given: names, numbers, flags, some of it nested.
    fn object(name: &str) -> Bytes {
        let mut records = Vec::new();
        let mut length = 0;
        for number in 0.. {
            let record = json!({
                "id": 100_000 + number, "name": format!("record {number}"), "score": f64::from(number) / 7.0,
                "tags": ["one", "two"], "active": number % 3 == 0, "note": null,
            });
            length += record.to_string().len() + 1;
            if size(name) <= length && !records.is_empty() {
                break;
            }
            records.push(record);
        }
        json!({ "records": records }).to_string().into()
    }

    /// Few long strings.
    fn text(name: &str) -> Bytes {
        json!({"path": "notes.txt", "text": words(size(name) - 40)})
            .to_string()
            .into()
    }

    fn run<T>(bencher: Bencher<'_, '_>, object: &Bytes, parse: impl Fn(&[u8]) -> T + Sync) {
        bencher
            .counter(BytesCount::of_slice(object))
            .bench(|| parse(black_box(object)));
    }

    fn by_serde_json(object: &[u8]) -> Map<String, Value> {
        serde_json::from_slice(object).unwrap_or_default()
    }

    #[divan::bench(args = SIZES)]
    fn records_serde_json(bencher: Bencher<'_, '_>, name: &str) {
        run(bencher, &object(name), by_serde_json);
    }

    #[divan::bench(args = SIZES)]
    fn records_simd_json(bencher: Bencher<'_, '_>, name: &str) {
        run(bencher, &object(name), bench::tree_by_simd_json);
    }

    #[divan::bench(args = SIZES)]
    fn text_serde_json(bencher: Bencher<'_, '_>, name: &str) {
        run(bencher, &text(name), by_serde_json);
    }

    #[divan::bench(args = SIZES)]
    fn text_simd_json(bencher: Bencher<'_, '_>, name: &str) {
        run(bencher, &text(name), bench::tree_by_simd_json);
    }

    /// As the server does it, threshold and all.
    #[divan::bench(args = SIZES)]
    fn records_longshore(bencher: Bencher<'_, '_>, name: &str) {
        let object = object(name);
        let arguments = bench::arguments(object.clone());
        run(bencher, &object, |_| arguments.to_map().is_ok());
    }
}

/// A typed argument: one long string.
mod typed {
    use super::*;

    #[derive(Deserialize)]
    struct Echo {
        message: String,
    }

    const SIZES: [&str; 4] = ["100 B", "1 KiB", "16 KiB", "64 KiB"];

    fn object(name: &str) -> Bytes {
        json!({ "message": words(size(name) - 14) })
            .to_string()
            .into()
    }

    #[divan::bench(args = SIZES)]
    fn longshore(bencher: Bencher<'_, '_>, name: &str) {
        let arguments = bench::arguments(object(name));
        bencher.bench(|| {
            black_box(&arguments)
                .parse::<Echo>()
                .map(|echo| echo.message)
        });
    }

    #[divan::bench(args = SIZES)]
    fn serde_json_slice(bencher: Bencher<'_, '_>, name: &str) {
        let object = object(name);
        bencher.bench(|| serde_json::from_slice::<Echo>(black_box(&object)).map(|e| e.message));
    }

    #[divan::bench(args = SIZES)]
    fn simd_json_copied(bencher: Bencher<'_, '_>, name: &str) {
        let object = object(name);
        bencher.bench(|| {
            simd_json::serde::from_slice::<Echo>(&mut black_box(&object).to_vec())
                .map(|echo| echo.message)
        });
    }

    #[divan::bench(args = SIZES)]
    fn sonic_rs(bencher: Bencher<'_, '_>, name: &str) {
        let object = object(name);
        bencher.bench(|| ::sonic_rs::from_slice::<Echo>(black_box(&object)).map(|e| e.message));
    }
}

/// Escaping a text into an answer.
mod escape {
    use super::*;

    const SIZES: [&str; 3] = ["16 B", "1 KiB", "64 KiB"];

    fn run(bencher: Bencher<'_, '_>, text: &str) {
        let mut out = Vec::with_capacity(2 * text.len());
        bencher.counter(BytesCount::of_str(text)).bench_local(|| {
            out.clear();
            bench::escape(&mut out, black_box(text));
            out.len()
        });
    }

    #[divan::bench(args = SIZES)]
    fn plain(bencher: Bencher<'_, '_>, name: &str) {
        run(bencher, &words(size(name)));
    }

    #[divan::bench(args = SIZES)]
    fn lines(bencher: Bencher<'_, '_>, name: &str) {
        run(bencher, &words(size(name)).replace("; ", ";\n"));
    }

    #[divan::bench(args = SIZES)]
    fn plain_serde_json(bencher: Bencher<'_, '_>, name: &str) {
        let text = words(size(name));
        let mut out = Vec::with_capacity(2 * text.len());
        bencher.counter(BytesCount::of_str(&text)).bench_local(|| {
            out.clear();
            serde_json::to_writer(&mut out, black_box(&text)).is_ok()
        });
    }
}

/// Operations on sealed values that all replicas can open.
mod seal {
    use super::*;

    #[divan::bench]
    fn session_made(bencher: Bencher<'_, '_>) {
        let seals = Seals::default();
        bencher.bench(|| seals.seal());
    }

    #[divan::bench]
    fn session_opened(bencher: Bencher<'_, '_>) {
        let seals = Seals::default();
        bencher.bench(|| seals.open());
    }

    #[divan::bench]
    fn session_opened_again(bencher: Bencher<'_, '_>) {
        let mut seals = Seals::default();
        bencher.bench_local(|| seals.open_again());
    }

    #[divan::bench]
    fn cursor_verified(bencher: Bencher<'_, '_>) {
        let seals = Seals::default();
        bencher.bench(|| seals.verify());
    }
}

/// Validates arguments against their schema, by parsing the type that the schema was derived from, or as a tree.
mod check {
    use super::*;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "what is read is what is measured")]
    struct Search {
        query: String,
        limit: u32,
        fields: Vec<String>,
    }

    const OBJECT: &str = r#"{"query":"lighthouse","limit":10,"fields":["name","height"]}"#;

    #[divan::bench]
    fn by_type(bencher: Bencher<'_, '_>) {
        let arguments = bench::arguments(Bytes::from_static(OBJECT.as_bytes()));
        bencher.bench(|| black_box(&arguments).parse::<Search>().is_ok());
    }

    #[divan::bench]
    fn by_tree_and_schema(bencher: Bencher<'_, '_>) {
        let schema = json!({
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "limit": {"type": "integer", "minimum": 0},
                "fields": {"type": "array", "items": {"type": "string"}}
            },
            "required": ["query", "limit", "fields"],
            "additionalProperties": false
        });
        let schema = jsonschema::validator_for(&schema).unwrap_or_else(|e| panic!("{e}"));
        let arguments = bench::arguments(Bytes::from_static(OBJECT.as_bytes()));
        bencher.bench(|| {
            let tree = black_box(&arguments).to_map().map(Value::Object);
            tree.is_ok_and(|tree| schema.is_valid(&tree))
        });
    }
}

/// Digests that identify verified tokens in the cache. They have to be collision-resistant.
mod token_digest {
    use super::*;

    fn run(bencher: Bencher<'_, '_>, place: usize, length: usize) {
        let (_, digest) = bench::token_digests()[place];
        let token = words(length);
        bencher
            .counter(BytesCount::of_str(&token))
            .bench(|| digest(black_box(token.as_bytes())));
    }

    /// An API key, and tokens of Ed25519 and RSA.
    const LENGTHS: [usize; 3] = [50, 350, 1000];

    #[divan::bench(args = LENGTHS)]
    fn sha_256(bencher: Bencher<'_, '_>, length: usize) {
        run(bencher, 0, length);
    }

    #[divan::bench(args = LENGTHS)]
    fn sha_512_256(bencher: Bencher<'_, '_>, length: usize) {
        run(bencher, 1, length);
    }
}

/// Bytes of a size such as `16 KiB`.
fn size(name: &str) -> usize {
    match name.split_once(' ') {
        Some((number, unit)) => {
            let factor = match unit {
                "KiB" => 1 << 10,
                "MiB" => 1 << 20,
                _ => 1,
            };
            number.parse::<usize>().unwrap_or_default() * factor
        }
        None => 0,
    }
}

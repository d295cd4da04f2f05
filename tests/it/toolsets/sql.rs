//! The sql toolset, over HTTP, on a file of SQLite's.

mod postgres;

use std::path::PathBuf;

use longshore::__test::rusqlite;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{call, refusal, serve};
use crate::support::{Running, Stateless, free_port};

const TABLES: &str = "
    CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
    CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL, total REAL);
    INSERT INTO customers VALUES (1, 'Ada'), (2, 'Grace');
    INSERT INTO orders VALUES (1, 1, 9.5), (2, 1, 20), (3, 2, 5);
";

fn file() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("shop.db");
    let connection = rusqlite::Connection::open(&path).expect("a database");
    connection.execute_batch(TABLES).expect("sound");
    (folder, path)
}

fn queries() -> Value {
    json!([{
        "name": "orders_of_customer",
        "description": "What a customer has ordered.",
        "arguments": {
            "customer": {"type": "integer", "description": "Number of a customer"},
            "least": {"type": "number", "default": 0},
        },
        "sql": "SELECT id, total FROM orders WHERE customer = :customer AND total >= :least ORDER BY id",
    }])
}

fn names(server: &Running) -> Vec<String> {
    let listed = Stateless::new("tools/list", json!({}))
        .send(server)
        .result();
    let tools = listed["tools"].as_array().expect("a list").iter();
    let mut names: Vec<_> = tools
        .map(|tool| tool["name"].as_str().expect("a name").to_owned())
        .collect();
    names.sort_unstable();
    names
}

fn rows(server: &Running, tool: &str, arguments: Value) -> Value {
    let result = call(server, tool, arguments);
    assert_ne!(result["isError"], true, "{tool}: {result}");
    let text = result["content"][0]["text"].as_str().expect("a text");
    let same: Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(same, result["structuredContent"]);
    result["structuredContent"]["rows"].clone()
}

fn failure(server: &Running, tool: &str, arguments: Value) -> String {
    let result = call(server, tool, arguments);
    assert_eq!(result["isError"], true, "{result}");
    result["content"][0]["text"]
        .as_str()
        .expect("a text")
        .to_owned()
}

/// Result of a query of the only database that has `read_query`.
fn read(server: &Running, query: &str) -> Value {
    rows(server, "read_query", json!({ "query": query }))
}

fn read_failure(server: &Running, query: &str) -> String {
    failure(server, "read_query", json!({ "query": query }))
}

fn sql(settings: Value) -> Running {
    serve("sql", json!({ "sql": settings }))
}

#[test]
fn a_file_is_asked_what_configuration_and_models_want_to_know() {
    let (_folder, path) = file();
    let server = sql(json!({
        "databases": [{"name": "shop", "sqlite": path, "read_query": true}],
        "queries": queries(),
    }));
    assert_eq!(
        names(&server),
        [
            "describe_table",
            "list_tables",
            "orders_of_customer",
            "read_query"
        ]
    );
    assert_eq!(
        rows(&server, "list_tables", json!({})),
        json!([{"name": "customers", "type": "table"}, {"name": "orders", "type": "table"}])
    );
    let columns = rows(
        &server,
        "describe_table",
        json!({"table_name": "customers"}),
    );
    assert_eq!(
        columns[1],
        json!({"cid": 1, "name": "name", "type": "TEXT", "notnull": 1, "dflt_value": null, "pk": 0})
    );
    let said = failure(&server, "describe_table", json!({"table_name": "nothing"}));
    assert!(said.contains("list_tables"), "{said}");
    assert_eq!(
        rows(
            &server,
            "orders_of_customer",
            json!({"customer": 1, "least": 10})
        ),
        json!([{"id": 2, "total": 20.0}])
    );
    assert_eq!(
        rows(&server, "orders_of_customer", json!({"customer": 2})),
        json!([{"id": 3, "total": 5.0}])
    );
    let wrong = call(
        &server,
        "orders_of_customer",
        json!({"customer": "1 OR 1=1"}),
    );
    assert_eq!(wrong["isError"], true);
    assert_eq!(
        read(&server, "SELECT count(*) AS n FROM orders;"),
        json!([{"n": 3}])
    );
    let said = read_failure(&server, "DELETE FROM orders");
    assert!(
        said.contains("not allowed here") || said.contains("only queries that read"),
        "{said}"
    );
    let said = read_failure(&server, "SELECT 1; SELECT 2");
    assert!(said.contains("several statements"), "{said}");
    let said = read_failure(&server, &format!("SELECT '{}'", "x".repeat(70_000)));
    assert!(said.contains("more than 65536 bytes"), "{said}");
}

#[test]
fn only_what_is_configured_is_offered() {
    let (_folder, path) = file();
    let plain = sql(json!({"databases": [{"name": "shop", "sqlite": path}]}));
    assert_eq!(names(&plain), ["describe_table", "list_tables"]);
    let (_other_folder, other) = file();
    let two = sql(json!({
        "inspection": true,
        "databases": [{"name": "shop", "sqlite": path}, {"name": "old", "sqlite": other, "read_query": true}],
    }));
    assert_eq!(names(&two), ["describe_table", "list_tables", "read_query"]);
    let found = rows(&two, "list_tables", json!({"database": "old"}));
    assert_eq!(found.as_array().map(Vec::len), Some(2));
    let wrong = call(&two, "list_tables", json!({"database": "none"}));
    assert_eq!(wrong["isError"], true);
    // With a single database there is no choice.
    assert_eq!(read(&two, "SELECT 1 AS a"), json!([{"a": 1}]));
    let bare = sql(json!({
        "inspection": false, "databases": [{"name": "shop", "sqlite": path}], "queries": queries(),
    }));
    assert_eq!(names(&bare), ["orders_of_customer"]);
}

#[test]
fn a_query_that_writes_needs_leave_twice() {
    let (_folder, path) = file();
    let query = json!({
        "name": "rename", "write": true,
        "arguments": {"id": {"type": "integer"}, "name": {"max_length": 20}},
        "sql": "UPDATE customers SET name = :name WHERE id = :id",
    });
    let told = refusal(
        "sql",
        json!({"sql": {
            "databases": [{"name": "shop", "sqlite": path}], "queries": [query],
        }}),
    );
    assert!(told.contains("builtin.sql.queries[0].write"), "{told}");
    let server = sql(json!({
        "databases": [{"name": "shop", "sqlite": path, "writable": true, "read_query": true}], "queries": [query],
    }));
    let result = call(
        &server,
        "rename",
        json!({"id": 2, "name": "'; DROP TABLE orders"}),
    );
    assert_eq!(result["structuredContent"], json!({"changed": 1}));
    assert_eq!(
        read(&server, "SELECT name FROM customers WHERE id = 2"),
        json!([{"name": "'; DROP TABLE orders"}])
    );
    read_failure(&server, "UPDATE customers SET name = ''");
}

#[test]
fn mistakes_in_the_configuration_stop_the_start() {
    let (_folder, path) = file();
    let with = |query: Value| json!({"sql": {"databases": [{"name": "shop", "sqlite": path}], "queries": [query]}});
    for (settings, setting, word) in [
        (json!({"sql": {}}), "builtin.sql.databases", "is empty"),
        (
            json!({"sql": {"databases": [{"sqlite": path}]}}),
            "databases[0].name",
            "is empty; name the database",
        ),
        (
            json!({"sql": {"databases": [{"name": "x"}]}}),
            "databases[0]",
            "sqlite or postgres",
        ),
        (
            json!({"sql": {"databases": [{"name": "x", "sqlite": "/nonexistent/x.db"}]}}),
            "databases[0].sqlite",
            "create the database first",
        ),
        (
            json!({"sql": {"databases": [{"name": "x", "postgres": "http://me:hunter2@host/"}]}}),
            "databases[0].postgres",
            "postgres://",
        ),
        (
            json!({"sql": {"databases": [{"name": "x", "sqlite": path}, {"name": "x", "sqlite": path}]}}),
            "databases[1].name",
            "which another database has too; choose another name",
        ),
        (
            with(json!({"name": "q", "sql": "SELECT :a"})),
            "queries[0].sql",
            ":a",
        ),
        (
            with(json!({"name": "q", "sql": "SELECT 1", "arguments": {"a": {}}})),
            "queries[0].arguments",
            "has a",
        ),
        (
            with(json!({"name": "q", "sql": "SELECT nme FROM orders"})),
            "queries[0].sql",
            "no such column",
        ),
        (
            with(json!({"name": "q", "sql": "DELETE FROM orders"})),
            "queries[0].sql",
            "cannot be asked",
        ),
        (
            with(json!({"name": "q", "sql": "SELECT 1; SELECT 2"})),
            "queries[0].sql",
            "several statements",
        ),
        (
            with(json!({"name": "q", "sql": "SELECT 1", "database": "other"})),
            "queries[0].database",
            "shop",
        ),
    ] {
        let told = refusal("sql", settings);
        assert!(told.contains(setting) && told.contains(word), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}

#[test]
fn a_server_that_is_not_there_is_told_without_saying_where_it_is() {
    let url = format!("postgres://me:hunter2@127.0.0.1:{}/shop", free_port());
    let server = sql(json!({"databases": [{"name": "shop", "postgres": url}]}));
    let said = failure(&server, "list_tables", json!({}));
    assert_eq!(said, "the database shop cannot be used at the moment");
}

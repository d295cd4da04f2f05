use std::sync::RwLock;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use super::*;

/// Creates a database with a table of three rows, in its own folder.
fn database(limits: &SqlLimits) -> (TempDir, Arc<Sqlite>) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("shop.db");
    let connection = Connection::open(&path).expect("a database");
    connection
        .execute_batch(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INT NOT NULL, total REAL DEFAULT 0, note TEXT, seal BLOB);
             INSERT INTO orders VALUES (1, 7, 9.5, 'first', x'00ff'), (2, 7, 1e300, NULL, NULL), (3, 8, 3, 'ü', NULL);
             CREATE VIEW large AS SELECT * FROM orders WHERE 5 < total;",
        )
        .expect("sound");
    let sqlite = Sqlite::new("shop", &path, limits, SectionHits::default()).expect("a database");
    (folder, Arc::new(sqlite))
}

fn question(sql: &str, values: Vec<Value>, kind: Kind) -> Question {
    Question {
        statement: Arc::new(Statement::read(sql)),
        values,
        kind,
    }
}

fn rows(answer: StatementResult) -> Value {
    match answer {
        StatementResult::Rows(rows) => {
            let output = rows.output().expect("JSON");
            let text = output.structured.expect("structured");
            serde_json::from_str(&text).expect("JSON")
        }
        StatementResult::Changed(count) => json!({ "changed": count }),
    }
}

/// The memory limit is that of the process, so a query that reaches it runs alone.
static MEMORY: RwLock<()> = RwLock::new(());

fn ask(sqlite: &Sqlite, sql: &str, kind: Kind) -> Result<Value, String> {
    let _shared = MEMORY.read();
    answered(sqlite, sql, kind)
}

fn answered(sqlite: &Sqlite, sql: &str, kind: Kind) -> Result<Value, String> {
    sqlite
        .run_statement(&question(sql, vec![], kind), &Stop::never())
        .map(rows)
        .map_err(|error| error.to_string())
}

fn free(sqlite: &Sqlite, sql: &str) -> Result<Value, String> {
    ask(sqlite, sql, Kind::Free)
}

#[test]
fn rows_are_objects_with_the_columns_in_their_order() {
    let (_folder, sqlite) = database(&SqlLimits::default());
    let found = free(
        &sqlite,
        "SELECT id, total, note, seal FROM orders ORDER BY id",
    );
    let expected = r#"{"rows":[{"id":1,"total":9.5,"note":"first","seal":"AP8="},{"id":2,"total":1e+300,"note":null,"seal":null},{"id":3,"total":3.0,"note":"ü","seal":null}],"truncated":false}"#;
    assert_eq!(found.expect("rows").to_string(), expected);
    let twice = free(&sqlite, "SELECT id, id, id FROM orders WHERE id = 1").expect("rows");
    assert_eq!(twice["rows"], json!([{"id": 1, "id_2": 1, "id_3": 1}]));
    let infinite = free(&sqlite, "SELECT 9e999 AS a, -9e999 AS b").expect("rows");
    assert_eq!(
        infinite["rows"],
        json!([{"a": "Infinity", "b": "-Infinity"}])
    );
}

#[test]
fn values_are_bound_and_never_become_a_part_of_the_text() {
    let (_folder, sqlite) = database(&SqlLimits::default());
    let by_note = |note: Value| {
        let question = question(
            "SELECT id FROM orders WHERE note = :note OR (:note IS NULL AND note IS NULL)",
            vec![note],
            Kind::Fixed,
        );
        rows(
            sqlite
                .run_statement(&question, &Stop::never())
                .expect("rows"),
        )["rows"]
            .clone()
    };
    assert_eq!(by_note(json!("first")), json!([{"id": 1}]));
    assert_eq!(by_note(json!("' OR '1'='1")), json!([]));
    assert_eq!(by_note(Value::Null), json!([{"id": 2}]));

    let kinds = question(
        "SELECT typeof(:a) AS a, typeof(:b) AS b, typeof(:c) AS c, json_extract(:d, '$[1]') AS d",
        vec![json!(1), json!(1.5), json!(true), json!([1, 2])],
        Kind::Fixed,
    );
    let found = rows(sqlite.run_statement(&kinds, &Stop::never()).expect("rows"));
    let expected = json!([{"a": "integer", "b": "real", "c": "integer", "d": 2}]);
    assert_eq!(found["rows"], expected);
}

#[test]
fn the_tables_and_their_columns_can_be_looked_at() {
    let (_folder, sqlite) = database(&SqlLimits::default());
    let tables = ask(&sqlite, TABLES, Kind::Fixed).expect("tables");
    assert_eq!(
        tables["rows"],
        json!([{"name": "large", "type": "view"}, {"name": "orders", "type": "table"}])
    );
    let columns = question(COLUMNS, vec![json!("orders")], Kind::Fixed);
    let found = rows(
        sqlite
            .run_statement(&columns, &Stop::never())
            .expect("columns"),
    );
    assert_eq!(
        found["rows"][1],
        json!({"cid": 1, "name": "customer", "type": "INT", "notnull": 1, "dflt_value": null, "pk": 0})
    );
    assert_eq!(found["rows"][2]["dflt_value"], "0");
    let none = question(
        COLUMNS,
        vec![json!("orders; DROP TABLE orders")],
        Kind::Fixed,
    );
    let StatementResult::Rows(none) = sqlite
        .run_statement(&none, &Stop::never())
        .expect("no columns")
    else {
        panic!("rows");
    };
    assert!(none.is_empty());
}

#[test]
fn generated_columns_are_listed_and_hidden_ones_are_not() {
    let (folder, sqlite) = database(&SqlLimits::default());
    Connection::open(folder.path().join("shop.db"))
        .expect("a database")
        .execute_batch(
            "CREATE TABLE parts (id INTEGER PRIMARY KEY, twice INT AS (2 * id), half REAL AS (id / 2.0) STORED);
             CREATE VIRTUAL TABLE notes USING fts5(text);",
        )
        .expect("sound");
    for (table, expected) in [
        ("parts", &["id", "twice", "half"][..]),
        ("notes", &["text"]),
    ] {
        let columns = question(COLUMNS, vec![json!(table)], Kind::Fixed);
        let found = rows(
            sqlite
                .run_statement(&columns, &Stop::never())
                .expect("columns"),
        );
        let found = found["rows"].as_array().expect("rows").iter();
        let names: Vec<_> = found.map(|column| column["name"].as_str()).collect();
        let expected: Vec<_> = expected.iter().copied().map(Some).collect();
        assert_eq!(names, expected);
    }
}

#[test]
fn nothing_but_reading_is_possible() {
    let (folder, sqlite) = database(&SqlLimits::default());
    let elsewhere = folder.path().join("elsewhere.db");
    let attach = format!("ATTACH '{}' AS other", elsewhere.display());
    let into = format!("VACUUM INTO '{}'", elsewhere.display());
    for sql in [
        "INSERT INTO orders (customer) VALUES (1)",
        "UPDATE orders SET total = 0",
        "DELETE FROM orders",
        "DROP TABLE orders",
        "CREATE TABLE x (y)",
        "CREATE TEMP TABLE x (y)",
        "REPLACE INTO orders (id, customer) VALUES (1, 1)",
        "WITH x AS (SELECT 1) INSERT INTO orders (customer) SELECT * FROM x",
        "INSERT INTO orders (customer) VALUES (1) RETURNING id",
        "BEGIN",
        "COMMIT",
        "SAVEPOINT x",
        "VACUUM",
        "REINDEX",
        "ANALYZE",
        "PRAGMA query_only = 0",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA table_info(orders)",
        "PRAGMA hard_heap_limit = 0",
        "SELECT * FROM pragma_database_list",
        "SELECT * FROM pragma_journal_mode",
        "SELECT load_extension('x')",
        "SELECT LOAD_EXTENSION('x', 'y')",
        "SELECT fts3_tokenizer('simple')",
        "DETACH main",
        "",
        "-- nothing",
        "SELECT 1; SELECT 2",
        "SELECT 1; DROP TABLE orders",
        "SELECT 1;; DELETE FROM orders",
        &attach,
        &into,
    ] {
        // `pragma_table_info` is the only allowed pragma; as a statement it changes nothing either.
        if sql == "PRAGMA table_info(orders)" {
            assert!(free(&sqlite, sql).is_ok());
            continue;
        }
        let error = free(&sqlite, sql).expect_err(sql);
        assert!(!error.is_empty(), "{sql}");
    }
    assert!(!elsewhere.exists());
    free(&sqlite, &";".repeat(60_000)).expect_err("nothing, many times");
    free(&sqlite, &"SELECT 1;".repeat(6_000)).expect_err("many");
    let count = free(
        &sqlite,
        "SELECT count(*) AS n, sum(total) AS s FROM orders WHERE id <> 2",
    );
    assert_eq!(count.expect("rows")["rows"], json!([{"n": 2, "s": 12.5}]));
    let error = free(&sqlite, "SELECT 1; SELECT 2").expect_err("two");
    assert_eq!(error, "there are several statements; send one at a time");
}

#[test]
fn virtual_tables_are_read_and_nothing_else_of_them() {
    let (folder, sqlite) = database(&SqlLimits::default());
    let connection = Connection::open(folder.path().join("shop.db")).expect("a database");
    connection
        .execute_batch(
            "CREATE VIRTUAL TABLE notes USING fts5(note);
             INSERT INTO notes VALUES ('hello world'), ('good night');
             CREATE VIRTUAL TABLE old_notes USING fts4(note);
             INSERT INTO old_notes VALUES ('hello world');
             CREATE VIRTUAL TABLE boxes USING rtree(id, least, most);
             INSERT INTO boxes VALUES (1, 0, 10), (2, 20, 30);",
        )
        .expect("sound");
    for (sql, expected) in [
        (
            "SELECT note FROM notes WHERE notes MATCH 'hello' ORDER BY rank",
            json!([{"note": "hello world"}]),
        ),
        (
            "SELECT highlight(notes, 0, '[', ']') AS n FROM notes('night')",
            json!([{"n": "good [night]"}]),
        ),
        ("SELECT count(*) AS n FROM notes", json!([{"n": 2}])),
        (
            "SELECT note FROM old_notes WHERE note MATCH 'world'",
            json!([{"note": "hello world"}]),
        ),
        ("SELECT id FROM boxes WHERE 15 < most", json!([{"id": 2}])),
    ] {
        let found = free(&sqlite, sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(found["rows"], expected, "{sql}");
    }
    for sql in [
        "PRAGMA data_version = 1",
        "INSERT INTO notes(notes) VALUES ('optimize')",
        "INSERT INTO boxes VALUES (3, 0, 1)",
        "DELETE FROM boxes",
        "DELETE FROM boxes_node",
        "UPDATE boxes_rowid SET nodeno = 1",
        "INSERT INTO boxes_parent VALUES (1, 1)",
    ] {
        free(&sqlite, sql).expect_err(sql);
    }
    let count = free(&sqlite, "SELECT count(*) AS n FROM boxes").expect("rows");
    assert_eq!(count["rows"], json!([{"n": 2}]));
}

#[test]
fn mistakes_are_told_in_the_terms_of_the_question() {
    let (_folder, sqlite) = database(&SqlLimits::default());
    let error = free(&sqlite, "SELECT nme FROM orders").expect_err("no such column");
    assert_eq!(error, "no such column: nme");
    let error = free(&sqlite, "SELEC 1").expect_err("no SQL");
    assert!(error.contains("syntax error"), "{error}");
}

#[test]
fn a_result_has_no_more_rows_and_bytes_than_it_may() {
    let (_folder, sqlite) = database(&SqlLimits {
        rows: 2,
        ..SqlLimits::default()
    });
    let found = free(&sqlite, "SELECT id FROM orders ORDER BY id").expect("rows");
    let expected = json!({"rows": [{"id": 1}, {"id": 2}], "truncated": true});
    assert_eq!(found, expected);

    let (_folder, sqlite) = database(&SqlLimits {
        result_bytes: 100,
        ..SqlLimits::default()
    });
    let found = free(&sqlite, "SELECT 1 AS a UNION ALL SELECT zeroblob(1000)").expect("rows");
    assert_eq!(found, json!({"rows": [{"a": 1}], "truncated": true}));
}

#[test]
fn a_query_without_an_end_is_stopped() {
    let limits = SqlLimits {
        timeout_seconds: 1,
        ..SqlLimits::default()
    };
    let (_folder, sqlite) = database(&limits);
    let endless =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let error = runtime.block_on(async {
        let asked = sqlite.ask(question(endless, vec![], Kind::Free));
        asked.await.expect_err("it has no end")
    });
    assert!(
        error.message().contains("more than 1 s"),
        "{}",
        error.message()
    );
    // The thread is free again; otherwise this would block forever.
    runtime.shutdown_timeout(Duration::from_secs(60));
}

/// Nothing interrupts a function, and these would take hours.
#[test]
fn slow_functions_of_free_queries_get_short_values_only() {
    let (_folder, sqlite) = database(&SqlLimits::default());
    let zeros = |count: u32| format!("hex(zeroblob({count}))");
    let (long, half) = (zeros(4_000_000), zeros(2_000_000));
    for slow in [
        format!("instr({long}, {half} || 1)"),
        format!("replace({long}, {half} || 1, 1)"),
        format!("json_patch({long}, {half})"),
    ] {
        let problem = free(&sqlite, &format!("SELECT {slow}")).expect_err("too long");
        assert!(problem.contains("at most 256 KiB"), "{problem}");
    }
    let short = free(&sqlite, &format!("SELECT INSTR({}, '1') AS a", zeros(1000)));
    assert_eq!(short.expect("rows")["rows"], json!([{"a": 0}]));
    let other = free(&sqlite, &format!("SELECT length({long}) AS a"));
    assert_eq!(other.expect("rows")["rows"], json!([{"a": 8_000_000}]));
}

#[test]
fn patterns_of_free_queries_are_short() {
    let (_folder, sqlite) = database(&SqlLimits::default());
    for word in ["LIKE", "GLOB"] {
        let with = |length: usize| format!("SELECT 'a' {word} '{}' AS x", "a".repeat(length));
        assert!(free(&sqlite, &with(100)).is_ok());
        let problem = free(&sqlite, &with(101)).expect_err("too long");
        assert!(problem.contains("pattern"), "{problem}");
        assert!(ask(&sqlite, &with(1000), Kind::Fixed).is_ok());
    }
}

#[test]
fn a_query_that_wants_too_much_memory_is_refused() {
    let (_folder, sqlite) = database(&SqlLimits::default());
    let error = free(&sqlite, "SELECT length(zeroblob(1000000000))").expect_err("too big");
    assert!(error.contains("too big"), "{error}");
    let hoard = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) \
                 SELECT count(*) FROM (SELECT i, randomblob(1000000) AS b FROM n ORDER BY b)";
    let alone = MEMORY.write();
    let error = answered(&sqlite, hoard, Kind::Free).expect_err("a gigabyte");
    assert!(error.contains("memory"), "{error}");
    drop(alone);
    assert!(free(&sqlite, "SELECT count(*) FROM orders").is_ok());
}

#[test]
fn a_query_that_writes_writes_and_does_no_more() {
    let (_folder, sqlite) = database(&SqlLimits::default());
    let write = |sql: &str| ask(&sqlite, sql, Kind::Write);
    let changed = write("UPDATE orders SET note = 'seen' WHERE customer = 7");
    assert_eq!(changed.expect("written"), json!({"changed": 2}));
    let seen = free(
        &sqlite,
        "SELECT count(*) AS n FROM orders WHERE note = 'seen'",
    );
    assert_eq!(seen.expect("rows")["rows"], json!([{"n": 2}]));
    for sql in [
        "DROP TABLE orders",
        "PRAGMA user_version = 7",
        "ATTACH ':memory:' AS x",
    ] {
        write(sql).expect_err(sql);
    }
}

#[test]
fn a_file_that_is_no_database_is_refused_at_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.db");
    let limits = SqlLimits::default();
    let error = Sqlite::new("x", &path, &limits, SectionHits::default()).expect_err("not there");
    assert!(error.contains("create the database first"), "{error}");
    assert!(!path.exists());
    std::fs::write(&path, "no database, but long enough to look at as one").expect("written");
    let error = Sqlite::new("x", &path, &limits, SectionHits::default()).expect_err("no database");
    assert!(error.contains("not a database"), "{error}");
}

#[test]
fn a_row_of_large_values_is_not_built_before_it_is_left_out() {
    let (folder, sqlite) = database(&SqlLimits::default());
    let shared = MEMORY.read();
    let connection = Connection::open(folder.path().join("shop.db")).expect("a database");
    connection
        .execute(
            "UPDATE orders SET note = hex(zeroblob(2 * 1024 * 1024))",
            (),
        )
        .expect("written");
    // Together the values have 4 GiB.
    let columns = ["note"; 1000].join(", ");
    let sql = format!("SELECT {columns} FROM orders");
    let short = Stop::after(Duration::from_secs(5));
    let answer = sqlite.run_statement(&question(&sql, vec![], Kind::Free), &short);
    let expected = json!({"rows": [], "truncated": true});
    assert_eq!(answer.map(rows).map_err(|e| e.to_string()), Ok(expected));
    drop(shared);
    let sizes = free(
        &sqlite,
        "SELECT length(note) AS n, seal FROM orders WHERE id = 1",
    );
    let expected = json!([{"n": 4 * 1024 * 1024, "seal": "AP8="}]);
    assert_eq!(sizes.expect("rows")["rows"], expected);
}

#[test]
fn a_database_that_has_to_be_repaired_is_named_as_such() {
    let (folder, sqlite) = database(&SqlLimits::default());
    let path = folder.path().join("shop.db");
    let writer = Connection::open(&path).expect("a database");
    writer
        .execute_batch(
            "PRAGMA cache_size = 1; BEGIN;
             WITH RECURSIVE c(x) AS (SELECT 10 UNION ALL SELECT x + 1 FROM c WHERE x < 1000)
             INSERT INTO orders SELECT x, 1, 0, hex(zeroblob(2000)), NULL FROM c;",
        )
        .expect("begun");
    let crashed = folder.path().join("crashed.db");
    for ending in ["", "-journal"] {
        let (from, to) = (
            format!("{}{ending}", path.display()),
            format!("{}{ending}", crashed.display()),
        );
        std::fs::copy(from, to).expect("copied");
    }
    let limits = SqlLimits::default();
    let problem = Sqlite::new("shop", &crashed, &limits, SectionHits::default());
    let problem = problem.expect_err("not readable");
    assert!(problem.contains("has crashed"), "{problem}");
    let running = Sqlite {
        path: crashed,
        name: sqlite.name.clone(),
        limits,
        pool: Blocking::new(1, Duration::from_secs(1)),
    };
    let problem = free(&running, "SELECT count(*) FROM orders").expect_err("not readable");
    assert_eq!(problem, "the database shop cannot be used at the moment");
    drop(writer);
    let refused = free(&sqlite, "DELETE FROM orders").expect_err("not allowed");
    assert!(refused.contains("not allowed here"), "{refused}");
}

#[test]
fn a_parameter_without_a_value_is_an_error() {
    let (_folder, sqlite) = database(&SqlLimits::default());
    for (sql, name) in [
        ("SELECT id FROM orders WHERE id = :id", ":id"),
        ("SELECT ?", "?"),
        ("SELECT ?2", "?"),
        ("SELECT @a", "@a"),
        ("SELECT $a", "$a"),
    ] {
        let problem = free(&sqlite, sql).expect_err(sql);
        let expected = format!("the parameter {name} has no value; write the value in its place");
        assert_eq!(problem, expected, "{sql}");
    }
    assert!(free(&sqlite, "SELECT ':id', '?'").is_ok());
    let check = |sql: &str| sqlite.check(&Statement::read(sql), Kind::Fixed);
    assert_eq!(check("SELECT :id, :id"), Ok(()));
    for sql in ["SELECT :id, ?", "SELECT :größe", "SELECT @id"] {
        assert!(
            check(sql).is_err_and(|problem| problem.contains("has no value")),
            "{sql}"
        );
    }
}

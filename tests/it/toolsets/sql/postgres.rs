//! The sql toolset on a PostgreSQL server, where this machine has one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use longshore::__test::tokio_postgres;
use serde_json::json;
use tempfile::TempDir;

use super::{TABLES, call, failure, read, read_failure, rows, sql};
use crate::support::free_port;

/// A PostgreSQL server of the test's own.
struct Postgres {
    child: Child,
    folder: TempDir,
    programs: PathBuf,
    port: u16,
}

/// A program of the server's, which refuses to run as the superuser.
fn as_user(program: &Path) -> Command {
    let is_root = fs::metadata("/proc/self")
        .is_ok_and(|found| std::os::unix::fs::MetadataExt::uid(&found) == 0);
    if !is_root {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(program);
    command
}

impl Postgres {
    /// None where there is no such program, or it does not run.
    fn start() -> Option<Self> {
        let skipped = |why: &str| {
            crate::toolsets::skipped(&format!("{why}, and no question is put to PostgreSQL"));
            None
        };
        let Some(programs) = programs() else {
            return skipped("there is no PostgreSQL on this machine");
        };
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        // Only the superuser can, and has to.
        let _ = std::os::unix::fs::chown(folder.path(), Some(65534), Some(65534));
        let made = as_user(&programs.join("initdb"))
            .args([
                "--auth=trust",
                "--username=owner",
                "--encoding=UTF8",
                "--no-sync",
                "-D",
            ])
            .arg(&data)
            .current_dir(folder.path())
            .output();
        match made {
            Ok(made) if made.status.success() => {}
            Ok(made) => {
                return skipped(&format!(
                    "initdb: {}",
                    String::from_utf8_lossy(&made.stderr)
                ));
            }
            Err(error) => return skipped(&format!("initdb: {error}")),
        }
        let port = free_port();
        let mut server = Self {
            child: Self::run(&programs, folder.path(), port),
            folder,
            programs,
            port,
        };
        if server.answers() {
            return Some(server);
        }
        skipped("it does not come up")
    }

    fn run(programs: &Path, folder: &Path, port: u16) -> Child {
        as_user(&programs.join("postgres"))
            .arg("-D")
            .arg(folder.join("data"))
            .args([
                "-F",
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                "max_connections=20",
            ])
            .args([
                "-c",
                &format!("port={port}"),
                "-c",
                &format!("unix_socket_directories={}", folder.display()),
            ])
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts")
    }

    /// As a machine does that loses its power.
    fn die(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("gone");
        // Its helpers see that it is gone, and end too; until then its memory is in use.
        let _ = fs::remove_file(self.folder.path().join("data/postmaster.pid"));
    }

    fn live_again(&mut self) -> bool {
        // Memory of the previous server may be in use for a moment.
        (0..20).any(|_| {
            self.child = Self::run(&self.programs, self.folder.path(), self.port);
            self.answers()
        })
    }

    /// Waits until it does, or has ended.
    fn answers(&mut self) -> bool {
        for _ in 0..200 {
            if self.execute("SELECT 1").is_ok() {
                return true;
            }
            if !matches!(self.child.try_wait(), Ok(None)) {
                return false;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        false
    }

    /// Runs SQL as the owner, outside of the server under test.
    fn execute(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        let url = self.url("owner");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
            let connection = tokio::spawn(connection);
            let done = client.batch_execute(sql).await;
            drop(client);
            let _ = connection.await;
            done
        })
    }

    fn url(&self, user: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/postgres", self.port)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let _ = Command::new("kill")
            .args(["-INT", &self.child.id().to_string()])
            .status();
        let _ = self.child.wait();
    }
}

/// Folder of `initdb` and `postgres`.
fn programs() -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    if let Ok(versions) = fs::read_dir("/usr/lib/postgresql") {
        folders.extend(versions.flatten().map(|version| version.path().join("bin")));
    }
    folders
        .into_iter()
        .find(|folder| folder.join("initdb").exists() && folder.join("postgres").exists())
}

#[test]
fn a_postgresql_server_is_asked_and_nothing_is_changed_there() {
    let Some(mut postgres) = Postgres::start() else {
        return;
    };
    postgres
        .execute(&format!(
            "{TABLES}
             CREATE TABLE \"Odd Name\" (tags text[], at timestamptz, doc jsonb, big numeric);
             INSERT INTO \"Odd Name\" VALUES ('{{a,b}}', '2024-01-15 12:00:00+00', '{{\"a\": [1]}}', 12345678901234567890.5);
             CREATE ROLE reader LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader;
             CREATE ROLE writer LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO writer;
             CREATE SEQUENCE s; GRANT ALL ON SEQUENCE s TO writer;
             CREATE FUNCTION sly() RETURNS int LANGUAGE plpgsql AS $$ BEGIN DELETE FROM orders; RETURN 1; END $$;"
        ))
        .expect("prepared");
    let server = sql(json!({
        "databases": [
            {"name": "free", "postgres": postgres.url("writer"), "read_query": true, "writable": true},
            {"name": "owned", "postgres": postgres.url("owner"), "read_query": true},
        ],
        "limits": {"timeout_seconds": 2, "rows": 100, "result_bytes": 10_000},
        "queries": [
            {
                "name": "orders_of_customer", "database": "free",
                "arguments": {"customer": {"type": "integer"}, "least": {"type": "number", "default": 0}},
                "sql": "SELECT id, total FROM orders WHERE customer = :customer AND total >= :least ORDER BY id",
            },
            {
                "name": "some_orders", "database": "free", "arguments": {"ids": {"type": "array", "items": "integer"}},
                "sql": "SELECT id FROM orders WHERE id = ANY(:ids::int[]) ORDER BY id",
            },
            {
                "name": "rename", "database": "free", "write": true,
                "arguments": {"id": {"type": "integer"}, "name": {}},
                "sql": "UPDATE customers SET name = :name WHERE id = :id",
            },
        ],
    }));
    let free = |query: &str| {
        call(
            &server,
            "read_query",
            json!({"database": "free", "query": query}),
        )
    };
    let refused = |database: &str, query: &str| {
        let arguments = json!({"database": database, "query": query});
        failure(&server, "read_query", arguments)
    };
    let found = |query: &str| {
        let result = free(query);
        assert_ne!(result["isError"], true, "{query}: {result}");
        result["structuredContent"]["rows"].clone()
    };
    assert_eq!(
        rows(&server, "list_tables", json!({"database": "free"})),
        json!([
            {"name": "\"Odd Name\"", "type": "table"},
            {"name": "customers", "type": "table"},
            {"name": "orders", "type": "table"},
        ])
    );
    let columns = rows(
        &server,
        "describe_table",
        json!({"database": "free", "table_name": "customers"}),
    );
    assert_eq!(
        columns,
        json!([
            {"cid": 0, "name": "id", "type": "integer", "notnull": true, "dflt_value": null, "pk": true},
            {"cid": 1, "name": "name", "type": "text", "notnull": true, "dflt_value": null, "pk": false},
        ])
    );
    let odd = rows(
        &server,
        "describe_table",
        json!({"database": "free", "table_name": "\"Odd Name\""}),
    );
    assert_eq!(odd.as_array().map(Vec::len), Some(4));
    assert_eq!(
        rows(
            &server,
            "orders_of_customer",
            json!({"customer": 1, "least": 9.75})
        ),
        json!([{"id": 2, "total": 20}])
    );
    assert_eq!(
        rows(&server, "some_orders", json!({"ids": [3, 1, 9]})),
        json!([{"id": 1}, {"id": 3}])
    );
    assert_eq!(
        found("SELECT 1 AS longshore, '{\n\"a\":\r\n1}'::json AS doc"),
        json!([{"longshore": 1, "doc": {"a": 1}}])
    );
    let odd = found("SELECT tags, doc, big::text FROM \"Odd Name\" -- and nothing else");
    assert_eq!(
        odd,
        json!([{"tags": ["a", "b"], "doc": {"a": [1]}, "big": "12345678901234567890.5"}])
    );
    assert_eq!(
        found("WITH x AS (SELECT 1 AS a) SELECT a FROM x;"),
        json!([{"a": 1}])
    );
    assert_eq!(
        found(
            "SELECT o.id, c.id, c.name AS \"a \"\"b\" FROM orders o JOIN customers c ON c.id = o.customer WHERE o.id = 2"
        ),
        json!([{"id": 2, "id_2": 1, "a \"b": "Ada"}])
    );
    let bytes = found("SELECT decode(repeat('00ff', 50), 'hex') AS b, NULL::bytea AS n");
    let base64 = bytes[0]["b"].as_str().expect("text");
    assert!(
        base64.len() == 136 && base64.starts_with("AP8A/wD/"),
        "{base64}"
    );
    assert_eq!(bytes[0]["n"], json!(null));
    let result = call(
        &server,
        "rename",
        json!({"id": 2, "name": "x'; DROP TABLE orders; --"}),
    );
    assert_eq!(
        result["structuredContent"],
        json!({"changed": 1}),
        "{result}"
    );
    assert_eq!(
        found("SELECT name FROM customers WHERE id = 2"),
        json!([{"name": "x'; DROP TABLE orders; --"}])
    );

    for query in [
        "DELETE FROM orders",
        "DELETE FROM orders RETURNING id",
        "WITH x AS (DELETE FROM orders RETURNING id) SELECT * FROM x",
        "SELECT sly()",
        "SELECT 1; DELETE FROM orders",
        "SELECT 1; COMMIT; DELETE FROM orders",
        "COMMIT",
        "ROLLBACK",
        "BEGIN",
        "SET ROLE owner",
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
        "SELECT 1) q; DELETE FROM orders; SELECT (1",
        "SELECT 1) AS longshore; COMMIT; DELETE FROM orders; --",
        "SELECT set_config('transaction_read_only', 'off', true)",
        "CREATE TABLE x (y int)",
        "SELECT 1 INTO x",
        "COPY orders TO '/tmp/x'",
        "COPY (SELECT 1) TO PROGRAM 'true'",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT nextval('s')",
        "SELECT setval('s', 100)",
        "SELECT 1 FROM orders FOR UPDATE",
        "SELECT query_to_xml('DELETE FROM orders RETURNING id', true, true, '')",
        "SELECT set_config('role', 'owner', false)",
        "SELECT lo_import('/etc/passwd')",
        "SELECT pg_terminate_backend(pg_backend_pid())",
        "COPY orders TO STDOUT",
        "PREPARE x AS DELETE FROM orders",
        "DECLARE x CURSOR FOR SELECT 1",
        "EXPLAIN ANALYZE DELETE FROM orders",
        "LOCK orders",
        "DO $$ BEGIN DELETE FROM orders; END $$",
        "CALL x()",
        "VACUUM",
        "SELECT 1; SELECT 2",
        "SELECT nothing",
        "",
    ] {
        let result = free(query);
        assert_eq!(result["isError"], true, "{query}: {result}");
    }
    // Session state from one query does not reach the next one.
    found(
        "SELECT set_config('default_transaction_read_only', 'off', false), set_config('statement_timeout', '0', false)",
    );
    found("SELECT set_config('search_path', 'pg_catalog', false)");
    assert_eq!(found("SELECT count(*) AS n FROM orders"), json!([{"n": 3}]));

    let said = refused("free", "SELECT pg_sleep(60)");
    assert!(said.contains("more than 2 s"), "{said}");
    let endless = "SELECT count(*) FROM generate_series(1, 1000000000000)";
    let said = refused("free", endless);
    assert!(said.contains("more than 2 s"), "{said}");
    let result = free("SELECT n FROM generate_series(1, 1000) AS n");
    assert_eq!(result["structuredContent"]["truncated"], true, "{result}");
    assert_eq!(
        result["structuredContent"]["rows"].as_array().map(Vec::len),
        Some(100)
    );
    let result = free("SELECT repeat('x', 10000000) AS x");
    assert_eq!(
        result["structuredContent"],
        json!({"rows": [], "truncated": true}),
        "{result}"
    );

    let said = refused("owned", "SELECT 1");
    assert!(said.contains("superuser"), "{said}");

    // A connection that was lost is made again.
    postgres
        .execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'longshore'")
        .expect("done");
    let alive = (0..20).any(|_| free("SELECT 1 AS a")["isError"] != true);
    assert!(alive, "it comes back");

    // So it is when the whole server was gone meanwhile.
    postgres.die();
    let said = refused("free", "SELECT 1");
    assert!(!said.contains(&postgres.port.to_string()), "{said}");
    assert!(postgres.live_again(), "the server starts again");
    let alive = (0..20).any(|_| free("SELECT 1 AS a")["isError"] != true);
    assert!(alive, "it comes back");
    assert_eq!(found("SELECT count(*) AS n FROM orders"), json!([{"n": 3}]));
}

#[test]
fn a_postgresql_server_is_asked_about_types_and_tables_of_all_kinds() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    postgres
        .execute(
            "CREATE TYPE mood AS ENUM ('glad'); CREATE TABLE felt (m mood); INSERT INTO felt VALUES ('glad');
             CREATE TYPE shade AS ENUM ('red'); CREATE TABLE seen (s shade[]); INSERT INTO seen VALUES ('{red}');
             CREATE DOMAIN numbers AS int[];
             CREATE TABLE keyed (a int, b int, PRIMARY KEY (a) INCLUDE (b));
             CREATE ROLE reader LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader;
             CREATE TABLE partly (id int, secret text); GRANT SELECT (id) ON partly TO reader;
             CREATE TABLE hidden (id int);
             CREATE SCHEMA closed; CREATE TABLE closed.t (a int); GRANT SELECT ON closed.t TO reader;",
        )
        .expect("prepared");
    let server = sql(json!({
        "databases": [{"name": "main", "postgres": postgres.url("reader"), "read_query": true}],
        "limits": {"timeout_seconds": 3, "result_bytes": 10_000},
        "queries": [{
            "name": "numbers", "arguments": {"n": {"type": "array", "items": "integer"}},
            "sql": "SELECT :n::numbers AS n",
        }],
    }));
    let found = |query: &str| read(&server, query);
    // The library looks up each of these types on the connection that the previous query has used.
    assert_eq!(found("SELECT m FROM felt"), json!([{"m": "glad"}]));
    assert_eq!(found("SELECT s FROM seen"), json!([{"s": ["red"]}]));
    assert_eq!(
        rows(&server, "numbers", json!({"n": [1, 2]})),
        json!([{"n": [1, 2]}])
    );
    assert_eq!(
        found(r#"SELECT '"\ud800"'::json AS half"#),
        json!([{"half": "\u{fffd}"}])
    );
    let tables = rows(&server, "list_tables", json!({}));
    let names = tables.as_array().expect("rows").iter();
    let names: Vec<_> = names.map(|table| table["name"].as_str()).collect();
    assert_eq!(names, ["felt", "keyed", "partly", "seen"].map(Some));
    let columns = rows(&server, "describe_table", json!({"table_name": "keyed"}));
    assert_eq!(
        (&columns[0]["pk"], &columns[1]["pk"]),
        (&json!(true), &json!(false))
    );
    // Of a result that is cut, the rest is not waited for.
    let slow = "SELECT repeat('x', 20000), pg_sleep(CASE WHEN n < 4 THEN 0 ELSE 1 END) FROM generate_series(1, 100) AS n";
    let result = call(&server, "read_query", json!({"query": slow}));
    assert_eq!(
        result["structuredContent"],
        json!({"rows": [], "truncated": true}),
        "{result}"
    );
    let said = read_failure(&server, "SELECT $1");
    assert!(said.contains("has no value"), "{said}");
}

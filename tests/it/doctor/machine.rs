//! What `longshore doctor` says of the machine that it runs on, and of the settings there.

use std::net::TcpListener;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::{doctor, nobody};
use crate::support::{Site, Told};

#[test]
fn this_machine_and_its_settings_are_examined() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let away = nobody();
    let collector = format!("http://{away}");
    let redis = format!("redis://:a-password@{away}");
    let said = doctor(
        &["--port", &port],
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector),
            ("LONGSHORE_STATE__URL", &redis),
            ("LONGSHORE_UPSTREAMS__X__COMMAND", "no-such-program"),
        ],
    );
    assert_eq!(said.code, Some(1), "{:#}", said.json);
    said.assert(
        "machine",
        "port",
        "failure",
        &["http.port", "LONGSHORE_PORT"],
    );
    said.assert(
        "programs",
        "upstreams.x",
        "failure",
        &["no-such-program", "image.variant"],
    );
    said.assert(
        "collector",
        "traces",
        "failure",
        &["telemetry.endpoint", "OTEL_TRACES_EXPORTER=none"],
    );
    said.assert("collector", "logs", "failure", &[]);
    said.assert("state", "store", "failure", &["state.url"]);
    assert!(!said.json.to_string().contains("a-password"));
    for check in ["open files", "CPU", "memory", "clock", "callers"] {
        assert!(said.find("machine", check).is_some(), "{check}");
    }
}

#[test]
fn settings_with_which_the_server_does_not_start_are_failures() {
    let missing = "/nowhere/keys";
    for (variable, value) in [
        ("LONGSHORE_AUTH__API_KEYS_FILE", missing),
        ("LONGSHORE_AUTH__API_KEYS_DIR", missing),
        // The audience of its tokens is unknown.
        ("LONGSHORE_AUTH__OAUTH__ISSUER", "http://127.0.0.1:1"),
    ] {
        let said = doctor(&["--port", "0"], &[(variable, value)]);
        assert_eq!(said.code, Some(1), "{variable}");
        said.assert("configuration", "server", "failure", &[]);
    }
    let said = doctor(&["--port", "0"], &[("LONGSHORE_LOG__LEVEL", "loud")]);
    said.assert("configuration", "settings", "failure", &["log.level"]);
}

#[test]
fn files_and_folders_of_the_server_are_not_created() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let said = doctor(
        &["--port", "0"],
        &[
            ("LONGSHORE_AUDIT__FILE", &path("audit.log")),
            ("LONGSHORE_ARTIFACTS__ABOVE_BYTES", "1000"),
            ("LONGSHORE_ARTIFACTS__FOLDER", &path("artifacts")),
            ("LONGSHORE_TOKENS__FOLDER", &path("tokens")),
            ("LONGSHORE_UPSTREAMS_FOLDER", &path("upstreams")),
        ],
    );
    assert_eq!(said.code, Some(0), "{:#}", said.json);
    let left = std::fs::read_dir(folder.path()).expect("a folder");
    assert_eq!(left.count(), 0);
}

#[test]
fn introspection_is_tried_with_the_configured_client() {
    let issuer = Site::start(|_, asked| {
        let expected = format!("Basic {}", STANDARD.encode("longshore:s3cret-of-it"));
        match asked.headers.get("authorization") == Some(&expected) {
            true => Told::json(200, json!({"active": false})),
            false => Told::json(401, json!({"error": "invalid_client"})),
        }
    });
    let url = format!("{}/introspect", issuer.url);
    for (secret, status, part) in [
        ("s3cret-of-it", "ok", "rejects a made-up token"),
        (
            "another-s3cret",
            "failure",
            "auth.oauth.introspection.client_id",
        ),
    ] {
        let said = doctor(
            &["--port", "0"],
            &[
                ("LONGSHORE_AUTH__OAUTH__ISSUER", &issuer.url),
                (
                    "LONGSHORE_AUTH__OAUTH__AUDIENCE",
                    "https://mcp.example.com/mcp",
                ),
                ("LONGSHORE_AUTH__OAUTH__INTROSPECTION__URL", &url),
                (
                    "LONGSHORE_AUTH__OAUTH__INTROSPECTION__CLIENT_ID",
                    "longshore",
                ),
                (
                    "LONGSHORE_AUTH__OAUTH__INTROSPECTION__CLIENT_SECRET",
                    secret,
                ),
            ],
        );
        said.assert("introspection", &url, status, &[part]);
        assert!(!said.json.to_string().contains(secret));
    }
}

#[test]
fn a_machine_where_all_is_well_needs_no_more_than_warnings() {
    let said = doctor(&["--port", "0"], &[]);
    assert_eq!(said.code, Some(0), "{:#}", said.json);
    said.assert("machine", "port", "ok", &[]);
    said.assert("documentation", "tools", "ok", &["all"]);
    said.assert("documentation", "listing", "ok", &["tokens"]);
    let wrong = doctor(&[], &[("LONGSHORE_PROT", "1")]);
    assert_eq!(wrong.code, Some(1));
    wrong.assert("configuration", "settings", "failure", &["LONGSHORE_PORT"]);
}

#[cfg(feature = "redis")]
#[test]
fn a_store_that_throws_things_away_is_told() {
    let Some(redis) = crate::support::RedisServer::start() else {
        return;
    };
    let url = redis.url();
    let examined = || {
        doctor(
            &[],
            &[
                ("LONGSHORE_STATE__URL", &url),
                ("LONGSHORE_HTTP__PORT", "0"),
            ],
        )
    };
    let said = examined();
    said.assert("state", "store", "ok", &["written, read and removed"]);
    said.assert("state", "server", "ok", &["version ", "noeviction"]);
    redis.say(&["CONFIG", "SET", "maxmemory", "100mb"]);
    redis.say(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    examined().assert(
        "state",
        "server",
        "warning",
        &["volatile-lru", "maxmemory-policy noeviction"],
    );
    redis.say(&["ACL", "SETUSER", "default", "-info"]);
    examined().assert("state", "server", "skipped", &["INFO"]);
}

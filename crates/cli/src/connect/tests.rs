use std::fs;
use std::path::Path;

use clap::{Parser, ValueEnum as _};
use serde_json::{Value, json};

use super::clients::{Client, ServerAccess, Syntax};
use super::edit::Edit;
use super::{ConnectArgs, connect};
use crate::environment::Probe;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    connect: ConnectArgs,
}

fn run(home: &Path, line: &[&str]) -> Result<String, String> {
    let line =
        Line::try_parse_from([&["connect"], line].concat()).map_err(|error| error.to_string())?;
    let probe = Probe::of([("HOME", home.to_str().unwrap())]);
    connect(&line.connect, &probe).map_err(|error| error.to_string())
}

fn added(entry: &Value) -> Edit<'_> {
    Edit {
        table: "mcpServers",
        name: "longshore",
        entry: Some(entry),
    }
}

#[test]
fn comments_and_order_of_a_file_are_kept() {
    let before = "{\n  // My servers.\n  \"zeta\": 1,\n  \"mcpServers\": {\n    \"other\": { \"url\": \"x\" }, // kept\n  },\n}\n";
    let entry = json!({ "url": "http://127.0.0.1:3000/mcp" });
    let changed = added(&entry).apply(Syntax::Json, before).unwrap().unwrap();
    assert!(
        changed.contains("// My servers.") && changed.contains("// kept"),
        "{changed}"
    );
    assert!(
        changed.find("zeta") < changed.find("mcpServers"),
        "{changed}"
    );
    assert!(
        added(&entry)
            .apply(Syntax::Json, &changed)
            .unwrap()
            .is_none()
    );
    let gone = Edit {
        entry: None,
        ..added(&entry)
    };
    let removed = gone.apply(Syntax::Json, &changed).unwrap().unwrap();
    assert!(
        removed.contains("other") && !removed.contains("longshore"),
        "{removed}"
    );
}

#[test]
fn a_toml_file_keeps_all_other_tables() {
    let before = "model = \"o\" # mine\n\n[mcp_servers.longshore]\nurl = \"old\"\n\n[mcp_servers.longshore.env]\nA = \"1\"\n\n[mcp_servers.other]\nargs = [\n  \"a\",\n]\n";
    let entry = json!({ "url": "new" });
    let edit = Edit {
        table: "mcp_servers",
        name: "longshore",
        entry: Some(&entry),
    };
    let changed = edit.apply(Syntax::Toml, before).unwrap().unwrap();
    assert_eq!(
        changed,
        "model = \"o\" # mine\n\n[mcp_servers.other]\nargs = [\n  \"a\",\n]\n\n[mcp_servers.longshore]\nurl = \"new\"\n"
    );
    let inline = "mcp_servers = { longshore = { url = \"old\" } }\n";
    let refused = edit.apply(Syntax::Toml, inline).unwrap_err();
    assert!(!refused.is_empty());
}

#[test]
fn a_byte_order_mark_is_kept() {
    let entry = json!({ "url": "new" });
    let json = added(&entry)
        .apply(Syntax::Json, "\u{feff}{\"a\": 1}\r\n")
        .unwrap();
    let json = json.unwrap();
    assert!(
        json.starts_with("\u{feff}{") && json.contains("new"),
        "{json}"
    );
    assert!(added(&entry).apply(Syntax::Json, &json).unwrap().is_none());
    let toml = added(&entry)
        .apply(Syntax::Toml, "\u{feff}model = \"o\"\n")
        .unwrap();
    assert!(toml.unwrap().starts_with("\u{feff}model"));
}

#[test]
fn an_entry_that_cannot_be_edited_is_said_to_be_one() {
    let entry = json!({ "url": "http://127.0.0.1:3000/mcp" });
    let edit = Edit {
        table: "mcp_servers",
        ..added(&entry)
    };
    for text in [
        "[mcp_servers]\nlongshore = { url = \"x\" }\n",
        "a = \"\"\"\n[mcp_servers.longshore]\n\"\"\"\n",
    ] {
        let refused = edit.apply(Syntax::Toml, text).unwrap_err();
        assert!(refused.contains("by hand"), "{refused}");
    }
}

#[test]
fn a_file_that_cannot_be_read_stays_as_it_is() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(".claude.json");
    for broken in [
        "{ \"mcpServers\": ",
        "[1]",
        "{ \"mcpServers\": 3 }",
        "{ 'a': 1 }",
    ] {
        fs::write(&path, broken).unwrap();
        let refused = run(home.path(), &["claude-code"]).unwrap_err();
        assert!(refused.contains("was not changed"), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), broken);
        assert_eq!(
            fs::read_dir(home.path()).unwrap().count(),
            1,
            "no file is left beside it"
        );
    }
    fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(run(home.path(), &["claude-code"]).is_err());
}

#[test]
fn each_client_gets_its_own_file_and_form() {
    let home = tempfile::tempdir().unwrap();
    for client in Client::value_variants() {
        if *client == Client::Inspector {
            continue;
        }
        let name = client.to_possible_value().unwrap();
        let first = run(
            home.path(),
            &[name.get_name(), "https://mcp.example.com/mcp"],
        )
        .unwrap();
        assert!(
            first.contains("has the server \"longshore\" now"),
            "{first}"
        );
        let again = run(
            home.path(),
            &[name.get_name(), "https://mcp.example.com/mcp"],
        )
        .unwrap();
        assert!(again.contains("already"), "{again}");
        let removed = run(home.path(), &[name.get_name(), "--remove"]).unwrap();
        assert!(
            removed.contains("was removed") && removed.contains(".before-longshore"),
            "{removed}"
        );
        assert!(!removed.contains("Turn the server on"), "{removed}");
        let nothing = run(home.path(), &[name.get_name(), "--remove"]).unwrap();
        assert!(nothing.contains("has no server"), "{nothing}");
    }
}

#[test]
fn a_token_is_named_and_never_written() {
    let reach = ServerAccess::Url {
        url: "https://h/mcp".to_owned(),
        token_variable: Some("SHOP_KEY".to_owned()),
    };
    let entries: Vec<String> = Client::value_variants()
        .iter()
        .filter_map(|client| client.entry(&reach).ok())
        .map(|entry| entry.to_string())
        .collect();
    assert_eq!(entries.len(), 7);
    assert!(
        entries.iter().all(|entry| entry.contains("SHOP_KEY")),
        "{entries:?}"
    );
    let home = tempfile::tempdir().unwrap();
    let refused = run(home.path(), &["cursor", "--token-variable", "s3cret-token"]).unwrap_err();
    assert!(!refused.contains("s3cret"), "{refused}");
    let refused = run(home.path(), &["cursor", "https://me:s3cret@h/mcp"]).unwrap_err();
    assert!(!refused.contains("s3cret"), "{refused}");
    let refused = run(home.path(), &["zed", "--token-variable", "KEY"]).unwrap_err();
    assert!(refused.contains("Zed"), "{refused}");
}

#[test]
fn wrong_addresses_and_names_are_refused() {
    let home = tempfile::tempdir().unwrap();
    for line in [
        &["cursor", "mcp.example.com"][..],
        &["cursor", "ftp://h/mcp"],
        &["cursor", "--name", "a b"],
        &["cursor", "--name", ""],
        &["windsurf", "--project"],
        &["cursor", "--stdio", "--config", "/missing.yaml"],
        &["inspector", "--remove"],
    ] {
        assert!(run(home.path(), line).is_err(), "{line:?}");
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

#[cfg(unix)]
#[test]
fn links_and_permissions_of_a_file_stay() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let home = tempfile::tempdir().unwrap();
    let real = home.path().join("dotfiles.json");
    fs::write(&real, "{}").unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    let link = home.path().join(".claude.json");
    symlink(&real, &link).unwrap();
    run(home.path(), &["claude-code"]).unwrap();
    assert!(
        fs::symlink_metadata(&link)
            .unwrap()
            .file_type()
            .is_symlink()
    );
    assert_eq!(
        fs::metadata(&real).unwrap().permissions().mode() & 0o777,
        0o640
    );
    assert!(
        fs::read_to_string(&real)
            .unwrap()
            .contains("127.0.0.1:3000")
    );
}

#[cfg(unix)]
#[test]
fn a_link_whose_file_does_not_exist_yet_stays_a_link() {
    use std::os::unix::fs::symlink;
    let home = tempfile::tempdir().unwrap();
    let link = home.path().join(".claude.json");
    symlink("dotfiles/one.json", &link).unwrap();
    run(home.path(), &["claude-code"]).unwrap();
    assert_eq!(
        fs::read_link(&link).unwrap(),
        Path::new("dotfiles/one.json")
    );
    let real = home.path().join("dotfiles/one.json");
    assert!(fs::read_to_string(real).unwrap().contains("127.0.0.1:3000"));
}

#[cfg(unix)]
#[test]
fn a_pipe_is_not_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let line = ["claude-code", "--file", path.to_str().unwrap()];
    let refused = run(home.path(), &line).unwrap_err();
    assert!(refused.contains("not a regular file"), "{refused}");
}

#[test]
fn the_printed_entry_can_be_pasted() {
    let home = tempfile::tempdir().unwrap();
    let text = run(
        home.path(),
        &["vscode", "--print", "--token-variable", "KEY"],
    )
    .unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        value,
        json!({ "servers": { "longshore": {
            "type": "http", "url": "http://127.0.0.1:3000/mcp", "headers": { "Authorization": "Bearer ${env:KEY}" },
        } } })
    );
    let text = run(
        home.path(),
        &["codex", "--print", "--token-variable", "KEY"],
    )
    .unwrap();
    assert!(
        text.starts_with("[mcp_servers.longshore]\n")
            && text.contains("bearer_token_env_var = \"KEY\""),
        "{text}"
    );
    let quoted = run(home.path(), &["inspector", "http://h/mcp?a=b;id"]).unwrap();
    assert!(
        quoted.ends_with("--server-url 'http://h/mcp?a=b;id'"),
        "{quoted}"
    );
    let text = run(home.path(), &["inspector"]).unwrap();
    assert!(
        text.starts_with("npx @modelcontextprotocol/inspector"),
        "{text}"
    );
}

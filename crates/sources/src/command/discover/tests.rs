use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::auth::Principal;

/// Writes a program that prints a help text for each of its subcommands.
fn program(folder: &Path, script: &str) -> Discovery {
    let path = folder.join("boats");
    std::fs::write(&path, format!("#!/bin/sh\n{script}")).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("set");
    Discovery {
        program: path.display().to_string(),
        words: Vec::new(),
        depth: 2,
        timeout_seconds: 5,
        inherit: Vec::new(),
    }
}

const BOATS: &str = r#"
case "$*" in
  "--help") printf 'Boats.\n\nUsage: boats <COMMAND>\n\nCommands:\n  send  Sends one\n  crew  The crew\n  odd   Does not help\n  sad   Fails\n' ;;
  "sad --help") echo "fatal: no boat here" >&2; exit 128 ;;
  "send --help") printf 'Usage: boats send [OPTIONS] <TO> [IF]\n\nOptions:\n  -n, --count <N>  How ${many}\n  -q, --quiet  Says nothing\n  -s SAIL  Which\n      --in <WHAT>  Reserved\n' ;;
  "crew --help") printf 'Usage: boats crew <COMMAND>\n\nCommands:\n  list  Lists it\n' ;;
  "crew list --help") printf 'usage: boats crew list\n' >&2; exit 2 ;;
  *) echo "called with: $*" ;;
esac
"#;

#[tokio::test]
async fn what_a_program_says_of_itself_becomes_a_configuration_that_can_be_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let discovery = program(folder.path(), BOATS);
    let discovered = discover(&discovery).await.expect("discovered");
    let text = &discovered.configuration;
    let config: Value = serde_saphyr::from_str(text).expect("YAML");
    let tools = &config["sources"][0]["command"]["tools"];
    let names: Vec<&str> = tools
        .as_array()
        .expect("tools")
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(
        names,
        ["boats_send", "boats_crew_list", "boats_odd"],
        "{text}"
    );
    assert_eq!(tools[0]["description"], "Sends one");
    assert_eq!(
        tools[0]["arguments"],
        json!({
            "count": {"type": "integer", "description": "How $${many}", "optional": true},
            "quiet": {"type": "boolean", "description": "Says nothing", "optional": true},
            "s": {"description": "Which", "optional": true},
            "in_": {"description": "Reserved", "optional": true},
            "to": {"description": "TO"},
            "if_": {"description": "IF", "optional": true},
        })
    );
    // The configuration works: a source can be built from it.
    let source = config["sources"][0]["command"].clone();
    let source: CommandSourceConfig = serde_json::from_value(source).expect("a source");
    let tool = tool_of(&source, &source.tools[0], "", &SourceParts::default()).expect("a tool");
    let Value::Object(arguments) = json!({"count": 3, "quiet": true, "s": "jib", "to": "sea"})
    else {
        unreachable!("an object");
    };
    let values = crate::source::template::context(&arguments, &Principal::new("ann"));
    assert_eq!(
        tool.plan.line.fill(&values),
        Ok(vec![
            "send".to_owned(),
            "--count=3".to_owned(),
            "--quiet".to_owned(),
            "-s".to_owned(),
            "jib".to_owned(),
            "sea".to_owned(),
        ])
    );
}

#[tokio::test]
async fn a_program_that_reserves_much_memory_gets_no_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = r#"
if [ "$(ulimit -v)" != unlimited ]; then
  echo "fatal error: failed to reserve page summary memory" >&2
  exit 2
fi
echo "Usage: boats [FILE]"
"#;
    let discovered = discover(&program(folder.path(), script)).await;
    let discovered = discovered.expect("discovered");
    let config: Value = serde_saphyr::from_str(&discovered.configuration).expect("YAML");
    let command = &config["sources"][0]["command"];
    assert_eq!(command["limits"], json!({"memory_bytes": 0}));
    assert_eq!(command["tools"][0]["name"], "boats");
    assert_eq!(discovered.unclear.len(), 1);
    let modest = program(folder.path(), "echo 'Usage: boats [FILE]'");
    let discovered = discover(&modest).await.expect("discovered");
    assert!(!discovered.configuration.contains("limits"));
    assert!(discovered.unclear.is_empty(), "{:?}", discovered.unclear);
}

#[tokio::test]
async fn it_goes_as_deep_as_it_is_told_and_says_what_it_leaves_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut discovery = program(folder.path(), BOATS);
    discovery.depth = 1;
    let discovered = discover(&discovery).await.expect("discovered");
    assert_eq!(
        discovered.left_out,
        [
            "boats crew: it has subcommands; ask deeper with --depth",
            "boats sad: it fails when it is asked for help",
        ]
    );
    discovery.words = vec!["crew".to_owned()];
    let discovered = discover(&discovery).await.expect("discovered");
    assert_eq!(discovered.tools, 1);
}

#[tokio::test]
async fn a_program_that_hangs_or_writes_without_end_or_is_not_there_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut hanging = program(folder.path(), "exec sleep 1000");
    hanging.timeout_seconds = 1;
    let problem = discover(&hanging).await.expect_err("it hangs").to_string();
    assert!(problem.contains("longer than 1 s"), "{problem}");
    let endless = program(folder.path(), "exec yes");
    let problem = discover(&endless).await.expect_err("endless").to_string();
    assert!(problem.contains("more than"), "{problem}");
    let silent = program(folder.path(), "exit 0");
    let problem = discover(&silent).await.expect_err("silent").to_string();
    assert!(problem.contains("describes nothing"), "{problem}");
    let missing = Discovery {
        program: "no-such-command-anywhere".to_owned(),
        ..silent
    };
    let problem = discover(&missing).await.expect_err("missing").to_string();
    assert!(problem.contains("not installed"), "{problem}");
}

/// A program whose subcommands open a manual when run with `--help`.
const MANUAL: &str = r#"
case "$*" in
  "--help") printf 'usage: boats <command>\n\nCommands:\n  clone  Clones one\n  page  Has no other help\n  none  Has no manual\n' ;;
  "clone --help") printf 'BOATS-CLONE(1)      Manual      BOATS-CLONE(1)\n\nNAME\n       boats-clone - Clones a boat\n\nSYNOPSIS\n       boats clone X\n' ;;
  "clone -h") printf 'usage: boats clone [<options>] [--] <boat> [<harbour>]\n   or: boats clone --all\n\n    --[no-]sail   under sail\n    -n, --[no-]number <n>  how many\n    --= what\n' >&2; exit 129 ;;
  "page --help") printf 'BOATS-PAGE(1)      Manual      BOATS-PAGE(1)\n\nNAME\n       boats-page - Shows a boat\n\nSYNOPSIS\n       boats page [--at=<place>] <boat>\n\nOPTIONS\n       --at\n           Where\n' ;;
  "none --help") echo "warning: failed to exec man: No such file" >&2; exit 16 ;;
  "none -h") printf 'usage: boats none <what>\n' ;;
  *) echo "called with: $*" ;;
esac
"#;

#[tokio::test]
async fn pages_of_a_manual_are_no_descriptions_and_have_arguments() {
    let folder = tempfile::tempdir().expect("a folder");
    let discovered = discover(&program(folder.path(), MANUAL)).await;
    let discovered = discovered.expect("discovered");
    let config: Value = serde_saphyr::from_str(&discovered.configuration).expect("YAML");
    let tools = &config["sources"][0]["command"]["tools"];
    assert_eq!(tools[0]["description"], "Clones a boat");
    assert_eq!(
        tools[0]["arguments"],
        json!({
            "sail": {"type": "boolean", "description": "under sail", "optional": true},
            "number": {"type": "integer", "description": "how many", "optional": true},
            "boat": {"description": "boat"},
            "harbour": {"description": "harbour", "optional": true},
        })
    );
    assert_eq!(tools[1]["description"], "Shows a boat");
    assert_eq!(
        tools[1]["arguments"],
        json!({
            "at": {"description": "Where", "optional": true},
            "boat": {"description": "boat"},
        })
    );
    assert_eq!(tools[2]["description"], "Has no manual");
    assert_eq!(
        tools[2]["arguments"],
        json!({"what": {"description": "what"}})
    );
    assert_eq!(discovered.left_out, [""; 0]);
    assert_eq!(
        discovered.unclear,
        [
            "boats clone: its usage has several forms, of which the first one is read",
            "boats clone: options that are not understood: --= what",
        ]
    );
}

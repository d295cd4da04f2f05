//! `longshore discover`: what a program's `--help` says, as a configuration that can be served.

use crate::support::assert_contains;
use std::process::{Command, Output, Stdio};

fn discover(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_longshore"))
        .arg("discover")
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("SECRET", "not-for-children")
        .stdin(Stdio::null())
        .output()
        .expect("runs")
}

#[test]
fn what_is_printed_is_a_configuration_that_holds() {
    let output = discover(&["grep"]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{text}");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tools.yaml");
    std::fs::write(&file, &text).expect("written");
    let checked = Command::new(env!("CARGO_BIN_EXE_longshore"))
        .args(["config", "check", "--config"])
        .arg(&file)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .output()
        .expect("runs");
    let said = String::from_utf8([checked.stdout, checked.stderr].concat()).expect("UTF-8");
    assert!(
        checked.status.success() && said.contains("1 tool)"),
        "{said}\n{text}"
    );
    assert!(text.contains("--max-count={{ max_count }}"), "{text}");
}

#[test]
fn standard_output_has_the_configuration_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("tool");
    let text = "#!/bin/sh\ncase \"$1\" in a) sleep 60;; b) echo \"Usage: tool b [X]\"; echo \"$SECRET\";; \
                *) printf 'Commands:\\n  a  Hangs\\n  b  Works\\n';; esac\n";
    std::fs::write(&script, text).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("set");
    let output = discover(&[script.to_str().expect("a path"), "--timeout", "1"]);
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(output.status.success(), "{said}");
    assert!(
        printed.contains("name: \"tool_b\"") && !printed.contains("tool_a"),
        "{printed}"
    );
    assert!(!printed.contains("not-for-children"), "{printed}");
    assert_contains(&said, &["left out: tool a: ", "longer than 1 s"]);
    let missing = discover(&["no-such-program-anywhere"]);
    let said = String::from_utf8(missing.stderr).expect("UTF-8");
    assert_eq!(missing.status.code(), Some(1), "{said}");
    assert!(
        missing.stdout.is_empty() && said.contains("not installed"),
        "{said}"
    );
}

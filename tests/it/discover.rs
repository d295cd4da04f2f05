//! `longshore discover`: what a program's `--help` says, as a configuration that can be served.

use crate::support::{assert_contains, longshore, run, said};

const VARIABLES: [(&str, &str); 2] = [("PATH", "/usr/bin:/bin"), ("SECRET", "not-for-children")];

fn discover(arguments: &[&str]) -> (Option<i32>, String, String) {
    run(longshore(&["discover"], &VARIABLES).args(arguments))
}

#[test]
fn what_is_printed_is_a_configuration_that_holds() {
    let (code, text, _) = discover(&["grep"]);
    assert_eq!(code, Some(0), "{text}");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tools.yaml");
    std::fs::write(&file, &text).expect("written");
    let (code, said) = said(longshore(&["config", "check", "--config"], &VARIABLES).arg(&file));
    assert!(
        code == Some(0) && said.contains("1 tool)"),
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
    let arguments = [script.to_str().expect("a path"), "--timeout", "1"];
    let (code, printed, said) = discover(&arguments);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        printed.contains("name: \"tool_b\"") && !printed.contains("tool_a"),
        "{printed}"
    );
    assert!(!printed.contains("not-for-children"), "{printed}");
    assert_contains(&said, &["left out: tool a: ", "longer than 1 s"]);
    let (code, printed, said) = discover(&["no-such-program-anywhere"]);
    assert_eq!((code, &*printed), (Some(1), ""), "{said}");
    assert_contains(&said, &["not installed"]);
}

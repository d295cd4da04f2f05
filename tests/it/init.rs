//! `longshore init`: what it writes can be served, and it writes over nothing.

use std::path::Path;

use crate::support::{self, assert_contains, said};

fn longshore(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    // No other program is there: nothing is fetched for a test.
    with_programs(folder, arguments, folder)
}

fn with_programs(folder: &Path, arguments: &[&str], programs: &Path) -> (Option<i32>, String) {
    let variables = [
        ("WEATHER_TOKEN", "secret"),
        ("TRACKER_TOKEN", "secret"),
        ("SEAL_KEY", "0123456789abcdef0123456789abcdef"),
        (
            "CI_KEY_HASH",
            "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        ),
    ];
    let mut command = support::longshore(arguments, &variables);
    said(command.current_dir(folder).env("PATH", programs))
}

#[test]
fn a_configuration_to_begin_with_is_valid_and_so_are_its_examples() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, text) = longshore(folder.path(), &["init", "weather"]);
    assert_eq!(code, Some(0), "{text}");
    assert_contains(&text, &["longshore run --config weather/longshore.yaml"]);
    let file = folder.path().join("weather/longshore.yaml");
    let text = std::fs::read_to_string(&file).expect("written");
    assert!(text.contains("name: \"weather\""), "{text}");
    let check = |file: &str| longshore(folder.path(), &["config", "check", "--config", file]);
    let (code, said) = check("weather/longshore.yaml");
    assert_eq!(code, Some(0), "{said}");
    assert_contains(&said, &["2 tools"]);
    // Lines with a comment sign and without a space are examples.
    let examples: Vec<_> = text
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(example) if !example.starts_with(' ') || example.starts_with("  ") => example,
            _ => line,
        })
        .skip(10)
        .collect();
    std::fs::write(folder.path().join("all.yaml"), examples.join("\n")).expect("written");
    let programs = folder.path().join("bin");
    std::fs::create_dir(&programs).expect("made");
    std::os::unix::fs::symlink("/bin/df", programs.join("df")).expect("linked");
    // The servers of the examples are nowhere.
    let all = ["config", "check", "--offline", "--config", "all.yaml"];
    let (code, said) = with_programs(folder.path(), &all, &programs);
    assert_eq!(code, Some(0), "{said}");
    assert_contains(&said, &["4 tools"]);
}

#[test]
fn the_schema_beside_a_configuration_is_the_one_of_this_program() {
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(longshore(folder.path(), &["init"]).0, Some(0));
    let schema =
        std::fs::read_to_string(folder.path().join("longshore.schema.json")).expect("written");
    let (_, printed) = longshore(folder.path(), &["config", "schema"]);
    assert!(schema == printed);
}

#[test]
fn nothing_is_written_over_and_then_nothing_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let mine = folder.path().join("longshore.schema.json");
    std::fs::write(&mine, "mine").expect("written");
    let (code, said) = longshore(folder.path(), &["init"]);
    assert_eq!(code, Some(1));
    assert_contains(&said, &["longshore.schema.json exists already"]);
    assert_eq!(std::fs::read_to_string(&mine).expect("there"), "mine");
    assert!(!folder.path().join("longshore.yaml").exists());
}

#[test]
fn a_project_depends_on_the_copy_that_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = env!("CARGO_MANIFEST_DIR");
    let arguments = ["init", "My Tools", "--rust", "--path", copy];
    let (code, said) = longshore(folder.path(), &arguments);
    assert_eq!(code, Some(0), "{said}");
    let project = folder.path().join("My Tools");
    let manifest = std::fs::read_to_string(project.join("Cargo.toml")).expect("written");
    assert!(manifest.contains("name = \"my-tools\"\n"), "{manifest}");
    assert!(
        manifest.contains(&format!("path = \"{copy}\"")),
        "{manifest}"
    );
    assert!(
        manifest.contains("tracing-subscriber = ")
            && manifest.contains("[profile.dev.package.\"*\"]\ndebug = false"),
        "{manifest}"
    );
    for written in ["src/main.rs", "README.md", ".gitignore", ".dockerignore"] {
        assert!(project.join(written).exists(), "{written}");
    }
    let dockerfile = std::fs::read_to_string(project.join("Dockerfile")).expect("written");
    assert!(
        dockerfile.contains(&format!("COPY --from=longshore . {copy}\n"))
            && dockerfile.contains("cp target/release/my-tools /server")
            && !dockerfile.contains("{{"),
        "{dockerfile}"
    );
    let no_copy = folder.path().to_str().expect("UTF-8");
    let (code, said) = longshore(folder.path(), &["init", "b", "--rust", "--path", no_copy]);
    assert_eq!(code, Some(1));
    let reason = "is not the source code of Longshore: its Cargo.toml is missing or another one";
    assert_contains(&said, &[reason]);
    assert!(!folder.path().join("b").exists());
}

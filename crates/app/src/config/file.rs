//! A configuration file as a tree in which everything knows its line: YAML, TOML, or JSON with comments.

use std::path::Path;

use super::error::ConfigError;
use super::value::{Content, Node, Origin};
use crate::environment::read_text_file;

#[cfg(feature = "config-files")]
mod json;
#[cfg(feature = "config-files")]
mod toml;
#[cfg(feature = "config-files")]
mod yaml;

/// Bytes of a configuration file, and of a file with a secret.
const FILE_MAX: u64 = 4 * 1024 * 1024;

/// A syntax error of a file, with its position if it is known.
struct SyntaxError {
    place: Option<(usize, usize)>,
    message: String,
}

/// Rejects every file: this build has no parsers.
#[cfg(not(feature = "config-files"))]
pub(super) fn read(path: &Path) -> Result<Node, ConfigError> {
    Err(ConfigError::NotBuilt {
        path: path.to_owned(),
    })
}

/// Rejects JSON from the environment like a file.
#[cfg(not(feature = "config-files"))]
pub(super) fn read_json(_: &str, name: &Path) -> Result<Node, ConfigError> {
    read(name)
}

/// Reads a file by the end of its name.
#[cfg(feature = "config-files")]
pub(super) fn read(path: &Path) -> Result<Node, ConfigError> {
    let text = read_text(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })?;
    let extension = path.extension().and_then(|e| e.to_str());
    let parse: fn(&str) -> Result<Node, SyntaxError> = match extension {
        Some("yaml" | "yml") => yaml::parse,
        Some("toml") => toml::parse,
        Some("json" | "jsonc" | "json5") => json::parse,
        _ => {
            return Err(ConfigError::Kind {
                path: path.to_owned(),
            });
        }
    };
    table(parse, &text, path)
}

/// Reads JSON that is in no file, but called like one.
#[cfg(feature = "config-files")]
pub(super) fn read_json(text: &str, name: &Path) -> Result<Node, ConfigError> {
    table(json::parse, text, name)
}

/// The settings that a text has.
fn table(
    parse: fn(&str) -> Result<Node, SyntaxError>,
    text: &str,
    name: &Path,
) -> Result<Node, ConfigError> {
    let failed = |place: Option<(usize, usize)>, message: String| ConfigError::File {
        place: match place {
            Some((line, column)) => format!("{}:{line}:{column}", name.display()),
            None => name.display().to_string(),
        },
        message,
    };
    let tree = parse(text).map_err(|error| failed(error.place, error.message))?;
    match (&tree.content, &tree.origin) {
        (Content::Table(_), _) => Ok(tree),
        (Content::Leaf(serde_json::Value::Null), _) => Ok(Node::empty()),
        (content, Origin::File { line, column }) => Err(failed(
            Some((*line, *column)),
            match content {
                Content::List(_) => "a list was found where settings are expected, such as `transport: http`",
                _ => "a single value was found where settings are expected, such as `transport: http`",
            }
            .to_owned(),
        )),
        _ => Ok(tree),
    }
}

/// Returns a file's text. Pipes are rejected, because a reload could not read them again.
pub(super) fn read_text(path: &Path) -> std::io::Result<String> {
    read_text_file(path, FILE_MAX)
}

/// Turns offsets in a text into lines and columns.
struct LineIndex<'a> {
    text: &'a str,
    /// Start of each line, in bytes.
    lines: Vec<usize>,
}

impl<'a> LineIndex<'a> {
    fn new(text: &'a str) -> Self {
        let breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            text,
            lines: std::iter::once(0).chain(breaks).collect(),
        }
    }

    fn at(&self, offset: usize) -> (usize, usize) {
        let line = self.lines.partition_point(|start| *start <= offset).max(1);
        let before = self.text.get(self.lines[line - 1]..offset);
        (line, before.map_or(0, |text| text.chars().count()) + 1)
    }

    fn origin(&self, offset: usize) -> Origin {
        let (line, column) = self.at(offset);
        Origin::File { line, column }
    }
}

#[cfg(all(test, feature = "config-files"))]
mod tests {
    use super::*;
    use crate::config::value::parts;
    use serde_json::json;

    const TOML: &str = "transport = \"http\"\n\n[http]\nport = 8_080\nallowed_hosts = [\n  \"a\",\n  \"b\",\n]\n[http.limits]\nbody_bytes = 0x10\n[[list]]\nname = 1.5\n";
    const YAML: &str = "# a comment\ntransport: http\n\nhttp:\n  port: 8080\n  allowed_hosts:\n    - a\n    - b\n  limits: {body_bytes: 16}\nlist:\n  - name: 1.5\n";
    const JSON: &str = "{\n  // a comment\n  \"transport\": \"http\",\n  \"http\": {\n    \"port\": 8080,\n    \"allowed_hosts\": [\n      \"a\",\n      \"b\"\n    ], \"limits\": {\"body_bytes\": 16},\n  },\n \"list\": [{\"name\": 1.5}]}";

    fn place(tree: &Node, setting: &str) -> (usize, usize) {
        match tree.get(&parts(setting)).expect("it is there").origin {
            Origin::File { line, column } => (line, column),
            _ => (0, 0),
        }
    }

    fn parsed(tree: Result<Node, SyntaxError>) -> Node {
        tree.unwrap_or_else(|e| panic!("{:?} {}", e.place, e.message))
    }

    #[test]
    fn the_three_kinds_say_the_same_and_know_their_places() {
        let expected = json!({
            "transport": "http",
            "http": {"port": 8080, "allowed_hosts": ["a", "b"], "limits": {"body_bytes": 16}},
            "list": [{"name": 1.5}],
        });
        let (toml, yaml, json) = (
            parsed(toml::parse(TOML)),
            parsed(yaml::parse(YAML)),
            parsed(json::parse(JSON)),
        );
        assert_eq!(toml.to_value(), expected);
        assert_eq!(yaml.to_value(), expected);
        assert_eq!(json.to_value(), expected);
        for (setting, in_toml, in_yaml, in_json) in [
            ("http.port", (4, 1), (5, 3), (5, 5)),
            ("http.allowed_hosts.1", (7, 3), (8, 7), (8, 7)),
            ("http.limits.body_bytes", (10, 1), (9, 12), (9, 19)),
            ("list.0.name", (12, 1), (11, 5), (11, 12)),
        ] {
            assert_eq!(place(&toml, setting), in_toml, "toml {setting}");
            assert_eq!(place(&yaml, setting), in_yaml, "yaml {setting}");
            assert_eq!(place(&json, setting), in_json, "json {setting}");
        }
    }

    #[test]
    fn syntax_errors_have_a_place() {
        for (tree, line) in [
            (toml::parse("[http]\nport = \n"), 2),
            (toml::parse("[http]\nport = 1\nport = 2\n"), 3),
            (yaml::parse("http:\n  port: [1\nx: }\n"), 3),
            (yaml::parse("http:\n  port: 1\n  port: 2\n"), 3),
            (json::parse("{\n\"http\": {\"port\": }}"), 2),
            (json::parse("{\n\"http\": 1,\n\"http\": 2}"), 3),
        ] {
            let Err(error) = tree else {
                panic!("no error for line {line}")
            };
            assert_eq!(
                error.place.map(|(line, _)| line),
                Some(line),
                "{}",
                error.message
            );
            assert!(!error.message.is_empty() && !error.message.contains('\n'));
        }
    }

    #[test]
    fn text_without_its_quotes_has_a_hint() {
        for (text, hint) in [
            ("server: {name: {{ name }}}\n", "as in \"{{ city }}\""),
            ("server:\n  name: {{ name }}\n", "as in \"{{ city }}\""),
            ("toolsets: [*]\n", "begins with * or &"),
            ("toolsets: [*delete*]\n", "begins with *"),
            ("toolsets: [@scope/a]\n", "begins with this character"),
            (
                "server:\n  instructions: Note: be nice\n",
                "text with a colon and a blank",
            ),
        ] {
            let Err(error) = yaml::parse(text) else {
                panic!("no error: {text}")
            };
            assert!(error.message.contains(hint), "{text}: {}", error.message);
        }
    }

    #[test]
    fn files_that_are_not_utf_8_or_no_settings_are_described() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.yaml");
        for (bytes, part) in [
            (&b"\xff\xfeh\0"[..], "not text in UTF-8"),
            (b"- a\n", "a list was found"),
            (b"a\n", "a single value was found"),
        ] {
            std::fs::write(&path, bytes).expect("written");
            let error = read(&path).expect_err("an error");
            let source = std::error::Error::source(&error).map(ToString::to_string);
            let text = format!("{error}: {}", source.unwrap_or_default());
            assert!(text.contains(part), "{part:?} is not in: {text}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.yaml");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo runs").success());
        assert!(matches!(read(&path), Err(ConfigError::Read { .. })));
    }

    #[test]
    fn an_empty_yaml_file_has_no_settings() {
        for text in ["", "# only a comment\n", "---\n"] {
            let tree = parsed(yaml::parse(text));
            assert!(
                matches!(tree.content, Content::Leaf(serde_json::Value::Null)),
                "{text:?}"
            );
        }
    }

    #[test]
    fn aliases_do_not_explode() {
        let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for n in 1..12 {
            let item = format!("*a{}", n - 1);
            bomb.push_str(&format!("a{n}: &a{n} [{}]\n", vec![item; 10].join(",")));
        }
        assert!(yaml::parse(&bomb).is_err());
    }

    #[test]
    fn columns_count_characters() {
        let places = LineIndex::new("äöü: x\ny");
        assert_eq!(places.at("äöü".len()), (1, 4));
        assert_eq!(places.at("äöü: x\n".len()), (2, 1));
        assert_eq!(places.at(1000), (2, 1));
    }
}

//! Command line templates.

use minijinja::Value as Context;
use serde_json::Value;

use crate::source::template::{EscapeContext, Template, TemplateError};

/// A command line with placeholders.
#[derive(Debug)]
pub(super) struct Line {
    program: String,
    groups: Vec<Group>,
    allow_leading_dash: bool,
}

/// Arguments that are included or omitted together.
#[derive(Debug)]
struct Group(Vec<Template>);

impl Line {
    /// Parses the command line.
    ///
    /// # Errors
    ///
    /// Describes the problem and its position.
    pub(super) fn new(
        argv: &[Value],
        allow_leading_dash: bool,
        names: Option<&[&str]>,
    ) -> Result<Self, String> {
        let Some((program, rest)) = argv.split_first() else {
            return Err("argv is empty; set it to the program and its arguments".to_owned());
        };
        let program = match program {
            Value::String(text) if !text.is_empty() => text,
            Value::Bool(_) | Value::Number(_) => {
                return Err(format!(
                    "argv[0] is {program}, which is not a string: put the program's name in quotes (YAML reads words like yes and on as booleans)"
                ));
            }
            _ => return Err("argv[0] is not a program; write its name or its path".to_owned()),
        };
        if program.contains("{{") || program.contains("{%") {
            return Err(
                "argv[0]: which program runs is not for a caller to say; write it out".to_owned(),
            );
        }
        let mut groups = Vec::new();
        for (position, item) in rest.iter().enumerate() {
            let read = |text: &Value| match text {
                Value::String(text) => Template::new(text, EscapeContext::Text, names)
                    .map_err(|problem| format!("argv[{}]: {problem}", position + 1)),
                Value::Number(_) | Value::Bool(_) => {
                    Template::new(&text.to_string(), EscapeContext::Text, Some(&[]))
                }
                _ => Err(format!(
                    "argv[{}]: an argument is a text, or a list of texts that belong together",
                    position + 1
                )),
            };
            groups.push(Group(match item {
                Value::Array(items) => items.iter().map(read).collect::<Result<_, _>>()?,
                item => vec![read(item)?],
            }));
        }
        Ok(Self {
            program: program.clone(),
            groups,
            allow_leading_dash,
        })
    }

    pub(super) fn program(&self) -> &str {
        &self.program
    }

    /// Returns the arguments for these values, without the program.
    ///
    /// # Errors
    ///
    /// A value cannot be part of an argument, or could be taken for an option. A fact about the caller is missing.
    pub(super) fn fill(&self, values: &Context) -> Result<Vec<String>, TemplateError> {
        let mut line = Vec::new();
        let mut options_ended = false;
        for Group(templates) in &self.groups {
            let texts = templates.iter().map(|template| texts_of(template, values));
            let texts: Vec<Option<Vec<String>>> = texts.collect::<Result<_, _>>()?;
            let Some(texts) = texts.into_iter().collect::<Option<Vec<_>>>() else {
                continue;
            };
            let each = templates.iter().zip(texts);
            let each = each
                .flat_map(|(template, texts)| texts.into_iter().map(move |text| (template, text)));
            for (template, text) in each {
                if text.contains('\0') {
                    let problem = "a value has a NUL, which no argument can hold";
                    return Err(problem.to_owned().into());
                }
                let may_be_option = !self.allow_leading_dash && !options_ended;
                if may_be_option && template.begins_with_value() && text.starts_with('-') {
                    let problem = format!(
                        "{:?} begins with a dash and would be read as an option",
                        text.chars().take(50).collect::<String>()
                    );
                    return Err(problem.into());
                }
                options_ended |= template.is_literal() && text == "--";
                line.push(text);
            }
        }
        Ok(line)
    }
}

/// Renders a template: to several arguments if it is one placeholder whose value is a list. Returns `None` if any of its
/// placeholders has no value.
fn texts_of(template: &Template, values: &Context) -> Result<Option<Vec<String>>, TemplateError> {
    match template.texts(values) {
        Err(TemplateError::Invalid(_)) if template.lacks_a_value(values) => Ok(None),
        result => Ok(result.map(Some)?.filter(|texts| !texts.is_empty())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Principal;
    use crate::source::template;
    use serde_json::json;

    fn fill(argv: &Value, arguments: &Value) -> Result<Vec<String>, String> {
        let argv = argv.as_array().expect("a list");
        let line = Line::new(argv, false, None)?;
        let values = template::context(
            arguments.as_object().expect("an object"),
            &Principal::new("ann"),
        );
        line.fill(&values).map_err(|error| error.to_string())
    }

    /// Strings with a meaning to a shell or to a splitter of command lines.
    const HOSTILE: &[&str] = &[
        "; id",
        "&& id",
        "|| id",
        "| id",
        "& id",
        "$(id)",
        "`id`",
        "${IFS}id",
        "$HOME",
        "> /etc/passwd",
        "< /etc/passwd",
        "2>&1",
        "\n id",
        "\r\n id",
        "%0a id",
        "\t id",
        " id",
        "a b",
        "a  b",
        "'",
        "\"",
        "''",
        "\"\"",
        "\\",
        "\\n",
        "\\'",
        "*",
        "?",
        "[a-z]",
        "~",
        "~root",
        "{a,b}",
        "!!",
        "!id",
        "#",
        "%s%n",
        "%PATH%",
        "^",
        "(id)",
        "{ id; }",
        "a=b",
        "\u{1b}[31m",
        "\u{202e}",
        "é",
        "{{ 7*7 }}",
        "{% raw %}",
        "$((1+1))",
        "<(id)",
        "@/etc/passwd",
        "+x",
        ".",
        "..",
        "../../etc/passwd",
        "/etc/passwd",
        "",
    ];

    #[test]
    fn a_placeholder_is_one_argument_whatever_it_holds() {
        for text in HOSTILE {
            let line = fill(
                &json!(["echo", "{{ a }}", "x={{ a }}", "--a={{ a }}", "z"]),
                &json!({"a": text}),
            );
            let expected = vec![
                (*text).to_owned(),
                format!("x={text}"),
                format!("--a={text}"),
                "z".to_owned(),
            ];
            assert_eq!(line, Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn no_value_becomes_an_option() {
        for text in [
            "-",
            "--",
            "-x",
            "--config=/x",
            "-rf",
            "--output=/x",
            "-oProxyCommand=id",
            "--upload-pack=id",
        ] {
            assert!(
                fill(&json!(["git", "log", "{{ a }}"]), &json!({"a": text})).is_err(),
                "{text}"
            );
            assert!(
                fill(
                    &json!(["git", "log", "{{ a }}{{ b }}"]),
                    &json!({"a": text, "b": "x"})
                )
                .is_err(),
                "{text}"
            );
            assert!(
                fill(&json!(["git", ["-C", "{{ a }}"]]), &json!({"a": text})).is_err(),
                "{text}"
            );
            let behind = fill(&json!(["git", "log", "--", "{{ a }}"]), &json!({"a": text}));
            assert_eq!(
                behind,
                Ok(vec!["log".to_owned(), "--".to_owned(), text.to_owned()])
            );
            // A value that says `--` itself ends nothing.
            assert!(
                fill(
                    &json!(["git", "x{{ b }}", "{{ a }}"]),
                    &json!({"a": text, "b": "--"})
                )
                .is_err()
            );
        }
        let allowed = Line::new(&[json!("echo"), json!("{{ a }}")], true, None).expect("a line");
        let values = template::context(
            json!({"a": "-1"}).as_object().expect("an object"),
            &Principal::new("ann"),
        );
        assert_eq!(allowed.fill(&values), Ok(vec!["-1".to_owned()]));
        assert!(fill(&json!(["echo", "{{ a }}"]), &json!({"a": "a\0b"})).is_err());
    }

    #[test]
    fn a_missing_fact_about_the_caller_fails_the_line() {
        for argument in [
            json!("{{ caller.subject }}"),
            json!("--owner={{ caller.subject }}"),
            json!(["--owner", "{{ caller.subject }}"]),
            json!("{{ owner | default(caller.subject) }}"),
        ] {
            let line = fill(&json!(["psql", argument]), &json!({}));
            let problem = line.expect_err("a missing fact");
            assert!(
                problem.ends_with("do not contain caller.subject"),
                "{problem}"
            );
        }
        let optional = json!(["a", "--of={{ caller.name }}/{{ b }}"]);
        assert_eq!(fill(&optional, &json!({})), Ok(Vec::new()));
    }

    #[test]
    fn space_and_comments_before_a_placeholder_hide_no_option() {
        for text in [
            " {{ a }}",
            "{# a #}{{ a }}",
            " {{- a }}",
            "\n{%- if a %}{{ a }}{% endif %}",
        ] {
            let line = fill(&json!(["git", text]), &json!({"a": "--upload-pack=id"}));
            let rendered = line.clone().unwrap_or_default().concat();
            assert!(!rendered.starts_with('-'), "{text:?}: {line:?}");
        }
    }

    #[test]
    fn what_has_no_value_is_left_out() {
        let argv = json!([
            "grep",
            ["--context", "{{ lines }}"],
            "--max={{ most }}",
            "{% if deep %}-r{% endif %}",
            7,
            "{{ text }}"
        ]);
        assert_eq!(
            fill(&argv, &json!({"text": "x"})),
            Ok(vec!["7".to_owned(), "x".to_owned()])
        );
        assert_eq!(
            fill(
                &argv,
                &json!({"text": "", "lines": 2, "most": 5, "deep": true})
            )
            .expect("a line"),
            ["--context", "2", "--max=5", "-r", "7", ""]
        );
    }

    #[test]
    fn a_list_is_one_argument_for_each_element() {
        let argv = json!([
            "tar",
            ["--files", "{{ files }}"],
            "x={{ one }}",
            "--",
            "{{ more }}"
        ]);
        let line = fill(&argv, &json!({"files": ["a b", 7], "more": ["-c"]}));
        assert_eq!(line.expect("a line"), ["--files", "a b", "7", "--", "-c"]);
        assert_eq!(fill(&argv, &json!({"files": []})).expect("a line"), ["--"]);
        let line = fill(&argv, &json!({"files": [null, "a"], "more": [null]}));
        assert_eq!(line.expect("a line"), ["--files", "a", "--"]);
        for refused in [
            json!({"files": ["a", "-c"]}),
            json!({"files": ["a\0"]}),
            json!({"files": [["a"]]}),
        ] {
            assert!(fill(&argv, &refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn who_runs_is_not_for_a_caller_to_say() {
        for argv in [
            json!(["{{ a }}"]),
            json!(["/bin/{{ a }}"]),
            json!([]),
            json!([7]),
            json!([""]),
            json!(["a", {"b": 1}]),
            json!(["a", "{{ b"]),
        ] {
            assert!(
                Line::new(argv.as_array().expect("a list"), false, None).is_err(),
                "{argv}"
            );
        }
        assert!(Line::new(&[json!("a"), json!("{{ c }}")], false, Some(&["b"])).is_err());
    }
}

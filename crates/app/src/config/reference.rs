//! The reference of all settings as Markdown, from the types and their documentation.

use std::fmt::Write as _;

use serde_json::Value;

use super::schema::{Reload, Section, Setting, sections};
use super::variables::name_for;

/// The tables of `docs/configuration.md`: every setting with its default, its variable, when a change takes effect, and its
/// meaning.
pub fn reference() -> String {
    let mut text = String::new();
    for section in sections()
        .iter()
        .filter(|section| !section.settings.is_empty())
    {
        write_section(&mut text, section);
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn write_section(text: &mut String, section: &Section) {
    let (title, intro) = match &*section.path {
        "" => ("What is served, and how".to_owned(), String::new()),
        path => (format!("`{path}`"), prose(&section.description)),
    };
    let _ = writeln!(text, "### {title}\n");
    if !intro.is_empty() {
        let _ = writeln!(text, "{intro}\n");
    }
    text.push_str("| Setting | Default | Variable | Changes | Meaning |\n|---|---|---|---|---|\n");
    for setting in &section.settings {
        let variable = match name_for(&setting.path) {
            name if name.is_empty() => String::new(),
            name => format!("`{name}`"),
        };
        let changes = match setting.reload {
            Reload::Live => "live",
            Reload::Restart => "restart",
        };
        let _ = writeln!(
            text,
            "| `{}` | {} | {variable} | {changes} | {} |",
            setting.path,
            default(setting),
            meaning(setting)
        );
    }
    text.push('\n');
}

fn default(setting: &Setting) -> String {
    let said = said_default(&setting.description);
    match (&setting.default, said) {
        (Value::Null, None) => "none".to_owned(),
        (Value::Null, Some(said)) => cell(said),
        // A documented default describes more than an empty value.
        (Value::Array(items), Some(said)) if items.is_empty() => cell(said),
        (value, _) => format!("`{}`", cell(&value.to_string())),
    }
}

/// Returns the documented default, up to the end of the sentence.
fn said_default(description: &str) -> Option<&str> {
    let (_, rest) = description.split_once("Default: ")?;
    let end = rest
        .find(".\n")
        .or_else(|| rest.find(". "))
        .unwrap_or(rest.len());
    Some(rest[..end].trim_end_matches('.'))
}

fn meaning(setting: &Setting) -> String {
    let text = prose(&setting.description);
    let text = text.split("```").next().unwrap_or_default();
    let mut text = cell(text);
    for (name, meaning) in &setting.choices {
        let meaning = cell(&prose(meaning));
        let _ = match meaning.trim_end_matches('.') {
            "" => write!(text, " `{name}`."),
            meaning => write!(text, " `{name}`: {meaning}."),
        };
    }
    text
}

/// Documentation without what only means something in the code: links to items.
fn prose(text: &str) -> String {
    let mut prose = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("[`") {
        let (before, link) = rest.split_at(at);
        prose.push_str(before);
        let Some(end) = link.find("`]") else {
            prose.push_str(link);
            return prose;
        };
        prose.push_str(&link[1..=end]);
        rest = &link[end + 2..];
        if rest.starts_with('(')
            && let Some(close) = rest.find(')')
        {
            rest = &rest[close + 1..];
        }
    }
    prose.push_str(rest);
    prose.trim().to_owned()
}

fn cell(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_becomes_prose() {
        assert_eq!(
            prose("See [`Config`] and [`a`](b)."),
            "See `Config` and `a`."
        );
        assert_eq!(cell("a |\n  b"), "a \\| b");
        assert_eq!(
            said_default("A. Default: one for each core. More."),
            Some("one for each core")
        );
        assert_eq!(said_default("A.\nDefault: none"), Some("none"));
        assert_eq!(said_default("A."), None);
    }

    #[test]
    fn each_setting_has_a_row() {
        let text = reference();
        for row in [
            "| `transport` | `\"http\"` | `LONGSHORE_TRANSPORT` |",
            "| `http.workers` | one for each core | `LONGSHORE_WORKERS` |",
            "| `seal.keys` | one made at start",
        ] {
            assert!(text.contains(row), "{row} is not in\n{text}");
        }
    }
}

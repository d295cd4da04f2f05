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
        "" => ("General".to_owned(), String::new()),
        path => (format!("`{path}`"), prose(&section.description)),
    };
    let _ = writeln!(text, "### {title}\n");
    if !intro.is_empty() {
        let _ = writeln!(text, "{intro}\n");
    }
    text.push_str("| Setting | Default | Variable | Reload | Meaning |\n|---|---|---|---|---|\n");
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
        (_, Some(said)) if shows_sentence(setting) => cell(said),
        (Value::Null, _) => "none".to_owned(),
        (value, _) => format!("`{}`", cell(&value.to_string())),
    }
}

/// Returns true if the documented default describes more than the value does.
fn shows_sentence(setting: &Setting) -> bool {
    match &setting.default {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Phrases that begin a default which depends on other settings or on the environment.
const DEFAULTS: [&str; 3] = ["Default: ", "If unset: ", "If empty: "];

/// Returns the documented default, up to the end of the sentence.
fn said_default(description: &str) -> Option<&str> {
    let (from, to) = default_sentence(description)?;
    let sentence = &description[from..to];
    let (_, said) = sentence.split_once(": ")?;
    Some(said.trim_end().trim_end_matches('.'))
}

/// Returns the range of the sentence about the default.
fn default_sentence(description: &str) -> Option<(usize, usize)> {
    let from = DEFAULTS.iter().find_map(|begin| description.find(begin))?;
    let rest = &description[from..];
    let end = [rest.find(".\n"), rest.find(". ")]
        .into_iter()
        .flatten()
        .min()
        .map_or(description.len(), |end| from + end + 1);
    Some((from, end))
}

fn meaning(setting: &Setting) -> String {
    // The default has its own column.
    let description = &setting.description;
    let text = match default_sentence(description) {
        Some((from, to)) if shows_sentence(setting) => {
            format!("{}{}", description[..from].trim_end(), &description[to..])
        }
        _ => description.clone(),
    };
    let text = prose(&text);
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
        assert_eq!(said_default("A. If unset: 60."), Some("60"));
        assert_eq!(said_default("A."), None);
    }

    #[test]
    fn each_setting_has_a_row() {
        let text = reference();
        for row in [
            "| `transport` | `\"http\"` | `LONGSHORE_TRANSPORT` |",
            "| `http.workers` | one per core, but at most one for each 32 MiB of memory | `LONGSHORE_WORKERS` |",
            "| `seal.keys` | a key that is generated at start",
        ] {
            assert!(text.contains(row), "{row} is not in\n{text}");
        }
    }
}

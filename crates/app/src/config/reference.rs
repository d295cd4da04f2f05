//! The reference of all settings as Markdown, from the types and their documentation.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::schema::{Reload, Section, Setting, sections};
use super::variables::name_for;

/// One page of the reference.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReferencePage {
    /// File name without its extension, such as `http`.
    pub name: String,
    /// The page in Markdown, with its heading.
    pub text: String,
}

/// Sections in the order in which people need them. Others follow in the order of the types.
const ORDER: [&str; 19] = [
    "",
    "http",
    "stdio",
    "server",
    "sources[]",
    "upstreams.<name>",
    "endpoints.<name>",
    "builtin",
    "auth",
    "policy",
    "limits",
    "seal",
    "state",
    "tokens",
    "artifacts",
    "telemetry",
    "log",
    "audit",
    "drain",
];

/// Name of the page with settings that several sections have.
const SHARED: &str = "shared";

/// The pages of `docs/configuration/`: every setting with its default, its variable, when a change takes effect, and its
/// meaning. Settings that several sections have are in one section of the last page.
pub fn reference() -> Vec<ReferencePage> {
    let shared = Shared::find(sections());
    let mut tops: Vec<&str> = Vec::new();
    for section in sections() {
        let top = top(&section.path);
        if !tops.contains(&top) {
            tops.push(top);
        }
    }
    tops.sort_by_key(|top| {
        ORDER
            .iter()
            .position(|known| known == top)
            .unwrap_or(ORDER.len())
    });
    let mut pages: Vec<_> = tops.into_iter().map(|top| page_of(top, &shared)).collect();
    pages.push(shared.page());
    pages
}

/// The index of the pages: a table for `docs/configuration.md`.
pub fn reference_index() -> String {
    let mut text = "| Section | Settings |\n|---|---|\n".to_owned();
    for page in reference() {
        let mut parts = page.text.split("\n\n");
        let title = parts.next().unwrap_or_default().trim_start_matches("# ");
        let about = parts.next().unwrap_or_default().replace('\n', " ");
        let sentence = about.split_inclusive(". ").next().unwrap_or_default();
        let name = &page.name;
        let _ = writeln!(
            text,
            "| [{title}](configuration/{name}.md) | {} |",
            cell(sentence)
        );
    }
    text
}

/// The section of the first level that a path belongs to.
fn top(path: &str) -> &str {
    let known = ORDER.iter().skip(1).find(|top| within(path, top).is_some());
    known
        .copied()
        .unwrap_or_else(|| path.split('.').next().unwrap_or_default())
}

/// The rest of a path below a section; empty for the section itself. `None` for a path elsewhere.
fn within<'p>(path: &'p str, section: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(section)?;
    (rest.is_empty() || rest.starts_with('.')).then_some(rest)
}

fn page_of(top: &str, shared: &Shared<'_>) -> ReferencePage {
    let name = match top {
        "" => "general",
        path => path.trim_end_matches("[]").trim_end_matches(".<name>"),
    };
    let title = match top {
        "" => "General settings".to_owned(),
        _ => format!("`{name}`"),
    };
    let all = sections().iter();
    let own = all.filter(|section| match top {
        "" => section.path.is_empty(),
        top => within(&section.path, top).is_some(),
    });
    let mut text = format!("# {title}\n\n");
    if top.is_empty() {
        text.push_str("Settings at the first level of the file.\n\n");
    }
    let mut skipped: Option<&str> = None;
    for section in own {
        if skipped.is_some_and(|root| within(&section.path, root).is_some()) {
            continue;
        }
        let has_heading = section.path != top;
        if let Some(group) = shared.of(&section.path) {
            skipped = Some(&section.path);
            write_heading(&mut text, has_heading.then_some(&section.path), section);
            let anchor = anchor(&group.title());
            let _ = writeln!(
                text,
                "Settings: [{}]({SHARED}.md#{anchor}).\n",
                group.title()
            );
        } else if section.settings.is_empty() {
            if !has_heading {
                write_heading(&mut text, None, section);
            }
        } else {
            write_heading(&mut text, has_heading.then_some(&section.path), section);
            write_table(&mut text, section, Columns::All);
        }
    }
    finished(name, &text)
}

fn finished(name: &str, text: &str) -> ReferencePage {
    // Descriptions name other pages as those of the folder above do.
    let mut text = text.replace("](security.md", "](../security.md");
    text.truncate(text.trim_end().len());
    text.push('\n');
    ReferencePage {
        name: name.to_owned(),
        text,
    }
}

/// The anchor of a heading, as Git hosts and mdBook make it.
fn anchor(title: &str) -> String {
    let kept = title
        .chars()
        .filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn write_heading(text: &mut String, path: Option<&String>, section: &Section) {
    if let Some(path) = path {
        let _ = writeln!(text, "## `{path}`\n");
    }
    let intro = prose(&section.description);
    if !intro.is_empty() {
        let _ = writeln!(text, "{intro}\n");
    }
}

/// Columns of a table of settings.
#[derive(Clone, Copy)]
enum Columns<'p> {
    All,
    /// Without variables and reload, which differ by the place of use; paths are cut after this prefix.
    Shared(&'p str),
}

fn write_table(text: &mut String, section: &Section, columns: Columns<'_>) {
    text.push_str(match columns {
        Columns::All => {
            "| Setting | Default | Variable | Reload | Meaning |\n|---|---|---|---|---|\n"
        }
        Columns::Shared(_) => "| Setting | Default | Meaning |\n|---|---|---|\n",
    });
    for setting in &section.settings {
        let (default, meaning) = (default(setting), meaning(setting));
        let _ = match columns {
            Columns::All => {
                let variable = match name_for(&setting.path) {
                    name if name.is_empty() => String::new(),
                    name => format!("`{name}`"),
                };
                let changes = reload(setting.reload);
                writeln!(
                    text,
                    "| `{}` | {default} | {variable} | {changes} | {meaning} |",
                    setting.path
                )
            }
            Columns::Shared(prefix) => {
                let path = setting.path.strip_prefix(prefix).unwrap_or(&setting.path);
                writeln!(text, "| `{path}` | {default} | {meaning} |")
            }
        };
    }
    text.push('\n');
}

fn reload(reload: Reload) -> &'static str {
    match reload {
        Reload::Live => "live",
        Reload::Restart => "restart",
    }
}

/// Tables of settings that several sections have.
struct Shared<'s> {
    groups: Vec<Group<'s>>,
}

/// One of them: the sections that have it, with all below them.
struct Group<'s> {
    roots: Vec<&'s Section>,
}

impl<'s> Shared<'s> {
    /// Finds sections with the same settings, at different parents.
    fn find(sections: &'s [Section]) -> Self {
        let mut same: BTreeMap<String, Vec<&Section>> = BTreeMap::new();
        for root in sections.iter().filter(|section| !section.path.is_empty()) {
            same.entry(content(root, sections)).or_default().push(root);
        }
        let mut groups: Vec<_> = same
            .into_values()
            .filter(|roots| {
                roots
                    .iter()
                    .any(|root| parent(&root.path) != parent(&roots[0].path))
            })
            .map(|roots| Group { roots })
            .collect();
        // Those that are always a part of one and the same larger group belong to it.
        let is_part: Vec<_> = groups
            .iter()
            .map(|group| groups.iter().any(|larger| larger.contains(group)))
            .collect();
        let mut is_part = is_part.into_iter();
        groups.retain(|_| is_part.next() == Some(false));
        groups.sort_by_key(Group::title);
        Self { groups }
    }

    /// The group of a section.
    fn of(&self, path: &str) -> Option<&Group<'s>> {
        let mut groups = self.groups.iter();
        groups.find(|group| group.roots.iter().any(|root| root.path == path))
    }

    fn page(&self) -> ReferencePage {
        let mut text =
            "# Shared settings\n\nSettings that several sections have, each described once.\n\n"
                .to_owned();
        for group in &self.groups {
            group.write(&mut text, self);
        }
        finished(SHARED, &text)
    }
}

impl Group<'_> {
    /// The path of the first section before its name, and the name.
    fn place(&self) -> (&str, &str) {
        let path = &self.roots[0].path;
        let path = path.strip_suffix(".<name>").unwrap_or(path);
        path.split_at(path.len() - last(path).len())
    }

    fn title(&self) -> String {
        format!("`{}`", self.place().1)
    }

    /// Returns true if each section of another group is within one of these.
    fn contains(&self, other: &Self) -> bool {
        other.roots.iter().all(|root| {
            let mut own = self.roots.iter();
            own.any(|own| root.path != own.path && within(&root.path, &own.path).is_some())
        })
    }

    fn write(&self, text: &mut String, shared: &Shared<'_>) {
        let first = self.roots[0];
        let _ = writeln!(text, "## {}\n", self.title());
        write_heading(text, None, first);
        text.push_str("| Used at | Reload |\n|---|---|\n");
        for root in &self.roots {
            let changes = root
                .settings
                .first()
                .map_or("", |setting| reload(setting.reload));
            let _ = writeln!(text, "| `{}` | {changes} |", root.path);
        }
        text.push('\n');
        let (prefix, _) = self.place();
        let mut skipped: Option<&str> = None;
        for section in sections() {
            if within(&section.path, &first.path).is_none()
                || skipped.is_some_and(|root| within(&section.path, root).is_some())
            {
                continue;
            }
            let own = section.path.strip_prefix(prefix).unwrap_or(&section.path);
            if section.path != first.path {
                if let Some(other) = shared.of(&section.path) {
                    skipped = Some(&section.path);
                    let anchor = anchor(&other.title());
                    let _ = writeln!(
                        text,
                        "### `{own}`\n\nSettings: [{}](#{anchor}).\n",
                        other.title()
                    );
                    continue;
                }
                if section.settings.is_empty() {
                    continue;
                }
                let _ = writeln!(text, "### `{own}`\n");
                write_heading(text, None, section);
            }
            write_table(text, section, Columns::Shared(prefix));
        }
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(parent, _)| parent)
}

fn last(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(_, last)| last)
}

/// All settings at and below a section, without what depends on its place.
fn content(root: &Section, sections: &[Section]) -> String {
    let mut text = String::new();
    for section in sections {
        let Some(rest) = within(&section.path, &root.path) else {
            continue;
        };
        let _ = writeln!(text, "{rest}");
        for setting in &section.settings {
            let name = last(&setting.path);
            let _ = writeln!(text, "{name} {} {}", setting.default, setting.description);
        }
    }
    text
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
        let text: String = reference().into_iter().map(|page| page.text).collect();
        for row in [
            "| `transport` | `\"http\"` | `LONGSHORE_TRANSPORT` |",
            "| `http.workers` | one per core, but at most one for each 32 MiB of memory | `LONGSHORE_WORKERS` |",
            "| `seal.keys` | a key that is generated at start",
        ] {
            assert!(text.contains(row), "{row} is not in\n{text}");
        }
    }

    #[test]
    fn settings_of_several_sections_are_described_once() {
        let pages = reference();
        let all: String = pages.iter().map(|page| &*page.text).collect();
        assert_eq!(all.matches("| `auth.basic.username` |").count(), 1);
        assert!(all.contains("## `sources[].openapi.auth`"));
        let shared = &pages.last().expect("a page").text;
        let uses = shared
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let uses: Vec<_> = uses.collect();
        for setting in super::super::settings() {
            let is_there = all.contains(&format!("| `{}` |", setting.path))
                || uses
                    .iter()
                    .any(|root| within(&setting.path, root).is_some());
            assert!(is_there, "{}", setting.path);
        }
    }
}

//! `:name` in a statement.
//!
//! Statements come from configuration. Reading them takes no knowledge of their grammar, but of where a text or a comment
//! begins and ends.

/// A statement whose placeholders are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    /// As it was written, without the semicolon at its end.
    pub(super) named: String,
    /// With `$1`, `$2` and so on, as PostgreSQL has them.
    pub(super) numbered: String,
    /// The placeholders' names, each once, in the order of their numbers.
    pub(super) names: Vec<String>,
}

impl Statement {
    pub(super) fn read(sql: &str) -> Self {
        let sql = sql.trim();
        let sql = sql.strip_suffix(';').unwrap_or(sql).trim_end();
        let mut numbered = String::with_capacity(sql.len());
        let mut names: Vec<String> = Vec::new();
        let mut at = 0;
        while at < sql.len() {
            let rest = &sql[at..];
            let skipped = skipped(rest, sql[..at].chars().next_back());
            if 0 < skipped {
                numbered.push_str(&rest[..skipped]);
                at += skipped;
                continue;
            }
            if let Some(name) = name(rest) {
                let number = match names.iter().position(|known| known == name) {
                    Some(position) => position + 1,
                    None => {
                        names.push(name.to_owned());
                        names.len()
                    }
                };
                numbered.push_str(&format!("${number}"));
                at += 1 + name.len();
                continue;
            }
            let one = rest.chars().next().map_or(1, char::len_utf8);
            numbered.push_str(&rest[..one]);
            at += one;
        }
        Self {
            named: sql.to_owned(),
            numbered,
            names,
        }
    }
}

/// The name of a placeholder that stands at the beginning.
fn name(text: &str) -> Option<&str> {
    let rest = text.strip_prefix(':')?;
    let end = rest
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap_or(rest.len());
    let name = &rest[..end];
    (!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit())).then_some(name)
}

/// How much at the beginning holds no placeholder: a text, a name in quotes, a comment, a cast.
fn skipped(text: &str, before: Option<char>) -> usize {
    let length = |end: Option<usize>| end.unwrap_or(text.len());
    if text.starts_with("::") {
        return 2;
    }
    if text.starts_with("--") {
        return length(text.find('\n'));
    }
    if text.starts_with("/*") {
        return length(comment(text));
    }
    if text.starts_with('\'') {
        let escapes = before.is_some_and(|c| c == 'E' || c == 'e');
        return length(quoted(text, '\'', escapes));
    }
    if text.starts_with('"') {
        return length(quoted(text, '"', false));
    }
    if text.starts_with('$') {
        return dollars(text).unwrap_or(1);
    }
    0
}

/// The end of a text in quotes; a quote in it is written twice.
fn quoted(text: &str, quote: char, escapes: bool) -> Option<usize> {
    let mut inside = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = inside.next() {
        if escapes && c == '\\' {
            inside.next();
        } else if c == quote {
            if inside.peek().is_some_and(|(_, next)| *next == quote) {
                inside.next();
            } else {
                return Some(at + 1);
            }
        }
    }
    None
}

/// The end of a comment. PostgreSQL nests them.
fn comment(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    None
}

/// The end of a text between `$tag$` and `$tag$`.
fn dollars(text: &str) -> Option<usize> {
    let tag_end = 1 + text[1..].find('$')?;
    let tag = &text[..=tag_end];
    let is_tag = tag[1..tag_end]
        .chars()
        .all(|c| c.is_alphanumeric() || c == '_')
        && !tag[1..].starts_with(|c: char| c.is_ascii_digit());
    if !is_tag {
        return None;
    }
    let body = tag.len();
    text[body..].find(tag).map(|end| body + end + tag.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_numbered_in_the_order_in_which_they_first_stand() {
        let statement = Statement::read("SELECT :b, :a, :b::text FROM t WHERE x=:a;\n");
        assert_eq!(
            statement.numbered,
            "SELECT $1, $2, $1::text FROM t WHERE x=$2"
        );
        assert_eq!(statement.names, ["b", "a"]);
        assert_eq!(statement.named, "SELECT :b, :a, :b::text FROM t WHERE x=:a");
    }

    #[test]
    fn texts_names_and_comments_have_no_placeholders() {
        for sql in [
            "SELECT ':a'",
            "SELECT 'it''s :a'",
            "SELECT E'\\' :a'",
            "SELECT \"x:a\"",
            "SELECT 1 -- :a",
            "SELECT 1 /* :a /* :b */ :c */",
            "SELECT $$ :a $$",
            "SELECT $q$ :a $$ :b $q$",
            "SELECT x::int4",
            "SELECT a[1:2]",
            "SELECT 'unfinished :a",
            "SELECT /* :a",
            "SELECT $1",
            "SELECT 'ü:'",
        ] {
            let statement = Statement::read(sql);
            assert_eq!(statement.names, Vec::<String>::new(), "{sql}");
            assert_eq!(statement.numbered, sql);
        }
        assert_eq!(
            Statement::read("SELECT '' || :a -- x\n + :b").names,
            ["a", "b"]
        );
    }
}

//! Placeholders of the form `:name` in a statement.
//!
//! Statements come from the configuration. Parsing them needs no SQL grammar, only the boundaries of strings and
//! comments.

/// A statement with known placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    /// Text as written, without the final semicolon.
    pub(super) named: String,
    /// Text with `$1`, `$2` and so on for PostgreSQL.
    pub(super) numbered: String,
    /// Distinct placeholder names, in the order of their numbers.
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
            let skipped = skipped(rest, &sql[..at]);
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

/// Returns the name of a placeholder at the beginning of the text.
fn name(text: &str) -> Option<&str> {
    let rest = text.strip_prefix(':')?;
    let end = rest
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap_or(rest.len());
    let name = &rest[..end];
    (!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit())).then_some(name)
}

/// Returns the length of a prefix without placeholders: a string, a quoted name, a comment or a cast.
fn skipped(text: &str, before: &str) -> usize {
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
        // `E` begins the string, unless it ends a word such as `ESCAPE`.
        let word = before.strip_suffix(['E', 'e']);
        let escapes = word.is_some_and(|word| !word.ends_with(is_of_name));
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

/// Returns the end of a quoted string; a quote in it is doubled.
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

/// Returns the end of a comment. PostgreSQL nests them.
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

/// Returns the end of a string between `$tag$` and `$tag$`.
fn dollars(text: &str) -> Option<usize> {
    let tag_end = 1 + text[1..].find('$')?;
    let tag = &text[..=tag_end];
    let is_tag = tag[1..tag_end].chars().all(is_of_name)
        && !tag[1..].starts_with(|c: char| c.is_ascii_digit());
    if !is_tag {
        return None;
    }
    let body = tag.len();
    text[body..].find(tag).map(|end| body + end + tag.len())
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
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
        for sql in [
            "SELECT '' || :a -- x\n + :b",
            r"SELECT x LIKE :a ESCAPE'\' OR y = :b",
        ] {
            assert_eq!(Statement::read(sql).names, ["a", "b"], "{sql}");
        }
    }
}

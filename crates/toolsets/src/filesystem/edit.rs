//! Text edits, and their changes as a unified diff.

use schemars::JsonSchema;
use serde::Deserialize;
use similar::{Algorithm, DiffOp, TextDiff};

use crate::catalog::ToolError;
use crate::source::builtin::Stop;
use crate::text::fence;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OneEdit {
    /// The existing text, which can span lines.
    #[serde(rename = "oldText")]
    old_text: String,
    /// The replacement text.
    #[serde(rename = "newText")]
    new_text: String,
}

/// A text with `\n` line ends that records which of them were `\r\n`. A file can have both.
#[derive(Debug)]
pub(super) struct Lines {
    text: String,
    /// True for each `\n` that was `\r\n`, in order.
    is_crlf: Vec<bool>,
}

impl Lines {
    pub(super) fn read(text: &str) -> Self {
        let ends = memchr::memchr_iter(b'\n', text.as_bytes());
        let is_crlf = ends.map(|at| text[..at].ends_with('\r')).collect();
        Self {
            text: normalized(text),
            is_crlf,
        }
    }

    /// Returns the text with `\n` at the end of each line.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the text with its original line ends.
    pub(super) fn written(&self) -> String {
        let more = self.is_crlf.iter().filter(|is_crlf| **is_crlf).count();
        let mut written = String::with_capacity(self.text.len() + more);
        let mut is_crlf = self.is_crlf.iter();
        for line in self.text.split_inclusive('\n') {
            match line.strip_suffix('\n') {
                Some(line) if is_crlf.next() == Some(&true) => {
                    written.push_str(line);
                    written.push_str("\r\n");
                }
                _ => written.push_str(line),
            }
        }
        written
    }

    /// Replaces a part of the text. The new lines take over the line ends of those that they replace. Further lines
    /// use the last of those, or that of the surrounding line.
    fn replace(&mut self, range: std::ops::Range<usize>, new: &str) {
        let count = |text: &str| memchr::memchr_iter(b'\n', text.as_bytes()).count();
        let first = count(&self.text[..range.start]);
        let replaced = first..first + count(&self.text[range.clone()]);
        let around = [
            replaced.end.checked_sub(1).filter(|_| !replaced.is_empty()),
            Some(replaced.end),
            first.checked_sub(1),
        ];
        let around = around
            .into_iter()
            .flatten()
            .find_map(|at| self.is_crlf.get(at));
        let further = around.copied().unwrap_or(false);
        let ends: Vec<bool> = (0..count(new))
            .map(|number| match replaced.clone().nth(number) {
                Some(at) => self.is_crlf[at],
                None => further,
            })
            .collect();
        self.is_crlf.splice(replaced, ends);
        self.text.replace_range(range, new);
    }
}

/// Applies edits to a text, one after the other.
///
/// Each edit replaces the first occurrence of its old text. If there is none, it replaces lines that differ only in
/// surrounding white space, and indents the new lines like those. Lines that no edit replaces keep their ends.
///
/// # Errors
///
/// An old text does not occur, the text becomes too long, or the time is up.
pub(super) fn apply(
    lines: &mut Lines,
    edits: &[OneEdit],
    max: usize,
    stop: &Stop,
) -> Result<(), ToolError> {
    for edit in edits {
        stop.check()?;
        if max < lines.text.len() {
            stop.hit("bytes");
            return Err(ToolError::new(format!(
                "the file would have more than {max} bytes (builtin.filesystem.limits.bytes)"
            )));
        }
        let old = normalized(&edit.old_text);
        let new = normalized(&edit.new_text);
        if let Some(at) = lines.text.find(&old) {
            lines.replace(at..at + old.len(), &new);
            continue;
        }
        let (range, new) = by_lines(&lines.text, &old, &new, stop)?.ok_or_else(|| {
            let shown: String = edit.old_text.chars().take(1000).collect();
            ToolError::new(format!(
                "the file does not contain this text, so nothing was changed; copy the text exactly as in the file:\n{shown}"
            ))
        })?;
        lines.replace(range, &new);
    }
    Ok(())
}

/// Converts line ends to `\n`.
fn normalized(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// Finds the first lines that equal the old ones except for surrounding white space. Returns their range and the
/// replacement.
fn by_lines(
    text: &str,
    old: &str,
    new: &str,
    stop: &Stop,
) -> Result<Option<(std::ops::Range<usize>, String)>, ToolError> {
    let lines: Vec<&str> = text.split('\n').collect();
    let old_lines: Vec<&str> = old.split('\n').collect();
    let trimmed: Vec<&str> = old_lines.iter().map(|line| trimmed(line)).collect();
    let mut compared = 0_usize;
    let mut start = 0;
    for window in lines.windows(trimmed.len()) {
        let mut is_same = true;
        for (line, wanted) in window.iter().zip(&trimmed) {
            compared += 1;
            if compared.is_multiple_of(65_536) {
                stop.check()?;
            }
            if self::trimmed(line) != *wanted {
                is_same = false;
                break;
            }
        }
        if is_same {
            let bytes = window.iter().map(|line| line.len()).sum::<usize>() + window.len() - 1;
            let new_lines = indented(new, &old_lines, indent(window[0]));
            return Ok(Some((start..start + bytes, new_lines.join("\n"))));
        }
        start += window[0].len() + 1;
    }
    Ok(None)
}

/// Indents the first new line like the first replaced one, and the others relative to it by their difference from the
/// old line in the same position.
fn indented(new: &str, old_lines: &[&str], base: &str) -> Vec<String> {
    let line = |(position, line): (usize, &str)| {
        if position == 0 {
            return format!("{base}{}", line.trim_start());
        }
        let old = indent(old_lines.get(position).copied().unwrap_or_default());
        let new = indent(line);
        if old.is_empty() || new.is_empty() {
            return line.to_owned();
        }
        let deeper = new.len().saturating_sub(old.len());
        format!("{base}{}{}", " ".repeat(deeper), line.trim_start())
    };
    new.split('\n').enumerate().map(line).collect()
}

/// Returns the white space that a line begins with. A byte order mark counts, as in JavaScript.
fn indent(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches(is_space).len()]
}

fn trimmed(line: &str) -> &str {
    line.trim_matches(is_space)
}

fn is_space(c: char) -> bool {
    c.is_whitespace() || c == '\u{feff}'
}

/// Returns the changes as a unified diff in a Markdown code fence.
pub(super) fn diff(path: &str, before: &str, after: &str) -> String {
    let patch = patch(path, before, after);
    let fence = fence(&patch);
    format!("{fence}diff\n{patch}{fence}\n\n")
}

/// Number of context lines around a change.
const AROUND: usize = 4;
/// Time to search for the shortest diff; after that, any diff is used.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);

fn patch(path: &str, before: &str, after: &str) -> String {
    let mut patch = format!(
        "Index: {path}\n{}\n--- {path}\toriginal\n+++ {path}\tmodified\n",
        "=".repeat(67)
    );
    // Edits are small and files can be large, so the common beginning and end are not compared line by line.
    let skipped = same_lines_at_begin(before, after);
    let (lines_skipped, [before, after]) = skipped;
    // A carriage return alone does not end a line here.
    let [before, after] =
        [before, after].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
    let compared = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .timeout(PATIENCE)
        .diff_slices(&before, &after);
    for group in compared.grouped_ops(AROUND) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            continue;
        };
        let old = first.old_range().start..last.old_range().end;
        let new = first.new_range().start..last.new_range().end;
        let place = |range: &std::ops::Range<usize>| {
            let begin = lines_skipped + range.start + usize::from(!range.is_empty());
            format!("{begin},{}", range.len())
        };
        patch.push_str(&format!("@@ -{} +{} @@\n", place(&old), place(&new)));
        for op in &group {
            push(&mut patch, op, &compared);
        }
    }
    patch
}

fn push(patch: &mut String, op: &DiffOp, compared: &TextDiff<'_, '_, '_, str>) {
    let mut put = |sign: char, line: &str| {
        patch.push(sign);
        patch.push_str(line);
        if !line.ends_with('\n') {
            patch.push_str("\n\\ No newline at end of file\n");
        }
    };
    let old = &compared.old_slices()[op.old_range()];
    match op {
        DiffOp::Equal { .. } => old.iter().for_each(|line| put(' ', line)),
        _ => {
            old.iter().for_each(|line| put('-', line));
            let new = &compared.new_slices()[op.new_range()];
            new.iter().for_each(|line| put('+', line));
        }
    }
}

/// Returns the number of common lines at the beginning, minus the context before the first change, and the remaining
/// texts.
fn same_lines_at_begin<'t>(before: &'t str, after: &'t str) -> (usize, [&'t str; 2]) {
    let same = before
        .bytes()
        .zip(after.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    let mut ends = memchr::memrchr_iter(b'\n', &before.as_bytes()[..same]);
    let begin = ends.nth(AROUND).map_or(0, |end| end + 1);
    let skipped = memchr::memchr_iter(b'\n', &before.as_bytes()[..begin]).count();
    (skipped, [&before[begin..], &after[begin..]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(text: &str, edits: &[(&str, &str)]) -> Result<String, ToolError> {
        let edit = |&(old, new): &(&str, &str)| OneEdit {
            old_text: old.to_owned(),
            new_text: new.to_owned(),
        };
        let edits: Vec<OneEdit> = edits.iter().map(edit).collect();
        let mut lines = Lines::read(text);
        apply(&mut lines, &edits, 1000, &Stop::never())?;
        Ok(lines.written())
    }

    #[test]
    fn each_line_keeps_its_own_end() {
        let text = "one\r\ntwo\nthree\r\nfour";
        for (edits, after) in [
            (&[][..], text),
            (&[("two", "2")][..], "one\r\n2\nthree\r\nfour"),
            // New lines end as those that they replace, and further ones as the last of those.
            (&[("one\ntwo\n", "1\n2\n3\n")], "1\r\n2\n3\nthree\r\nfour"),
            (&[("three", "3\n3")], "one\r\ntwo\n3\r\n3\r\nfour"),
            (&[("four", "4\n5")], "one\r\ntwo\nthree\r\n4\r\n5"),
            (&[("\ntwo\n", " ")], "one three\r\nfour"),
            (&[("  two  \n  three ", "2\n3")], "one\r\n2\n3\r\nfour"),
            (&[("one\r\n", ""), ("three", "3\n")], "two\n3\r\n\r\nfour"),
        ] {
            assert_eq!(edited(text, edits).expect("edited"), after, "{edits:?}");
        }
        let text = "a\rb\n";
        assert_eq!(edited(text, &[("b", "c")]).expect("edited"), "a\rc\n");
        assert_eq!(edited("a", &[("a", "b\nc")]).expect("edited"), "b\nc");
    }

    #[test]
    fn the_first_place_of_a_text_is_replaced() {
        let text = "one\ntwo\none\n";
        for (edits, after) in [
            (&[("one", "1")][..], "1\ntwo\none\n"),
            (&[("one", "1"), ("one", "2")], "1\ntwo\n2\n"),
            (&[("one\ntwo", "$1 $& \\0")], "$1 $& \\0\none\n"),
            (&[("one\r\ntwo", "1\r\n2")], "1\n2\none\n"),
            (&[("two\n", "")], "one\none\n"),
            (&[], text),
        ] {
            assert_eq!(edited(text, edits).expect("edited"), after);
        }
    }

    #[test]
    fn white_space_around_lines_need_not_be_right_and_indents_are_kept() {
        let text = "fn main() {\n    if a {\n        b();\n    }\n}\n";
        let after = edited(
            text,
            &[("if a {\n    b();\n}", "if c {\n    d();\n        e();\n}")],
        )
        .expect("edited");
        assert_eq!(
            after,
            "fn main() {\n    if c {\n    d();\n        e();\n}\n}\n"
        );
        let after = edited("\tx = 1\n", &[("  x = 1  ", "x = 2")]).expect("edited");
        assert_eq!(after, "\tx = 2\n");
        // A byte order mark stays.
        let after = edited("\u{feff}a\nb\n", &[("a\n  b", "A\nB")]).expect("edited");
        assert_eq!(after, "\u{feff}A\nB\n");
    }

    #[test]
    fn what_is_nowhere_is_not_replaced() {
        let error = edited("one\n", &[("one", "1"), ("one", "2")]).expect_err("nowhere");
        assert!(error.message().ends_with("one"), "{}", error.message());
    }

    #[test]
    fn a_diff_shows_four_lines_around_each_change() {
        let before: String = (1..=40).map(|n| format!("{n}\n")).collect();
        let after = before.replace("\n20\n", "\nzwanzig\n");
        let shown = diff("/d/file", &before, &after);
        let (head, hunk) = shown.split_once("@@").expect("a hunk");
        let rule = "=".repeat(67);
        assert_eq!(
            head,
            format!(
                "```diff\nIndex: /d/file\n{rule}\n--- /d/file\toriginal\n+++ /d/file\tmodified\n"
            )
        );
        assert_eq!(
            hunk,
            " -16,9 +16,9 @@\n 16\n 17\n 18\n 19\n-20\n+zwanzig\n 21\n 22\n 23\n 24\n```\n\n"
        );
    }

    #[test]
    fn ends_of_files_and_fences_are_right() {
        let shown = diff("f", "a", "a\n```\n");
        assert!(
            shown.starts_with("````diff\n") && shown.ends_with("````\n\n"),
            "{shown}"
        );
        assert!(
            shown.contains("@@ -1,1 +1,2 @@\n-a\n\\ No newline at end of file\n+a\n+```\n"),
            "{shown}"
        );
        assert!(diff("f", "", "a\n").contains("@@ -0,0 +1,1 @@\n+a\n"));
        let shown = diff("f", "a\rb\n", "a\rc\n");
        assert!(shown.contains("@@ -1,1 +1,1 @@\n-a\rb\n+a\rc\n"), "{shown}");
        assert!(!diff("f", "same\n", "same\n").contains("@@"));
    }
}

//! Patches in the format of `git diff`.

use gix::ObjectId;
use gix::bstr::{BStr, BString, ByteSlice};
use imara_diff::{Algorithm, Diff, Hunk, IndentHeuristic, IndentLevel, InternedInput, Token};

use super::change::{Change, FileState};
use super::index::Files;
use super::repository::{OpenRepository, ResultContext};
use super::text::{Text, quoted, with_prefix};
use super::tree::Mode;
use crate::catalog::ToolError;
use crate::source::builtin::Stop;

/// Maximum number of lines on each side that are compared at once. Nothing interrupts a comparison; one of so many lines
/// takes less than a second.
const WINDOW: usize = 256 * 1024;

/// Content of one side of a change.
enum Content {
    Bytes(Vec<u8>),
    TooLarge(u64),
}

/// Writes changes with content from the repository and, if there is one, from the working tree.
pub(super) struct Patch<'a> {
    pub(super) place: &'a OpenRepository<'a>,
    pub(super) files: Option<Files<'a>>,
    pub(super) context: usize,
}

impl Patch<'_> {
    /// Writes a list of changes, as far as it fits.
    pub(super) fn write(&mut self, changes: &[Change], out: &mut Text) -> Result<(), ToolError> {
        for change in changes {
            self.place.stop.check()?;
            if out.is_full() {
                break;
            }
            self.change(change, out)?;
        }
        Ok(())
    }

    fn change(&mut self, change: &Change, out: &mut Text) -> Result<(), ToolError> {
        if change.is_conflict {
            out.line(format!("* Unmerged path {}", quoted(change.path.as_bstr())));
            return Ok(());
        }
        // A file replaced by a link is shown as a removal and an addition.
        if let (Some(old), Some(new)) = (change.old, change.new)
            && !old.version.mode.is_alike(new.version.mode)
        {
            let path = || change.path.clone();
            self.change(&Change::new(path(), Some(old), None), out)?;
            return self.change(&Change::new(path(), None, Some(new)), out);
        }
        self.headers(change, out);
        // The tab marks the end of a name with spaces.
        let tab = |name: &str| if name.contains(' ') { "\t" } else { "" };
        self.body(change, out, |old, new, out| {
            out.line(format!("--- {old}{}", tab(old)));
            out.line(format!("+++ {new}{}", tab(new)));
        })
    }

    /// Writes only the changes within files, without the headers on how they are stored. `names_of_text` writes the names
    /// of files whose lines differ.
    pub(super) fn body(
        &mut self,
        change: &Change,
        out: &mut Text,
        names_of_text: impl FnOnce(&str, &str, &mut Text),
    ) -> Result<(), ToolError> {
        let id = |side: Option<FileState>| side.map(|side| side.version.id);
        if id(change.old) == id(change.new) {
            return Ok(());
        }
        let (old, new) = names(change);
        match self.contents(change)? {
            (Content::Bytes(a), Content::Bytes(b)) if is_binary(&a) || is_binary(&b) => {
                out.line(format!("Binary files {old} and {new} differ"));
            }
            (Content::Bytes(a), Content::Bytes(b)) => {
                if !(a.is_empty() && b.is_empty()) {
                    names_of_text(&old, &new, out);
                    hunks(&a, &b, self.context, self.place.stop, out)?;
                }
            }
            (Content::TooLarge(size), _) | (_, Content::TooLarge(size)) => {
                out.line(format!(
                    "Files {old} and {new} differ, and are too large to be compared ({size} bytes)"
                ));
            }
        }
        Ok(())
    }

    fn headers(&self, change: &Change, out: &mut Text) {
        let from = change.from.as_ref().unwrap_or(&change.path);
        out.line(format!(
            "diff --git {} {}",
            with_prefix("a/", from.as_bstr()),
            with_prefix("b/", change.path.as_bstr())
        ));
        let mode = |side: Option<FileState>| side.map(|side| side.version.mode);
        let same_mode = mode(change.old) == mode(change.new);
        match (mode(change.old), mode(change.new)) {
            (None, Some(new)) => out.line(format!("new file mode {}", new.octal())),
            (Some(old), None) => out.line(format!("deleted file mode {}", old.octal())),
            (Some(old), Some(new)) if !same_mode => {
                out.line(format!("old mode {}", old.octal()));
                out.line(format!("new mode {}", new.octal()));
            }
            _ => {}
        }
        if let Some(from) = &change.from {
            out.line("similarity index 100%");
            out.line(format!("rename from {}", quoted(from.as_bstr())));
            out.line(format!("rename to {}", quoted(change.path.as_bstr())));
        }
        let id = |side: Option<FileState>| side.map(|side| side.version.id);
        let (old, new) = (id(change.old), id(change.new));
        if old != new {
            let digits = |id: ObjectId| self.place.short(id);
            // As many zeros as the other ID has digits.
            let zeros =
                |other: Option<ObjectId>| "0".repeat(other.map_or(0, |id| digits(id).len()));
            let shown_old = old.map_or_else(|| zeros(new), digits);
            let shown_new = new.map_or_else(|| zeros(old), digits);
            let suffix = match mode(change.old) {
                Some(mode) if same_mode => format!(" {}", mode.octal()),
                _ => String::new(),
            };
            out.line(format!("index {shown_old}..{shown_new}{suffix}"));
        }
    }

    fn contents(&mut self, change: &Change) -> Result<(Content, Content), ToolError> {
        let from = change.from.as_ref().unwrap_or(&change.path);
        let old = self.content(from.as_bstr(), change.old)?;
        let new = self.content(change.path.as_bstr(), change.new)?;
        Ok((old, new))
    }

    fn content(&mut self, path: &BStr, side: Option<FileState>) -> Result<Content, ToolError> {
        let Some(side) = side else {
            return Ok(Content::Bytes(Vec::new()));
        };
        let id = side.version.id;
        if side.version.mode == Mode::Submodule {
            let text = format!("Subproject commit {id}\n");
            return Ok(Content::Bytes(text.into_bytes()));
        }
        if !side.is_in_worktree {
            return self.stored(id);
        }
        let max = self.place.limits().file_bytes;
        let Some(files) = &mut self.files else {
            return Err(ToolError::internal(
                "a change of the working tree without one",
            ));
        };
        match files.content_within(path)? {
            Some(bytes) => Ok(Content::Bytes(bytes)),
            None => Ok(Content::TooLarge(u64::try_from(max).unwrap_or(u64::MAX))),
        }
    }

    fn stored(&self, id: ObjectId) -> Result<Content, ToolError> {
        // It need not be in the object database.
        if id.is_empty_blob() {
            return Ok(Content::Bytes(Vec::new()));
        }
        let header = self
            .place
            .repository
            .find_header(id)
            .doing("find a file's content")?;
        let size = header.size();
        if usize::try_from(size).map_or(true, |size| self.place.limits().file_bytes < size) {
            self.place.stop.hit("file_bytes");
            return Ok(Content::TooLarge(size));
        }
        let mut blob = self
            .place
            .repository
            .find_blob(id)
            .doing("read a file's content")?;
        Ok(Content::Bytes(blob.take_data()))
    }
}

/// Returns both names of a change for the lines before its hunks.
pub(super) fn names(change: &Change) -> (String, String) {
    let nothing = || "/dev/null".to_owned();
    let from: &BString = change.from.as_ref().unwrap_or(&change.path);
    let old = change
        .old
        .map_or_else(nothing, |_| with_prefix("a/", from.as_bstr()));
    let new = change
        .new
        .map_or_else(nothing, |_| with_prefix("b/", change.path.as_bstr()));
    (old, new)
}

/// Returns true for binary content: as in Git, if there is a zero byte near the beginning.
fn is_binary(bytes: &[u8]) -> bool {
    const LOOKED_AT: usize = 8000;
    bytes[..bytes.len().min(LOOKED_AT)].contains(&0)
}

/// Writes the differing lines with context.
fn hunks(
    old: &[u8],
    new: &[u8],
    context: usize,
    stop: &Stop,
    out: &mut Text,
) -> Result<(), ToolError> {
    let input = InternedInput::new(old, new);
    let context = u32::try_from(context).unwrap_or(u32::MAX / 4);
    let mut headings = Headings::default();
    let mut group: Vec<Hunk> = Vec::new();
    for hunk in differences(&input, WINDOW, stop)? {
        if let Some(last) = group.last()
            && last.before.end.saturating_add(2 * context) < hunk.before.start
        {
            write_group(&group, &input, context, &mut headings, out);
            group.clear();
        }
        if out.is_full() {
            return Ok(());
        }
        group.push(hunk);
    }
    write_group(&group, &input, context, &mut headings, out);
    Ok(())
}

/// Compares lines in windows of limited size. What differs at the end of a window is compared again together with the next
/// one, unless it is most of the window.
fn differences(
    input: &InternedInput<&[u8]>,
    window: usize,
    stop: &Stop,
) -> Result<Vec<Hunk>, ToolError> {
    let (before, after) = (&input.before[..], &input.after[..]);
    let indent =
        |token: Token| IndentLevel::for_ascii_line(input.interner[token].iter().copied(), 8);
    let position = |lines: usize| u32::try_from(lines).unwrap_or(u32::MAX);
    let mut diff = Diff::default();
    let mut hunks: Vec<Hunk> = Vec::new();
    let (mut from, mut to) = (0, 0);
    while from < before.len() || to < after.len() {
        stop.check()?;
        let old = &before[from..before.len().min(from + window)];
        let new = &after[to..after.len().min(to + window)];
        diff.compute_with(Algorithm::Myers, old, new, input.interner.num_tokens());
        diff.postprocess_with(old, new, IndentHeuristic::new(indent));
        let mut found: Vec<Hunk> = diff.hunks().collect();
        let (mut old_end, mut new_end) = (old.len(), new.len());
        let is_last = from + old_end == before.len() && to + new_end == after.len();
        let open = found.pop_if(|last| {
            let start = last.before.start.max(last.after.start) as usize;
            !is_last && last.before.end as usize == old_end && (window / 2).max(1) <= start
        });
        if let Some(open) = open {
            (old_end, new_end) = (open.before.start as usize, open.after.start as usize);
        }
        let (old_offset, new_offset) = (position(from), position(to));
        for hunk in found {
            let before = hunk.before.start + old_offset..hunk.before.end + old_offset;
            let after = hunk.after.start + new_offset..hunk.after.end + new_offset;
            match hunks.last_mut() {
                Some(last) if (last.before.end, last.after.end) == (before.start, after.start) => {
                    (last.before.end, last.after.end) = (before.end, after.end);
                }
                _ => hunks.push(Hunk { before, after }),
            }
        }
        from += old_end;
        to += new_end;
    }
    Ok(hunks)
}

fn write_group<'a>(
    group: &[Hunk],
    input: &InternedInput<&'a [u8]>,
    context: u32,
    headings: &mut Headings<'a>,
    out: &mut Text,
) {
    let (Some(first), Some(last)) = (group.first(), group.last()) else {
        return;
    };
    let length = |tokens: usize| u32::try_from(tokens).unwrap_or(u32::MAX);
    let lead = context.min(first.before.start);
    let trail = context.min(length(input.before.len()) - last.before.end);
    let old = first.before.start - lead..last.before.end + trail;
    let new = first.after.start - lead..last.after.end + trail;
    let range = |range: &std::ops::Range<u32>| {
        let count = range.end - range.start;
        // An empty range is numbered by the line before it, any other by its first line.
        let start = if count == 0 {
            range.start
        } else {
            range.start + 1
        };
        if count == 1 {
            format!("{start}")
        } else {
            format!("{start},{count}")
        }
    };
    out.push(format!("@@ -{} +{} @@", range(&old), range(&new)));
    if let Some(heading) = headings.before(old.start, input) {
        out.push(" ");
        out.push(heading);
    }
    out.push("\n");
    let before = |at: u32| input.interner[input.before[at as usize]];
    let after = |at: u32| input.interner[input.after[at as usize]];
    let mut at = old.start;
    for hunk in group {
        (at..hunk.before.start).for_each(|line| write_line(" ", before(line), out));
        hunk.before
            .clone()
            .for_each(|line| write_line("-", before(line), out));
        hunk.after
            .clone()
            .for_each(|line| write_line("+", after(line), out));
        at = hunk.before.end;
        if out.is_full() {
            return;
        }
    }
    (at..old.end).for_each(|line| write_line(" ", before(line), out));
}

fn write_line(sign: &str, line: &[u8], out: &mut Text) {
    out.push(sign);
    out.push(line);
    if !line.ends_with(b"\n") {
        out.push("\n\\ No newline at end of file\n");
    }
}

/// The headings of hunks, found in one pass over the lines.
#[derive(Default)]
struct Headings<'a> {
    examined: u32,
    last: Option<&'a [u8]>,
}

impl<'a> Headings<'a> {
    /// Returns the last unindented line before a hunk, usually the function or section that contains it. The hunks are in
    /// order.
    fn before(&mut self, start: u32, input: &InternedInput<&'a [u8]>) -> Option<&'a [u8]> {
        const LENGTH_MAX: usize = 80;
        let is_heading = |line: &&[u8]| {
            line.first()
                .is_some_and(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$'))
        };
        let line = (self.examined..start)
            .rev()
            .map(|at| input.interner[input.before[at as usize]])
            .find(is_heading);
        self.examined = self.examined.max(start);
        self.last = line.or(self.last);
        let last = self.last?;
        Some(last[..last.len().min(LENGTH_MAX)].trim_ascii_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(old: &str, new: &str, context: usize) -> String {
        let mut out = Text::new(10_000, Stop::never());
        hunks(
            old.as_bytes(),
            new.as_bytes(),
            context,
            &Stop::never(),
            &mut out,
        )
        .expect("in time");
        out.finish()
    }

    /// Applies hunks to the old lines.
    fn applied<'a>(input: &InternedInput<&'a [u8]>, hunks: &[Hunk]) -> Vec<&'a [u8]> {
        let line = |token: Token| input.interner[token];
        let mut lines = Vec::new();
        let mut at = 0;
        for hunk in hunks {
            let (before, after) = (&hunk.before, &hunk.after);
            lines.extend(
                input.before[at..before.start as usize]
                    .iter()
                    .copied()
                    .map(line),
            );
            assert_eq!(lines.len(), after.start as usize);
            lines.extend(
                input.after[after.start as usize..after.end as usize]
                    .iter()
                    .copied()
                    .map(line),
            );
            at = before.end as usize;
        }
        lines.extend(input.before[at..].iter().copied().map(line));
        lines
    }

    #[test]
    fn a_change_is_shown_with_the_lines_around_it_and_what_it_is_in() {
        let old = "fn one() {\n    1\n}\n\nfn two() {\n    a\n    b\n    c\n    d\n    e\n}\n";
        let new = old.replace("    d\n", "    D\n");
        insta::assert_snapshot!(shown(old, &new, 3), @r"
        @@ -6,6 +6,6 @@ fn two() {
             a
             b
             c
        -    d
        +    D
             e
         }
        ");
        insta::assert_snapshot!(shown(old, &new, 0), @r"
        @@ -9 +9 @@ fn two() {
        -    d
        +    D
        ");
    }

    #[test]
    fn a_missing_newline_at_the_end_is_told() {
        insta::assert_snapshot!(shown("a\nb", "a\nb\n", 3), @r"
        @@ -1,2 +1,2 @@
         a
        -b
        \ No newline at end of file
        +b
        ");
        insta::assert_snapshot!(shown("", "x", 3), @r"
        @@ -0,0 +1 @@
        +x
        \ No newline at end of file
        ");
        insta::assert_snapshot!(shown("x\n", "", 3), @r"
        @@ -1 +0,0 @@
        -x
        ");
    }

    #[test]
    fn changes_that_are_near_are_shown_together() {
        let lines = |change: &[usize]| -> String {
            (1..=20)
                .map(|n| {
                    if change.contains(&n) {
                        format!("x{n}\n")
                    } else {
                        format!("{n}\n")
                    }
                })
                .collect()
        };
        let near = shown(&lines(&[]), &lines(&[5, 12]), 3);
        assert_eq!(near.matches("@@ -").count(), 1, "{near}");
        let far = shown(&lines(&[]), &lines(&[5, 13]), 3);
        assert_eq!(far.matches("@@ -").count(), 2, "{far}");
        assert!(far.starts_with("@@ -2,7 +2,7 @@\n"), "{far}");
    }

    #[test]
    fn long_files_are_compared_in_windows() {
        let lines = |range: std::ops::Range<u32>| -> String {
            range.map(|number| format!("{number}\n")).collect()
        };
        // Lines before, between and after the rest: more than a window has, and fewer.
        let old = lines(0..100);
        for new in [
            lines(0..100),
            format!("{}{}", lines(200..205), lines(0..100)),
            format!("{}{}{}", lines(0..50), lines(200..203), lines(50..100)),
            format!("{}{}", lines(7..40), lines(43..120)),
            format!("{}{}", lines(200..260), lines(0..100)),
            lines(60..100),
            lines(200..300),
            String::new(),
        ] {
            let input = InternedInput::new(old.as_bytes(), new.as_bytes());
            let whole = differences(&input, 1000, &Stop::never()).expect("in time");
            for window in [1, 2, 16, 40] {
                let hunks = differences(&input, window, &Stop::never()).expect("in time");
                let after: Vec<_> = input.after.iter().map(|at| input.interner[*at]).collect();
                assert_eq!(applied(&input, &hunks), after, "{window}");
                let apart = hunks.windows(2).all(|two| {
                    two[0].before.end < two[1].before.start && two[0].after.end < two[1].after.start
                });
                assert!(apart, "{window}: {hunks:?}");
                if window == 40
                    && !new.starts_with("200\n201\n202\n203\n204\n205\n")
                    && !new.starts_with("60\n")
                {
                    assert_eq!(hunks, whole);
                }
            }
        }
    }

    #[test]
    fn a_comparison_ends_with_its_call() {
        let input = InternedInput::new("a\n".as_bytes(), "b\n".as_bytes());
        let over = Stop::after(std::time::Duration::ZERO);
        assert!(differences(&input, WINDOW, &over).is_err());
    }

    #[test]
    fn headings_are_those_before_each_hunk() {
        let text = "one\n 1\n 2\n 3\ntwo\n 4\n 5\n 6\n 7\n 8\n";
        let new = text
            .replace(" 2", " x")
            .replace(" 5", " y")
            .replace(" 8", " z");
        let shown = shown(text, &new, 0);
        let headings: Vec<_> = shown
            .lines()
            .filter(|line| line.starts_with("@@"))
            .collect();
        assert_eq!(
            headings,
            ["@@ -3 +3 @@ one", "@@ -7 +7 @@ two", "@@ -10 +10 @@ two"]
        );
    }
}

//! Pages of a text, with a note on where the next one begins, in the format of the official reference server.

/// Returns at most `max` characters from the character `begin` on.
pub(super) fn page(text: &str, begin: usize, max: usize) -> String {
    let Some(begin_byte) = offset(text, begin).filter(|at| *at < text.len()) else {
        return "<error>No more content available.</error>".to_owned();
    };
    let rest = &text[begin_byte..];
    match offset(rest, max).filter(|end| *end < rest.len()) {
        None => rest.to_owned(),
        Some(end) => format!(
            "{}\n\n<error>Content truncated. Call the fetch tool with a start_index of {} to get more content.</error>",
            &rest[..end],
            begin + max
        ),
    }
}

/// Returns the byte offset of a character, or the length of the text for the position after the last one.
fn offset(text: &str, character: usize) -> Option<usize> {
    let ends = std::iter::once(text.len());
    let mut begins = text.char_indices().map(|(at, _)| at).chain(ends);
    begins.nth(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_given_out_in_parts_that_follow_one_another() {
        let more = |part: &str, next: usize| {
            format!(
                "{part}\n\n<error>Content truncated. Call the fetch tool with a start_index of {next} to get more content.</error>"
            )
        };
        let none = "<error>No more content available.</error>";
        assert_eq!(page("añ日b", 0, 2), more("añ", 2));
        assert_eq!(page("añ日b", 2, 2), "日b");
        assert_eq!(page("añ日b", 0, 4), "añ日b");
        assert_eq!(page("añ日b", 0, 999_999), "añ日b");
        assert_eq!(page("añ日b", 1, 1), more("ñ", 2));
        assert_eq!(page("añ日b", 4, 2), none);
        assert_eq!(page("añ日b", usize::MAX, 2), none);
        assert_eq!(page("", 0, 2), none);
    }
}

//! Text of servers, made safe for terminals and shells.

/// Quotes a word for a shell, because a server's text must not become a command when the line is copied.
pub(in super::super) fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ":=-_./,@".contains(c);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Removes characters that could control a terminal.
pub(in super::super) fn clean(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
        .collect()
}

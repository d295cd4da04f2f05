//! The ID of a request that cannot be read, so that its client gets an error instead of waiting for a response.

use std::io;

use serde::de::IgnoredAny;

use super::is_id;

/// Bytes that are kept of each end of a message.
const END_BYTES: usize = 1024;

/// Beginning and end of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    beginning: Vec<u8>,
    end: Vec<u8>,
}

impl Ends {
    /// Adds the next bytes of the message.
    pub fn add(&mut self, bytes: &[u8]) {
        let missing = END_BYTES - self.beginning.len();
        self.beginning
            .extend_from_slice(&bytes[..bytes.len().min(missing)]);
        self.end
            .extend_from_slice(&bytes[bytes.len().saturating_sub(END_BYTES)..]);
        self.end.drain(..self.end.len().saturating_sub(END_BYTES));
    }

    /// Returns the JSON text of the ID, if the message is certainly a request and one of its ends contains the ID.
    ///
    /// The method must stand before the parameters: a message without it may be a response, whose ID is another one's. The
    /// end of a message that is not [closed](is_closed) may belong to its parameters.
    pub fn request_id(&self, is_closed: bool) -> Option<String> {
        let is_valid = |id: &str| serde_json::from_str::<IgnoredAny>(id).is_ok() && is_id(id);
        self.id_of_request(is_closed).filter(|id| is_valid(id))
    }

    fn id_of_request(&self, is_closed: bool) -> Option<String> {
        let beginning = String::from_utf8_lossy(&self.beginning);
        let mut rest = beginning.trim_start().strip_prefix('{')?;
        let (mut is_request, mut id) = (false, None);
        loop {
            let (key, value) = scalar(rest)?;
            let value = value.trim_start().strip_prefix(':')?;
            match key {
                "\"params\"" if is_request => {
                    return id.or_else(|| self.id_at_end().filter(|_| is_closed));
                }
                "\"method\"" | "\"id\"" | "\"jsonrpc\"" => {}
                _ => return None,
            }
            let (value, behind) = scalar(value)?;
            is_request |= key == "\"method\"";
            if key == "\"id\"" {
                id = Some(value.to_owned());
            }
            rest = behind.trim_start().strip_prefix(',')?;
        }
    }

    /// Returns the ID if it is the last member of the message.
    fn id_at_end(&self) -> Option<String> {
        let end = String::from_utf8_lossy(&self.end);
        let members = end.trim_end().strip_suffix('}')?.trim_end();
        let (before, value) = members.rsplit_once("\"id\"")?;
        let value = value.trim_start().strip_prefix(':')?;
        let (id, behind) = scalar(value)?;
        let is_member = before.trim_end().ends_with(',') && behind.is_empty();
        is_member.then(|| id.to_owned())
    }
}

/// Returns true if each bracket outside of strings that is opened in a text is also closed.
pub fn is_closed(text: &[u8]) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return false,
            },
            _ => {}
        }
    }
    depth == 0 && !in_string
}

impl io::Write for Ends {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.add(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Splits off a string without escapes, or an integer.
fn scalar(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let length = match text.strip_prefix('"') {
        Some(inner) => {
            let length = inner.find(['"', '\\'])?;
            inner[length..].starts_with('"').then_some(length + 2)?
        }
        None => {
            let is_digit = |c: char| c.is_ascii_digit() || c == '-';
            text.find(|c| !is_digit(c)).unwrap_or(text.len())
        }
    };
    (0 < length).then(|| text.split_at(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_of(message: &str, piece: usize) -> Option<String> {
        let mut ends = Ends::default();
        message
            .as_bytes()
            .chunks(piece)
            .for_each(|piece| ends.add(piece));
        ends.request_id(true)
    }

    #[test]
    fn the_end_of_an_unclosed_message_may_belong_to_the_parameters() {
        for (message, id) in [
            (r#"{"method":"m","params":{"a":1,"id":7}"#, None),
            (r#"{"method":"m","params":{"a":"}","id":7}"#, None),
            (
                r#"{"method":"m","params":{"a":"\ud800\""},"id":7}"#,
                Some("7"),
            ),
            (r#"{"id":7,"method":"m","params":{"a":1"#, Some("7")),
        ] {
            let mut ends = Ends::default();
            ends.add(message.as_bytes());
            let found = ends.request_id(is_closed(message.as_bytes()));
            assert_eq!(found.as_deref(), id, "{message}");
        }
    }

    #[test]
    fn the_id_of_a_request_is_known_by_its_beginning_or_its_end() {
        let x = "x".repeat(5000);
        for (message, id) in [
            (
                format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{{"a":"{x}"}}}}"#),
                Some("7"),
            ),
            (
                format!(r#" {{ "id" : "a-b" , "method" : "m", "params": {{"a":"{x}"}}}}"#),
                Some("\"a-b\""),
            ),
            (
                format!(r#"{{"method":"m","params":{{"a":"{x}"}},"jsonrpc":"2.0","id":-7}}"#),
                Some("-7"),
            ),
            (
                format!(r#"{{"method":"m","params":{{"a":"{x}"}},"id":"7" }} "#),
                Some("\"7\""),
            ),
            // A notification whose parameters have an ID, and one in a text.
            (
                format!(r#"{{"method":"m","params":{{"a":"{x}","id":7}}}}"#),
                None,
            ),
            (
                format!(r#"{{"method":"m","params":{{}},"{x}\"id":7}}"#),
                None,
            ),
            // A response has the ID of another request.
            (format!(r#"{{"id":7,"result":{{"a":"{x}"}}}}"#), None),
            (format!(r#"{{"result":{{"a":"{x}"}},"id":7}}"#), None),
            (
                format!(r#"{{"params":{{"a":"{x}"}},"method":"m","id":7}}"#),
                None,
            ),
            (format!(r#"{{"method":"m","id":1.5,"params":"{x}"}}"#), None),
            (format!(r#"{{"method":"m","id":007,"params":"{x}"}}"#), None),
            (format!("[{x}]"), None),
            (x.clone(), None),
        ] {
            for piece in [1, 7, 10_000] {
                assert_eq!(id_of(&message, piece).as_deref(), id, "{message:.60}");
            }
        }
    }
}

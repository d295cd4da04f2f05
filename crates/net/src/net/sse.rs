//! Server-sent events, read as they arrive (WHATWG HTML, 9.2).

/// Turns bytes into events, however they are cut into pieces.
#[derive(Debug)]
pub struct EventDecoder {
    max: usize,
    line: Vec<u8>,
    /// The last line ended with a carriage return; a line feed that follows belongs to it.
    after_return: bool,
    at_start: bool,
    data: String,
    has_data: bool,
    kind: String,
    /// ID of the incomplete event, or else of the last event.
    id: Option<String>,
    /// ID of the last complete event.
    last_id: Option<String>,
    /// True if the next event is too long, which the next call reports.
    is_too_long: bool,
    /// True to skip events that are too long.
    skips: bool,
    skipped: Option<SkippedEvent>,
}

/// An event that is too long, while its rest is skipped.
#[derive(Debug)]
struct SkippedEvent {
    beginning: Vec<u8>,
    end: Vec<u8>,
    bytes: usize,
    /// True if the current line has had no bytes.
    line_is_empty: bool,
}

/// Number of bytes kept from the beginning and from the end of an event that is skipped.
const SKIPPED_BEGINNING: usize = 256;
const SKIPPED_END: usize = 64;
/// Maximum length of an event that is skipped, as a multiple of the size limit.
const SKIPPED_MAX: usize = 8;

/// A server-sent event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Its name; empty for the usual `message`.
    pub kind: String,
    pub data: String,
    /// The last id that the stream gave, on this event or before it.
    pub id: Option<String>,
}

/// Item of an event stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SseItem {
    Event(Event),
    /// After how many milliseconds to come back when the stream ends.
    Retry(u64),
    /// The beginning and the end of the data of an event that is too long; only of a decoder that
    /// [skips](EventDecoder::skipping) them.
    TooLong {
        beginning: Vec<u8>,
        end: Vec<u8>,
    },
}

/// Error for an event or line that exceeds the size limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than {max} bytes")]
pub struct EventTooLong {
    max: usize,
}

impl EventDecoder {
    /// Events may have up to `max` bytes.
    pub fn new(max: usize) -> Self {
        Self {
            max,
            line: Vec::new(),
            after_return: false,
            at_start: true,
            data: String::new(),
            has_data: false,
            kind: String::new(),
            id: None,
            last_id: None,
            is_too_long: false,
            skips: false,
            skipped: None,
        }
    }

    /// Skips events that are too long, up to eight times the limit, instead of failing.
    #[must_use]
    pub fn skipping(mut self) -> Self {
        self.skips = true;
        self
    }

    /// Prepares for another stream, which resumes after the last complete event. Discards the incomplete one.
    pub fn restart(&mut self) {
        let last_id = self.last_id.take();
        *self = Self {
            // As in browsers, events without an ID keep the last one.
            id: last_id.clone(),
            last_id,
            skips: self.skips,
            ..Self::new(self.max)
        };
    }

    /// Decodes bytes into the items that they complete.
    ///
    /// # Errors
    ///
    /// Fails if an event is too long. Items before it are returned first; the next call fails then. Its ID counts as
    /// the last one, because a resumed stream would otherwise begin with the same event.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<SseItem>, EventTooLong> {
        if self.is_too_long {
            return Err(self.too_long());
        }
        let mut said = Vec::new();
        for part in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (text, end) = match part.split_last() {
                Some((end @ (b'\n' | b'\r'), text)) => (text, Some(*end)),
                _ => (part, None),
            };
            let continues_end = std::mem::take(&mut self.after_return) && text.is_empty();
            if continues_end && end == Some(b'\n') {
                continue;
            }
            if self.skips {
                if self.skipped.is_none() && self.is_longer_with(text) {
                    self.begin_skipping(text);
                }
                if let Some(skipped) = &self.skipped
                    && skipped.bytes <= self.max.saturating_mul(SKIPPED_MAX)
                {
                    said.extend(self.skip(text, end));
                    continue;
                }
            }
            if self.skipped.is_some() || self.is_longer_with(text) {
                self.is_too_long = true;
                return match said.is_empty() {
                    true => Err(self.too_long()),
                    false => Ok(said),
                };
            }
            self.line.extend_from_slice(text);
            if let Some(end) = end {
                self.after_return = end == b'\r';
                let line = std::mem::take(&mut self.line);
                said.extend(self.take_line(&line));
            }
        }
        Ok(said)
    }

    fn is_longer_with(&self, text: &[u8]) -> bool {
        self.max < self.line.len() + text.len() + self.data.len()
    }

    #[cold]
    fn begin_skipping(&mut self, text: &[u8]) {
        let data = std::mem::take(&mut self.data).into_bytes();
        let mut line = std::mem::take(&mut self.line);
        let bytes = data.len() + line.len();
        let end = line[line.len().saturating_sub(SKIPPED_END)..].to_vec();
        let beginning = match data.is_empty() {
            true => {
                line.extend_from_slice(&text[..text.len().min(SKIPPED_BEGINNING)]);
                line.strip_prefix(b"data:").unwrap_or(&line)
            }
            false => &data,
        };
        self.skipped = Some(SkippedEvent {
            beginning: beginning[..beginning.len().min(SKIPPED_BEGINNING)].to_vec(),
            end,
            bytes,
            line_is_empty: false,
        });
    }

    /// Skips a part of a line. Returns the event if it ends here.
    #[cold]
    fn skip(&mut self, text: &[u8], line_end: Option<u8>) -> Option<SseItem> {
        let skipped = self.skipped.as_mut()?;
        skipped.bytes += text.len();
        skipped.line_is_empty &= text.is_empty();
        let end = &mut skipped.end;
        end.extend_from_slice(&text[text.len().saturating_sub(SKIPPED_END)..]);
        end.drain(..end.len().saturating_sub(SKIPPED_END));
        self.after_return = line_end? == b'\r';
        if !std::mem::replace(&mut skipped.line_is_empty, true) {
            return None;
        }
        let SkippedEvent { beginning, end, .. } = self.skipped.take()?;
        self.last_id.clone_from(&self.id);
        self.kind.clear();
        self.has_data = false;
        Some(SseItem::TooLong { beginning, end })
    }

    #[cold]
    fn too_long(&mut self) -> EventTooLong {
        self.last_id.clone_from(&self.id);
        EventTooLong { max: self.max }
    }

    fn take_line(&mut self, line: &[u8]) -> Option<SseItem> {
        let line = String::from_utf8_lossy(line);
        let mut line = &*line;
        if std::mem::take(&mut self.at_start) {
            line = line.trim_start_matches('\u{feff}');
        }
        if line.is_empty() {
            return self.dispatch();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if self.has_data {
                    self.data.push('\n');
                }
                self.has_data = true;
                self.data.push_str(value);
            }
            "event" => value.clone_into(&mut self.kind),
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            "retry" => return value.parse().ok().map(SseItem::Retry),
            // A comment, or something that is to come.
            _ => {}
        }
        None
    }

    /// Completes an event; an event without data is discarded, but its ID is kept.
    fn dispatch(&mut self) -> Option<SseItem> {
        self.last_id.clone_from(&self.id);
        let kind = std::mem::take(&mut self.kind);
        let data = std::mem::take(&mut self.data);
        if !std::mem::take(&mut self.has_data) {
            return None;
        }
        Some(SseItem::Event(Event {
            kind,
            data,
            id: self.last_id.clone(),
        }))
    }

    /// ID of the last complete event, if it is not empty. A stream that breaks off resumes after it.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref().filter(|id| !id.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event(kind: &str, data: &str, id: Option<&str>) -> SseItem {
        SseItem::Event(Event {
            kind: kind.into(),
            data: data.into(),
            id: id.map(Into::into),
        })
    }

    #[test]
    fn events_are_read_with_all_kinds_of_line_ends() {
        for end in ["\n", "\r\n", "\r"] {
            let stream = [
                "\u{feff}: hello",
                "id: 1",
                "data",
                "",
                "event: endpoint",
                "data: /a",
                "data:  b",
                "unknown: x",
                "",
                "retry: 250",
                "id: 2",
                "",
                "data:last",
                "",
            ]
            .map(|line| format!("{line}{end}"))
            .concat();
            let mut decoder = EventDecoder::new(1000);
            assert_eq!(
                decoder.push(stream.as_bytes()),
                Ok(vec![
                    event("", "", Some("1")),
                    event("endpoint", "/a\n b", Some("1")),
                    SseItem::Retry(250),
                    event("", "last", Some("2")),
                ]),
                "{end:?}"
            );
            assert_eq!(decoder.last_id(), Some("2"));
        }
    }

    #[test]
    fn what_is_too_long_is_refused_however_it_is_cut() {
        let mut decoder = EventDecoder::new(10);
        assert!(decoder.push(b"data: 1234").is_ok());
        assert_eq!(decoder.push(b"5"), Err(EventTooLong { max: 10 }));
        let mut decoder = EventDecoder::new(10);
        assert!(decoder.push(b"data:123\ndata:4").is_ok());
        assert!(decoder.push(b"567890").is_err());
    }

    #[test]
    fn an_event_that_is_too_long_is_skipped_on_request_however_it_is_cut() {
        let long = format!("id: 2\r\ndata: {{\"id\":7,{}}}\r\n\r\n", "x".repeat(200));
        let stream = format!("data: a\n\n{long}data: b\n\n");
        for cut in 0..stream.len() {
            let mut decoder = EventDecoder::new(40).skipping();
            let (first, second) = stream.as_bytes().split_at(cut);
            let mut said = decoder.push(first).expect("skipped");
            said.extend(decoder.push(second).expect("skipped"));
            let [a, SseItem::TooLong { beginning, end }, b] = &said[..] else {
                panic!("{said:?}");
            };
            assert_eq!(*a, event("", "a", None));
            assert_eq!(*b, event("", "b", Some("2")));
            assert!(beginning.trim_ascii().starts_with(b"{\"id\":7,"), "{cut}");
            assert!(end.ends_with(b"xxx}"), "{cut}");
        }
        let mut decoder = EventDecoder::new(40).skipping();
        let endless = "x".repeat(41);
        let fails = (0..10).any(|_| decoder.push(endless.as_bytes()).is_err());
        assert!(fails, "memory is bounded, but time is not");
    }

    #[test]
    fn only_a_complete_event_sets_the_last_id() {
        for cut in [
            "id: 2",
            "id: 2\n",
            "event: message\nid: 2\ndata: {\"a\"",
            "id: 2\ndata: b\n",
        ] {
            let mut decoder = EventDecoder::new(100);
            let first = vec![event("", "", Some("1"))];
            assert_eq!(decoder.push(b"id: 1\ndata\n\n"), Ok(first));
            assert_eq!(decoder.push(cut.as_bytes()), Ok(vec![]));
            assert_eq!(decoder.last_id(), Some("1"), "{cut:?}");
            decoder.restart();
            assert_eq!(decoder.last_id(), Some("1"), "{cut:?}");
            // Nothing of the stream before is left.
            let events = vec![event("", "a", Some("1")), event("", "b", Some("2"))];
            let stream = "\u{feff}data: a\n\nid: 2\ndata: b\n\n";
            assert_eq!(decoder.push(stream.as_bytes()), Ok(events), "{cut:?}");
            assert_eq!(decoder.last_id(), Some("2"));
        }
    }

    #[test]
    fn events_before_one_that_is_too_long_are_returned_and_it_is_not_requested_again() {
        let too_long = Err(EventTooLong { max: 10 });
        let mut decoder = EventDecoder::new(10);
        let first = Ok(vec![event("", "a", Some("1"))]);
        let stream = b"id: 1\ndata: a\n\nid: 2\ndata: 1234567890";
        assert_eq!(decoder.push(stream), first);
        assert_eq!(
            decoder.last_id(),
            Some("1"),
            "the error was not returned yet"
        );
        assert_eq!(decoder.push(b"1\n\ndata: b\n\n"), too_long);
        assert_eq!(decoder.last_id(), Some("2"));
        decoder.restart();
        let next = Ok(vec![event("", "c", Some("2"))]);
        assert_eq!(decoder.push(b"data: c\n\n"), next);
    }

    proptest! {
        #[test]
        fn where_bytes_are_cut_does_not_matter(stream in "(data: ?[a-z]{0,3}|id: ?[0-9]|event: x|:c|)(\n|\r|\r\n)|[\r\n]{1,4}|retry: 5\n", cut in 0..20_usize) {
            let stream = stream.repeat(3);
            let whole = EventDecoder::new(1000).push(stream.as_bytes()).unwrap();
            let cut = cut.min(stream.len());
            let mut decoder = EventDecoder::new(1000);
            let mut parts = decoder.push(&stream.as_bytes()[..cut]).unwrap();
            parts.extend(decoder.push(&stream.as_bytes()[cut..]).unwrap());
            prop_assert_eq!(whole, parts);
        }
    }
}

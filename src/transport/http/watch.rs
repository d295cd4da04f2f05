//! What the bytes of an HTTP/1 connection say about framing, and hyper does not tell.
//!
//! A head with both `Content-Length` and `Transfer-Encoding` can be read in two ways, and whoever stands in front of
//! this server may have read it in the other one: that is how requests are smuggled. hyper takes the chunks and drops
//! the length, so nobody behind it can see that there was one. Here the bytes are looked at on their way to hyper; the
//! second of the two fields is spoiled, and hyper refuses the head as it refuses any other that is broken, in its turn.
//!
//! Lines of a head end with CR and LF. hyper takes a LF alone too, which others may not; it is spoiled likewise.
//!
//! Besides, the end of the last request is known, and so whether part of a next one has come along with it.

/// The longer one of the two names, with its colon.
const NAME_MAX: usize = "transfer-encoding:".len();
const LENGTH: &[u8] = b"content-length:";
const CODING: &[u8] = b"transfer-encoding:";

/// Looks at what comes in on one connection.
#[derive(Debug, Default)]
pub(crate) struct HeadWatch {
    /// How many bytes came before the ones at hand.
    read: u64,
    /// Where the latest request ends, if its length was said.
    end: Option<u64>,
    /// A head that has begun, and one of the two fields with it, and whose end has not come.
    head: Option<Head>,
    /// The last bytes that came, since a name may come in two parts.
    tail: [u8; NAME_MAX],
    tail_len: usize,
    /// Of the head that is coming in, nothing has come but empty lines.
    blank: bool,
}

/// Where in a request bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// A head begins with them.
    Beginning,
    /// A head goes on with them.
    Head,
    /// They are of a body; of what comes behind it nothing is known yet.
    Body,
}

#[derive(Clone, Copy, Debug, Default)]
struct Head {
    length: bool,
    coding: bool,
    /// What the length is, if its line came in one piece.
    value: Option<u64>,
}

#[derive(Clone, Copy)]
enum Field {
    Length,
    Coding,
}

impl HeadWatch {
    /// Looks at what was read, before anybody else does.
    #[inline]
    pub(crate) fn look(&mut self, bytes: &mut [u8], at: At) {
        if bytes.is_empty() {
            return;
        }
        if at == At::Beginning {
            self.end = None;
            self.blank = true;
        }
        let reaches_head = at != At::Body || self.has_end_within(bytes.len());
        if reaches_head && bare_line_end(self.tail().last().copied(), bytes).is_some() {
            self.spoil_line_ends(bytes, at);
        }
        if at != At::Body && self.blank {
            self.blank = bytes.iter().all(|b| matches!(b, b'\r' | b'\n'));
        }
        let begun = self.begun_in_tail(bytes);
        if self.head.is_some() || begun.is_some() || next_candidate(bytes, 0).is_some() {
            self.follow(bytes, begun);
        }
        self.read += bytes.len() as u64;
        self.keep_tail(bytes);
    }

    /// Whether more has come than the latest request.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.end.is_some_and(|end| end < self.read)
    }

    /// Whether the latest request ends within so many bytes to come.
    #[inline]
    fn has_end_within(&self, count: usize) -> bool {
        self.end
            .is_some_and(|end| self.read <= end && end < self.read + count as u64)
    }

    /// Spoils the first LF of each head that has no CR in front of it. Bodies may have as many as they like.
    #[cold]
    fn spoil_line_ends(&self, bytes: &mut [u8], at: At) {
        let (mut from, mut before, mut blank) = match at {
            At::Beginning => (0, &[][..], true),
            At::Head => (0, self.tail(), self.blank),
            At::Body => match self
                .end
                .and_then(|end| usize::try_from(end - self.read).ok())
            {
                Some(end) => (end, &[][..], true),
                None => return,
            },
        };
        while from < bytes.len() {
            if blank {
                // hyper skips empty lines in front of a head.
                let empty = bytes[from..]
                    .iter()
                    .take_while(|b| matches!(b, b'\r' | b'\n'));
                let begins = from + empty.count();
                if let Some(bare) = bare_line_end(before.last().copied(), &bytes[from..begins]) {
                    bytes[from + bare] = 0;
                    return;
                }
                (from, before) = (begins, &[]);
            }
            let end = end_of_head(before, bytes, from, bytes.len());
            let head = from..end.unwrap_or(bytes.len());
            if let Some(bare) = bare_line_end(before.last().copied(), &bytes[head.clone()]) {
                bytes[from + bare] = 0;
                return;
            }
            // Of a head that began before, the length of its body may have been said before.
            if !blank {
                return;
            }
            // Behind a body whose length is said there may be another head.
            let next = end.and_then(|end| end.checked_add(length_of(&bytes[head])?));
            match next {
                Some(next) => (from, before, blank) = (next, &[], true),
                None => return,
            }
        }
    }

    /// From one of the two fields to the next, and from heads to their ends.
    fn follow(&mut self, bytes: &mut [u8], begun: Option<Field>) {
        let mut from = 0;
        let mut found = begun.map(|field| (0, field));
        while let Some((at, field)) = found.take().or_else(|| self.next_field(bytes, from)) {
            self.close_head(bytes, from, at);
            let head = self.head.get_or_insert_default();
            match field {
                Field::Length => {
                    if !head.length {
                        head.value = value_of(bytes, at);
                    }
                    head.length = true;
                }
                Field::Coding => head.coding = true,
            }
            if head.length && head.coding {
                // No name of a field has this byte in it.
                bytes[at] = 0;
            }
            from = at + 1;
        }
        self.close_head(bytes, from, bytes.len());
    }

    /// Notes the end of the head, if it is between two places.
    fn close_head(&mut self, bytes: &[u8], from: usize, to: usize) {
        let Some(head) = self.head else {
            return;
        };
        let before = if from == 0 { self.tail() } else { &[] };
        let Some(end) = end_of_head(before, bytes, from, to) else {
            return;
        };
        self.head = None;
        self.end = match head.value {
            Some(length) if !head.coding => (self.read + end as u64).checked_add(length),
            _ => None,
        };
    }

    /// The next of the two fields from a place on: where its name begins.
    fn next_field(&self, bytes: &[u8], from: usize) -> Option<(usize, Field)> {
        let mut at = from;
        loop {
            let dash = next_candidate(bytes, at)?;
            at = dash + 1;
            for (name, field, before) in [(LENGTH, Field::Length, 7), (CODING, Field::Coding, 8)] {
                let Some(start) = dash.checked_sub(before) else {
                    continue;
                };
                let begins_line = match start.checked_sub(1) {
                    Some(previous) => bytes[previous] == b'\n',
                    None => self.tail().last() == Some(&b'\n'),
                };
                let is_named = bytes
                    .get(start..start + name.len())
                    .is_some_and(|found| found.eq_ignore_ascii_case(name));
                if from <= start && begins_line && is_named {
                    return Some((start, field));
                }
            }
        }
    }

    /// A field whose name began in what came before and ends here.
    fn begun_in_tail(&self, bytes: &[u8]) -> Option<Field> {
        let tail = self.tail();
        let line = tail.iter().rposition(|b| *b == b'\n')? + 1;
        let begun = &tail[line..];
        if begun.is_empty() {
            return None;
        }
        let ends_in = |name: &[u8]| {
            let Some((beginning, rest)) = name.split_at_checked(begun.len()) else {
                return false;
            };
            !rest.is_empty()
                && beginning.eq_ignore_ascii_case(begun)
                && bytes
                    .get(..rest.len())
                    .is_some_and(|found| found.eq_ignore_ascii_case(rest))
        };
        if ends_in(LENGTH) {
            Some(Field::Length)
        } else {
            ends_in(CODING).then_some(Field::Coding)
        }
    }

    fn tail(&self) -> &[u8] {
        &self.tail[..self.tail_len]
    }

    #[inline]
    fn keep_tail(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last_chunk() {
            self.tail = *last;
            self.tail_len = NAME_MAX;
            return;
        }
        let kept = self.tail_len.min(NAME_MAX - bytes.len());
        self.tail
            .copy_within(self.tail_len - kept..self.tail_len, 0);
        self.tail[kept..kept + bytes.len()].copy_from_slice(bytes);
        self.tail_len = kept + bytes.len();
    }
}

/// The next dash that has a colon where one of the two names would have it. Written so that it compiles to vector
/// instructions: this is all that nearly every byte sees.
#[inline]
fn next_candidate(bytes: &[u8], from: usize) -> Option<usize> {
    const BLOCK: usize = 32;
    let is_one = |bytes: &[u8], at: usize| {
        bytes[at] == b'-' && (bytes.get(at + 7) == Some(&b':') || bytes.get(at + 9) == Some(&b':'))
    };
    let mut at = from;
    while let Some(block) = bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk::<{ BLOCK + 9 }>())
    {
        let mut any = 0_u8;
        for i in 0..BLOCK {
            let colon = u8::from(block[i + 7] == b':') | u8::from(block[i + 9] == b':');
            any |= u8::from(block[i] == b'-') & colon;
        }
        if any != 0 {
            return (at..at + BLOCK).find(|at| is_one(bytes, *at));
        }
        at += BLOCK;
    }
    (at..bytes.len()).find(|at| is_one(bytes, *at))
}

/// The first LF without a CR in front of it; `before` is what stands in front of all. Written to become vector
/// instructions, likewise.
#[inline]
fn bare_line_end(before: Option<u8>, bytes: &[u8]) -> Option<usize> {
    const BLOCK: usize = 32;
    if bytes.first() == Some(&b'\n') && before != Some(b'\r') {
        return Some(0);
    }
    let is_one = |at: &usize| bytes[*at] == b'\n' && bytes[*at - 1] != b'\r';
    let mut at = 1;
    while let Some(block) = bytes
        .get(at - 1..)
        .and_then(|rest| rest.first_chunk::<{ BLOCK + 1 }>())
    {
        let mut any = 0_u8;
        for i in 0..BLOCK {
            any |= u8::from(block[i + 1] == b'\n') & u8::from(block[i] != b'\r');
        }
        if any != 0 {
            return (at..at + BLOCK).find(is_one);
        }
        at += BLOCK;
    }
    (at..bytes.len()).find(is_one)
}

/// What a whole head says of its body's length: 0 if nothing, and nothing if it comes in chunks.
fn length_of(head: &[u8]) -> Option<usize> {
    let mut length = 0;
    for line in head.split(|b| *b == b'\n') {
        let begins = |name: &[u8]| {
            line.get(..name.len())
                .is_some_and(|found| found.eq_ignore_ascii_case(name))
        };
        if begins(CODING) {
            return None;
        }
        if begins(LENGTH) {
            let value = std::str::from_utf8(line[LENGTH.len()..].trim_ascii()).ok()?;
            length = value.parse().ok()?;
        }
    }
    Some(length)
}

/// Where what follows an empty line begins, if the empty line begins between two places. `before` is what came before
/// all of the bytes.
fn end_of_head(before: &[u8], bytes: &[u8], from: usize, to: usize) -> Option<usize> {
    match (before, bytes) {
        ([.., b'\n', b'\r'], [b'\n', ..]) | ([.., b'\n'], [b'\n', ..]) => return Some(1),
        ([.., b'\n'], [b'\r', b'\n', ..]) => return Some(2),
        _ => {}
    }
    memchr::memchr_iter(b'\n', bytes.get(from..to)?).find_map(|at| {
        let next = from + at + 1;
        match bytes.get(next..)? {
            [b'\n', ..] => Some(next + 1),
            [b'\r', b'\n', ..] => Some(next + 2),
            _ => None,
        }
    })
}

/// The number behind the colon of a `Content-Length`, if its line ends here.
fn value_of(bytes: &[u8], at: usize) -> Option<u64> {
    let rest = bytes.get(at..)?;
    let line = &rest[..memchr::memchr(b'\n', rest)?];
    let colon = memchr::memchr(b':', line)?;
    let value = std::str::from_utf8(line[colon + 1..].trim_ascii()).ok()?;
    value.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What is left of bytes that come in pieces, and whether more came than the latest request. What comes behind the
    /// first head comes while that is answered.
    fn watched(text: &str, cuts: &[usize]) -> (String, bool) {
        let mut watch = HeadWatch::default();
        let begins = text.len() - text.trim_start_matches(['\r', '\n']).len();
        let head_end = text[begins..].find("\r\n\r\n").map(|at| begins + at + 4);
        let mut out = Vec::new();
        let mut rest = text.as_bytes();
        for cut in cuts.iter().chain([&usize::MAX]) {
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            let mut piece = piece.to_vec();
            let at = match out.len() {
                0 => At::Beginning,
                at if head_end.is_none_or(|end| at < end) => At::Head,
                _ => At::Body,
            };
            watch.look(&mut piece, at);
            out.extend(piece);
            rest = after;
        }
        (String::from_utf8_lossy(&out).into_owned(), watch.has_more())
    }

    fn is_spoiled(text: &str, cuts: &[usize]) -> bool {
        watched(text, cuts).0 != text
    }

    const HEAD: &str = "POST /mcp HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n";

    #[test]
    fn heads_with_both_fields_are_spoiled_in_whatever_order_and_case() {
        for fields in [
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            "transfer-encoding: chunked\r\ncontent-length: 3\r\n",
            "TRANSFER-ENCODING:chunked\r\nX: y\r\nCONTENT-LENGTH:3\r\n",
            "content-length: 3\ntransfer-encoding: chunked\n",
            "content-length: 0\r\nx-filler: a-bcdefg:-bcdefghi:\r\ntransfer-encoding: x\r\n",
        ] {
            let text = format!("{HEAD}{fields}\r\n0\r\n\r\n");
            for cut in 0..text.len() {
                assert!(is_spoiled(&text, &[cut]), "{fields:?} at {cut}");
            }
            let each = vec![1; text.len()];
            assert!(is_spoiled(&text, &each), "{fields:?} byte by byte");
        }
    }

    #[test]
    fn everything_else_is_left_as_it_is() {
        let long = "-bcdefg:-bcdefghi:\n".repeat(100);
        for text in [
            format!(
                "{HEAD}Content-Length: 3\r\n\r\nabc{HEAD}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
            format!(
                "{HEAD}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{HEAD}Content-Length: 0\r\n\r\n"
            ),
            format!("{HEAD}Content-Length: 3\r\nX-Transfer-Encoding: chunked\r\n\r\nabc"),
            format!("{HEAD}X: content-length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"),
            format!("{HEAD}Content-Lengths: 3\r\nTransfer-Encoding: chunked\r\n\r\n"),
            format!("{HEAD}Content-Length: 1900\r\n\r\n{long}"),
            "no HTTP at all".to_owned(),
        ] {
            for cut in 0..text.len() {
                assert!(!is_spoiled(&text, &[cut]), "{text:?} at {cut}");
            }
            assert!(!is_spoiled(&text, &vec![1; text.len()]));
        }
    }

    #[test]
    fn lines_of_a_head_that_end_with_a_line_feed_alone_are_spoiled() {
        let whole = format!("{HEAD}Content-Length: 3\r\n\r\nabc");
        let mut heads: Vec<String> = whole
            .match_indices("\r\n")
            .map(|(at, _)| format!("{}{}", &whole[..at], &whole[at + 1..]))
            .collect();
        heads.push(whole.replace("\r\n", "\n"));
        heads.push(format!("\n{whole}"));
        heads.push(format!("\r\n\n{whole}"));
        heads.push(format!("\r\n\r\n{}", heads[1]));
        for text in &heads {
            for cut in 0..text.find("abc").expect("a body") {
                assert!(is_spoiled(text, &[cut]), "{text:?} at {cut}");
            }
            assert!(
                is_spoiled(text, &vec![1; text.len()]),
                "{text:?} byte by byte"
            );
        }
        // Behind a request whose end is known.
        for text in &heads {
            assert!(is_spoiled(&format!("{whole}{text}"), &[]), "{text:?}");
        }
    }

    #[test]
    fn line_feeds_of_bodies_are_left_alone() {
        for text in [
            format!("{HEAD}Content-Length: 4\r\n\r\n{{\n\n}}"),
            format!("\r\n{HEAD}Content-Length: 4\r\n\r\n{{\n\n}}{HEAD}\r\n"),
            format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n4\r\n{{\n\n}}\r\n0\r\n\r\n"),
            format!("{HEAD}Content-Length: 2\r\n\r\n\n\n{HEAD}Content-Length: 1\r\n\r\n\n"),
        ] {
            for cut in 0..text.len() {
                assert!(!is_spoiled(&text, &[cut]), "{text:?} at {cut}");
            }
            assert!(!is_spoiled(&text, &vec![1; text.len()]), "{text:?}");
        }
    }

    #[test]
    fn what_comes_along_behind_a_request_is_seen() {
        let one = format!("{HEAD}Content-Length: 3\r\n\r\nabc");
        assert!(!watched(&one, &[]).1);
        for more in ["P", HEAD, &format!("{HEAD}Content-Length: 5\r\n")] {
            let text = format!("{one}{more}");
            for cut in 0..one.len() {
                assert!(
                    watched(&text, &[cut]).1 || cut_splits_value(&one, cut),
                    "{more:?} at {cut}"
                );
            }
        }
        assert!(!watched(&format!("{one}{one}"), &[]).1);
        let chunked = format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
        assert!(!watched(&format!("{one}{chunked}"), &[]).1);
    }

    /// A length whose digits come in two parts is not read; then nothing is known.
    fn cut_splits_value(text: &str, cut: usize) -> bool {
        let from = text.find("Content-Length").expect("is there");
        (from + 1..=from + "Content-Length: 3\r\n".len()).contains(&cut)
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            lines in prop::collection::vec(
                prop::sample::select(vec![
                    "Content-Length: 3\r\n", "transfer-encoding: chunked\r\n", "\r\n", "x: y\r\n",
                    "abc", "Content-", "Length:", "-bcdefg:",
                ]),
                0..12,
            ),
            cuts in prop::collection::vec(0_usize..20, 0..20),
        ) {
            let text = format!("GET / HTTP/1.1\r\n{}", lines.concat());
            let whole = is_spoiled(&text, &[]);
            prop_assert_eq!(is_spoiled(&text, &cuts), whole);
        }
    }
}

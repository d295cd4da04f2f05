//! A strict JSON scanner that finds where values begin and end, and makes no tree of them.
//!
//! It accepts what RFC 8259 does and `serde_json` reads into a `Value`, within bounds: at most
//! [`DEPTH_MAX`] levels, and at most [`MEMBERS_MAX`] members in one object, or fewer, and as many values as are wanted
//! ([`Bounds`]). Escapes of lone surrogates are
//! refused, since no Rust string can hold them. Numbers are checked for their grammar only: what they are
//! worth is the reader's affair.
//!
//! One pass validates a whole document. Objects of interest are walked member by member
//! ([`Scanner::object`]), the rest is skipped without recursion ([`Scanner::value`]).

pub(crate) use block::BLOCK;
pub use bounds::{Bounds, Excess};
pub(crate) use gather::{Gather, WINDOW};
pub use long_number::{has_long_number, rounded_integer};
pub use repeated::repeated_member;
pub use string::JsonString;
pub(crate) use string::plain_prefix;
pub use surrogates::{paired, paired_text};

/// Maximum nesting of arrays and objects in a message.
pub const DEPTH_MAX: u32 = 64;

/// Number of skipped levels in which member names are compared directly. Deeper names count as equal.
const NAMED_LEVELS: usize = 4;

/// Maximum number of members of an object.
pub const MEMBERS_MAX: u16 = 10_000;

/// Reads a document from left to right.
#[derive(Debug)]
pub struct Scanner<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
    /// Initial member counter of an object.
    members: u16,
    /// Number of values left.
    values: u32,
    /// The exceeded bound, if the document was rejected for its size.
    exceeded: Option<Excess>,
    /// An object may have two members of one name; see [`Scanner::value_with_names`].
    repeats: bool,
}

/// Reason and byte position of a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanError {
    pub reason: &'static str,
    pub at: usize,
}

/// The keys that matter in an object.
pub trait Key: Sized {
    /// Reads a key and its colon, if they have their usual form ([`Scanner::reads`]). `first` is the
    /// first character of the key.
    fn likely(scanner: &mut Scanner<'_>, first: u8) -> Option<Self>;

    /// Creates the key from its unescaped text.
    fn of(text: &str) -> Self;
}

impl<'a> Scanner<'a> {
    pub fn new(text: &'a str) -> Self {
        Self::within(text, Bounds::default())
    }

    /// Creates a scanner with these bounds.
    #[inline]
    pub fn within(text: &'a str, bounds: Bounds) -> Self {
        Self {
            text,
            at: 0,
            depth: bounds.depth,
            members: bounds.members,
            values: bounds.values,
            exceeded: None,
            repeats: false,
        }
    }

    /// The bound because of which the document was refused, if it was one.
    pub fn exceeded(&self) -> Option<Excess> {
        self.exceeded
    }

    /// Returns the position of the next byte.
    #[inline]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Returns the text between `start` and the present position.
    #[inline]
    pub fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// The next byte that is no white space, which stays unread.
    #[inline(always)]
    pub fn peek(&mut self) -> Option<u8> {
        match self.text.as_bytes().get(self.at) {
            Some(byte) if b' ' < *byte => Some(*byte),
            _ => self.peek_beyond_space(),
        }
    }

    #[inline(never)]
    fn peek_beyond_space(&mut self) -> Option<u8> {
        loop {
            match self.text.as_bytes().get(self.at) {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    /// Checks that only white space follows.
    pub fn end(&mut self) -> Result<(), ScanError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => self.error("unexpected text after the document"),
        }
    }

    /// Walks an object. `member` is given each key and must read its value.
    #[inline]
    pub fn object<K: Key>(
        &mut self,
        mut member: impl FnMut(&mut Self, K) -> Result<(), ScanError>,
    ) -> Result<(), ScanError> {
        self.expect(b'{', "expected an object")?;
        self.enter()?;
        if self.peek() == Some(b'}') {
            return self.leave();
        }
        let mut members = self.members;
        loop {
            members = self.count(members)?;
            let likely = match self.text.as_bytes().get(self.at..) {
                Some([b'"', first, ..]) => K::likely(self, *first),
                _ => None,
            };
            let key = match likely {
                Some(key) => key,
                None => self.key()?.with_text(K::of),
            };
            member(self, key)?;
            if !self.more(b'}')? {
                return self.leave();
            }
        }
    }

    /// The next key of an object whose values are read in between; `None` behind its end. `begun` is false at first.
    #[inline]
    pub fn next_key(&mut self, begun: &mut bool) -> Result<Option<JsonString<'a>>, ScanError> {
        if std::mem::replace(begun, true) {
            if !self.more(b'}')? {
                self.leave()?;
                return Ok(None);
            }
        } else {
            self.peek();
            self.expect(b'{', "expected an object")?;
            self.enter()?;
            if self.peek() == Some(b'}') {
                self.leave()?;
                return Ok(None);
            }
        }
        self.key().map(Some)
    }

    /// Reads a text if it stands here word for word. How long it is is part of its type, so that no function has to be
    /// called to compare it.
    #[inline(always)]
    pub fn reads<const LENGTH: usize>(&mut self, text: &'static [u8; LENGTH]) -> bool {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let found = rest.first_chunk() == Some(text);
        if found {
            self.at += LENGTH;
        }
        found
    }

    /// Walks an array. `element` must read each element.
    pub fn array(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<(), ScanError>,
    ) -> Result<(), ScanError> {
        self.expect(b'[', "expected an array")?;
        self.enter()?;
        if self.peek() == Some(b']') {
            return self.leave();
        }
        loop {
            self.peek();
            self.one_more()?;
            element(self)?;
            if !self.more(b']')? {
                return self.leave();
            }
        }
    }

    /// Reads any value and returns its text.
    #[inline(always)]
    pub fn value(&mut self) -> Result<&'a str, ScanError> {
        let first = self.peek();
        let start = self.at;
        match first {
            Some(b'{' | b'[') => self.nested::<false>()?,
            _ => self.scalar(first)?,
        }
        Ok(self.since(start))
    }

    /// Skips a value, and reports if two members of an object in it may have equal names. [`repeated_member`]
    /// verifies this.
    #[inline(always)]
    pub fn value_with_names(&mut self) -> Result<(&'a str, bool), ScanError> {
        let first = self.peek();
        let start = self.at;
        self.repeats = false;
        match first {
            Some(b'{' | b'[') => self.nested::<true>()?,
            _ => self.scalar(first)?,
        }
        Ok((self.since(start), self.repeats))
    }

    /// Reads a string.
    #[inline(always)]
    pub fn string(&mut self) -> Result<JsonString<'a>, ScanError> {
        self.string_by(Self::rest_of_string)
    }

    /// Reads a string of a text that a scanner has read before without an error, which is faster for long ones.
    #[inline(always)]
    pub fn scanned_string(&mut self) -> Result<JsonString<'a>, ScanError> {
        self.string_by(Self::rest_of_scanned_string)
    }

    #[inline(always)]
    fn string_by(
        &mut self,
        rest: impl FnOnce(&mut Self) -> Result<bool, ScanError>,
    ) -> Result<JsonString<'a>, ScanError> {
        if self.peek() != Some(b'"') {
            return self.error("expected a string");
        }
        self.at += 1;
        let start = self.at;
        let escaped = rest(self)?;
        Ok(JsonString {
            raw: self.text.get(start..self.at - 1).unwrap_or_default(),
            escaped,
        })
    }

    /// Reads an array or object with everything in it, without recursion: one bit for each level says
    /// which of the two it is. With `NAMES` it is noted whether an object may have two members of one name.
    #[inline(never)]
    fn nested<const NAMES: bool>(&mut self) -> Result<(), ScanError> {
        let outer = self.depth;
        let mut objects = 0_u64;
        let mut members = [0_u16; DEPTH_MAX as usize];
        // A bit for each name of an object's members, as far as it has been read.
        let mut names = [0_u64; NAMED_LEVELS];
        loop {
            // A value begins here.
            self.one_more()?;
            let first = self.peek();
            match first {
                Some(b'{') => {
                    self.at += 1;
                    self.enter()?;
                    objects = objects << 1 | 1;
                    if self.peek() != Some(b'}') {
                        members[self.depth as usize - 1] = self.count(self.members)?;
                        let key = self.key()?;
                        if NAMES {
                            match names.get_mut((self.depth - outer - 1) as usize) {
                                Some(names) => *names = key.mark(),
                                None => self.repeats = true,
                            }
                        }
                        continue;
                    }
                }
                Some(b'[') => {
                    self.at += 1;
                    self.enter()?;
                    objects <<= 1;
                    if self.peek() != Some(b']') {
                        continue;
                    }
                }
                _ => {
                    self.scalar(first)?;
                    if self.more(closing(objects))? {
                        let names = names.get_mut((self.depth - outer - 1) as usize);
                        self.next_member::<NAMES>(objects, &mut members, names)?;
                        continue;
                    }
                }
            }
            // The innermost array or object ends here, and perhaps those around it.
            loop {
                self.leave()?;
                objects >>= 1;
                if self.depth == outer {
                    return Ok(());
                }
                if self.more(closing(objects))? {
                    let names = names.get_mut((self.depth - outer - 1) as usize);
                    self.next_member::<NAMES>(objects, &mut members, names)?;
                    break;
                }
            }
        }
    }

    /// Checks what follows a comma: a key in an object, a value in an array.
    #[inline]
    fn next_member<const NAMES: bool>(
        &mut self,
        objects: u64,
        members: &mut [u16; DEPTH_MAX as usize],
        names: Option<&mut u64>,
    ) -> Result<(), ScanError> {
        if objects & 1 == 1 {
            let level = self.depth as usize - 1;
            members[level] = self.count(members[level])?;
            let key = self.key()?;
            if NAMES && let Some(names) = names {
                let mark = key.mark();
                self.repeats |= *names & mark != 0;
                *names |= mark;
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn scalar(&mut self, first: Option<u8>) -> Result<(), ScanError> {
        match first {
            Some(b'"') => {
                self.at += 1;
                self.rest_of_string().map(drop)
            }
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            Some(_) => self.error("expected a value"),
            None => self.error("unexpected end of the document"),
        }
    }

    #[inline(always)]
    fn key(&mut self) -> Result<JsonString<'a>, ScanError> {
        let key = self.string()?;
        if self.peek() != Some(b':') {
            return self.error("expected a colon after a key");
        }
        self.at += 1;
        Ok(key)
    }

    /// Returns true if a comma follows, and false for the closing bracket, which stays unread.
    #[inline(always)]
    fn more(&mut self, close: u8) -> Result<bool, ScanError> {
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(byte) if byte == close => Ok(false),
            Some(_) => self.error("expected a comma or a closing bracket"),
            None => self.error("unexpected end of the document"),
        }
    }

    #[inline]
    fn expect(&mut self, byte: u8, reason: &'static str) -> Result<(), ScanError> {
        if self.text.as_bytes().get(self.at) == Some(&byte) {
            self.at += 1;
            Ok(())
        } else {
            self.error(reason)
        }
    }

    #[inline]
    fn enter(&mut self) -> Result<(), ScanError> {
        if self.depth == DEPTH_MAX {
            return self.exceeds(Excess::Depth, "nested too deeply");
        }
        self.depth += 1;
        Ok(())
    }

    /// Reads the closing bracket that `peek` has shown to be there.
    #[inline]
    fn leave(&mut self) -> Result<(), ScanError> {
        self.at += 1;
        self.depth -= 1;
        Ok(())
    }

    /// Trees take many times the memory of their texts, so it is counted what they would have to hold.
    #[inline(always)]
    fn one_more(&mut self) -> Result<(), ScanError> {
        match self.values.checked_sub(1) {
            Some(left) => {
                self.values = left;
                Ok(())
            }
            None => self.exceeds(Excess::Values, "there are too many values"),
        }
    }

    #[inline]
    fn count(&mut self, members: u16) -> Result<u16, ScanError> {
        if members == MEMBERS_MAX {
            return self.exceeds(Excess::Members, "an object has too many members");
        }
        Ok(members + 1)
    }

    #[cold]
    fn exceeds<T>(&mut self, bound: Excess, reason: &'static str) -> Result<T, ScanError> {
        self.exceeded = Some(bound);
        self.error(reason)
    }

    #[cold]
    fn error<T>(&self, reason: &'static str) -> Result<T, ScanError> {
        Err(ScanError {
            reason,
            at: self.at,
        })
    }
}

#[inline]
fn is_special(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

#[inline]
fn closing(objects: u64) -> u8 {
    if objects & 1 == 1 { b'}' } else { b']' }
}

pub(crate) mod block;
mod bounds;
mod gather;
mod long_number;
mod numbers;
mod repeated;
mod string;
mod string_end;
mod surrogates;
mod unescape;
#[cfg(test)]
mod tests;

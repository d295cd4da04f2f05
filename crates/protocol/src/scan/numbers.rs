//! Numbers and escapes.

use super::string::{plain_prefix, scanned_prefix};
use super::{ScanError, Scanner};

impl<'a> Scanner<'a> {
    fn escape(&mut self) -> Result<(), ScanError> {
        match self.text.as_bytes().get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 2;
                Ok(())
            }
            Some(b'u') => match self.code_unit()? {
                0xD800..=0xDBFF => {
                    if !self.text.as_bytes()[self.at..].starts_with(b"\\u") {
                        return self.error("lone surrogate in a string");
                    }
                    match self.code_unit()? {
                        0xDC00..=0xDFFF => Ok(()),
                        _ => self.error("lone surrogate in a string"),
                    }
                }
                0xDC00..=0xDFFF => self.error("lone surrogate in a string"),
                _ => Ok(()),
            },
            _ => self.error("unknown escape in a string"),
        }
    }

    /// Reads `\uXXXX`.
    fn code_unit(&mut self) -> Result<u16, ScanError> {
        let digits = self.text.as_bytes().get(self.at + 2..self.at + 6);
        let mut unit = 0;
        for digit in digits.unwrap_or_default() {
            match char::from(*digit).to_digit(16) {
                Some(value) => unit = unit << 4 | value as u16,
                None => return self.error("unknown escape in a string"),
            }
        }
        if digits.is_none() {
            return self.error("unexpected end of a string");
        }
        self.at += 6;
        Ok(unit)
    }

    pub(super) fn number(&mut self) -> Result<(), ScanError> {
        let bytes = self.text.as_bytes();
        if bytes.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        match bytes.get(self.at) {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return self.error("expected a digit"),
        }
        if bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if let Some(b'e' | b'E') = bytes.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = bytes.get(self.at) {
                self.at += 1;
            }
            self.some_digits()?;
        }
        Ok(())
    }

    fn some_digits(&mut self) -> Result<(), ScanError> {
        let start = self.at;
        self.digits();
        if self.at == start {
            return self.error("expected a digit");
        }
        Ok(())
    }

    #[inline]
    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.text.as_bytes().get(self.at) {
            self.at += 1;
        }
    }

    pub(super) fn literal(&mut self, word: &'static str) -> Result<(), ScanError> {
        if self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(())
        } else {
            self.error("expected a value")
        }
    }

    /// Reads up to and including the closing quote; says whether there was an escape.
    #[inline(always)]
    pub(super) fn rest_of_string(&mut self) -> Result<bool, ScanError> {
        self.rest_of_string_by(plain_prefix)
    }

    /// Like [`rest_of_string`](Self::rest_of_string), for a text that was scanned before.
    #[inline(always)]
    pub(super) fn rest_of_scanned_string(&mut self) -> Result<bool, ScanError> {
        self.rest_of_string_by(scanned_prefix)
    }

    /// `prefix` returns the number of bytes in front of the first quote, backslash or control character.
    #[inline(always)]
    fn rest_of_string_by(
        &mut self,
        prefix: impl FnOnce(&[u8]) -> usize,
    ) -> Result<bool, ScanError> {
        let bytes = self.text.as_bytes();
        self.at += prefix(bytes.get(self.at..).unwrap_or_default());
        if bytes.get(self.at) == Some(&b'"') {
            self.at += 1;
            return Ok(false);
        }
        self.rest_of_escaped_string()
    }

    #[inline(never)]
    fn rest_of_escaped_string(&mut self) -> Result<bool, ScanError> {
        let bytes = self.text.as_bytes();
        let mut escaped = false;
        loop {
            self.at += plain_prefix(bytes.get(self.at..).unwrap_or_default());
            match bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(_) => return self.error("control character in a string"),
                None => return self.error("unexpected end of a string"),
            }
        }
    }
}

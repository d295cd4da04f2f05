//! The way to the closing quote of a string, and escapes on it.

use super::block::{self, BLOCK, ClosingQuote};
use super::string::{plain_prefix, scanned_prefix};
use super::unescape::escape;
use super::{ScanError, Scanner};

impl Scanner<'_> {
    /// Reads up to and including the closing quote; says whether there was an escape.
    #[inline(always)]
    pub(super) fn rest_of_string(&mut self) -> Result<bool, ScanError> {
        self.rest_of_string_by(plain_prefix, Self::rest_of_escaped_string)
    }

    /// Like [`rest_of_string`](Self::rest_of_string), for a text that was scanned before.
    #[inline(always)]
    pub(super) fn rest_of_scanned_string(&mut self) -> Result<bool, ScanError> {
        self.rest_of_string_by(scanned_prefix, Self::rest_of_scanned_escaped_string)
    }

    /// `prefix` returns the number of bytes in front of the first quote, backslash or control character, and `escaped` reads on from
    /// there.
    #[inline(always)]
    fn rest_of_string_by(
        &mut self,
        prefix: impl FnOnce(&[u8]) -> usize,
        escaped: fn(&mut Self) -> Result<bool, ScanError>,
    ) -> Result<bool, ScanError> {
        let bytes = self.text.as_bytes();
        self.at += prefix(bytes.get(self.at..).unwrap_or_default());
        if bytes.get(self.at) == Some(&b'"') {
            self.at += 1;
            return Ok(false);
        }
        escaped(self)
    }

    #[inline(never)]
    fn rest_of_escaped_string(&mut self) -> Result<bool, ScanError> {
        let bytes = self.text.as_bytes();
        let mut escaped = false;
        while let Some(block) = bytes.get(self.at..).and_then(<[u8]>::first_chunk) {
            let start = self.at;
            let mut specials = block::specials(block);
            while specials != 0 {
                self.at = start + specials.trailing_zeros() as usize;
                if !self.special(&mut escaped)? {
                    return Ok(escaped);
                }
                specials &= block::from(self.at - start);
            }
            self.at = self.at.max(start + BLOCK);
        }
        loop {
            self.at += plain_prefix(bytes.get(self.at..).unwrap_or_default());
            if !self.special(&mut escaped)? {
                return Ok(escaped);
            }
        }
    }

    /// Reads an escape or the closing quote; returns false at the closing quote.
    #[inline(always)]
    fn special(&mut self, escaped: &mut bool) -> Result<bool, ScanError> {
        match self.text.as_bytes().get(self.at) {
            Some(b'"') => {
                self.at += 1;
                Ok(false)
            }
            Some(b'\\') => {
                *escaped = true;
                let text = &self.text.as_bytes()[self.at..];
                match escape(text) {
                    Ok((_, len)) => self.at += len,
                    Err(reason) => return self.error(reason),
                }
                Ok(true)
            }
            Some(_) => self.error("control character in a string"),
            None => self.error("unexpected end of a string"),
        }
    }

    /// Like [`rest_of_escaped_string`](Self::rest_of_escaped_string), for a text that was scanned before.
    #[inline(never)]
    fn rest_of_scanned_escaped_string(&mut self) -> Result<bool, ScanError> {
        let bytes = self.text.as_bytes();
        let mut quote = ClosingQuote::default();
        while let Some(block) = bytes.get(self.at..).and_then(<[u8]>::first_chunk) {
            if let Some(position) = quote.find(block) {
                self.at += position + 1;
                return Ok(true);
            }
            self.at += BLOCK;
        }
        self.at += usize::from(quote.escapes_next());
        self.rest_of_escaped_string()?;
        Ok(true)
    }
}

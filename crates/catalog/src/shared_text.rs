//! Text within a buffer that others share.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use simdutf8::compat::{Utf8Error, from_utf8};
use yoke::Yoke;

/// UTF-8 text in a shared buffer, and the knowledge that it is UTF-8.
///
/// Of a text that is kept as [`Bytes`], every reader has to check anew that it is one. That takes more than a microsecond for 64 KiB. To keep
/// it as text takes an allocation, which a short text does not repay ([`SharedText::WORTHWHILE_BYTES`]).
#[derive(Clone)]
pub struct SharedText(Yoke<&'static str, Arc<Bytes>>);

impl SharedText {
    /// Length from which it takes less time to keep a text than to check its bytes again.
    pub const WORTHWHILE_BYTES: usize = 8 * 1024;

    /// Checks that the bytes are UTF-8.
    ///
    /// # Errors
    ///
    /// The position of the first byte that is not.
    pub fn new(bytes: Bytes) -> Result<Self, Utf8Error> {
        Yoke::try_attach_to_cart(Arc::new(bytes), |bytes| from_utf8(bytes)).map(Self)
    }

    /// Returns the text.
    #[inline]
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// A part of this text, in the same buffer. `None` if `part` lies elsewhere.
    pub fn slice_ref(&self, part: &str) -> Option<Self> {
        let start = part
            .as_ptr()
            .addr()
            .checked_sub(self.as_str().as_ptr().addr())?;
        let range = start..start.checked_add(part.len())?;
        self.0
            .try_map_project_cloned(|text, _| text.get(range).ok_or(()))
            .map(Self)
            .ok()
    }
}

impl fmt::Debug for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_in_the_same_buffer() {
        let text = SharedText::new(Bytes::from_static("a{\u{e9}}b".as_bytes())).expect("UTF-8");
        let (whole, part) = (
            text.as_str(),
            text.slice_ref(&text.as_str()[1..5]).expect("a part"),
        );
        assert_eq!(part.as_str(), "{\u{e9}}");
        assert_eq!(part.as_str().as_ptr(), whole[1..].as_ptr());
        let again = part.slice_ref(&part.as_str()[1..3]).expect("a part of it");
        drop((text, part));
        assert_eq!(again.as_str(), "\u{e9}");
    }

    #[test]
    fn what_lies_elsewhere_is_no_part() {
        let text = SharedText::new(Bytes::from_static(b"abc")).expect("UTF-8");
        let part = text.slice_ref(&text.as_str()[1..2]).expect("a part");
        assert!(part.slice_ref(text.as_str()).is_none());
        assert!(part.slice_ref("b").is_none());
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        let error = SharedText::new(Bytes::from_static(b"ab\xff")).expect_err("no UTF-8");
        assert_eq!(error.valid_up_to(), 2);
    }
}

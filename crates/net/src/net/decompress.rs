//! Decompression of one gzip layer, with a limit on the output.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;

/// Inflates what arrives piece by piece, up to a size.
pub(super) struct Decompressor(MultiGzDecoder<Capped>);

/// Reason for which decompression stopped.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DecompressError {
    TooLarge,
    Malformed,
}

struct Capped {
    bytes: Vec<u8>,
    max: usize,
    full: bool,
}

impl Write for Capped {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.max - self.bytes.len() < piece.len() {
            self.full = true;
            return Err(io::Error::other("too large"));
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Decompressor {
    pub(super) fn new(max: usize) -> Self {
        Self(MultiGzDecoder::new(Capped {
            bytes: Vec::new(),
            max,
            full: false,
        }))
    }

    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), DecompressError> {
        self.0.write_all(piece).map_err(|_| self.fault())
    }

    /// Returns the number of bytes that were decompressed so far.
    pub(super) fn decompressed(&self) -> usize {
        self.0.get_ref().bytes.len()
    }

    pub(super) fn finish(mut self) -> Result<Bytes, DecompressError> {
        match self.0.try_finish() {
            Ok(()) => Ok(std::mem::take(&mut self.0.get_mut().bytes).into()),
            Err(_) => Err(self.fault()),
        }
    }

    fn fault(&self) -> DecompressError {
        if self.0.get_ref().full {
            DecompressError::TooLarge
        } else {
            DecompressError::Malformed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    }

    fn decompressed(gzipped: &[u8], max: usize) -> Result<Bytes, DecompressError> {
        let mut decompressor = Decompressor::new(max);
        for piece in gzipped.chunks(7) {
            decompressor.push(piece)?;
        }
        decompressor.finish()
    }

    #[test]
    fn what_comes_out_is_counted_and_not_what_goes_in() {
        let bomb = gzip(&vec![0; 50_000_000]);
        assert!(bomb.len() < 100_000);
        assert_eq!(
            decompressed(&bomb, 1_000_000),
            Err(DecompressError::TooLarge)
        );
        assert_eq!(
            decompressed(&gzip(b"hello"), 5).as_deref(),
            Ok(&b"hello"[..])
        );
        assert_eq!(
            decompressed(&gzip(b"hello!"), 5),
            Err(DecompressError::TooLarge)
        );
    }

    #[test]
    fn what_is_no_gzip_or_breaks_off_is_refused() {
        assert_eq!(
            decompressed(b"hello, I am text", 100),
            Err(DecompressError::Malformed)
        );
        let whole = gzip(b"hello");
        assert_eq!(
            decompressed(&whole[..whole.len() - 3], 100),
            Err(DecompressError::Malformed)
        );
        let mut wrong = whole.clone();
        let at = wrong.len() - 6;
        wrong[at] ^= 1;
        assert_eq!(decompressed(&wrong, 100), Err(DecompressError::Malformed));
        let two = [gzip(b"a"), gzip(b"b")].concat();
        assert_eq!(decompressed(&two, 100).as_deref(), Ok(&b"ab"[..]));
    }
}

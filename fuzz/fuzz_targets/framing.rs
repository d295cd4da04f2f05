//! Framing on standard input, in pieces and whole.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longshore::fuzzing::framing(bytes));

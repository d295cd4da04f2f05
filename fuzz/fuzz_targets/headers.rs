//! What is said of headers, against simpler readers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longshore::fuzzing::headers(bytes));

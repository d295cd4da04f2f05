//! Framing of HTTP/1 requests, in pieces and whole.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longshore::fuzzing::request_framing(bytes));

//! The scanner of envelopes, against `serde_json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longshore::fuzzing::envelope(bytes));

//! URI templates: what was matched expands to something that matches the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longshore::fuzzing::template(bytes));

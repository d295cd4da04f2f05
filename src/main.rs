//! The `longshore` program.
fn main() {}

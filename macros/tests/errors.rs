//! What the author of a tool is told when something is wrong: all of it at once, each at its place.

#[test]
fn mistakes_are_told_at_their_places() {
    trybuild::TestCases::new().compile_fail("tests/errors/*.rs");
}

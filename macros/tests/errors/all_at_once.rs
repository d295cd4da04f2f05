//! One function with one of each kind: all of them are told in one go, those of the body too.

use longshore_macros::tool;

#[tool(name = "not a name", timeout = "soon", colect)]
fn everything<T>(text: &str, (a, b): (i64, i64), #[arg(flaten)] c: i64, #[arg(rename = "c")] d: T) {
    let wrong: i64 = "text";
}

fn main() {}

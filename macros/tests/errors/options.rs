use longshore_macros::tool;

#[tool(titel = "misspelt", reed_only, qqqqqq, a::b)]
async fn unknown() {}

#[tool(name = "two words")]
async fn bad_name() {}

#[tool(name = "")]
async fn no_name() {}

#[tool(timeout = "5", title = 7, read_only = "yes", destructive(false), collect = true)]
async fn bad_values() {}

#[tool(timeout = "0s", icon = "http://example.com/a.png", scopes("two words"))]
async fn more_bad_values() {}

#[tool(read_only, title = "a", read_only = false, title = "b", meta("a" = 1, "a" = 2))]
async fn twice() {}

#[tool(scopes = "a", meta(a = 1))]
async fn bad_lists() {}

#[tool(title "a")]
async fn no_syntax() {}

fn main() {}

use longshore_macros::tool;

struct CallContext;
struct Place;

#[tool]
async fn references(
    text: &str,
    bytes: &[u8],
    place: &Place,
    context: &mut CallContext,
    anything: impl Clone,
) {
}

#[tool]
async fn patterns(Place: Place, (a, b): (i64, i64), _: bool) {}

#[tool]
async fn owned_contexts(owned: CallContext, shared: std::sync::Arc<CallContext>) {}

#[tool]
async fn two_contexts(first: &CallContext, second: &CallContext) {}

#[tool]
async fn context_is_no_argument(#[arg(rename = "c")] context: &CallContext) {}

#[tool]
async fn same_names(a: i64, #[arg(rename = "a")] b: i64, #[arg(rename = "a")] c: i64) {}

#[tool]
async fn other_attributes(#[derive(Debug)] a: i64) {}

#[tool]
async fn returned() -> impl Clone {
    1
}

#[tool]
async fn borrowed(context: &CallContext) -> &str {
    ""
}

#[tool]
async fn optional(text: Option<&str>) {}

fn main() {}

use longshore_macros::tool;

struct Place;

#[tool]
async fn unknown(#[arg(describtion = "x")] a: i64, #[arg(header = "")] b: i64) {}

#[tool]
async fn headers(
    #[arg(header = "A b")] a: i64,
    #[arg(header = "Same")] b: i64,
    #[arg(header = "same")] c: i64,
    #[arg(header = "Number")] d: f64,
    #[arg(header = "Numbers")] e: Option<Vec<i64>>,
    #[arg(header = "Pair")] f: (i64, i64),
) {
}

#[tool]
async fn flattened_with_others(#[arg(flatten)] place: Place, a: i64) {}

#[tool(additional_properties)]
async fn flattened_and_described(#[arg(flatten, rename = "p", default)] place: Place) {}

#[tool]
async fn flattened_and_resolved(#[arg(flatten, resolve)] place: Place) {}

#[tool]
async fn resolved_by(#[arg(resolve = "id")] place: Place) {}

#[tool]
async fn without_list(#[arg] a: i64, #[arg = 7] b: i64) {}

fn main() {}

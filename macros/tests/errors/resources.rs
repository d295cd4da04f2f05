//! What resources and prompts cannot be.

use longshore_macros::{prompt, resource};

#[resource]
async fn without_uri() -> String {
    String::new()
}

#[resource(uri = "nowhere", cache_scope = "everybody", ttl = "soon", mimetype = "text/plain")]
async fn options() -> String {
    String::new()
}

#[resource(uri = "config://app")]
async fn fixed_with_parameters(name: String) -> String {
    name
}

#[resource(uri = "git://{branch}/{+path}{?line}")]
async fn variables(
    #[arg(flatten)] branch: String,
    file: String,
    line: u32,
    #[serde(default)] path: &str,
) -> String {
    format!("{branch}{file}{line}{path}")
}

#[resource(uri = "config://blocks")]
fn blocks() -> String {
    String::new()
}

#[resource(uri = "config://struct")]
struct NoFunction;

#[prompt(read_only)]
async fn hints<T>(
    #[arg(header = "Region")] region: T,
    #[arg(complete = "somebody")] name: String,
) -> impl Into<String> {
    name
}

#[prompt]
async fn with_self(&self) -> String {
    String::new()
}

fn main() {}

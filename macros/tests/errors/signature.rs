use longshore_macros::tool;

#[tool]
fn not_async() {}

#[tool(blocking)]
async fn both() {}

#[tool]
async fn generic<T: Clone>(a: T) -> T
where
    T: Send,
{
    a.clone()
}

#[tool]
async unsafe fn not_safe() {}

#[tool]
async extern "C" fn foreign() {}

#[tool(blocking)]
const fn constant() {}

struct Holder;

impl Holder {
    #[tool]
    async fn method(&self) {}
}

#[tool]
async fn größe() {}

#[tool]
struct NotAFunction;

fn main() {}

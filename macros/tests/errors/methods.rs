use longshore_macros::{tool, tools};

struct Store<T>(T);

#[tools]
impl<T: Send + Sync + 'static> Store<T> {
    #[tool]
    async fn add(&self, item: Vec<T>) {}
}

#[tool]
async fn sum(Parameters(numbers): Parameters<Numbers>) {}

fn main() {}

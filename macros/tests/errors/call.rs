use longshore_macros::{prompt, resource, tool, tools};

struct CallContext;
struct Caller;
struct Db;

#[tool]
async fn lent(#[call] caller: &Caller) {}

#[tool]
async fn context(#[call] context: &CallContext) {}

#[tool]
async fn with_options(#[call(name = "caller")] caller: Caller) {}

#[tool]
async fn described(
    /// Who calls.
    #[call]
    #[arg(default)]
    caller: Caller,
) {
}

#[tool]
async fn said_twice(#[call] #[call] caller: Caller) {}

#[tool]
async fn both(#[state] #[call] caller: &Caller) {}

#[tool]
async fn of_any_type(#[call] caller: impl Clone) {}

#[tool]
async fn misspelt(#[calls] caller: Caller) {}

#[tool]
async fn unmarked(caller: &Caller) {}

#[tool]
async fn shared_context(context: std::sync::Arc<CallContext>) {}

#[resource(uri = "a://b")]
async fn no_variable(caller: Caller) -> String {
    String::new()
}

#[prompt]
async fn suggests(
    #[call] caller: Caller,
    #[arg(complete = cities(other))] city: String,
    #[arg(complete = cities(caller, 7))] town: String,
) -> String {
    city
}

#[tools]
impl Db {
    #[prompt]
    async fn suggests(&self, #[arg(complete = self.cities(caller))] city: String) -> String {
        city
    }

    #[tool]
    async fn find(&self, #[call] caller: &Caller) {}
}

fn main() {}

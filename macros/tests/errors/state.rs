use longshore_macros::{prompt, tool, tools};

struct Db;

#[tool]
async fn owned(#[state] db: Db) {}

#[tool]
async fn to_change(#[state] db: &mut Db) {}

#[tool]
async fn lasting(#[state] db: &'static Db) {}

#[tool]
async fn of_any_size(#[state] text: &str, #[state] object: &dyn Send) {}

#[tool]
async fn described(
    /// The database.
    #[state]
    #[arg(default)]
    db: &Db,
) {
}

#[tool]
async fn with_options(#[state(name = "db")] db: &Db) {}

#[tool]
async fn unmarked(db: &Db) {}

#[prompt]
async fn suggests(#[state] db: &Db, #[arg(complete = cities(other))] city: String) -> String {
    city
}

#[prompt]
async fn suggests_itself(#[arg(complete = self.cities)] city: String) -> String {
    city
}

#[tools(name = "a_")]
impl Db {
    #[tool]
    async fn changes(&mut self) {}

    #[tool]
    async fn ends(self) {}

    #[tool]
    async fn shared(self: std::sync::Arc<Self>) {}

    #[tool]
    async fn without() {}

    #[tool]
    async fn with_state(&self, #[state] db: &Db) {}

    #[tool(collect)]
    async fn collected(&self) {}

    #[tool]
    #[resource(uri = "a://b")]
    async fn both(&self) {}

    #[tool = "name"]
    async fn named(&self) {}

    #[tool]
    fn blocks(&self) {}
}

#[tools]
impl Db {
    async fn not_marked(&self) {}
}

struct Borrowed<'a>(&'a str);

#[tools]
impl<'a> Borrowed<'a> {
    #[tool]
    async fn read(&self) -> String {
        self.0.to_owned()
    }
}

#[tools]
impl Clone for Db {
    #[tool]
    fn clone(&self) -> Self {
        Self
    }
}

#[tools(prefix = "a b")]
impl Db {
    #[tool]
    async fn prefixed(&self) {}
}

#[tools]
async fn function() {}

fn main() {}

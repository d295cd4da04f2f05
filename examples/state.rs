//! A shop: tools that share a store, which a test replaces.
//!
//! ```sh
//! cargo run --example state          # http://127.0.0.1:3000/mcp
//! cargo test --example state
//! ```

use std::collections::BTreeMap;
use std::sync::Mutex;

use longshore::{App, ToolError, tools};

/// The stock. A database in production, a map in tests.
trait Store: Send + Sync + 'static {
    /// The number of an article in stock; `None` if it is not sold here.
    fn count(&self, article: &str) -> Option<u32>;

    /// Takes one of an article out of the stock. Returns false if it is sold out.
    fn take(&self, article: &str) -> bool;
}

/// A store in memory.
#[derive(Default)]
struct Shelf(Mutex<BTreeMap<String, u32>>);

impl Shelf {
    fn with(stock: &[(&str, u32)]) -> Self {
        let stock = stock
            .iter()
            .map(|(article, count)| ((*article).to_owned(), *count));
        Self(Mutex::new(stock.collect()))
    }
}

impl Store for Shelf {
    fn count(&self, article: &str) -> Option<u32> {
        self.0.lock().expect("not poisoned").get(article).copied()
    }

    fn take(&self, article: &str) -> bool {
        let mut stock = self.0.lock().expect("not poisoned");
        match stock.get_mut(article) {
            Some(count) if 0 < *count => {
                *count -= 1;
                true
            }
            _ => false,
        }
    }
}

struct Shop<S> {
    store: S,
}

#[tools]
impl<S: Store> Shop<S> {
    /// Returns how many of an article are in stock.
    #[tool(read_only)]
    async fn stock(
        &self,
        /// The article's name.
        article: String,
    ) -> Result<u32, ToolError> {
        let count = self.store.count(&article);
        count.ok_or_else(|| ToolError::new(format!("{article} is not sold here")))
    }

    /// Buys one of an article.
    #[tool]
    async fn buy(&self, article: String) -> Result<String, ToolError> {
        match self.store.take(&article) {
            true => Ok(format!("one {article} is yours")),
            false => Err(ToolError::new(format!("{article} is sold out"))),
        }
    }
}

fn app(store: impl Store) -> App {
    App::new().name("shop", "1.0.0").toolset(Shop { store })
}

fn main() -> longshore::Result {
    app(Shelf::with(&[("lamp", 3), ("chair", 1)])).run()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn the_last_one_is_sold_once() -> longshore::Result {
        let server = app(Shelf::with(&[("lamp", 1)])).harness()?;
        for (text, is_error) in [("one lamp is yours", false), ("lamp is sold out", true)] {
            let result = server.call("buy", json!({"article": "lamp"})).await?;
            assert_eq!(
                (result.text().as_str(), result.is_error()),
                (text, is_error)
            );
        }
        Ok(())
    }
}

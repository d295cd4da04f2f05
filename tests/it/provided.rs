//! State of an application: parameters with `#[state]`, and objects whose methods are tools.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::BoxFuture;
use longshore::catalog::{Source, SourceItems};
use longshore::{
    App, AppError, CallContext, CompletionRequest, IntoTool as _, JsonSchema, PromptError,
    ResourceError, prompt, resource, tool, tools,
};
use serde::Serialize;
use serde_json::{Value, json};

/// Stands for a connection pool.
#[derive(Debug)]
struct Orders {
    place: &'static str,
    placed: AtomicU64,
}

impl Orders {
    fn of(place: &'static str) -> Self {
        Self {
            place,
            placed: AtomicU64::new(0),
        }
    }
}

/// A value behind a pointer.
trait Clock: Send + Sync {
    fn hour(&self) -> u32;
}

struct Noon;

impl Clock for Noon {
    fn hour(&self) -> u32 {
        12
    }
}

/// Places an order.
#[tool]
async fn place_order(
    #[state] orders: &Orders,
    article: String,
    context: &CallContext,
    #[state] clock: &Arc<dyn Clock>,
) -> String {
    let number = orders.placed.fetch_add(1, Ordering::Relaxed) + 1;
    let (place, hour, who) = (orders.place, clock.hour(), context.principal().name());
    format!("{who} ordered {article} in {place} at {hour}: {number}")
}

/// Counts orders.
#[tool(blocking, read_only)]
fn count_orders(#[state] orders: &Orders) -> u64 {
    orders.placed.load(Ordering::Relaxed)
}

/// Address for orders.
#[resource(uri = "orders://place")]
async fn destination(#[state] orders: &Orders) -> &'static str {
    orders.place
}

/// Reads an order.
#[resource(uri = "orders://order/{number}")]
async fn one(
    #[state] orders: &Orders,
    #[arg(complete = numbers(orders))] number: u64,
) -> Result<String, ResourceError> {
    match number <= orders.placed.load(Ordering::Relaxed) {
        true => Ok(format!("order {number} in {}", orders.place)),
        false => Err(ResourceError::not_found()),
    }
}

async fn numbers(orders: &Orders, request: CompletionRequest) -> Vec<String> {
    let all = 1..=orders.placed.load(Ordering::Relaxed);
    let all = all.map(|number| number.to_string());
    all.filter(|number| number.starts_with(&request.value))
        .collect()
}

/// Asks about an order.
#[prompt]
async fn ask(
    #[state] orders: &Orders,
    #[arg(complete = numbers(orders))] number: u64,
) -> Result<String, PromptError> {
    Ok(format!("Where in {} is order {number}?", orders.place))
}

fn app(place: &'static str) -> App {
    App::new()
        .provide(Orders::of(place))
        .provide::<Arc<dyn Clock>>(Arc::new(Noon))
        .tool(place_order)
        .tool(count_orders)
        .resource(destination)
        .resource(one)
        .prompt(ask)
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().expect("text")
}

#[tokio::test]
async fn state_reaches_tools_resources_prompts_and_completion() {
    let server = app("Rome").harness().expect("all is provided");
    let lamp = json!({"article": "a lamp"});
    let result = server.call("place_order", lamp).await.expect("a result");
    assert_eq!(text(&result), "local ordered a lamp in Rome at 12: 1");
    let result = server
        .call("count_orders", json!({}))
        .await
        .expect("a result");
    assert_eq!(text(&result), "1");
    let read = server.read("orders://place").await.expect("contents");
    assert_eq!(read["contents"][0]["text"], "Rome");
    let read = server.read("orders://order/1").await.expect("contents");
    assert_eq!(read["contents"][0]["text"], "order 1 in Rome");
    assert!(server.read("orders://order/2").await.is_err());
    let prompt = server
        .request(
            "prompts/get",
            json!({"name": "ask", "arguments": {"number": "1"}}),
        )
        .await
        .expect("a prompt");
    assert_eq!(
        prompt["messages"][0]["content"]["text"],
        "Where in Rome is order 1?"
    );
    for reference in [
        json!({"type": "ref/prompt", "name": "ask"}),
        json!({"type": "ref/resource", "uri": "orders://order/{number}"}),
    ] {
        let params = json!({"ref": reference, "argument": {"name": "number", "value": ""}});
        let found = server
            .request("completion/complete", params)
            .await
            .expect("suggestions");
        assert_eq!(found["completion"]["values"], json!(["1"]));
    }
    // The application's values are not the caller's to set.
    let listed = server
        .request("tools/list", json!({}))
        .await
        .expect("a list");
    let order = &listed["tools"][0];
    let properties = order["inputSchema"]["properties"]
        .as_object()
        .expect("properties");
    assert_eq!(properties.keys().collect::<Vec<_>>(), ["article"]);
    let wrong = json!({"article": "a", "orders": {}});
    let refused = server.call("place_order", wrong).await.expect("a result");
    assert_eq!(refused["isError"], true);
}

#[tokio::test]
async fn each_application_has_its_own_state_and_a_later_value_replaces_an_earlier_one() {
    let (rome, oslo) = (app("Rome"), app("Rome").provide(Orders::of("Oslo")));
    let (rome, oslo) = (
        rome.harness().expect("starts"),
        oslo.harness().expect("starts"),
    );
    for (server, place) in [(&rome, "Rome"), (&oslo, "Oslo")] {
        let result = server
            .call("place_order", json!({"article": "it"}))
            .await
            .expect("a result");
        assert_eq!(
            text(&result),
            format!("local ordered it in {place} at 12: 1")
        );
    }
}

#[test]
fn what_is_not_provided_is_an_error_at_start_that_names_all_of_it() {
    let app = App::new().tool(place_order).resource(one).provide(1_u8);
    let error = app.harness().expect_err("nothing is provided");
    assert!(matches!(error, AppError::Unprovided(_)));
    assert_eq!(
        error.to_string(),
        format!(
            "values are missing that App::provide must add before the server starts: tool place_order needs `{0}::Orders`; \
             resource orders://order/{{number}} needs `{0}::Orders`",
            module_path!()
        )
    );
}

#[tokio::test]
async fn an_application_that_becomes_a_part_keeps_its_state_and_takes_what_it_lacks() {
    // One tool has all its state; the other needs a clock from the application.
    let partly = |place| {
        let app = App::new().provide(Orders::of(place));
        app.tool(place_order).tool(count_orders)
    };
    let nested = App::new()
        .provide(Orders::of("Cork"))
        .import("d_", partly("Bern"))
        .import("e_", App::new().tool(place_order));
    let server = App::new()
        .import("a_", app("Rome"))
        .import("b_", partly("Bern"))
        .import("c_", nested)
        .tool(place_order)
        .provide::<Arc<dyn Clock>>(Arc::new(Noon))
        .provide(Orders::of("Oslo"))
        .harness()
        .expect("all is provided");
    for (name, place) in [
        ("a_place_order", "Rome"),
        ("b_place_order", "Bern"),
        ("c_d_place_order", "Bern"),
        ("c_e_place_order", "Cork"),
        ("place_order", "Oslo"),
    ] {
        let result = server
            .call(name, json!({"article": "it"}))
            .await
            .expect("a result");
        let expected = format!("local ordered it in {place} at 12: 1");
        assert_eq!(text(&result), expected, "{name}");
    }
    let read = server.read("orders://place").await.expect("contents");
    assert_eq!(read["contents"][0]["text"], "Rome");
    // The tools of an imported application share its values with one another.
    let counted = server.call("b_count_orders", json!({})).await;
    assert_eq!(text(&counted.expect("a result")), "1");
}

/// Offers a tool that needs state, and one that does not.
struct Mounted;

/// Answers.
#[tool]
async fn answer() -> &'static str {
    "here"
}

impl Source for Mounted {
    fn name(&self) -> &str {
        "mounted"
    }

    fn offer(&self) -> BoxFuture<'_, SourceItems> {
        Box::pin(async {
            let mut offered = SourceItems::default();
            offered
                .tools
                .extend([count_orders.into_tool(), answer.into_tool()]);
            offered
        })
    }
}

#[tokio::test]
async fn what_a_source_offers_is_bound_and_refused_alone_where_a_value_is_missing() {
    let bound = App::new().provide(Orders::of("Rome")).source("m_", Mounted);
    let server = bound.harness().expect("starts");
    let result = server
        .call("m_count_orders", json!({}))
        .await
        .expect("a result");
    assert_eq!(text(&result), "0");
    let server = App::new().source("m_", Mounted).harness().expect("starts");
    assert!(server.call("m_count_orders", json!({})).await.is_err());
    let result = server.call("m_answer", json!({})).await.expect("a result");
    assert_eq!(text(&result), "here");
}

#[tokio::test]
async fn a_function_with_state_can_be_called_as_what_it_is() {
    let (orders, clock) = (Orders::of("Rome"), Arc::new(Noon) as Arc<dyn Clock>);
    let context = CallContext::for_test();
    let said = place_order(&orders, "it".to_owned(), &context, &clock).await;
    assert_eq!(said, "anonymous ordered it in Rome at 12: 1");
    assert_eq!(count_orders(&orders), 1);
}

// === Methods ===

/// Stock of a shop.
trait Stock: Send + Sync + 'static {
    fn count(&self, article: &str) -> Option<u32>;
}

struct Shop<S> {
    stock: S,
    sold: AtomicU64,
}

/// An answer of a shop.
#[derive(serde::Serialize, schemars::JsonSchema)]
struct Found {
    article: String,
    count: u32,
}

#[tools]
impl<S: Stock> Shop<S> {
    fn new(stock: S) -> Self {
        Self {
            stock,
            sold: AtomicU64::new(0),
        }
    }

    /// Looks for an article.
    #[tool(read_only, title = "Find")]
    async fn find(
        &self,
        /// Its name.
        article: String,
        #[arg(default = 1)] least: u32,
    ) -> Result<Found, String> {
        let count = self.stock.count(&article);
        let count = count.filter(|count| least <= *count);
        count
            .map(|count| Found {
                article: article.clone(),
                count,
            })
            .ok_or_else(|| format!("there is no {article}"))
    }

    /// Sells.
    #[longshore::tool(name = "sell-one", blocking)]
    fn sell(&self, context: &CallContext) -> String {
        let number = self.sold.fetch_add(1, Ordering::Relaxed) + 1;
        format!("{} bought number {number}", context.principal().name())
    }

    /// Opening hours.
    #[resource(uri = "shop://hours", mime_type = "text/plain")]
    async fn hours(&self) -> &'static str {
        "9 to 17"
    }

    /// Reads an article in stock.
    #[resource(uri = "shop://stock/{article}")]
    async fn in_stock(&self, #[arg(complete = self.articles)] article: String) -> Option<String> {
        Some(self.stock.count(&article)?.to_string())
    }

    /// Asks for an article.
    #[prompt]
    async fn want(&self, #[arg(complete = self.articles)] article: String) -> String {
        let count = self.stock.count(&article).unwrap_or_default();
        format!("Sell me one of {count}: {article}")
    }

    #[cfg(any())]
    #[tool]
    async fn left_out(&self) -> NoSuchType {}

    async fn articles(&self, request: CompletionRequest) -> Vec<String> {
        let all = ["lamp", "lime"].into_iter();
        let all = all.filter(|name| name.starts_with(&request.value));
        all.filter(|name| self.stock.count(name).is_some())
            .map(str::to_owned)
            .collect()
    }
}

struct Lamps(u32);

impl Stock for Lamps {
    fn count(&self, article: &str) -> Option<u32> {
        (article == "lamp").then_some(self.0)
    }
}

struct Counter(AtomicU64);

#[tools]
impl Counter {
    /// Counts.
    #[tool]
    async fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

trait Unit {
    type Amount;
}

/// Names itself as `Self` in its methods.
#[derive(Clone, Serialize, JsonSchema)]
struct Price {
    cents: u32,
}

impl Unit for Price {
    type Amount = u32;
}

#[tools]
impl Price {
    const FACTOR: u32 = 2;

    #[tool]
    async fn current_price(&self) -> Self {
        self.clone()
    }

    #[tool]
    async fn multiples(
        &self,
        #[arg(default = Self::FACTOR)] factor: <Self as Unit>::Amount,
    ) -> Result<Vec<Self>, String> {
        let cents = self.cents * factor;
        Ok(vec![Self { cents }])
    }

    #[resource(uri = "price://current")]
    async fn current(&self) -> Option<Self> {
        Some(self.clone())
    }
}

#[tokio::test]
async fn methods_may_name_their_type_self() {
    let server = App::new()
        .toolset(Price { cents: 3 })
        .harness()
        .expect("starts");
    let price = server.call("current_price", json!({})).await;
    assert_eq!(price.expect("a price")["structuredContent"]["cents"], 3);
    let multiples = server.call("multiples", json!({})).await;
    assert_eq!(multiples.expect("a list").text(), r#"[{"cents":6}]"#);
    let read = server.read("price://current").await.expect("contents");
    assert_eq!(read["contents"][0]["text"], r#"{"cents":3}"#);
}

#[tokio::test]
async fn methods_are_tools_resources_and_prompts_of_their_object() {
    let server = App::new()
        .toolset(Shop::new(Lamps(3)))
        .toolset(Counter(AtomicU64::new(7)))
        .harness()
        .expect("starts");
    let listed = server
        .request("tools/list", json!({}))
        .await
        .expect("a list");
    let tools = listed["tools"].as_array().expect("tools");
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, [Some("find"), Some("sell-one"), Some("next")]);
    let find = &tools[0];
    assert_eq!(find["description"], "Looks for an article.");
    assert_eq!(find["annotations"]["readOnlyHint"], true);
    assert_eq!(
        find["inputSchema"]["properties"]["article"]["description"],
        "Its name."
    );
    assert_eq!(find["inputSchema"]["required"], json!(["article"]));
    assert!(find["outputSchema"].is_object());

    let found = server
        .call("find", json!({"article": "lamp"}))
        .await
        .expect("a result");
    assert_eq!(
        found["structuredContent"],
        json!({"article": "lamp", "count": 3})
    );
    let many = json!({"article": "lamp", "least": 4});
    let none = server.call("find", many).await.expect("a result");
    assert_eq!(
        (text(&none), &none["isError"]),
        ("there is no lamp", &json!(true))
    );
    for number in 1..=2 {
        let sold = server.call("sell-one", json!({})).await.expect("a result");
        assert_eq!(text(&sold), format!("local bought number {number}"));
    }
    let next = server.call("next", json!({})).await.expect("a result");
    assert_eq!(text(&next), "7");

    let read = server.read("shop://hours").await.expect("contents");
    assert_eq!(read["contents"][0]["mimeType"], "text/plain");
    let read = server.read("shop://stock/lamp").await.expect("contents");
    assert_eq!(read["contents"][0]["text"], "3");
    assert!(server.read("shop://stock/lime").await.is_err());
    let asked = server
        .request(
            "prompts/get",
            json!({"name": "want", "arguments": {"article": "lamp"}}),
        )
        .await
        .expect("a prompt");
    assert_eq!(
        asked["messages"][0]["content"]["text"],
        "Sell me one of 3: lamp"
    );
    let params = json!({
        "ref": {"type": "ref/prompt", "name": "want"},
        "argument": {"name": "article", "value": "l"},
    });
    let found = server
        .request("completion/complete", params)
        .await
        .expect("suggestions");
    assert_eq!(found["completion"]["values"], json!(["lamp"]));
}

#[test]
fn two_objects_with_a_tool_of_one_name_do_not_start() {
    let app = App::new()
        .toolset(Counter(AtomicU64::new(0)))
        .toolset(Counter(AtomicU64::new(0)));
    let error = app.harness().expect_err("two tools are called next");
    assert!(error.to_string().contains("next"), "{error}");
}

#[tokio::test]
async fn methods_stay_methods() {
    let shop = Shop::new(Lamps(1));
    assert_eq!(
        shop.find("lamp".to_owned(), 1)
            .await
            .map(|found| found.count),
        Ok(1)
    );
    assert_eq!(shop.hours().await, "9 to 17");
}

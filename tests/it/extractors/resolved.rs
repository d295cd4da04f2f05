//! Arguments that become what they stand for: parameters with `#[arg(resolve)]`.

use std::sync::Arc;

use longshore::auth::Principal;
use longshore::extract::{Caller, FromArgument, FromCall as _, Rejection, RequiredState};
use longshore::{App, CallContext, CompletionRequest, prompt, resource, tool, tools};
use serde_json::json;

use crate::support::assert_contains;

/// The pages of a ledger, by the name of who may read them.
struct Pages(&'static [(u8, &'static str)]);

/// A page that the caller may read.
struct Page(u8);

impl FromArgument for Page {
    type Argument = u8;

    fn requires(state: &mut RequiredState<'_>) {
        state.needs::<Pages>();
    }

    async fn from_argument(number: u8, context: &Arc<CallContext>) -> Result<Self, Rejection> {
        tokio::task::yield_now().await;
        let caller = Caller::from_call(context).await?;
        let pages = context.state::<Pages>()?;
        if number == 0 {
            return Err(Rejection::internal("there is no page 0"));
        }
        match pages.0.contains(&(number, caller.name())) {
            true => Ok(Self(number)),
            false => Err(Rejection::new(format!("you have no page {number}"))),
        }
    }
}

/// Reads a page.
#[tool]
async fn read_page(
    #[arg(resolve)]
    #[schemars(range(max = 99))]
    page: Page,
    #[arg(resolve, rename = "next_page")] next: Option<Page>,
    #[arg(resolve, default)] more: Vec<Page>,
    #[arg(resolve, default = 1)] last: Page,
) -> Vec<u8> {
    let all = [Some(page), next, Some(last)].into_iter().flatten();
    all.chain(more).map(|page| page.0).collect()
}

/// Reads a page on a thread that blocks.
#[tool(blocking)]
fn read_page_blocking(#[arg(resolve)] page: Page) -> u8 {
    page.0
}

/// Text of a page.
#[resource(uri = "pages://{page}/{line}")]
async fn line_of_page(
    #[arg(resolve)] page: Page,
    #[arg(complete = lines(page))] line: u8,
) -> String {
    format!("line {line} of page {}", page.0)
}

/// Asks about a page.
#[prompt]
async fn about_page(
    #[arg(resolve)] page: Option<Page>,
    #[arg(complete = lines_of_any(page))] line: Option<String>,
) -> String {
    format!("What is {line:?} of {:?}?", page.map(|page| page.0))
}

async fn lines(page: Page, _: CompletionRequest) -> Vec<String> {
    vec![format!("{}1", page.0)]
}

async fn lines_of_any(page: Option<Page>, _: CompletionRequest) -> Vec<String> {
    vec![page.map_or("none".to_owned(), |page| page.0.to_string())]
}

/// Has its pages in itself.
#[tools]
impl Pages {
    /// Counts the pages before one.
    #[tool]
    async fn count_before(&self, #[arg(resolve)] page: Page) -> usize {
        self.0.iter().filter(|(number, _)| *number < page.0).count()
    }
}

const PAGES: Pages = Pages(&[(1, "ada"), (2, "ada"), (3, "bob")]);

fn pages() -> App {
    App::new()
        .tool(read_page)
        .tool(read_page_blocking)
        .resource(line_of_page)
        .prompt(about_page)
}

#[tokio::test]
async fn an_argument_becomes_what_it_stands_for() -> longshore::Result {
    let server = pages()
        .provide(PAGES)
        .harness()?
        .with_principal(Principal::new("ada"));
    let tools = server.tools().await?;
    let schema = &tools[0]["inputSchema"];
    assert_eq!(schema["required"], json!(["page"]));
    assert_eq!(schema["properties"]["page"]["type"], "integer");
    assert_eq!(schema["properties"]["page"]["maximum"], 99);
    assert_eq!(schema["properties"]["last"]["default"], 1);
    assert_eq!(schema["properties"]["more"]["items"]["type"], "integer");
    let next = &schema["properties"]["next_page"]["anyOf"];
    assert_eq!(next[0]["type"], "integer");
    assert_eq!(next[1]["type"], "null");

    let result = server.call("read_page", json!({"page": 2})).await?;
    assert_eq!(result.structured::<Vec<u8>>()?, [2, 1]);
    let all = json!({"page": 1, "next_page": 2, "more": [2, 1], "last": 2});
    let result = server.call("read_page", all).await?;
    assert_eq!(result.structured::<Vec<u8>>()?, [1, 2, 2, 2, 1]);
    let result = server
        .call("read_page_blocking", json!({"page": 1}))
        .await?;
    assert_eq!(result.text(), "1");

    for (tool, arguments) in [
        ("read_page", json!({"page": 3})),
        ("read_page", json!({"page": 1, "more": [2, 3]})),
        ("read_page_blocking", json!({"page": 3})),
    ] {
        let result = server.call(tool, arguments.clone()).await?;
        assert!(result.is_error(), "{arguments}");
        assert_eq!(result.text(), "you have no page 3");
    }
    let result = server.call("read_page", json!({"page": "1"})).await?;
    assert!(result.text().contains("page"), "{result}");
    let error = server.call("read_page", json!({"page": 0})).await;
    let error = error.expect_err("a fault of the server");
    assert_eq!((error.code(), error.message()), (-32603, "Internal error"));

    let read = server.read("pages://2/7").await?;
    assert_eq!(read["contents"][0]["text"], "line 7 of page 2");
    let error = server.read("pages://3/7").await.expect_err("rejected");
    assert_eq!(error.message(), "you have no page 3");
    let prompt = server
        .get_prompt("about_page", json!({"page": "2"}))
        .await?;
    let text = &prompt["messages"][0]["content"]["text"];
    assert_eq!(text, "What is None of Some(2)?");
    Ok(())
}

#[tokio::test]
async fn completion_uses_an_argument_that_is_resolved() -> longshore::Result {
    let server = pages()
        .provide(PAGES)
        .harness()?
        .with_principal(Principal::new("ada"));
    let resource = json!({"type": "ref/resource", "uri": "pages://{page}/{line}"});
    let prompt = json!({"type": "ref/prompt", "name": "about_page"});
    for (reference, known, expected) in [
        (&resource, json!({"page": "2"}), json!(["21"])),
        (&resource, json!({"page": "3"}), json!([])),
        (&resource, json!({"page": "x"}), json!([])),
        (&resource, json!({}), json!([])),
        (&prompt, json!({"page": "2"}), json!(["2"])),
        (&prompt, json!({"page": "3"}), json!([])),
        (&prompt, json!({}), json!(["none"])),
    ] {
        let found = server
            .request(
                "completion/complete",
                json!({
                    "ref": reference,
                    "argument": {"name": "line", "value": ""},
                    "context": {"arguments": known},
                }),
            )
            .await?;
        let values = &found["completion"]["values"];
        assert_eq!(*values, expected, "{reference} {known}");
    }
    let fault = server.request(
        "completion/complete",
        json!({
            "ref": resource,
            "argument": {"name": "line", "value": ""},
            "context": {"arguments": {"page": "0"}},
        }),
    );
    let error = fault.await.expect_err("a fault of the server");
    assert_eq!(error.code(), -32603);
    Ok(())
}

#[tokio::test]
async fn an_object_is_state_of_its_own_methods() -> longshore::Result {
    let server = App::new().toolset(PAGES).harness()?;
    let server = server.with_principal(Principal::new("ada"));
    let result = server.call("count_before", json!({"page": 2})).await?;
    assert_eq!(result.structured::<usize>()?, 1);

    // Functions beside it have no object.
    let error = pages().harness().expect_err("no pages");
    let error = error.to_string();
    assert_contains(&error, &["read_page", "Pages"]);
    Ok(())
}

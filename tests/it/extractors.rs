//! Extractors: parameters with `#[call]`, in tools, resources, prompts, completion and methods.

mod resolved;
mod state;

use std::convert::Infallible;
use std::str::FromStr;
use std::sync::Arc;

use http::{Request, Response};
use longshore::auth::Principal;
use longshore::extract::{
    Caller, Claims, Deadline, Extension, FromCall, Header, Headers, Log, Progress, Rejection,
    RequestHeader,
};
use longshore::net::Body;
use longshore::{
    App, CallContext, CompletionRequest, LogLevel, PromptError, ToolError, prompt, resource, tool,
    tools,
};
use serde_json::{Map, Value, json};
use tower::util::MapRequestLayer;

use crate::support::{Serve, Stateless};

/// Value that a layer takes from a header.
#[derive(Clone, Debug)]
struct Tenant(String);

#[derive(Debug)]
struct Language(String);

impl RequestHeader for Language {
    const NAME: &'static str = "x-language";
}

impl FromStr for Language {
    type Err = Infallible;

    fn from_str(value: &str) -> Result<Self, Infallible> {
        Ok(Self(value.to_owned()))
    }
}

#[derive(serde::Deserialize)]
struct Employee {
    department: String,
}

/// A caller from the finance department, found after a wait.
struct Accountant(String);

impl FromCall for Accountant {
    async fn from_call(context: &Arc<CallContext>) -> Result<Self, Rejection> {
        tokio::task::yield_now().await;
        let caller = Caller::from_call(context).await?;
        match caller.groups().any(|group| group == "finance") {
            true => Ok(Self(caller.name().to_owned())),
            false => Err(Rejection::forbidden("this is for the finance department")),
        }
    }
}

/// Says what it found in the call.
#[tool]
async fn describe_call(
    #[call] caller: Caller,
    word: String,
    #[call] deadline: Deadline,
    #[call] tenant: Option<Extension<Tenant>>,
    #[call] language: Option<Header<Language>>,
    #[call] headers: Headers,
    context: &CallContext,
    #[call] shared: Arc<CallContext>,
) -> String {
    assert!(std::ptr::eq(context, &raw const *shared));
    assert!(deadline.remaining().is_some());
    let tenant = tenant.map_or("nobody".to_owned(), |Extension(Tenant(name))| name);
    let language = language.map_or("no language".to_owned(), |Header(Language(name))| name);
    let accepts = headers.contains_key("accept");
    format!("{} {word} {tenant} {language} {accepts}", caller.name())
}

/// Needs what a layer sets.
#[tool]
async fn name_tenant(#[call] Extension(Tenant(name)): Extension<Tenant>) -> String {
    name
}

/// Approves an invoice.
#[tool]
async fn approve(#[call] accountant: Accountant, invoice: u64) -> String {
    format!("{} approved {invoice}", accountant.0)
}

/// Approves an invoice on a thread that blocks.
#[tool(blocking)]
fn approve_blocking(#[call] accountant: Accountant, invoice: u64) -> String {
    format!("{} approved {invoice}", accountant.0)
}

/// Tells why the caller is rejected.
#[tool]
async fn why(#[call] accountant: Result<Accountant, Rejection>) -> String {
    accountant.map_or_else(|rejection| rejection.message(), |found| found.0)
}

/// Returns the caller's department.
#[tool]
async fn department(#[call] Claims(employee): Claims<Employee>) -> String {
    employee.department
}

/// Deletes something.
#[tool]
async fn delete(#[call] caller: Caller) -> Result<(), ToolError> {
    caller.require_scope("things:delete")?;
    Ok(())
}

/// Reports what it does.
#[tool]
async fn reports(#[call] progress: Progress, #[call] log: Log) {
    progress.report(1.0, Some(2.0), "half").await;
    log.warning("careful").await;
    log.send(LogLevel::Error, &json!({"code": 7})).await;
}

/// The accounts.
#[resource(uri = "accounts://all")]
async fn accounts(#[call] accountant: Accountant) -> String {
    format!("accounts for {}", accountant.0)
}

/// Reads an account.
#[resource(uri = "accounts://one/{name}")]
async fn account(
    #[call] accountant: Accountant,
    #[arg(complete = names(accountant))] name: String,
) -> String {
    format!("account {name} for {}", accountant.0)
}

/// Asks about an account.
#[prompt]
async fn about(
    #[call] accountant: Accountant,
    #[arg(complete = names(accountant))] name: String,
) -> Result<String, PromptError> {
    Ok(format!("What does {} want with {name}?", accountant.0))
}

async fn names(accountant: Accountant, request: CompletionRequest) -> Vec<String> {
    vec![format!("{}{}", request.value, accountant.0)]
}

struct Ledger<S>(S);

#[tools]
impl<S: AsRef<str> + Send + Sync + 'static> Ledger<S> {
    /// Reads the ledger.
    #[tool]
    async fn ledger(&self, #[call] accountant: Accountant, page: u8) -> String {
        format!("{} page {page} for {}", self.0.as_ref(), accountant.0)
    }

    /// Asks about a page.
    #[prompt]
    async fn page(
        &self,
        #[call] accountant: Accountant,
        #[arg(complete = self.pages(accountant))] page: String,
    ) -> String {
        format!("{page} of {}, {}", self.0.as_ref(), accountant.0)
    }

    async fn pages(&self, accountant: Accountant, _: CompletionRequest) -> Vec<String> {
        vec![format!("{} {}", self.0.as_ref(), accountant.0)]
    }
}

fn app() -> App {
    App::new()
        .tool(describe_call)
        .tool(name_tenant)
        .tool(approve)
        .tool(approve_blocking)
        .tool(why)
        .tool(department)
        .tool(delete)
        .tool(reports)
        .resource(accounts)
        .resource(account)
        .prompt(about)
        .toolset(Ledger("main"))
}

fn ada() -> Principal {
    let claims = [("department".to_owned(), json!("finance"))];
    Principal::new("ada")
        .with_groups(["finance"])
        .with_claims(Map::from_iter(claims))
}

#[tokio::test]
async fn extractors_are_no_arguments() -> longshore::Result {
    let server = app().harness()?.with_principal(ada());
    let tools = server.tools().await?;
    let schema = |name: &str| {
        let found = tools.iter().find(|tool| tool["name"] == *name);
        found.expect("a tool")["inputSchema"].clone()
    };
    let keys = |schema: &Value| -> Vec<String> {
        schema["properties"]
            .as_object()
            .into_iter()
            .flat_map(Map::keys)
            .cloned()
            .collect()
    };
    assert_eq!(keys(&schema("describe_call")), ["word"]);
    assert_eq!(keys(&schema("approve")), ["invoice"]);
    assert_eq!(keys(&schema("name_tenant")), Vec::<String>::new());

    let result = server
        .call("describe_call", json!({"word": "says"}))
        .await?;
    assert_eq!(result.text(), "ada says nobody no language false");
    let result = server
        .call("approve", json!({"invoice": 1, "accountant": "x"}))
        .await?;
    assert!(result.is_error(), "{result}");
    for tool in ["approve", "approve_blocking"] {
        let result = server.call(tool, json!({"invoice": 1})).await?;
        assert_eq!(result.text(), "ada approved 1");
    }
    let result = server.call("department", json!({})).await?;
    assert_eq!(result.text(), "finance");
    let result = server.call("reports", json!({})).await?;
    assert_eq!(result.progress()[0].message.as_deref(), Some("half"));
    let result = server.call("ledger", json!({"page": 3})).await?;
    assert_eq!(result.text(), "main page 3 for ada");
    Ok(())
}

#[tokio::test]
async fn a_rejection_ends_the_call_before_its_arguments_are_read() -> longshore::Result {
    let server = app().harness()?.with_principal(Principal::new("bob"));
    for tool in ["approve", "approve_blocking", "ledger"] {
        let error = server.call(tool, json!({"page": 1, "invoice": 1})).await;
        let error = match tool {
            // The server checks what a schema forbids before any tool runs.
            "ledger" => server.call(tool, json!({"page": 1})).await,
            _ => server.call(tool, json!({"invoice": 1})).await.or(error),
        };
        let error = error.expect_err("rejected");
        assert_eq!(error.code(), 403);
        assert_eq!(error.message(), "this is for the finance department");
    }
    let error = server
        .call("department", json!({}))
        .await
        .expect_err("no claims");
    assert_eq!(error.code(), 403);
    let error = server
        .call("delete", json!({}))
        .await
        .expect_err("no scope");
    assert_eq!(error.code(), 403);
    assert_eq!(error["data"]["requiredScopes"], json!(["things:delete"]));
    let error = server
        .call("name_tenant", json!({}))
        .await
        .expect_err("no layer");
    assert_eq!((error.code(), error.message()), (-32603, "Internal error"));
    let result = server.call("why", json!({})).await?;
    assert_eq!(result.text(), "this is for the finance department");
    for uri in ["accounts://all", "accounts://one/a"] {
        let error = server.read(uri).await.expect_err("rejected");
        assert_eq!(error.code(), 403, "{uri}");
    }
    let error = server.get_prompt("about", json!({"name": "a"})).await;
    assert_eq!(error.expect_err("rejected").code(), 403);
    Ok(())
}

#[tokio::test]
async fn resources_prompts_and_completion_take_values_of_the_call() -> longshore::Result {
    let server = app().harness()?.with_principal(ada());
    let read = server.read("accounts://all").await?;
    assert_eq!(read["contents"][0]["text"], "accounts for ada");
    let read = server.read("accounts://one/a").await?;
    assert_eq!(read["contents"][0]["text"], "account a for ada");
    let prompt = server.get_prompt("about", json!({"name": "a"})).await?;
    let text = &prompt["messages"][0]["content"]["text"];
    assert_eq!(text, "What does ada want with a?");
    for (reference, argument, expected) in [
        (
            json!({"type": "ref/prompt", "name": "about"}),
            "name",
            "x ada",
        ),
        (
            json!({"type": "ref/resource", "uri": "accounts://one/{name}"}),
            "name",
            "x ada",
        ),
        (
            json!({"type": "ref/prompt", "name": "page"}),
            "page",
            "main ada",
        ),
    ] {
        let params = json!({"ref": reference, "argument": {"name": argument, "value": "x "}});
        let found = server
            .request("completion/complete", params.clone())
            .await?;
        assert_eq!(
            found["completion"]["values"],
            json!([expected]),
            "{reference}"
        );
        let bob = app().harness()?.with_principal(Principal::new("bob"));
        let error = bob.request("completion/complete", params).await;
        assert_eq!(error.expect_err("rejected").code(), 403, "{reference}");
    }
    Ok(())
}

/// A unit struct for `status` in this module.
#[tool]
async fn status() -> &'static str {
    "up"
}

/// Has parameters with names of other tools in this module.
#[tool]
async fn order_by(
    status: String,
    #[call] why: Option<Extension<Tenant>>,
    #[arg(default = largest_total())] largest_total: u8,
) -> String {
    format!("{status} {} {largest_total}", why.is_none())
}

fn largest_total() -> u8 {
    9
}

#[tokio::test]
async fn a_parameter_may_have_the_name_of_a_tool() -> longshore::Result {
    let server = App::new().tool(status).tool(order_by).harness()?;
    let result = server.call("order_by", json!({"status": "down"})).await?;
    assert_eq!(result.text(), "down true 9");
    assert_eq!(status().await, "up");
    Ok(())
}

#[tokio::test]
async fn functions_are_called_from_rust_with_extracted_values() {
    let said = approve(Accountant("eve".to_owned()), 7).await;
    assert_eq!(said, "eve approved 7");
}

#[tokio::test]
async fn the_harness_stands_for_a_request_and_its_layers() -> longshore::Result {
    let server = app()
        .harness()?
        .with_principal(ada())
        .with_header("x-language", "fr")
        .with_header("accept", "*/*")
        .with_extension(Tenant("acme".to_owned()))
        .with_log_level(LogLevel::Warning);
    let result = server
        .call("describe_call", json!({"word": "says"}))
        .await?;
    assert_eq!(result.text(), "ada says acme fr true");
    let result = server.call("reports", json!({})).await?;
    assert_eq!(result.logs()[0]["data"], "careful");
    assert_eq!(result.logs()[1]["data"]["code"], 7);
    let snapshot = serde_json::to_value(&result)?;
    assert_eq!(snapshot["result"]["isError"], false);
    assert_eq!(snapshot["notifications"].as_array().map(Vec::len), Some(3));
    Ok(())
}

/// Takes the tenant from a header, into the request's extensions.
fn with_tenant(mut request: Request<Body>) -> Request<Body> {
    if let Some(tenant) = request.headers().get("x-tenant") {
        let tenant = tenant.to_str().expect("ASCII").to_owned();
        request.extensions_mut().insert(Tenant(tenant));
    }
    request
}

#[test]
fn an_extension_of_a_layer_reaches_the_call() {
    let server = Serve::new()
        .tool(describe_call)
        .tool(name_tenant)
        .app(|app| {
            app.layer(MapRequestLayer::new(with_tenant)).route(
                "/own",
                |request: Request<bytes::Bytes>| async move {
                    let tenant = request.extensions().get::<Tenant>();
                    let name = tenant.map_or("nobody".to_owned(), |tenant| tenant.0.clone());
                    Response::new(Body::from(name))
                },
            )
        })
        .start();
    let call = Stateless::call("describe_call", json!({"word": "says"}));
    let result = call.send(&server).result();
    assert_eq!(
        result["content"][0]["text"],
        "anonymous says nobody no language true"
    );
    let call = call.and("x-tenant", "acme").and("x-language", "fr");
    let result = call.send(&server).result();
    assert_eq!(result["content"][0]["text"], "anonymous says acme fr true");

    // The next request of the connection has none of it.
    let mut connection = server.connect();
    let with = Stateless::call("name_tenant", json!({})).and("x-tenant", "acme");
    assert_eq!(
        with.send_on(&mut connection).result()["content"][0]["text"],
        "acme"
    );
    let without = Stateless::call("name_tenant", json!({}));
    without.send_on(&mut connection).error(200, -32603, "1");

    let mut rest = server.connect();
    rest.send(
        "POST /tools/name_tenant HTTP/1.1\r\nhost: localhost\r\nx-tenant: acme\r\n\
         content-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
    );
    let response = rest.receive();
    assert!(response.body.contains("acme"), "{response:?}");
    let mut own = server.connect();
    own.send("GET /own HTTP/1.1\r\nhost: localhost\r\nx-tenant: acme\r\n\r\n");
    assert_eq!(own.receive().body, "acme");
}

#[test]
fn a_scope_that_an_extractor_wants_is_a_challenge_over_http() {
    let server = Serve::new()
        .tool(delete)
        .configured(|config| {
            config.auth.anonymous = Some("guest".to_owned());
        })
        .start();
    let response = Stateless::call("delete", json!({})).send(&server);
    assert_eq!(response.status, 403, "{response:?}");
    assert_eq!(
        response.json()["error"]["data"]["requiredScopes"],
        json!(["things:delete"])
    );
}

/// An extractor that waits.
struct Waited;

impl FromCall for Waited {
    async fn from_call(_: &Arc<CallContext>) -> Result<Self, Rejection> {
        tokio::time::sleep(std::time::Duration::from_secs(4)).await;
        Ok(Self)
    }
}

/// Returns the time that is left, in seconds.
#[tool(timeout = "10s")]
async fn time_left(#[call] _waited: Waited, #[call] deadline: Deadline) -> Option<f64> {
    deadline.remaining().map(|left| left.as_secs_f64())
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_not_put_off_by_extractors_before_it() {
    let server = App::new().tool(time_left).harness().expect("starts");
    let result = server.call("time_left", json!({})).await.expect("a result");
    let left: f64 = result.structured().expect("seconds");
    assert!((5.9..=6.0).contains(&left), "{left}");
}

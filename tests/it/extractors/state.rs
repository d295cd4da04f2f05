//! Extractors that use values of the application.

use std::sync::Arc;

use longshore::extract::{Caller, FromCall, Rejection, RequiredState};
use longshore::{App, CallContext, CompletionRequest, PromptError, prompt, resource, tool, tools};
use serde_json::json;

/// Budgets by department.
struct Budgets(&'static str, u32);

/// A budget, taken from the application's values.
struct Budget(String);

impl FromCall for Budget {
    fn requires(state: &mut RequiredState<'_>) {
        state.needs::<Budgets>();
    }

    async fn from_call(context: &Arc<CallContext>) -> Result<Self, Rejection> {
        let budgets = context.state::<Budgets>()?;
        let caller = Caller::from_call(context).await?;
        Ok(Self(format!(
            "{} {} {}",
            caller.name(),
            budgets.0,
            budgets.1
        )))
    }
}

/// An extractor that does not declare the value it uses.
struct Undeclared;

impl FromCall for Undeclared {
    async fn from_call(context: &Arc<CallContext>) -> Result<Self, Rejection> {
        context.state::<Budgets>()?;
        Ok(Self)
    }
}

/// Returns a budget.
#[tool]
async fn read_budget(#[call] budget: Budget) -> String {
    budget.0
}

/// Returns a budget and a value of the application.
#[tool]
async fn budget_and_state(
    #[call] budget: Result<Budget, Rejection>,
    #[state] number: &u32,
) -> String {
    let budget = budget.map_or_else(|rejection| rejection.message(), |budget| budget.0);
    format!("{budget} and {number}")
}

/// Uses a value without declaring it.
#[tool]
async fn undeclared(#[call] _undeclared: Undeclared) {}

/// A budget.
#[resource(uri = "budget://all")]
async fn budget_resource(#[call] budget: Budget) -> String {
    budget.0
}

/// A budget of a year.
#[resource(uri = "budget://year/{year}")]
async fn budget_of(#[call] budget: Budget, #[arg(complete = years(budget))] year: u32) -> String {
    format!("{} in {year}", budget.0)
}

async fn years(budget: Budget, _: CompletionRequest) -> Vec<String> {
    vec![budget.0]
}

/// Asks about a budget.
#[prompt]
async fn budget_prompt(#[call] budget: Budget) -> Result<String, PromptError> {
    Ok(budget.0)
}

struct Office(&'static str);

#[tools]
impl Office {
    /// Returns a budget, with a method.
    #[tool]
    async fn office_budget(&self, #[call] budget: Budget) -> String {
        format!("{} of {}", budget.0, self.0)
    }
}

fn budgets() -> App {
    App::new()
        .tool(read_budget)
        .tool(budget_and_state)
        .resource(budget_resource)
        .resource(budget_of)
        .prompt(budget_prompt)
        .toolset(Office("Rome"))
}

#[tokio::test]
async fn extractors_get_values_that_the_application_provides() {
    let app = budgets().provide(Budgets("travel", 7)).provide(3_u32);
    let server = app.harness().expect("all is provided");
    for (tool, text) in [
        ("read_budget", "local travel 7"),
        ("budget_and_state", "local travel 7 and 3"),
        ("office_budget", "local travel 7 of Rome"),
    ] {
        let result = server.call(tool, json!({})).await.expect("a result");
        assert_eq!(result.text(), text);
    }
    for (uri, text) in [
        ("budget://all", "local travel 7"),
        ("budget://year/5", "local travel 7 in 5"),
    ] {
        let read = server.read(uri).await.expect("contents");
        assert_eq!(read["contents"][0]["text"], text);
    }
    let params = json!({"name": "budget_prompt"});
    let prompt = server.request("prompts/get", params).await;
    let prompt = prompt.expect("a prompt");
    assert_eq!(prompt["messages"][0]["content"]["text"], "local travel 7");
    let reference = json!({"type": "ref/resource", "uri": "budget://year/{year}"});
    let params = json!({"ref": reference, "argument": {"name": "year", "value": ""}});
    let found = server.request("completion/complete", params).await;
    let found = found.expect("suggestions");
    assert_eq!(found["completion"]["values"], json!(["local travel 7"]));
}

#[tokio::test]
async fn each_part_of_an_application_has_its_own_values_in_extractors() {
    let part = |place, amount| App::new().provide(Budgets(place, amount)).tool(read_budget);
    let app = App::new()
        .import("a_", part("food", 1))
        .import("b_", part("rent", 2));
    let server = app.harness().expect("all is provided");
    for (tool, text) in [
        ("a_read_budget", "local food 1"),
        ("b_read_budget", "local rent 2"),
    ] {
        let result = server.call(tool, json!({})).await.expect("a result");
        assert_eq!(result.text(), text);
    }
}

#[test]
fn a_value_that_an_extractor_needs_and_lacks_is_an_error_at_start() {
    let error = budgets().provide(3_u32).harness().expect_err("no budgets");
    let message = error.to_string();
    let needed = format!("needs `{}::Budgets`", module_path!());
    for function in [
        "tool read_budget ",
        "tool budget_and_state ",
        "tool office_budget ",
        "resource budget://all ",
        "resource budget://year/{year} ",
        "prompt budget_prompt ",
    ] {
        assert!(
            message.contains(&format!("{function}{needed}")),
            "{message}"
        );
    }
}

#[tokio::test]
async fn an_undeclared_value_is_an_internal_error_without_details() {
    let app = App::new().provide(Budgets("travel", 7)).tool(undeclared);
    let server = app.harness().expect("starts");
    let error = server.call("undeclared", json!({})).await;
    let error = error.expect_err("not declared").to_string();
    assert!(!error.contains("Budgets"), "{error}");
}

#[tokio::test]
async fn an_extractor_with_state_is_tested_alone() {
    let context = CallContext::for_test().with_state(Budgets("travel", 7));
    let budget = Budget::from_call(&Arc::new(context)).await;
    assert_eq!(budget.expect("a budget").0, "anonymous travel 7");
}

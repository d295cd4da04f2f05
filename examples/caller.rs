//! Tools that depend on who calls: the caller's name, a scope, and an extractor of this program.
//!
//! ```sh
//! cargo run --example caller
//! cargo test --example caller
//! ```
//!
//! Without authentication every caller is `anonymous`. docs/security.md shows how to configure API keys and OAuth.

use std::sync::Arc;

use longshore::extract::{Caller, FromCall, Rejection};
use longshore::{App, CallContext, ToolError, tool};

/// The team of a caller, from the group `team:NAME`.
struct Team(String);

impl FromCall for Team {
    async fn from_call(context: &Arc<CallContext>) -> Result<Self, Rejection> {
        let caller = Caller::from_call(context).await?;
        let team = caller
            .groups()
            .find_map(|group| group.strip_prefix("team:"));
        team.map(|name| Self(name.to_owned()))
            .ok_or_else(|| Rejection::forbidden("you are not a member of a team"))
    }
}

/// Returns the name of the caller.
#[tool(read_only)]
async fn whoami(#[call] caller: Caller) -> String {
    caller.name().to_owned()
}

/// Approves an invoice for the caller's team.
#[tool]
async fn approve(
    #[call] caller: Caller,
    #[call] Team(team): Team,
    /// Number of the invoice.
    invoice: u64,
) -> Result<String, ToolError> {
    caller.require_scope("invoices:approve")?;
    Ok(format!(
        "{} approved invoice {invoice} for {team}",
        caller.name()
    ))
}

fn app() -> App {
    App::new()
        .name("invoices", "1.0.0")
        .tool(whoami)
        .tool(approve)
}

fn main() -> longshore::Result {
    app().run()
}

#[cfg(test)]
mod tests {
    use longshore::auth::Principal;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn only_members_with_the_scope_approve() -> longshore::Result {
        let ada = || Principal::new("ada").with_groups(["team:north"]);
        let server = app().harness()?.with_principal(ada());
        assert_eq!(server.call("whoami", json!({})).await?.text(), "ada");
        let rejected = server.call("approve", json!({"invoice": 7})).await;
        assert!(rejected.is_err(), "the scope is missing");

        let server = server.with_principal(ada().with_scopes(["invoices:approve"]));
        let result = server.call("approve", json!({"invoice": 7})).await?;
        assert_eq!(result.text(), "ada approved invoice 7 for north");

        let bob = Principal::new("bob").with_scopes(["invoices:approve"]);
        let rejected = server
            .with_principal(bob)
            .call("approve", json!({"invoice": 7}))
            .await;
        let message = rejected.expect_err("not a member").message().to_owned();
        assert!(message.contains("not a member of a team"), "{message}");
        Ok(())
    }
}

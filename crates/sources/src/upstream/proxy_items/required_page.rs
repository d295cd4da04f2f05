//! Pages that a user has to visit before an upstream executes a call: the error -32042 of 2025-11-25.

use serde::Deserialize;
use serde_json::Value;

use super::super::call_error::CallError;
use super::super::connection::Upstream;
use crate::catalog::{CallContext, ClientRequestError, Elicited, ToolError};
use crate::client::{ClientError, RpcError};

const URL_ELICITATION_REQUIRED: i64 = -32042;

/// A page that the user has to visit first.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RequiredPage {
    message: String,
    url: String,
    #[serde(default)]
    elicitation_id: Value,
}

impl RequiredPage {
    /// Returns the first page that an error names. The next call gets the next one.
    pub(super) fn of(error: &CallError) -> Option<Self> {
        match error {
            CallError::Client(ClientError::Rpc(error)) => Self::named_by(error),
            _ => None,
        }
    }

    fn named_by(error: &RpcError) -> Option<Self> {
        if error.code != URL_ELICITATION_REQUIRED {
            return None;
        }
        let pages = error.data.as_ref()?["elicitations"].as_array()?;
        pages.iter().find_map(|page| Self::deserialize(page).ok())
    }

    /// Sends the user to the page, in the form that the client's protocol version has. Returns after the visit.
    ///
    /// # Errors
    ///
    /// The error -32042 for a client of 2025-11-25, or the reason why there is no visit.
    pub(super) async fn visit(
        self,
        context: &CallContext,
        upstream: &Upstream,
    ) -> Result<(), ToolError> {
        let Self {
            message,
            url,
            elicitation_id,
        } = self;
        let name = &*upstream.name;
        let by_hand = format!("{name}: {message}: open {url} in a browser, then call again");
        let request = context.elicit_url(message, url).required();
        if let (Some(id), Some(elicitation)) = (elicitation_id.as_str(), request.elicitation()) {
            let caller = &context.principal;
            upstream.upkeep.begin_visit(caller, id, elicitation);
        }
        match request.await {
            Ok(Elicited::Accepted(())) => Ok(()),
            Ok(Elicited::Declined | Elicited::Cancelled) => Err(ToolError::new(format!(
                "{name}: the user declined to open the required page"
            ))),
            Err(error @ ClientRequestError::UrlElicitationRequired(_)) => Err(error.into()),
            // The client cannot be asked.
            Err(_) => Err(ToolError::new(by_hand)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_page_of_the_error_is_visited() {
        let of = |code, data: Value| {
            let mut error = RpcError::new(code, "log in");
            error.data = Some(data);
            RequiredPage::named_by(&error)
        };
        let page = |url: &str| json!({"mode": "url", "elicitationId": "1", "message": "Log in", "url": url});
        let two = json!({"elicitations": ["x", page("https://a/"), page("https://b/")]});
        assert_eq!(
            of(-32042, two.clone()),
            Some(RequiredPage {
                message: "Log in".to_owned(),
                url: "https://a/".to_owned(),
                elicitation_id: json!("1"),
            })
        );
        assert_eq!(of(-32603, two), None);
        for other in [
            json!({}),
            json!({"elicitations": {}}),
            json!("x"),
            Value::Null,
        ] {
            assert_eq!(of(-32042, other.clone()), None, "{other}");
        }
    }
}

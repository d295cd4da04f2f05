//! Results and errors of calls through the harness.

use std::error::Error;
use std::fmt;
use std::ops::Deref;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Result of a tool call, as the client sees it, with the notifications that came before it.
///
/// It dereferences to its JSON, so that `result["structuredContent"]["total"]` works, too. For snapshots it is serialized as
/// `result` and `notifications`.
///
/// ```
/// use longshore::{App, CallContext, tool};
/// use serde_json::json;
///
/// /// Adds up.
/// #[tool]
/// async fn sum(context: &CallContext, numbers: Vec<i64>) -> i64 {
///     context.progress(1.0, Some(1.0), "added").await;
///     numbers.iter().sum()
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> longshore::Result {
/// let server = App::new().tool(sum).harness()?;
/// let result = server.call("sum", json!({"numbers": [1, 2]})).await?;
/// assert!(!result.is_error());
/// assert_eq!(result.structured::<i64>()?, 3);
/// assert_eq!(result.text(), "3");
/// assert_eq!(result.progress()[0].message.as_deref(), Some("added"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallResult {
    result: Value,
    notifications: Vec<Value>,
}

/// A progress notification.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Progress {
    /// Current progress.
    pub progress: f64,
    /// Total, if known.
    pub total: Option<f64>,
    /// Description of the current step.
    pub message: Option<String>,
}

impl CallResult {
    pub(super) fn new(result: Value, notifications: Vec<Value>) -> Self {
        Self {
            result,
            notifications,
        }
    }

    /// Text of all text blocks, separated by line breaks.
    pub fn text(&self) -> String {
        let blocks = self.content().iter();
        let texts = blocks.filter_map(|block| block["text"].as_str());
        texts.collect::<Vec<_>>().join("\n")
    }

    /// Content blocks.
    pub fn content(&self) -> &[Value] {
        self.result["content"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Structured content, deserialized.
    ///
    /// # Errors
    ///
    /// If there is no structured content, or its shape differs.
    pub fn structured<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_value(self.result["structuredContent"].clone())
    }

    /// Returns true if the tool failed. The text gives the reason.
    pub fn is_error(&self) -> bool {
        self.result["isError"] == true
    }

    /// Notifications sent before the result, in order.
    pub fn notifications(&self) -> &[Value] {
        &self.notifications
    }

    /// Progress notifications.
    pub fn progress(&self) -> Vec<Progress> {
        let params = self.params_of("notifications/progress");
        params
            .map(|params| Progress {
                progress: params["progress"].as_f64().unwrap_or_default(),
                total: params["total"].as_f64(),
                message: params["message"].as_str().map(str::to_owned),
            })
            .collect()
    }

    /// Log messages: objects with `level` and `data`, from the client's [log level](super::Harness::with_log_level) on.
    pub fn logs(&self) -> Vec<&Value> {
        self.params_of("notifications/message").collect()
    }

    /// The result as JSON.
    pub fn into_json(self) -> Value {
        self.result
    }

    fn params_of(&self, method: &str) -> impl Iterator<Item = &Value> {
        let of_method = move |message: &&Value| message["method"] == *method;
        let found = self.notifications.iter().filter(of_method);
        found.map(|message| &message["params"])
    }
}

impl Deref for CallResult {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.result
    }
}

impl fmt::Display for CallResult {
    /// Formats the result as JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.result.fmt(f)
    }
}

impl PartialEq<Value> for CallResult {
    fn eq(&self, other: &Value) -> bool {
        self.result == *other
    }
}

impl From<CallResult> for Value {
    fn from(result: CallResult) -> Self {
        result.result
    }
}

/// A JSON-RPC error response. Dereferences to the error object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallError(Value);

impl CallError {
    pub(super) fn new(error: Value) -> Self {
        Self(error)
    }

    /// Error code.
    pub fn code(&self) -> i64 {
        self.0["code"].as_i64().unwrap_or_default()
    }

    /// Error message.
    pub fn message(&self) -> &str {
        self.0["message"].as_str().unwrap_or_default()
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message(), self.code())
    }
}

impl Error for CallError {}

impl Deref for CallError {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

impl PartialEq<Value> for CallError {
    fn eq(&self, other: &Value) -> bool {
        self.0 == *other
    }
}

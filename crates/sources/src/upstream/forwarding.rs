//! Forwards the notifications and client requests of an upstream to the caller whose call they belong to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::maintenance::Maintenance;
use crate::catalog::{
    CallContext, ClientRequestError, Elicited, Form, LogLevel, PassthroughSample,
    REQUEST_NAME_MAX_BYTES, StepError, UI_EXTENSION, UI_MIME_TYPE, send_named,
};
use crate::client::{
    Caller, ClientError, INTERNAL_ERROR, INVALID_PARAMS, Listener, METHOD_NOT_FOUND, RpcError,
};
use crate::protocol::ClientAbility;

/// Client capabilities declared to upstream servers. Requests to servers of 2026-07-28 declare only those of their
/// caller. Sessions serve many callers; if one of them lacks a capability, the upstream gets an error.
pub(super) fn capabilities() -> Map<String, Value> {
    let mut capabilities = Map::new();
    capabilities.insert("elicitation".to_owned(), json!({"form": {}, "url": {}}));
    capabilities.insert("sampling".to_owned(), json!({"tools": {}}));
    capabilities.insert("roots".to_owned(), json!({}));
    // Tool views are read as resources by the host that is connected here.
    let views = json!({UI_EXTENSION: {"mimeTypes": [UI_MIME_TYPE]}});
    capabilities.insert("extensions".to_owned(), views);
    capabilities
}

/// Forwards the messages that belong to one call.
pub(super) struct Relay {
    context: Arc<CallContext>,
    upkeep: Arc<Maintenance>,
    /// ID of the latest request to the upstream; 0 if there was none.
    request_id: AtomicU64,
}

impl Relay {
    pub(super) fn new(context: &Arc<CallContext>, upkeep: &Arc<Maintenance>) -> Self {
        Self {
            context: Arc::clone(context),
            upkeep: Arc::clone(upkeep),
            request_id: AtomicU64::new(0),
        }
    }

    /// Returns the context of the call.
    pub(super) fn context(&self) -> &Arc<CallContext> {
        &self.context
    }

    /// Returns the ID of the latest request to the upstream.
    pub(super) fn request_id(&self) -> Option<u64> {
        Some(self.request_id.load(Ordering::Relaxed)).filter(|id| *id != 0)
    }
}

impl Listener for Relay {
    fn wants_progress(&self) -> bool {
        self.context.wants_progress()
    }

    fn wants_log(&self) -> Option<&'static str> {
        self.context.log_level().map(LogLevel::as_str)
    }

    fn can(&self, ability: ClientAbility) -> bool {
        self.context.client_can(ability)
    }

    fn is_resumed(&self) -> bool {
        self.context.replay.is_used()
    }

    fn round<'a>(
        &'a self,
        round: BoxFuture<'a, Result<Box<RawValue>, ClientError>>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, ClientError>> {
        Box::pin(async move {
            let asks = async {
                match round.await {
                    Ok(result) if asks_for_input(&result) => Ok(result),
                    other => Err(UnrecordedRound::Ended(other)),
                }
            };
            // A tool that calls several upstreams resumes the rounds of each of them.
            let step = format!("longshore-upstream-round {}", self.upkeep.name());
            match self.context.step(&step, asks).await {
                Ok(result) => Ok(result),
                Err(UnrecordedRound::Ended(outcome)) => outcome,
                Err(UnrecordedRound::Step(error)) => Err(ClientError::Gone(error.to_string())),
            }
        })
    }

    fn caller(&self) -> Option<Caller> {
        let context = &self.context;
        Some(Caller::new(
            Arc::clone(&context.principal),
            context.session.clone(),
            || context.replay.call_id(),
        ))
    }

    fn sent(&self, id: u64) {
        self.request_id.store(id, Ordering::Relaxed);
    }

    fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        self.context
            .report_progress(progress, total, message.unwrap_or_default());
    }

    fn log(&self, level: &str, logger: Option<&str>, data: &Value) {
        let level = LogLevel::parse(level).unwrap_or(LogLevel::Info);
        self.context.forward_log(logger, level, data);
    }

    fn question(
        &self,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'static, Result<Value, RpcError>> {
        self.pass_on(None, method, params)
    }

    fn named_question(
        &self,
        name: String,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'static, Result<Value, RpcError>> {
        let is_usable = (1..=REQUEST_NAME_MAX_BYTES).contains(&name.len());
        self.pass_on(is_usable.then_some(name), method, params)
    }
}

impl Relay {
    /// Passes a client request on to the caller, under the name that the upstream has given it.
    fn pass_on(
        &self,
        name: Option<String>,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'static, Result<Value, RpcError>> {
        let (context, upkeep) = (Arc::clone(&self.context), Arc::clone(&self.upkeep));
        Box::pin(async move {
            let params = params.as_deref().map_or("{}", RawValue::get);
            match method.as_str() {
                "elicitation/create" => elicit(&context, &upkeep, name, params).await,
                "sampling/createMessage" => {
                    let params = serde_json::from_str(params).map_err(invalid)?;
                    let mut request = PassthroughSample::new(&context.replay, params);
                    if let Some(name) = name {
                        request = request.named(name);
                    }
                    request.await.map_err(rpc_error)
                }
                "roots/list" => {
                    context.require(ClientAbility::Roots).map_err(rpc_error)?;
                    let asked = send_named(&context.replay, name, "roots/list", json!({}));
                    let result = asked.await.map_err(rpc_error)?;
                    // Passed on as it is, because roots can have members that are not known here, such as `_meta`.
                    match result["roots"].is_array() {
                        true => Ok(result),
                        false => Err(RpcError::new(
                            INTERNAL_ERROR,
                            "the client's response to roots/list has no roots",
                        )),
                    }
                }
                other => Err(RpcError::new(
                    METHOD_NOT_FOUND,
                    format!("no client can be asked: {other}"),
                )),
            }
        })
    }
}

/// A round of a request that is not recorded.
enum UnrecordedRound {
    /// It did not ask for input.
    Ended(Result<Box<RawValue>, ClientError>),
    Step(StepError),
}

impl From<StepError> for UnrecordedRound {
    fn from(error: StepError) -> Self {
        Self::Step(error)
    }
}

/// Returns true for a result of 2026-07-28 that ends a round with requests to the client.
fn asks_for_input(result: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Kind {
        #[serde(rename = "resultType")]
        kind: String,
    }
    let kind: Result<Kind, _> = serde_json::from_str(result.get());
    kind.is_ok_and(|kind| kind.kind == "input_required")
}

async fn elicit(
    context: &CallContext,
    upkeep: &Maintenance,
    name: Option<String>,
    params: &str,
) -> Result<Value, RpcError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Elicitation {
        #[serde(default)]
        mode: String,
        message: String,
        requested_schema: Option<Value>,
        url: Option<String>,
        #[serde(default)]
        elicitation_id: Value,
    }
    let asked: Elicitation = serde_json::from_str(params).map_err(invalid)?;
    let answer = match (asked.mode.as_str(), asked.url) {
        ("url", Some(url)) => {
            let mut request = context.elicit_url(asked.message, url);
            if let Some(name) = name {
                request = request.named(name);
            }
            let id = asked.elicitation_id.as_str();
            if let (Some(id), Some(elicitation)) = (id, request.elicitation()) {
                upkeep.begin_visit(&context.principal, id, elicitation);
            }
            request.await.map_err(rpc_error)?.map(|()| None)
        }
        _ => {
            let schema = asked.requested_schema.unwrap_or_default();
            let form = Form::from_foreign_schema(schema).map_err(invalid)?;
            let mut request = context.elicit_form(asked.message, form);
            if let Some(name) = name {
                request = request.named(name);
            }
            request.await.map_err(rpc_error)?.map(Some)
        }
    };
    let mut result = json!({"action": answer.action()});
    if let Elicited::Accepted(Some(content)) = answer {
        result["content"] = Value::Object(content);
    }
    Ok(result)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn invalid(error: impl ToString) -> RpcError {
    RpcError::new(INVALID_PARAMS, error.to_string())
}

/// Converts the reason why the caller cannot respond to an error for the upstream.
fn rpc_error(error: ClientRequestError) -> RpcError {
    match error {
        ClientRequestError::Refused { code, message } => RpcError::new(code, message),
        ClientRequestError::NotDeclared(_) => RpcError::new(METHOD_NOT_FOUND, error.to_string()),
        other => RpcError::new(INTERNAL_ERROR, other.to_string()),
    }
}

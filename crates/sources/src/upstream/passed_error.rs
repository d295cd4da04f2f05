//! JSON-RPC errors of an upstream, as its callers receive them.

use serde_json::Value;

use super::call_error::CallError;
use crate::catalog::{CallContext, ClientRequestError};
use crate::client::{ClientError, INTERNAL_ERROR, INVALID_PARAMS, MISSING_CAPABILITY, RpcError};
use crate::protocol::{ClientAbility, ClientCapabilities, ErrorCode, ErrorObject};

const RESOURCE_NOT_FOUND: i64 = -32002;

/// Abilities of a client that the upstream's requests can need.
const ABILITIES: [ClientAbility; 6] = [
    ClientAbility::Roots,
    ClientAbility::Sampling,
    ClientAbility::SamplingTools,
    ClientAbility::SamplingContext,
    ClientAbility::ElicitationForm,
    ClientAbility::ElicitationUrl,
];

/// Returns the JSON-RPC error of an upstream's response.
pub(super) fn rpc_error(error: &CallError) -> Option<&RpcError> {
    match error {
        CallError::Client(ClientError::Rpc(error)) => Some(error),
        _ => None,
    }
}

/// Converts an error of an upstream to the one for its caller. Code and data are kept, unless they are about the
/// exchange between this server and the upstream: the caller would look for the mistake in its own message.
pub(super) fn for_caller(upstream: &str, error: &RpcError) -> ErrorObject {
    let code = match error.code {
        INVALID_PARAMS => Some(ErrorCode::InvalidParams),
        RESOURCE_NOT_FOUND => Some(ErrorCode::ResourceNotFound),
        INTERNAL_ERROR => Some(ErrorCode::Internal),
        // Reserved codes: of JSON-RPC, and of MCP for the version, the headers and the capabilities of a request.
        -32768..=-32020 => None,
        code => i32::try_from(code).ok().map(ErrorCode::Application),
    };
    let message = format!("{upstream}: {}", error.message);
    let object = ErrorObject::new(code.unwrap_or(ErrorCode::Internal), message);
    match (&error.data, code) {
        (Some(data), Some(_)) => object.with_data(data.clone()),
        _ => object,
    }
}

/// Returns true if a resource does not exist. Up to 2025-11-25 there is a code for that; from 2026-07-28 on, the data
/// of the error for invalid parameters has the URI.
pub(super) fn is_not_found(error: &RpcError) -> bool {
    let names_uri = || {
        error
            .data
            .as_ref()
            .is_some_and(|data| data["uri"].is_string())
    };
    error.code == RESOURCE_NOT_FOUND || error.code == INVALID_PARAMS && names_uri()
}

/// Returns the error for a caller that lacks an ability that the upstream requires (`-32021`); `None` for other errors.
pub(super) fn missing_ability(
    error: &RpcError,
    context: &CallContext,
) -> Option<ClientRequestError> {
    let required = required_abilities(error)?;
    let missing =
        |ability: &ClientAbility| required.contains(ability.bit()) && !context.client_can(*ability);
    ABILITIES
        .into_iter()
        .find(missing)
        .map(ClientRequestError::NotDeclared)
}

fn required_abilities(error: &RpcError) -> Option<ClientCapabilities> {
    let required: &Value = &error
        .data
        .as_ref()
        .filter(|_| error.code == MISSING_CAPABILITY)?["requiredCapabilities"];
    serde_json::from_value(required.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn error(code: i64, data: Value) -> RpcError {
        let mut error = RpcError::new(code, "no");
        error.data = Some(data);
        error
    }

    #[test]
    fn code_and_data_are_kept_unless_they_are_about_the_exchange_with_the_upstream() {
        for (code, kept) in [
            (-32602, true),
            (-32603, true),
            (-32000, true),
            (-32002, true),
            (-32019, true),
            (404, true),
            (0, true),
            (-32700, false),
            (-32600, false),
            (-32601, false),
            (-32020, false),
            (-32022, false),
            (-32042, false),
            (i64::MAX, false),
        ] {
            let object = for_caller("up", &error(code, json!({"a": 1})));
            let expected = if kept { code } else { -32603 };
            assert_eq!(i64::from(object.code.number()), expected, "{code}");
            assert_eq!(object.data.is_some(), kept, "{code}");
            assert_eq!(object.message, "up: no");
        }
    }

    #[test]
    fn invalid_parameters_of_a_read_are_not_a_missing_resource() {
        assert!(is_not_found(&error(-32002, Value::Null)));
        assert!(is_not_found(&error(-32602, json!({"uri": "test://a"}))));
        assert!(!is_not_found(&error(-32602, json!({"argument": "a"}))));
        assert!(!is_not_found(&RpcError::new(-32602, "no")));
        assert!(!is_not_found(&error(-32603, json!({"uri": "test://a"}))));
    }

    #[test]
    fn the_ability_that_a_caller_lacks_is_named() {
        let context = CallContext::for_test();
        let of = |code, required: Value| {
            let error = error(code, json!({"requiredCapabilities": required}));
            missing_ability(&error, &context).map(|error| error.to_string())
        };
        let sampling = of(-32021, json!({"sampling": {}})).expect("missing");
        assert!(sampling.contains("sampling"), "{sampling}");
        assert_eq!(
            of(-32021, json!({"extensions": {"com.example/x": {}}})),
            None
        );
        assert_eq!(of(-32603, json!({"sampling": {}})), None);
    }
}

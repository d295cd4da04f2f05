use http::HeaderValue;
use serde::Deserialize;
use serde_json::{Map, json};

use super::*;
use crate::auth::Principal;
use crate::catalog::{ResourceError, ResourceErrorKind, ToolError, ToolErrorKind};

#[derive(Debug, PartialEq, Eq)]
struct Tenant(u8);

impl std::str::FromStr for Tenant {
    type Err = std::num::ParseIntError;

    fn from_str(value: &str) -> Result<Self, Self::Err> {
        value.parse().map(Self)
    }
}

impl RequestHeader for Tenant {
    const NAME: &'static str = "x-tenant";
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
struct Employee {
    department: String,
}

fn with_header(value: &str) -> Arc<CallContext> {
    let context = CallContext::for_test();
    let value = HeaderValue::from_str(value).expect("a value");
    Arc::new(context.with_header("x-tenant", value))
}

#[tokio::test]
async fn headers_are_read_as_types() {
    let found = Header::<Tenant>::from_call(&with_header(" 7 ")).await;
    assert_eq!(found.expect("a header"), Header(Tenant(7)));
    let malformed = Header::<Tenant>::from_call(&with_header("x")).await;
    let malformed = malformed.expect_err("no number").message();
    assert!(
        malformed.starts_with("the header `x-tenant` cannot be read"),
        "{malformed}"
    );

    let without = Arc::new(CallContext::for_test());
    let missing = Header::<Tenant>::from_call(&without).await;
    let missing = missing
        .expect_err("is not a header name, which is one or more letters, digits or !#$%&'*+-.^_`|~")
        .message();
    assert_eq!(missing, "the request has no header `x-tenant`");
    let missing = Option::<Header<Tenant>>::from_call(&without).await;
    assert_eq!(missing.expect("may be missing"), None);
    let all = Headers::from_call(&without).await.expect("headers");
    assert!(all.is_empty());
    let all = Headers::from_call(&with_header("secret"))
        .await
        .expect("headers");
    assert_eq!(all["x-tenant"], "secret");
    assert_eq!(format!("{all:?}"), r#"{"x-tenant"}"#);
}

#[tokio::test]
async fn claims_of_another_shape_are_forbidden() {
    let with_claims = |claims: serde_json::Value| {
        let claims: Map<_, _> = claims.as_object().expect("an object").clone();
        let principal = Principal::new("ada").with_claims(claims);
        Arc::new(CallContext::for_test().with_principal(principal))
    };
    let context = with_claims(json!({"department": "finance", "iss": "x"}));
    let Claims(employee) = Claims::<Employee>::from_call(&context)
        .await
        .expect("claims");
    assert_eq!(employee.department, "finance");

    let context = with_claims(json!({"iss": "x"}));
    let rejection = Claims::<Employee>::from_call(&context).await;
    let error = ToolError::from(rejection.expect_err("no department"));
    assert_eq!(error.kind(), ToolErrorKind::Forbidden);
    let none = Option::<Claims<Employee>>::from_call(&context).await;
    assert_eq!(none.expect("may be missing"), None);
}

#[tokio::test]
async fn an_extension_that_is_missing_is_a_fault_of_the_server() {
    let context = Arc::new(CallContext::for_test().with_extension(7_u8));
    let Extension(found) = Extension::<u8>::from_call(&context).await.expect("a value");
    assert_eq!(found, 7);
    let rejection = Extension::<String>::from_call(&context).await;
    let error = ToolError::from(rejection.expect_err("no value"));
    assert_eq!(error.kind(), ToolErrorKind::Internal);
    let rejection = Result::<Extension<String>, Rejection>::from_call(&context).await;
    assert!(rejection.expect("the rejection is the value").is_err());
}

#[tokio::test]
async fn a_caller_that_lacks_a_scope_is_told_which() {
    let principal = Principal::new("ada").with_scopes(["orders:read"]);
    let context = Arc::new(CallContext::for_test().with_principal(principal));
    let caller = Caller::from_call(&context).await.expect("a caller");
    assert!(caller.require_scope("orders:read").is_ok());
    let rejection = caller.require_scope("orders:write").expect_err("no scope");
    let error = ToolError::from(rejection);
    assert_eq!(error.kind(), ToolErrorKind::Forbidden);
    let source = error.source().expect("the scopes");
    let scopes = source.downcast_ref::<MissingScopes>().expect("the scopes");
    assert_eq!(*scopes.0, ["orders:write".to_owned()]);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_counts_from_the_beginning_of_the_call() {
    let mut context = CallContext::for_test();
    let none = Deadline::from_call(&Arc::new(CallContext::for_test())).await;
    assert_eq!(none.expect("a deadline").remaining(), None);
    context.timeout = Some(std::time::Duration::from_secs(3));
    let deadline = Deadline::from_call(&Arc::new(context))
        .await
        .expect("a deadline");
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    assert_eq!(
        deadline.remaining(),
        Some(std::time::Duration::from_secs(2))
    );
}

#[test]
fn errors_convert_as_they_do_in_functions() {
    let error = std::io::Error::other("disk full");
    let error = ToolError::from(Rejection::from(error));
    assert_eq!(
        (error.kind(), error.is_foreign()),
        (ToolErrorKind::Failed, true)
    );
    let error = ResourceError::from(Rejection::new("closed"));
    assert_eq!(
        (error.kind(), error.message()),
        (ResourceErrorKind::Failed, "closed")
    );
    let rejection = Rejection::forbidden("no").caused_by("a secret reason");
    assert_eq!(
        format!("{rejection:?}"),
        r#"Rejection { kind: Forbidden, message: "no", source: Some("a secret reason") }"#
    );
}

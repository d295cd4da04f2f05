//! Reuse of the contexts of calls.
//!
//! A context is the largest allocation of a call. A thread keeps the context of the last call that ended on it, without
//! what belongs to that call, for the next one.

use std::cell::Cell;
use std::sync::Arc;

use super::request_context::Headers;
use crate::auth::Principal;
use crate::catalog::CallContext;

thread_local! {
    /// Vacant context, which nobody else has. It keeps its caller, since the next one is often the same.
    static VACANT: Cell<Option<Arc<CallContext>>> = const { Cell::new(None) };
}

/// Returns a context of a caller, filled by `fill`.
#[inline]
pub(super) fn take(
    principal: &Arc<Principal>,
    fill: impl FnOnce(&mut CallContext),
) -> Arc<CallContext> {
    if let Some(mut vacant) = VACANT.take()
        && let Some(context) = Arc::get_mut(&mut vacant)
    {
        if !Arc::ptr_eq(&context.principal, principal) {
            context.principal = Arc::clone(principal);
        }
        fill(context);
        return vacant;
    }
    let mut context = CallContext::vacant(Arc::clone(principal));
    fill(&mut context);
    Arc::new(context)
}

/// Keeps the context of a call that has ended, unless the tool still has it. The headers go back to the request, whose map
/// keeps its capacity for the next one.
#[inline]
pub(super) fn put(mut context: Arc<CallContext>, headers: Option<Headers<'_>>) {
    let Some(used) = Arc::get_mut(&mut context) else {
        return;
    };
    if let Some(headers) = headers
        && let Some(taken) = used.headers.take()
    {
        *headers.all = taken;
    }
    used.vacate();
    VACANT.set(Some(context));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{Extensions, HeaderMap, HeaderValue};

    use super::*;
    use crate::catalog::{Client, NotifyOptions, ReplaySession, RequestId};

    fn ada() -> Arc<Principal> {
        Arc::new(Principal::new("ada"))
    }

    fn fill(context: &mut CallContext) {
        context.session = Some("s".into());
        context.request_id = RequestId::from_json(&format!("\"{}\"", "i".repeat(100)));
        context.meta = Some("{}".into());
        context.headers = Some(HeaderMap::from_iter([(
            http::header::ACCEPT,
            HeaderValue::from_static("*/*"),
        )]));
        context.extensions = Some(Arc::new(Extensions::new()));
        context.timeout = Some(Duration::from_secs(1));
        let _ = context.deadline.set(tokio::time::Instant::now());
        context.outlet.request(NotifyOptions {
            progress_token: Some("1".into()),
            ..NotifyOptions::default()
        });
        context.outlet.send_message(b"{}".to_vec());
        context.outlet.cancel();
        context.outlet.release_connection();
        context.replay = ReplaySession::new(Client::Unreachable("no reason"));
        context.replay.task().allow();
        let _ = context.read_meta.set(Box::default());
    }

    #[test]
    fn a_context_is_used_again_without_what_belongs_to_its_call() {
        let first = take(&ada(), fill);
        let place = Arc::as_ptr(&first);
        let mut all = HeaderMap::new();
        let headers = Headers {
            mcp: None,
            all: &mut all,
            extensions: None,
        };
        put(first, Some(headers));
        assert_eq!(all.len(), 1, "the headers are the request's again");

        let second = take(&Arc::new(Principal::anonymous()), |_| {});
        assert_eq!(Arc::as_ptr(&second), place);
        let shown = |context: &CallContext| {
            let CallContext {
                principal,
                session,
                request_id,
                meta,
                headers,
                extensions,
                state,
                deadline,
                outlet,
                replay,
                read_meta,
                onward,
                ..
            } = context;
            format!(
                "{} {read_meta:?} {session:?} {request_id} {meta:?} {headers:?} {extensions:?} {} {deadline:?} {outlet:?} {replay:?} {onward:?}",
                principal.name(),
                state.get().is_some(),
            )
        };
        let vacant = CallContext::vacant(Arc::new(Principal::anonymous()));
        assert_eq!(shown(&second), shown(&vacant));
    }

    #[test]
    fn a_context_that_a_tool_keeps_is_not_used_again() {
        let first = take(&ada(), fill);
        let kept = Arc::clone(&first);
        put(first, None);
        assert!(kept.headers.is_some(), "it is as the tool knows it");
        let second = take(&ada(), |_| {});
        assert_ne!(Arc::as_ptr(&second), Arc::as_ptr(&kept));
    }
}

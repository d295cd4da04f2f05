//! Handler of `logging/setLevel`.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;

use super::errors::{invalid_params, read_params};
use super::log_levels::LEVELS;
use super::parts::Server;
use super::reply::Reply;
use super::request_context::Caller;
use super::streams::DurableEvent;
use crate::catalog::LogLevel;
use crate::protocol::message::Request;

pub(super) fn set_level(server: &Server, caller: Caller<'_>, request: &Request<'_>) -> Reply {
    #[derive(Deserialize)]
    struct SetLevelParams<'a> {
        #[serde(borrow)]
        level: Cow<'a, str>,
    }
    let level = match read_params::<SetLevelParams<'_>>(request) {
        Ok(params) => LogLevel::parse(&params.level),
        Err(reply) => return reply,
    };
    let Some(level) = level else {
        return invalid_params(request.id, LEVELS);
    };
    if let Some(session) = caller.session {
        server.sessions.levels.set(session, level);
        let session = Arc::clone(session);
        server
            .streams
            .record_event(DurableEvent::Level { session, level });
    }
    Reply::constant(request.id, br#","result":{}}"#)
}

//! Handler of `logging/setLevel`, and the log level of each session.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;

use super::reply::{Reply, begin};
use super::streams::DurableEvent;
use super::tools::invalid_params;
use super::{Caller, Server};
use crate::catalog::LogLevel;
use crate::protocol::message::Request;

/// Log levels by session. Replicas exchange them; until then the default applies.
#[derive(Debug, Default)]
pub(super) struct SessionLogLevels {
    any: AtomicBool,
    of: Mutex<LevelMap>,
}

/// Two generations of entries. The old one is dropped when the young one is full.
#[derive(Debug, Default)]
struct LevelMap {
    young: HashMap<Arc<str>, LogLevel>,
    old: HashMap<Arc<str>, LogLevel>,
}

/// Level of sessions that have not set one.
const DEFAULT: LogLevel = LogLevel::Info;
/// Maximum number of sessions in one generation. Dropped sessions return to the default.
const HALF_MAX: usize = 16_384;

impl SessionLogLevels {
    /// Minimum level of the log messages that a session wants.
    #[inline]
    pub(super) fn get(&self, session: &str) -> LogLevel {
        if self.any.load(Ordering::Acquire) {
            let of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
            let known = of.young.get(session).or_else(|| of.old.get(session));
            known.copied().unwrap_or(DEFAULT)
        } else {
            DEFAULT
        }
    }

    pub(super) fn set(&self, session: &Arc<str>, level: LogLevel) {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if HALF_MAX <= of.young.len() {
            of.old = std::mem::take(&mut of.young);
        }
        of.old.remove(session);
        of.young.insert(Arc::clone(session), level);
        self.any.store(true, Ordering::Release);
    }

    /// Removes a session that has ended.
    pub(super) fn forget(&self, session: &str) {
        if self.any.load(Ordering::Acquire) {
            let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
            of.young.remove(session);
            of.old.remove(session);
            let any = !of.young.is_empty() || !of.old.is_empty();
            self.any.store(any, Ordering::Release);
        }
    }
}

impl Server {
    pub(super) fn set_log_level(&self, caller: Caller<'_>, request: &Request<'_>) -> Reply {
        #[derive(Deserialize)]
        struct SetLevelParams<'a> {
            #[serde(borrow)]
            level: Cow<'a, str>,
        }
        let params = request.params.object.unwrap_or("{}");
        let level = match serde_json::from_str::<SetLevelParams<'_>>(params) {
            Ok(params) => LogLevel::parse(&params.level),
            Err(e) => return invalid_params(request.id, &e.to_string()),
        };
        let Some(level) = level else {
            return invalid_params(request.id, LEVELS);
        };
        if let Some(session) = caller.session {
            self.levels.set(session, level);
            let session = Arc::clone(session);
            self.streams
                .record_event(DurableEvent::Level { session, level });
        }
        let mut out = begin(request.id, 16);
        out.extend_from_slice(br#","result":{}}"#);
        Reply::document(out)
    }
}

/// LOG-03: error for an unknown level.
pub(super) const LEVELS: &str =
    "the log level is one of debug, info, notice, warning, error, critical, alert, emergency";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_sessions_are_bounded_and_go_with_them() {
        let levels = SessionLogLevels::default();
        let name = |n: usize| Arc::<str>::from(format!("{n:032x}"));
        for n in 0..3 * HALF_MAX {
            levels.set(&name(n), LogLevel::Error);
        }
        let of = levels.of.lock().expect("no panic");
        assert!(of.young.len() + of.old.len() <= 2 * HALF_MAX);
        drop(of);
        let newest = name(3 * HALF_MAX - 1);
        assert_eq!(levels.get(&newest), LogLevel::Error);
        assert_eq!(levels.get(&name(0)), DEFAULT);
        levels.forget(&newest);
        assert_eq!(levels.get(&newest), DEFAULT);
    }
}

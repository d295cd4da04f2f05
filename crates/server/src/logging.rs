//! `logging/setLevel`: which log messages a session wants.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;

use super::reply::{Reply, begin};
use super::streams::Fact;
use super::tools::invalid_params;
use super::{Caller, Server};
use crate::catalog::LogLevel;
use crate::protocol::message::Request;

/// The levels that sessions have set, by session. Replicas learn of one another's; until then the default applies.
#[derive(Debug, Default)]
pub(super) struct Levels {
    any: AtomicBool,
    of: Mutex<Known>,
}

/// The younger half, and the older one, which is dropped when the younger is full.
#[derive(Debug, Default)]
struct Known {
    young: HashMap<Arc<str>, LogLevel>,
    old: HashMap<Arc<str>, LogLevel>,
}

/// What sessions get that have not said anything.
const DEFAULT: LogLevel = LogLevel::Info;
/// So many sessions are in one half. Those that are dropped are back at the default.
const HALF_MAX: usize = 16_384;

impl Levels {
    /// The least level that a session wants.
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

    /// A session was ended.
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
            self.streams.state_fact(Fact::Level { session, level });
        }
        let mut out = begin(request.id, 16);
        out.extend_from_slice(br#","result":{}}"#);
        Reply::document(out)
    }
}

/// LOG-03: what a level may be.
pub(super) const LEVELS: &str =
    "the log level is one of debug, info, notice, warning, error, critical, alert, emergency";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_sessions_are_bounded_and_go_with_them() {
        let levels = Levels::default();
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

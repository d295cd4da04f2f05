//! Log levels of sessions.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::catalog::LogLevel;
use crate::net::Mutex;

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
            let of = self.of.lock();
            let known = of.young.get(session).or_else(|| of.old.get(session));
            known.copied().unwrap_or(DEFAULT)
        } else {
            DEFAULT
        }
    }

    pub(super) fn set(&self, session: &Arc<str>, level: LogLevel) {
        let mut of = self.of.lock();
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
            let mut of = self.of.lock();
            of.young.remove(session);
            of.old.remove(session);
            let any = !of.young.is_empty() || !of.old.is_empty();
            self.any.store(any, Ordering::Release);
        }
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
        let of = levels.of.lock();
        assert!(of.young.len() + of.old.len() <= 2 * HALF_MAX);
        drop(of);
        let newest = name(3 * HALF_MAX - 1);
        assert_eq!(levels.get(&newest), LogLevel::Error);
        assert_eq!(levels.get(&name(0)), DEFAULT);
        levels.forget(&newest);
        assert_eq!(levels.get(&newest), DEFAULT);
    }
}

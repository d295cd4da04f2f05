//! The memory that a discovered program needs.

use std::collections::BTreeMap;

use super::Discovery;
use crate::source::command::config::{CommandLimits, CommandSourceConfig};
use crate::source::command::run::Program;

/// Returns true if a program prints its help also within the default limit of its address space. Many runtimes, such as
/// those of Go, Java and Node.js, reserve more of it at their start. `without_limit` is its exit code without a limit.
pub(super) async fn runs_within_default(
    source: &CommandSourceConfig,
    discovery: &Discovery,
    without_limit: Option<i32>,
) -> bool {
    let limited = CommandSourceConfig {
        limits: CommandLimits {
            memory_bytes: CommandLimits::default().memory_bytes,
            ..source.limits.clone()
        },
        ..source.clone()
    };
    let Ok(program) = Program::new(&limited, &discovery.program) else {
        return true;
    };
    let mut line = discovery.words.clone();
    line.push("--help".to_owned());
    let ended = program.run(&line, None, BTreeMap::new()).await;
    ended.is_ok_and(|ended| ended.code == without_limit)
}

//! Tasks: calls that outlive their request.
//!
//! There are two dialects. In the extension of 2026-07-28, the server decides whether a call becomes a task, and
//! `tasks/get` returns its state and result. In 2025-11-25, the client decides, and `tasks/result` waits for the end.
//!
//! Both use the same implementation: a record in the shared state, written before its id is returned, and a runner
//! that drives the call. Messages to a task go through a log in the shared state, so any replica can handle a
//! request.

mod config;
mod inbox;
mod list;
mod methods;
mod notifications;
mod orphans;
mod record;
mod runner;
mod running;
mod start;
mod store;
#[cfg(test)]
mod tests;

pub use config::TaskConfig;
pub(super) use list::{find_task, list_tasks, lists_tasks, may_use};
pub(super) use methods::handle;
pub(super) use notifications::task_notice;
pub(super) use start::call_as_task;
pub(crate) use store::Tasks;

/// Key of the task id in the `_meta` of a message (TKL-07).
const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

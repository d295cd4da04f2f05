//! Processes: started, pinned, watched and always ended.

mod memory;
mod processor_time;
mod server;

pub(crate) use memory::resident_bytes;
pub(crate) use processor_time::{ProcessorClock, ProcessorTime, ThreadTime, thread_times};
pub(crate) use server::{Launch, Server, ServerError, pin_this_process, require_taskset};

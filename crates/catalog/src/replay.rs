//! Replay: requests of a running tool to its client, and durable steps.
//!
//! A tool awaits a client request as any other future. Two mechanisms deliver the response:
//!
//! - Up to 2025-11-25 the client has a session. The request goes out on the stream of the call's response, the client
//!   responds in a request of its own, and the call waits.
//! - In 2026-07-28 the call is *suspended*: it ends with its [pending requests](PendingRequest) and a resume token,
//!   which is the sealed [`Journal`]. The client sends the same call again with the token and its responses. The tool
//!   runs again from its beginning, and each request and step that the journal has returns its value immediately.
//!
//! | File | Content |
//! |---|---|
//! | `session` | [`ReplaySession`]: the state machine of one call |
//! | `journal` | [`Journal`]: values of earlier rounds, and how a request or step finds its own |
//! | `pending` | [`PendingRequest`]: a request that waits for its response |
//! | `request` | [`ClientRequest`]: the future that a tool awaits |
//! | `step` | durable steps |
//! | `client` | [`Client`]: capabilities of the client, and how it is reached |
//! | `task_phase` | [`TaskPhase`](task_phase::TaskPhase): transition of a call to a task |
//!
//! The server drives a session: it sends pending requests or ends the call (`server::replay`, `server::call`).
//!
//! # Invariants
//!
//! - A request or step is identified by its kind, its digest and the number of equal ones before it. A value is never
//!   returned for another key.
//! - Along one sequence of resume tokens the tool sees the same values in each round.
//! - A call is suspended only after the tool has read all recorded values. A new request whose tool does not read them
//!   within 5 s is a non-determinism error: the call fails. If a step without a recorded result has run before, the
//!   unread responses are dropped instead: an earlier attempt failed, and the tool takes another path now.
//! - A running step delays suspension, so its result is always recorded. It replaces the results of steps within it.
//! - Progress and log messages are muted while recorded values are unread.

mod client;
mod error;
mod journal;
mod pending;
mod request;
mod session;
mod step;
mod task_phase;
#[cfg(test)]
mod tests;

pub use client::{Client, StatelessRequest};
pub use error::{ClientRequestError, ReplayError, RequiredElicitation};
pub use pending::{PendingRequest, RequestKind};
pub(crate) use request::named_request;
pub use request::{ClientRequest, REQUEST_NAME_MAX_BYTES, RequestDraft, Response, send_named};
pub use session::{InputRound, ReplaySession, Suspension};
pub use step::{StepError, StepGuarantee, run_step};

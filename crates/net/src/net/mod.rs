//! Network layer, independent of MCP.
//!
//! [`Client`] sends all outgoing requests: within the policy of a [`Guard`], and within limits of time and size.
//! [`Bulkhead`], [`Breaker`] and [`Backoff`] isolate a slow or unavailable upstream from the others.

#[cfg(feature = "egress")]
mod streaming_response;
mod background;
mod backoff;
mod body;
mod proxies;
mod breaker;
mod bulkhead;
mod challenge;
#[cfg(feature = "sources")]
pub mod child;
#[cfg(feature = "egress")]
mod client;
#[cfg(feature = "egress")]
mod connect;
mod error;
#[cfg(feature = "egress")]
mod guard;
#[cfg(feature = "egress")]
mod decompress;
#[cfg(feature = "egress")]
mod pinned_client;
mod lock;
mod memory_budget;
mod name_patterns;
mod open_files;
mod peer;
#[cfg(feature = "egress")]
mod pools;
#[cfg(feature = "sources")]
mod program;
#[cfg(feature = "egress")]
mod reread;
#[cfg(feature = "egress")]
mod resolve;
mod share;
mod sse;
mod spawn;
mod upload;
mod waker_filter;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use background::{Background, OnFailure, StopSignal, TaskName, TaskOutput, panic_message};
pub use backoff::{Backoff, chance};
pub use body::{Body, BodyError};
pub use body::{ReadError, Reader, SharedBytes};
pub use breaker::{Breaker, BreakerState};
pub use bulkhead::{Bulkhead, BulkheadConfig, BulkheadError, BulkheadPermit, BulkheadStats};
pub use challenge::challenge_parameter;
#[cfg(feature = "egress")]
pub use client::{
    Client, ClientBuilder, ClientError, Deadlines, OutgoingRequest, is_connection_header, trust_ca,
};
pub use error::with_causes;
pub use error::{Cause, FetchError, Phase};
#[cfg(feature = "egress")]
pub use guard::{EgressConfig, Guard, HostRuleError};
pub use lock::{Mutex, RwLock};
pub use memory_budget::MemoryBudget;
pub use name_patterns::{NamePatterns, PatternError};
pub use open_files::keep_open_file_limit;
pub use peer::Peer;
#[cfg(feature = "egress")]
pub use pinned_client::PinnedClient;
#[cfg(feature = "sources")]
pub use program::{Child, Program, SupervisedChild};
pub use proxies::{ForwardedHeadersSeen, TrustedProxies};
#[cfg(feature = "egress")]
pub use resolve::{Resolve, SystemResolver};
pub use share::{FairSemaphore, ShareKey, enter as enter_share};
pub use spawn::{
    AbortOnDrop, NoThread, is_panic_expected, spawn, spawn_blocking, spawn_local, spawn_on,
    try_spawn_blocking,
};
pub use sse::{Event, EventDecoder, SseItem};
#[cfg(feature = "egress")]
pub use streaming_response::{FetchedResponse, StreamingResponse};
pub use upload::Upload;
pub use waker_filter::ConnectionWaker;

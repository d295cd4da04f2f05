//! Event streams of servers that are reached over HTTP.

use std::sync::Arc;

use super::ClientError;
use super::shared::{Send1, Shared};
use super::wire;
use crate::net::{EventDecoder, SseItem, StreamingResponse};

/// Reads on until items are complete; `None` at the end of the stream. `heard` is called for all bytes.
///
/// # Errors
///
/// The stream breaks or times out, or an event is longer than `max` bytes.
pub(super) async fn next_items(
    answer: &mut StreamingResponse,
    decoder: &mut EventDecoder,
    max: usize,
    mut heard: impl FnMut(),
) -> Result<Option<Vec<SseItem>>, ClientError> {
    while let Some(bytes) = answer.chunk().await? {
        heard();
        let items = decoder.push(&bytes);
        let items = items.map_err(|_| ClientError::TooLarge { max })?;
        if !items.is_empty() {
            answer.begin_message();
            return Ok(Some(items));
        }
    }
    Ok(None)
}

impl Shared {
    /// Routes the messages in an event. The first event of a stream can be empty.
    pub(super) fn take_event(
        self: &Arc<Self>,
        data: &str,
        about: Option<u64>,
        send: impl Fn() -> Send1,
    ) {
        for message in wire::read(data.as_bytes()).unwrap_or_default() {
            self.take(message, about, &send);
        }
    }
}

//! Event streams of servers that are reached over HTTP.

use super::ClientError;
use crate::net::{EventDecoder, SseItem, StreamingResponse};

/// Returns the items that the next bytes of a stream complete; `None` at its end.
///
/// # Errors
///
/// The stream breaks or times out, or an event is longer than `max` bytes.
pub(super) async fn next_items(
    answer: &mut StreamingResponse,
    decoder: &mut EventDecoder,
    max: usize,
) -> Result<Option<Vec<SseItem>>, ClientError> {
    let Some(bytes) = answer.chunk().await? else {
        return Ok(None);
    };
    let items = decoder.push(&bytes);
    let items = items.map_err(|_| ClientError::TooLarge { max })?;
    if !items.is_empty() {
        answer.begin_message();
    }
    Ok(Some(items))
}

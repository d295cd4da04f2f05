//! Event streams of servers that are reached over HTTP.

use http::header::CONTENT_TYPE;

use super::ClientError;
use crate::net::{EventDecoder, SseItem, StreamingResponse};

/// Returns true for the success of a request with an event stream.
pub(super) fn is_event_stream(answer: &StreamingResponse) -> bool {
    let kind = answer.headers.get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    answer.status.is_success() && kind.eq_ignore_ascii_case("text/event-stream")
}

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

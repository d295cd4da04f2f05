//! Detection of a server that hangs: it keeps its connection, and sends nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout};

use super::{Expected, Send1, Shared};
use crate::client::ClientError;

/// Time in which a server that sends nothing has to respond to a request that every server handles.
const RESPONDS: Duration = Duration::from_secs(10);

impl Shared {
    /// Records that a request has timed out, which began `limit` ago. Returns true if the server may hang: no message has
    /// arrived since another request timed out, before this one began.
    pub(in super::super) fn may_hang(&self, limit: Duration) -> bool {
        let (heard, now) = (self.heard.load(Ordering::Relaxed), Instant::now());
        let mut state = self.state.lock();
        match state.timed_out {
            Some((first, then)) if then == heard => {
                let is_later = now.checked_sub(limit).is_some_and(|began| first <= began);
                is_later && state.timed_out.take().is_some()
            }
            _ => {
                state.timed_out = Some((now, heard));
                false
            }
        }
    }

    /// Sends a request that every server handles, and closes the connection if no message arrives. Returns true if it was
    /// closed.
    pub(in super::super) async fn close_if_it_hangs(
        &self,
        send: Send1,
        message: Bytes,
        mut expected: Expected,
    ) -> bool {
        let heard = self.heard.load(Ordering::Relaxed);
        let asked = async {
            send(message).await;
            expected.response().await
        };
        let responds = timeout(RESPONDS, asked).await.is_ok();
        if responds || self.is_asking(None) || heard != self.heard.load(Ordering::Relaxed) {
            return false;
        }
        self.close(&ClientError::Gone(
            "it does not respond any more".to_owned(),
        ));
        true
    }
}

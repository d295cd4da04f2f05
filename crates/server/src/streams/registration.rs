//! Registrations of open streams.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde_json::json;

use super::Streams;
use super::mailbox::{Filter, Mailbox, MailboxItem};
use crate::auth::Principal;
use crate::protocol::{ErrorCode, ErrorObject};
use crate::server::inflight::StreamGuard;
use crate::server::reply::{RejectReason, Reply};

/// Error for too many open streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooManyStreams {
    pub(super) max: usize,
    pub(super) setting: &'static str,
}

impl TooManyStreams {
    pub(super) fn check(open: usize, max: usize, setting: &'static str) -> Result<(), Self> {
        if max <= open {
            return Err(Self { max, setting });
        }
        Ok(())
    }

    pub(super) fn reply(self, id: Option<&str>) -> Reply {
        let Self { max, setting } = self;
        let message = format!("Too many open streams: the maximum is {max}");
        let error = ErrorObject::new(ErrorCode::Http(429), message);
        Reply::refused(
            RejectReason::TooManyStreams,
            id,
            &error.with_data(json!({ "setting": setting })),
        )
    }
}

/// Registration of an open stream, with its mailbox; removed on drop.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) streams: Arc<Streams>,
    pub(super) mailbox: Arc<Mailbox>,
    /// Counts the stream as open.
    pub(super) _guard: StreamGuard,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.streams.leave(&self.mailbox);
    }
}

/// Registration of a stream that receives no notices, only the request to close.
#[derive(Debug)]
pub(crate) struct StreamSlot(Registration);

impl StreamSlot {
    /// Returns true if the stream must close. Otherwise registers `cx`.
    pub(crate) fn is_ended(&self, cx: &Context<'_>) -> bool {
        matches!(
            self.0.mailbox.poll_next(cx),
            Poll::Ready(MailboxItem::CloseReason(_))
        )
    }

    /// Returns true if the credential of the caller was revoked.
    pub(crate) fn is_revoked(&self) -> bool {
        self.0.mailbox.is_revoked()
    }
}

impl Streams {
    /// Registers a stream of a caller.
    pub(crate) fn slot_for(
        self: &Arc<Self>,
        principal: &Arc<Principal>,
        address: Option<IpAddr>,
    ) -> Result<StreamSlot, Reply> {
        let owner = self.owner(principal, address);
        self.enter(owner, Filter::default())
            .map(StreamSlot)
            .map_err(|too_many| too_many.reply(None))
    }
}

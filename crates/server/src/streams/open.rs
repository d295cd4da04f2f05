//! GET on the endpoint: opens a session's notification stream or resumes a stream.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use http::HeaderMap;

use super::event::{EventId, StreamId};
use super::log_follower::LogFollower;
use super::mailbox::{Filter, Owner};
use super::notification_stream::{NotificationStream, StreamKind};
use super::resumable::{END, ends};
use super::subscriber::Subscriber;
use super::{Streams, notice};
use crate::auth::Principal;
use crate::catalog::ChangeEvent;
use crate::protocol::ErrorCode;
use crate::seal::Session;
use crate::server::handshake;
use crate::server::param_headers::VersionHeader;
use crate::server::parts::Server;
use crate::server::reply::{RejectReason, Reply};
use crate::server::request_context::HttpHead;
use crate::server::worker_state::WorkerState;
use crate::state::{LogPage, StateError};

/// Opens a stream.
pub type OpenFuture = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// Notices with their positions, and the position of the last one.
type MissedNotices = (Vec<(ChangeEvent, u64)>, u64);

/// Number of notifications read from the log in one request.
const PAGE: usize = 500;

impl Server {
    /// Returns true if sessions can have notification streams.
    pub fn has_standing_streams(&self) -> bool {
        self.config.streams.per_session > 0
    }

    /// Handles GET (LH-03, LH-04, LH-13).
    pub fn open_stream(
        self: &Arc<Self>,
        worker: &WorkerState,
        head: &HttpHead<'_>,
        version: VersionHeader,
    ) -> Result<OpenFuture, Reply> {
        let session = handshake::session_of(self, worker, head, version, None)?;
        let resumes = match last_event_id(head.headers)? {
            None => None,
            Some(text) => Some(EventId::read(&text).ok_or_else(unknown_event)?),
        };
        let names_standing = resumes
            .as_ref()
            .is_some_and(|event| event.stream == StreamId::Standing);
        if names_standing && !self.has_standing_streams() {
            return Err(unknown_event());
        }
        let (server, caller) = (Arc::clone(self), Arc::clone(head.principal));
        let address = head.peer.map(|peer| peer.address);
        Ok(Box::pin(async move {
            let opening = StreamOpener {
                server,
                session,
                caller,
                address,
            };
            let opened = match resumes {
                None => opening.standing(None).await,
                Some(event) => match event.stream {
                    StreamId::Standing => opening.standing(Some(event)).await,
                    StreamId::Call(call) => opening.call(call, event).await,
                },
            };
            opened.unwrap_or_else(|refusal| refusal)
        }))
    }
}

struct StreamOpener {
    server: Arc<Server>,
    session: Arc<Session>,
    caller: Arc<Principal>,
    address: Option<IpAddr>,
}

impl StreamOpener {
    fn owner(&self) -> Owner {
        Owner {
            session: Some(Arc::clone(&self.session.log_name)),
            ..self.server.streams.owner(&self.caller, self.address)
        }
    }

    /// Opens the session's notification stream, from a position in the log of notices or from now. If the log does not reach
    /// back to the position, or cannot be read, everything counts as changed.
    async fn standing(self, after: Option<EventId>) -> Result<Reply, Reply> {
        let streams = Arc::clone(&self.server.streams);
        // If the state fails, events have no ids and the stream cannot be resumed.
        let _ = streams.begin_notices().await;
        let uris = streams.subscriptions_of(&self.session.log_name).await;
        let is_stale = uris.is_err();
        let wants = Filter {
            uris: uris.unwrap_or_default(),
            ..Filter::all_lists()
        };
        let place = streams
            .enter(self.owner(), wants)
            .map_err(|too_many| too_many.reply(None))?;
        if is_stale {
            streams.load_subscriptions_later(&self.session.log_name);
        }
        streams.make_standing(&place.mailbox).await;
        let from_now = || {
            let position = streams.position();
            position.map(|number| EventId::new(StreamId::Standing, number))
        };
        let position = match after {
            None => from_now(),
            Some(after) => match streams.notices_after(after.number).await {
                // Without its subscriptions, the mailbox would drop updates of resources.
                Ok(Some((missed, through))) if !is_stale => {
                    place.mailbox.catch_up(missed, through);
                    Some(after.alternate())
                }
                // Clients repeat a rejected id a few times, and then do without notifications.
                _ => {
                    place.mailbox.report_all(is_stale);
                    from_now()
                }
            },
        };
        let revision = self.session.revision;
        let (first, last_id) = match revision.has_priming_events() {
            true => (position.map(|id| streams.priming(id)), None),
            false => (None, position.filter(|_| revision.can_resume_streams())),
        };
        let subscriber = Subscriber::new(&self.server, &self.caller);
        let kind = StreamKind::Session(revision);
        let standing = NotificationStream::new(place, subscriber, kind, first);
        let max_age = streams.max_age_for(&self.caller);
        let standing = standing.with_max_age(max_age).with_last_id(last_id);
        Ok(Reply::Stream(Box::new(standing)))
    }

    /// Resumes a call stream after one of its events.
    async fn call(self, call: u64, event: EventId) -> Result<Reply, Reply> {
        let after = event.number;
        let streams = Arc::clone(&self.server.streams);
        let session = Arc::clone(&self.session.log_name);
        let log = streams.names.events(&session, call);
        // Includes the event itself, possibly the last one.
        let page = streams
            .state
            .read_after(&log, after.saturating_sub(1), 2)
            .await;
        streams.track_health(&page);
        let page = page.map_err(unavailable)?.ok_or_else(unknown_event)?;
        if !page.knows(after) {
            return Err(unknown_event());
        }
        if is_complete(&page, after) {
            return self.completed().await;
        }
        let owner = Owner {
            resumes_call: true,
            ..self.owner()
        };
        let place = streams
            .enter(owner, Filter::default())
            .map_err(|too_many| too_many.reply(None))?;
        let revision = self.session.revision;
        let max_age = streams.max_age_for(&self.caller);
        let follow = LogFollower::new(place, session, call, (event, max_age), revision);
        Ok(Reply::Stream(Box::new(follow)))
    }

    /// Handles a client that resumes a call stream with nothing left to send. Clients do so after an error or their own
    /// cancellation, and repeat it for as long as they get an empty stream. Some of them have closed their notification
    /// stream for it, so they get another one.
    async fn completed(self) -> Result<Reply, Reply> {
        let newest = self.server.streams.newest_opening(&self.session.log_name);
        if self.server.has_standing_streams() && newest == 0 {
            return self.standing(None).await;
        }
        Err(Reply::refuse(
            RejectReason::StreamComplete,
            None,
            ErrorCode::Http(405),
            "The stream of this Last-Event-ID is complete",
        ))
    }
}

impl Streams {
    /// Creates the log of notices, so that event ids can refer to it.
    async fn begin_notices(&self) -> Result<(), StateError> {
        let before = self.position();
        if before.is_some_and(|at| 0 < at) {
            return Ok(());
        }
        let appended = self
            .state
            .append(
                &self.names.notices,
                notice::beginning(),
                super::bus::NOTICES,
            )
            .await;
        self.track_health(&appended);
        let begun = appended?;
        // Open streams have delivered nothing yet and may have missed earlier notices.
        match before {
            Some(_) => self.read_notices().await,
            None => {
                self.advance_to(begun);
                Ok(())
            }
        }
    }

    /// Notices after a position in the log, and the position of the last one. `None` if some of them are unknown.
    async fn notices_after(&self, after: u64) -> Result<Option<MissedNotices>, StateError> {
        let log = &self.names.notices;
        let (mut notices, mut at) = (Vec::new(), after.saturating_sub(1));
        loop {
            let page = self.state.read_after(log, at, PAGE).await;
            self.track_health(&page);
            let Some(page) = page? else {
                return Ok(None);
            };
            let is_known = match at < after {
                true => page.knows(after),
                false => page.continues(at),
            };
            if !is_known {
                return Ok(None);
            }
            at = at.max(after);
            for (number, entry) in page.entries.iter().filter(|(number, _)| after < *number) {
                at = *number;
                notices.extend(notice::read_entry(entry).map(|notice| (notice, *number)));
            }
            if at == page.last || page.entries.is_empty() {
                return Ok(Some((notices, at)));
            }
        }
    }
}

/// Returns true if the log of a call has no message after this event, and gets none.
fn is_complete(page: &LogPage, after: u64) -> bool {
    match &*page.entries {
        [(number, event), rest @ ..] if *number == after => {
            ends(event) || matches!(rest, [(_, next), ..] if next.first() == Some(&END))
        }
        _ => false,
    }
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<String>, Reply> {
    let mut values = headers.get_all("last-event-id").iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let text = value.to_str().map_err(|_| unknown_event())?.trim();
    if values.next().is_some() || text.len() > 64 {
        return Err(unknown_event());
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

/// The error must not reveal whether the event never existed, has expired, or belongs to another session.
fn unknown_event() -> Reply {
    Reply::refuse(
        RejectReason::EventUnknown,
        None,
        ErrorCode::Http(400),
        "Last-Event-ID is unknown, or its events have expired; open a stream without it",
    )
}

fn unavailable(_: StateError) -> Reply {
    Reply::refuse(
        RejectReason::StateUnavailable,
        None,
        ErrorCode::Http(503),
        "The events after this Last-Event-ID cannot be read now; try again later",
    )
}

//! GET on the endpoint: a session's standing stream, or a stream that broke off and is taken up again.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use http::HeaderMap;

use super::calls::{Follow, ends};
use super::ear::Ear;
use super::feed::{Owner, Wants};
use super::part::{EventId, StreamId};
use super::standing::{Manner, Standing};
use super::{Streams, notice};
use crate::auth::Principal;
use crate::catalog::Notice;
use crate::protocol::ErrorCode;
use crate::seal::Session;
use crate::server::mirror::VersionHeader;
use crate::server::reply::{Refusal, Reply};
use crate::server::{HttpHead, Local, Server};
use crate::state::StateError;

/// A stream that is being opened.
pub(crate) type Opening = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// How many notices are read at once.
const PAGE: usize = 500;

impl Server {
    /// Whether sessions can have streams of their own.
    pub(crate) fn has_standing_streams(&self) -> bool {
        self.config.streams.per_session > 0
    }

    /// Opens the stream that a GET asks for (LH-03, LH-04, LH-13).
    pub(crate) fn open_stream(
        self: &Arc<Self>,
        local: &Local,
        head: &HttpHead<'_>,
        version: VersionHeader,
    ) -> Result<Opening, Reply> {
        let session = self.session_of(local, head, version, None)?;
        let resumes = match last_event_id(head.headers)? {
            None => None,
            Some(text) => Some(EventId::read(&text).ok_or_else(unknown_event)?),
        };
        let streams = Arc::clone(&self.streams);
        let (server, caller) = (Arc::clone(self), Arc::clone(head.principal));
        let address = head.peer.map(|peer| peer.address);
        Ok(Box::pin(async move {
            let opening = Opens {
                server,
                streams,
                session,
                caller,
                address,
            };
            let opened = match resumes {
                None => opening.standing(None).await,
                Some(EventId {
                    stream: StreamId::Standing,
                    number,
                }) => opening.standing(Some(number)).await,
                Some(EventId {
                    stream: StreamId::Call(call),
                    number,
                }) => opening.call(call, number).await,
            };
            opened.unwrap_or_else(|refusal| refusal)
        }))
    }
}

struct Opens {
    server: Arc<Server>,
    streams: Arc<Streams>,
    session: Arc<Session>,
    caller: Arc<Principal>,
    address: Option<IpAddr>,
}

impl Opens {
    fn owner(&self) -> Owner {
        Owner {
            session: Some(Arc::clone(&self.session.log_name)),
            ..self.streams.owner(&self.caller, self.address)
        }
    }

    /// The session's standing stream, from a place in the log of notices or from now on.
    async fn standing(self, after: Option<u64>) -> Result<Reply, Reply> {
        let streams = Arc::clone(&self.streams);
        // Without a state there are no ids, and nothing to come back to.
        let _ = streams.begin_notices().await;
        let uris = streams.subscriptions_of(&self.session.log_name).await;
        let wants = Wants {
            uris: uris.unwrap_or_default(),
            ..Wants::all_lists()
        };
        let place = streams
            .enter(self.owner(), wants)
            .map_err(|too_many| too_many.reply(None))?;
        place.stand().await;
        let position = match after {
            None => streams.position(),
            Some(after) => {
                let (missed, through) = streams.notices_after(after).await?;
                place.feed.catch_up(missed, through);
                Some(after)
            }
        };
        let first = position
            .filter(|_| self.session.revision.has_priming_events())
            .map(|number| {
                streams.priming(EventId {
                    stream: StreamId::Standing,
                    number,
                })
            });
        let ear = Ear::new(&self.server, &self.caller);
        let standing = Standing::new(place, ear, Manner::Session, first);
        let life = streams.life_for(&self.caller);
        Ok(Reply::Stream(Box::new(standing.for_life(life))))
    }

    /// A call's stream, after one of its events.
    async fn call(self, call: u64, after: u64) -> Result<Reply, Reply> {
        let streams = Arc::clone(&self.streams);
        let session = Arc::clone(&self.session.log_name);
        let log = streams.names.events(&session, call);
        // The event itself too, if it is still there: it may have been the last.
        let page = streams
            .state
            .read_after(&log, after.saturating_sub(1), 1)
            .await;
        streams.heed(&page);
        let page = page.map_err(unavailable)?.ok_or_else(unknown_event)?;
        if !page.knows(after) {
            return Err(unknown_event());
        }
        let is_over = page
            .entries
            .first()
            .is_some_and(|(number, entry)| *number == after && ends(entry));
        let place = streams
            .enter(self.owner(), Wants::default())
            .map_err(|too_many| too_many.reply(None))?;
        let revision = self.session.revision;
        let life = streams.life_for(&self.caller);
        let follow = Follow::new(place, session, call, (after, life), revision);
        Ok(Reply::Stream(Box::new(if is_over {
            follow.at_its_end()
        } else {
            follow
        })))
    }
}

impl Streams {
    /// Makes sure that the log of notices has begun, so that there is a place in it that ids can name.
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
                super::replicas::NOTICES,
            )
            .await;
        self.heed(&appended);
        let begun = appended?;
        // Those who listen already have seen nothing yet, and may have missed what came before this.
        match before {
            Some(_) => self.read_notices().await,
            None => {
                self.begin_at(begun);
                Ok(())
            }
        }
    }

    /// The notices after a place in their log, and the place of the last.
    async fn notices_after(&self, after: u64) -> Result<(Vec<(Notice, u64)>, u64), Reply> {
        let log = &self.names.notices;
        let (mut notices, mut at) = (Vec::new(), after.saturating_sub(1));
        loop {
            let page = self.state.read_after(log, at, PAGE).await;
            self.heed(&page);
            let page = page.map_err(unavailable)?.ok_or_else(unknown_event)?;
            let is_known = match at < after {
                true => page.knows(after),
                false => page.continues(at),
            };
            if !is_known {
                return Err(unknown_event());
            }
            at = at.max(after);
            for (number, entry) in page.entries.iter().filter(|(number, _)| after < *number) {
                at = *number;
                notices.extend(notice::read_entry(entry).map(|notice| (notice, *number)));
            }
            if at == page.last || page.entries.is_empty() {
                return Ok((notices, at));
            }
        }
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

/// Nobody learns whether an event never was, is forgotten, or is somebody else's.
fn unknown_event() -> Reply {
    Reply::refuse(
        Refusal::EventUnknown,
        None,
        ErrorCode::Http(400),
        "Last-Event-ID is not known here, or what came after it is kept no longer; open a stream without it",
    )
}

fn unavailable(_: StateError) -> Reply {
    Reply::refuse(
        Refusal::StateUnavailable,
        None,
        ErrorCode::Http(503),
        "What was said before cannot be looked up now; try again later",
    )
}

//! Connecting: which link, which lifecycle, which protocol version.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::FutureExt as _;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::error::ClientError;
use super::introduction::Introduction;
use super::legacy;
use super::lifecycle::{self, DetectedLifecycle, Discovered, DiscoveryOutcome, Lifecycle, judge};
use super::shared::{Expected, Shared};
use super::stdio;
use super::wire::Params;
use super::{
    Client, DISCOVER, Initialized, Link, OPENS, Options, PROBES_MAX, PROGRAM_PROBE, REDIRECTS_MAX,
    STOPS, ServerInfo, TIMEOUT_MAX, Target,
};
use crate::net::AbortOnDrop;
use crate::protocol::{Implementation, Revision};

impl Client {
    /// Connects to a server and negotiates the protocol version.
    ///
    /// # Errors
    ///
    /// The server is not reachable, or does not speak MCP.
    pub async fn connect(target: Target, mut options: Options) -> Result<Self, ClientError> {
        for limit in [&mut options.connect_timeout, &mut options.request_timeout] {
            *limit = (*limit).min(TIMEOUT_MAX);
        }
        let limit = options.connect_timeout;
        timeout(limit, Self::open_redirected(target, options))
            .await
            .unwrap_or(Err(ClientError::Timeout(limit)))
    }

    /// Connects, and follows redirects within the origin of the URL, such as those that add a slash to its path.
    async fn open_redirected(mut target: Target, options: Options) -> Result<Self, ClientError> {
        let mut left = REDIRECTS_MAX;
        loop {
            let opened = Self::open(&target, options.clone()).await;
            match (&mut target, opened) {
                (Target::Url { url, .. }, Err(ClientError::Redirected { to }))
                    if 0 < left && url.origin() == to.origin() =>
                {
                    left -= 1;
                    *url = to;
                }
                (_, opened) => return opened,
            }
        }
    }

    async fn open(target: &Target, options: Options) -> Result<Self, ClientError> {
        // Slightly less than the whole timeout, which leaves time to report the problem.
        let deadline = Instant::now() + options.connect_timeout.mul_f64(0.9);
        let mut client = Self::start(target, options)?;
        match client.options.lifecycle {
            Lifecycle::Modern => client.open_modern(deadline).await?,
            Lifecycle::Legacy => {
                client.open_legacy(target, None, deadline).await?;
            }
            Lifecycle::Auto => {
                let remembered = match client.options.lifecycle_cache.get() {
                    Some(DetectedLifecycle::Legacy) => client.initialize(deadline).await,
                    Some(DetectedLifecycle::HttpSse) => {
                        client.open_http_sse(target, deadline).await
                    }
                    Some(DetectedLifecycle::Modern) | None => {
                        return client.detect(target, deadline).await;
                    }
                };
                match remembered {
                    Ok(()) => {}
                    Err(error) if lifecycle::refutes_legacy(&error) => {
                        client.options.lifecycle_cache.forget();
                        let client = Self::start(target, client.options.clone())?;
                        return client.detect(target, deadline).await;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(client)
    }

    /// Creates a client whose protocol version is not negotiated yet.
    fn start(target: &Target, options: Options) -> Result<Self, ClientError> {
        let shared = Shared::new(options.events.clone());
        let shared = Arc::new(match target {
            Target::Program(_) => shared,
            Target::Url { .. } => shared.with_random_ids(),
        });
        let link = match target {
            Target::Program(program) => Link::Stdio(stdio::Link::start(
                program,
                &options.name,
                &options,
                &shared,
            )?),
            Target::Url {
                url,
                headers,
                client,
            } => Link::Http(Arc::new(super::http::Link::new(
                client.clone(),
                url.clone(),
                headers.clone(),
                &options,
            )?)),
        };
        let server = ServerInfo {
            revision: Revision::NEWEST_WITH_SESSIONS,
            implementation: Implementation::default(),
            capabilities: Map::new(),
            instructions: None,
        };
        Ok(Self {
            link,
            shared,
            revision: server.revision,
            server: Arc::new(ArcSwap::from_pointee(server)),
            options,
            introduction: Introduction::default(),
            background: Vec::new(),
            logs: super::logs::RequestedLevel::default(),
            watching: tokio::sync::Mutex::default(),
        })
    }

    /// Probes with `server/discover`, and falls back to `initialize` for a legacy server.
    async fn detect(mut self, target: &Target, deadline: Instant) -> Result<Self, ClientError> {
        self.speak(Revision::V2026_07_28);
        let limit = self.probe_time(deadline);
        let mut late = None;
        let mut verdict = DiscoveryOutcome::Again;
        for _ in 0..PROBES_MAX {
            (verdict, late) = self.probe(limit).await;
            if !matches!(verdict, DiscoveryOutcome::Again) {
                break;
            }
        }
        let (revision, is_certain) = match verdict {
            DiscoveryOutcome::Modern(discovered) => {
                let opened = self.open_discovered(target, *discovered, deadline);
                return Box::pin(opened).await;
            }
            DiscoveryOutcome::Failed(error) => return Err(error),
            DiscoveryOutcome::Again => {
                return Err(ClientError::Protocol(
                    "it rejects a protocol version that it lists as supported".to_owned(),
                ));
            }
            DiscoveryOutcome::Legacy {
                revision,
                is_certain,
            } => (revision, is_certain),
            DiscoveryOutcome::Silent => (None, false),
        };
        // Some programs end when they receive an unknown request.
        let mut has_died = self.has_ended();
        if has_died {
            self = self.start_again(target)?;
        }
        let mut began = Instant::now();
        let mut opened = self.open_legacy(target, revision, deadline).await;
        // Others do not respond to it, and end when they receive another one.
        if opened.is_err() && late.is_some() && self.has_ended() {
            has_died = true;
            self = self.start_again(target)?;
            began = Instant::now();
            opened = self.open_legacy(target, revision, deadline).await;
        }
        // A program that was slow to start may have responded meanwhile.
        let late = late.and_then(|mut late: Expected| late.response().now_or_never());
        let (answered_late, late) = match late.map(judge) {
            Some(DiscoveryOutcome::Modern(discovered)) => (true, Some(discovered)),
            Some(_) => (true, None),
            None => (false, None),
        };
        match (opened, late) {
            (Ok(_), Some(_)) => self.options.lifecycle_cache.set(DetectedLifecycle::Modern),
            (Ok(lifecycle), None) => {
                // A server that handled `initialize` much faster had time to respond to the probe, so it ignores that
                // method.
                let knows_it =
                    is_certain || has_died || answered_late || began.elapsed() < limit / 2;
                if knows_it {
                    self.options.lifecycle_cache.set(lifecycle);
                }
            }
            (Err(_), Some(discovered)) => {
                self.speak(Revision::V2026_07_28);
                let opened = self.open_discovered(target, *discovered, deadline);
                return Box::pin(opened).await;
            }
            (Err(error), None) => return Err(error),
        }
        Ok(self)
    }

    /// Connects with revision 2026-07-28, or with an older one if the server does not respond while it has a
    /// subscription.
    async fn open_discovered(
        mut self,
        target: &Target,
        discovered: Discovered,
        deadline: Instant,
    ) -> Result<Self, ClientError> {
        let older = discovered.version_with_sessions();
        if self.begin_modern(discovered, deadline).await? {
            self.options.lifecycle_cache.set(DetectedLifecycle::Modern);
            return Ok(self);
        }
        let Some(revision) = older else {
            return Err(ClientError::Protocol(
                "it does not respond while subscriptions/listen is open, and supports no revision without that"
                    .to_owned(),
            ));
        };
        self.open_without_subscription(target, revision, deadline)
            .await
    }

    /// Returns true for a program that has ended.
    fn has_ended(&self) -> bool {
        matches!(self.link, Link::Stdio(_)) && self.shared.is_closed()
    }

    /// Starts a program again that ended because of `server/discover`.
    fn start_again(self, target: &Target) -> Result<Self, ClientError> {
        tracing::debug!(
            upstream = self.options.name,
            "the program ended after server/discover; starting it again with initialize"
        );
        Self::start(target, self.options.clone())
    }

    /// Starts a program again that does not respond while it has a subscription, with `initialize`, which needs none.
    async fn open_without_subscription(
        self,
        target: &Target,
        revision: Revision,
        deadline: Instant,
    ) -> Result<Self, ClientError> {
        let options = self.options.clone();
        tracing::debug!(
            upstream = options.name,
            "the program does not respond while subscriptions/listen is open; starting it again with initialize"
        );
        self.close(STOPS).await;
        let mut client = Self::start(target, options)?;
        let lifecycle = client.open_legacy(target, Some(revision), deadline).await?;
        client.options.lifecycle_cache.set(lifecycle);
        Ok(client)
    }

    /// Timeout of one probe; leaves time for `initialize`.
    fn probe_time(&self, deadline: Instant) -> Duration {
        let third = deadline.saturating_duration_since(Instant::now()) / 3;
        match self.link {
            Link::Stdio(_) => third.min(PROGRAM_PROBE),
            Link::Http(_) | Link::Legacy(_) => third,
        }
    }

    /// Sends one `server/discover` request. Returns the pending response too if a program did not respond in time.
    pub(super) async fn probe(&self, limit: Duration) -> (DiscoveryOutcome, Option<Expected>) {
        let Link::Stdio(link) = &self.link else {
            let params = Params::new();
            let outcome = Box::pin(self.exchange(DISCOVER, &params, None, Some(limit))).await;
            return (judge(outcome), None);
        };
        let mut expected = match self.shared.expect(None) {
            Ok(expected) => expected,
            Err(error) => return (judge(Err(error)), None),
        };
        let message = self.bare_request(expected.id, DISCOVER);
        if let Err(error) = link.send(message).await {
            return (judge(Err(error)), None);
        }
        match timeout(limit, expected.response()).await {
            Ok(outcome) => (judge(outcome), None),
            Err(_) => (DiscoveryOutcome::Silent, Some(expected)),
        }
    }

    /// Connects with revision 2026-07-28 only.
    async fn open_modern(&mut self, deadline: Instant) -> Result<(), ClientError> {
        self.speak(Revision::V2026_07_28);
        for _ in 0..PROBES_MAX {
            let limit = deadline.saturating_duration_since(Instant::now());
            let params = Params::new();
            let outcome = Box::pin(self.exchange(DISCOVER, &params, None, Some(limit))).await;
            let error = outcome.as_ref().err().cloned();
            match judge(outcome) {
                DiscoveryOutcome::Modern(discovered) => {
                    return match self.begin_modern(*discovered, deadline).await? {
                        true => Ok(()),
                        false => Err(ClientError::Protocol(
                            "it does not respond while subscriptions/listen is open, and no revision without that is allowed (protocol is modern)"
                                .to_owned(),
                        )),
                    };
                }
                DiscoveryOutcome::Again => {}
                DiscoveryOutcome::Failed(error) => return Err(error),
                DiscoveryOutcome::Silent => {
                    return Err(ClientError::Timeout(self.options.connect_timeout));
                }
                DiscoveryOutcome::Legacy { .. } => {
                    let why = error.map_or_else(
                        || "its response to server/discover is not valid".to_owned(),
                        |error| format!("server/discover: {error}"),
                    );
                    return Err(ClientError::Protocol(format!(
                        "it does not speak revision 2026-07-28, and no other is allowed (protocol is modern): {why}"
                    )));
                }
            }
        }
        Err(ClientError::Protocol(
            "it rejects a protocol version that it lists as supported".to_owned(),
        ))
    }

    /// Connects with `initialize`, and over HTTP+SSE if the server refuses that.
    async fn open_legacy(
        &mut self,
        target: &Target,
        revision: Option<Revision>,
        deadline: Instant,
    ) -> Result<DetectedLifecycle, ClientError> {
        self.speak(revision.unwrap_or(Revision::NEWEST_WITH_SESSIONS));
        let error = match self.initialize(deadline).await {
            Ok(()) => return Ok(DetectedLifecycle::Legacy),
            Err(error) => error,
        };
        if !lifecycle::may_be_http_sse(&error) {
            return Err(error);
        }
        match self.link_by_http_sse(target).await {
            Ok(()) => {}
            // It has such a stream, and the problem is there.
            Err(
                error @ (ClientError::Protocol(_)
                | ClientError::Redirected { .. }
                | ClientError::Unauthorized { .. }
                | ClientError::InsufficientScope { .. }),
            ) => return Err(error),
            Err(_) => return Err(error),
        }
        self.initialize(deadline).await?;
        Ok(DetectedLifecycle::HttpSse)
    }

    async fn open_http_sse(
        &mut self,
        target: &Target,
        deadline: Instant,
    ) -> Result<(), ClientError> {
        self.link_by_http_sse(target).await?;
        self.initialize(deadline).await
    }

    /// Opens the HTTP+SSE stream of 2024-11-05.
    async fn link_by_http_sse(&mut self, target: &Target) -> Result<(), ClientError> {
        let Target::Url {
            url,
            headers,
            client,
        } = target
        else {
            return Err(ClientError::Gone("it is a program".to_owned()));
        };
        let (client, url, headers) = (client.clone(), url.clone(), headers.clone());
        let link = legacy::Link::open(client, url, headers, &self.options, &self.shared).await?;
        self.link = Link::Legacy(Box::new(link));
        Ok(())
    }

    /// Sets the protocol version of later requests.
    fn speak(&mut self, revision: Revision) {
        self.revision = revision;
        self.introduction = match revision.has_sessions() {
            true => Introduction::default(),
            false => Introduction::new(self.introduced(Params::new()).meta),
        };
        if let Link::Http(link) = &self.link {
            // A handshake begins without a version.
            link.speak((!revision.has_sessions()).then_some(revision));
        }
    }

    /// Connects with `initialize`, for versions up to 2025-11-25.
    async fn initialize(&mut self, deadline: Instant) -> Result<(), ClientError> {
        let params = Params::new()
            .with("protocolVersion", self.revision.as_str())
            .with(
                "capabilities",
                Value::Object(self.options.capabilities.clone()),
            )
            .with("clientInfo", json!(self.options.implementation));
        let limit = self.options.connect_timeout;
        let left = deadline.saturating_duration_since(Instant::now());
        let asked = self.exchange("initialize", &params, None, Some(left));
        let result = match asked.await {
            Err(ClientError::Timeout(_)) if self.garbage() > 0 => {
                return Err(ClientError::Protocol(
                    "it writes lines that are not messages, and does not respond; check that the command starts an MCP server over standard input and output"
                        .to_owned(),
                ));
            }
            Err(ClientError::Timeout(_)) => return Err(ClientError::Timeout(limit)),
            result => result?,
        };
        let result: Initialized = serde_json::from_str(result.get()).map_err(|error| {
            ClientError::Protocol(format!("invalid response to initialize: {error}"))
        })?;
        let revision = Revision::parse(&result.protocol_version)
            .filter(|revision| revision.has_sessions())
            .ok_or_else(|| {
                ClientError::Protocol(format!("it speaks revision {:?}", result.protocol_version))
            })?;
        self.revision = revision;
        if result.capabilities.contains_key("logging") {
            self.logs.is_supported();
        }
        self.server.store(Arc::new(ServerInfo {
            revision,
            implementation: result.server_info,
            capabilities: result.capabilities,
            instructions: result.instructions,
        }));
        if let Link::Http(link) = &self.link {
            link.speak(Some(revision));
        }
        self.notify("notifications/initialized", &Params::new())
            .await?;
        // Without either, every message on that stream would be ignored.
        let is_heard = self.options.events.is_some() || !self.options.capabilities.is_empty();
        if let Link::Http(link) = &self.link
            && is_heard
        {
            let opened = Arc::new(Notify::new());
            let listening = Arc::clone(link).listen(Arc::clone(&self.shared), Arc::clone(&opened));
            self.background.push(AbortOnDrop::spawn(listening));
            // Some servers lose client requests for a stream that is not open yet.
            if !self.options.capabilities.is_empty() {
                let _ = timeout(OPENS, opened.notified()).await;
            }
        }
        Ok(())
    }

    /// Sets up a connection of version 2026-07-28. Returns false if the server does not respond any more: programs with
    /// mcp-go read nothing while they have a subscription.
    async fn begin_modern(
        &mut self,
        discovered: Discovered,
        deadline: Instant,
    ) -> Result<bool, ClientError> {
        self.server.store(Arc::new(discovered.into_info()));
        if !self.subscribe().await? {
            return Ok(true);
        }
        let (outcome, _) = self.probe(self.probe_time(deadline)).await;
        Ok(!matches!(outcome, DiscoveryOutcome::Silent))
    }
}

//! Fetches pages as text. It follows redirects itself, so that each step is checked like the first.

mod error;

use std::sync::Arc;
use std::time::Duration;

use error::PageError;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, StatusCode};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::time::Instant;
use url::{Position, Url};

use super::robots::{ROBOTS_BYTES_MAX, Robots, product};
use super::{FetchConfig, charset, html};
use crate::catalog::ToolError;
use crate::limit::SectionHits;
use crate::net::{
    Client, ClientBuilder, Deadlines, FairSemaphore, FetchError, OutgoingRequest, Phase,
    StreamingResponse,
};
use crate::source::builtin::{Blocking, Stop, ToolsetError};
use crate::source::limits::time_limit;
use crate::source::media_type::essence;
use crate::text::cut;

/// Capacity of the cache of site rules, in bytes, and the approximate number of sites.
const SITES_BYTES_MAX: u64 = 4 * 1024 * 1024;
const SITES: usize = 1000;
/// TTL of cached rules; RFC 9309, 2.4 allows a day.
const SITE_LIFE: Duration = Duration::from_secs(3600);
/// TTL of the result that a site's rules were unavailable.
const CLOSED_LIFE: Duration = Duration::from_secs(60);
/// Maximum number of redirects of `robots.txt`; RFC 9309, 2.3.1.2 requires five.
const ROBOTS_REDIRECTS: usize = 5;
/// Maximum length of a URL, which no browser or server exceeds.
const URL_BYTES_MAX: usize = 8192;
/// Maximum number of concurrent conversions, each of which can take about 20 MB.
const CONVERSIONS: usize = 2;

/// Note at the end of Markdown that is not the whole page.
const CUT: &str = "\n\n<error>The page is longer than 8 MiB of Markdown, so the rest is omitted. Set raw to true to get all of it as HTML.</error>";

/// Fetches pages.
pub(super) struct Pages {
    client: Client,
    autonomous: HeaderValue,
    user: HeaderValue,
    /// The product name that `robots.txt` is matched against.
    product: String,
    obeys_robots: bool,
    redirects: usize,
    timeout: Duration,
    places: FairSemaphore,
    sites: Cache<String, Remembered, Weight>,
    conversions: Blocking,
    pub(super) hits: SectionHits,
}

#[derive(Clone)]
struct Remembered {
    rules: Site,
    until: Instant,
}

/// A site's rules for programs.
#[derive(Clone)]
enum Site {
    Rules(Arc<Robots>),
    /// The rules are not accessible, so the whole site counts as disallowed for the time being.
    Closed(StatusCode),
}

#[derive(Clone)]
struct Weight;

impl Weighter<String, Remembered> for Weight {
    fn weight(&self, robots: &String, remembered: &Remembered) -> u64 {
        let rules = match &remembered.rules {
            Site::Rules(rules) => rules.bytes(),
            Site::Closed(_) => 0,
        };
        u64::try_from(robots.len() + rules + 128).unwrap_or(u64::MAX)
    }
}

/// Initiator of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FetchInitiator {
    /// A model, on its own initiative.
    Model,
    /// A user.
    Person,
}

/// A fetched page as text.
#[derive(Debug)]
pub(super) struct Page {
    /// The requested URL, normalized.
    pub(super) url: String,
    /// Note before a text that is not Markdown.
    pub(super) prefix: String,
    pub(super) text: String,
}

impl Pages {
    pub(super) fn new(config: &FetchConfig) -> Result<Self, ToolsetError> {
        let guard = config.egress.guard().map_err(|e| {
            ToolsetError::setting(
                "builtin.fetch.egress",
                format!("has hosts that cannot be: {e}"),
            )
        })?;
        Self::with(config, Client::builder(guard.web_ports_only()))
    }

    fn with(config: &FetchConfig, client: ClientBuilder) -> Result<Self, ToolsetError> {
        let timeout = time_limit(config.timeout_seconds);
        let client = client
            .deadlines(Deadlines::total(timeout))
            .max_body(config.response_bytes)
            .idle_connections(0)
            .build()
            .map_err(|e| ToolsetError::setting("builtin.fetch", format!("cannot be used: {e}")))?;
        let agent = |setting: &str, text: &str| {
            HeaderValue::from_str(text)
                .ok()
                .filter(|value| !value.is_empty())
                .ok_or_else(|| {
                    ToolsetError::setting(
                        format!("builtin.fetch.{setting}"),
                        "is not a valid header value; use visible ASCII characters",
                    )
                })
        };
        if config.robots && product(&config.user_agent_autonomous).is_empty() {
            return Err(ToolsetError::setting(
                "builtin.fetch.user_agent_autonomous",
                "begins with no name that a robots.txt could use; begin it with letters, as in MyBot/1.0",
            ));
        }
        Ok(Self {
            client,
            autonomous: agent("user_agent_autonomous", &config.user_agent_autonomous)?,
            user: agent("user_agent_user", &config.user_agent_user)?,
            product: product(&config.user_agent_autonomous).to_owned(),
            obeys_robots: config.robots,
            redirects: config.redirects,
            timeout,
            places: FairSemaphore::new(config.concurrency),
            sites: Cache::with_weighter(SITES, SITES_BYTES_MAX, Weight),
            conversions: Blocking::new(CONVERSIONS, timeout),
            hits: SectionHits::default(),
        })
    }

    /// Fetches a page as text: HTML is converted to Markdown unless `raw` is set.
    pub(super) async fn fetch(
        &self,
        text: &str,
        behalf: FetchInitiator,
        raw: bool,
    ) -> Result<Page, PageError> {
        let fetched = self.try_fetch(text, behalf, raw).await;
        if let Err(error) = &fetched
            && let Some(limit) = error.limit()
        {
            self.hits.count(limit);
        }
        fetched
    }

    async fn try_fetch(
        &self,
        text: &str,
        behalf: FetchInitiator,
        raw: bool,
    ) -> Result<Page, PageError> {
        if URL_BYTES_MAX < text.len() {
            return Err(PageError::LongUrl { bytes: text.len() });
        }
        let url = Url::parse(text)
            .ok()
            .filter(Url::has_host)
            .ok_or_else(|| PageError::Url { url: shown(text) })?;
        let deadline = Instant::now() + self.timeout;
        let place = tokio::time::timeout_at(deadline, self.places.acquire()).await;
        let Ok(Ok(place)) = place else {
            return Err(PageError::Busy);
        };
        // A URL with a password is rejected, and the error does not repeat it.
        let mut named = url.clone();
        let _ = named
            .set_username("")
            .and_then(|()| named.set_password(None));
        let name = named.to_string();
        let answer = self.follow(url, &name, behalf, deadline).await?;
        let status = answer.status;
        if !status.is_success() {
            return Err(PageError::Status {
                url: shown(&name),
                status,
            });
        }
        let content_type = answer
            .headers
            .get(CONTENT_TYPE)
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .unwrap_or_default();
        let fetched = answer.read().await.map_err(|e| self.failed(&name, e))?;
        let body = fetched.body;
        if !charset::is_text(&body, &content_type) {
            let what = match essence(&content_type) {
                essence if essence.is_empty() => "something".to_owned(),
                essence => shown(&essence),
            };
            return Err(PageError::NoText {
                url: shown(&name),
                what,
                bytes: body.len(),
            });
        }
        let converted = self.conversions.run(move |stop| {
            stop.check()?;
            text_of(&body, &content_type, raw, stop)
        });
        let (prefix, text) = match tokio::time::timeout_at(deadline, converted).await {
            Ok(Ok(converted)) => converted,
            Ok(Err(error)) if Instant::now() < deadline => {
                return Err(PageError::Conversion {
                    url: shown(&name),
                    problem: error.message().to_owned(),
                });
            }
            Ok(Err(_)) | Err(_) => {
                return Err(PageError::Slow {
                    url: shown(&name),
                    limit: self.timeout,
                });
            }
        };
        drop(place);
        Ok(Page {
            url: name,
            prefix,
            text,
        })
    }

    /// Follows redirects and returns the final response.
    async fn follow(
        &self,
        mut url: Url,
        name: &str,
        behalf: FetchInitiator,
        deadline: Instant,
    ) -> Result<StreamingResponse, PageError> {
        let failed = |error| self.failed(name, error);
        for _ in 0..=self.redirects {
            if behalf == FetchInitiator::Model && self.obeys_robots {
                // A disallowed host is rejected before anything is requested from it.
                self.client.guard().check_url(&url).map_err(failed)?;
                self.check_robots(&url, deadline).await?;
            }
            let answer = self.ask(url, behalf, deadline).await.map_err(failed)?;
            match answer.redirect().map_err(failed)? {
                Some(next) => url = next,
                None => return Ok(answer),
            }
        }
        Err(PageError::Redirects {
            url: shown(name),
            max: self.redirects,
        })
    }

    fn failed(&self, url: &str, error: FetchError) -> PageError {
        PageError::Fetch {
            url: shown(url),
            source: self.in_all(error),
        }
    }

    /// Replaces the remaining time in a timeout error by the total time of the call.
    fn in_all(&self, error: FetchError) -> FetchError {
        match error {
            FetchError::Timeout {
                host,
                phase: phase @ Phase::Total,
                ..
            } => FetchError::Timeout {
                host,
                phase,
                limit: self.timeout,
            },
            other => other,
        }
    }

    async fn ask(
        &self,
        url: Url,
        behalf: FetchInitiator,
        deadline: Instant,
    ) -> Result<StreamingResponse, FetchError> {
        let agent = match behalf {
            FetchInitiator::Model => &self.autonomous,
            FetchInitiator::Person => &self.user,
        };
        let accepted = "text/html, text/markdown, text/plain;q=0.9, */*;q=0.8";
        let left = deadline.saturating_duration_since(Instant::now());
        let request = OutgoingRequest::get(url)
            .header(USER_AGENT, agent.clone())
            .header(ACCEPT, HeaderValue::from_static(accepted))
            .header(ACCEPT_ENCODING, HeaderValue::from_static("gzip"))
            .within(left);
        self.client.open(request).await
    }

    /// Checks that a site's rules allow the page.
    async fn check_robots(&self, url: &Url, deadline: Instant) -> Result<(), PageError> {
        let Ok(robots) = url.join("/robots.txt") else {
            return Ok(());
        };
        let site = match self.sites.get(robots.as_str()) {
            Some(remembered) if Instant::now() < remembered.until => remembered.rules,
            _ => {
                let site =
                    self.ask_site(&robots, deadline)
                        .await
                        .map_err(|error| PageError::Robots {
                            robots: shown(robots.as_str()),
                            source: self.in_all(error),
                        })?;
                let life = match site {
                    Site::Rules(_) => SITE_LIFE,
                    Site::Closed(_) => CLOSED_LIFE,
                };
                let until = Instant::now() + life;
                let remembered = Remembered {
                    rules: site.clone(),
                    until,
                };
                self.sites.insert(robots.to_string(), remembered);
                site
            }
        };
        match site {
            Site::Closed(status) => Err(PageError::Closed {
                robots: shown(robots.as_str()),
                status,
            }),
            Site::Rules(rules) if rules.allow(&url[Position::BeforePath..Position::AfterQuery]) => {
                Ok(())
            }
            Site::Rules(_) => Err(PageError::Disallowed {
                robots: shown(robots.as_str()),
                url: shown(url.as_str()),
                agent: self.autonomous.to_str().unwrap_or_default().to_owned(),
            }),
        }
    }

    /// Fetches the rules of a site (RFC 9309, 2.3.1). A missing `robots.txt` allows everything; an error disallows
    /// everything.
    async fn ask_site(&self, robots: &Url, deadline: Instant) -> Result<Site, FetchError> {
        let mut url = robots.clone();
        for _ in 0..=ROBOTS_REDIRECTS {
            let left = deadline.saturating_duration_since(Instant::now());
            let request = OutgoingRequest::get(url)
                .header(USER_AGENT, self.autonomous.clone())
                .within(left);
            let mut answer = self.client.open(request).await?;
            if let Some(next) = answer.redirect()? {
                url = next;
                continue;
            }
            let status = answer.status;
            if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
                || status.is_server_error()
            {
                return Ok(Site::Closed(status));
            }
            if !status.is_success() {
                return Ok(Site::Rules(Arc::default()));
            }
            if answer.headers.contains_key(CONTENT_ENCODING) {
                let file = answer.read().await?.body;
                return Ok(Site::Rules(Arc::new(Robots::parse(&file, &self.product))));
            }
            let mut file = Vec::new();
            while file.len() < ROBOTS_BYTES_MAX
                && let Some(part) = answer.chunk().await?
            {
                file.extend_from_slice(&part);
            }
            return Ok(Site::Rules(Arc::new(Robots::parse(&file, &self.product))));
        }
        // An endless chain of redirects counts as a missing file (2.3.1.2).
        Ok(Site::Rules(Arc::default()))
    }
}

/// Returns the note and the text of a response.
fn text_of(
    body: &[u8],
    content_type: &str,
    raw: bool,
    stop: &Stop,
) -> Result<(String, String), ToolError> {
    let text = charset::text(body, content_type);
    let essence = essence(content_type);
    if essence == "text/markdown" && !raw {
        return Ok((String::new(), text));
    }
    let looks_so = || {
        let start = longshore_protocol::prefix(&text, 100);
        start.to_ascii_lowercase().contains("<html")
    };
    let is_html = matches!(&*essence, "" | "text/html" | "application/xhtml+xml") || looks_so();
    if !is_html || raw {
        let prefix = format!(
            "Content type {} cannot be simplified to markdown, but here is the raw content:\n",
            shown(content_type)
        );
        return Ok((prefix, text));
    }
    let (mut markdown, is_cut) = html::markdown(&text, || stop.check())?;
    if markdown.is_empty() {
        "<error>Page failed to be simplified from HTML</error>".clone_into(&mut markdown);
    } else if is_cut {
        markdown.push_str(CUT);
    }
    Ok((String::new(), markdown))
}

/// Shortens untrusted text for messages.
fn shown(text: &str) -> String {
    cut(text, 500)
}

#[cfg(test)]
mod tests;

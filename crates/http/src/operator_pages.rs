//! Operator pages: health for probes, and metrics.

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use crate::net::Body;
use crate::protocol::Revision;
use crate::server::Server;
use crate::telemetry::{PROMETHEUS_MEDIA, Phase, ServerLifecycle, Telemetry, prometheus_page};

/// A page for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// Liveness.
    Live,
    /// Requests should be sent here.
    Ready,
    /// The start is over.
    Started,
    /// Readiness, and the served capabilities.
    Health,
    /// Health with pending conditions.
    Details,
    /// Metrics.
    Metrics,
}

impl Page {
    /// Builds the page for a permitted caller. `near` is true on this machine or on the admin port; the page then lists
    /// the conditions that block readiness.
    pub fn respond(self, server: &Server, near: bool) -> Response<Body> {
        let telemetry = server.telemetry();
        let life = &*telemetry.life;
        match self {
            Self::Live => status(true, &json!({"status": "ok", "ok": true})),
            Self::Started => {
                let started = life.phase() != Phase::Starting;
                let word = if started { "ok" } else { "starting" };
                status(started, &json!({"status": word, "ok": started}))
            }
            Self::Ready | Self::Health => {
                let ready = life.is_ready();
                let mut page = match self {
                    Self::Health => health(server, telemetry),
                    _ => json!({"status": word(life), "ok": ready, "ready": ready}),
                };
                if near && !ready {
                    page["waits_for"] = life.waits_for().into();
                }
                status(ready, &page)
            }
            Self::Details => {
                let mut health = health(server, telemetry);
                health["ready"] = life.is_ready().into();
                health["waits_for"] = life.waits_for().into();
                health["in_flight"] = telemetry.metrics.in_flight().into();
                health["upstreams"] = life.described_upstreams();
                health["replicas"] = server.replicas().into();
                health["process_id"] = std::process::id().into();
                status(life.is_ready(), &health)
            }
            Self::Metrics => {
                let page = prometheus_page(&telemetry.metrics.families());
                response(StatusCode::OK, PROMETHEUS_MEDIA, page)
            }
        }
    }
}

/// The state in one word.
fn word(life: &ServerLifecycle) -> &'static str {
    match life.phase() {
        Phase::Starting => "starting",
        Phase::Draining => "draining",
        Phase::Serving if life.is_ready() => "ok",
        Phase::Serving => "not ready",
    }
}

fn health(server: &Server, telemetry: &Telemetry) -> Value {
    let life = &*telemetry.life;
    let tools = server.tool_count();
    let upstreams = life.upstreams();
    json!({
        "status": word(life),
        "ok": life.is_ready(),
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": life.uptime().as_secs(),
        "revisions": Revision::ALL.map(Revision::as_str),
        "tools_registered": tools,
        "tools": tools,
        "refused": server.refused(),
        "upstreams_configured": upstreams.configured,
        "upstreams_connected": upstreams.connected,
        "upstreams_down": upstreams.down,
        "active_clients": life.clients(),
        "draining": life.is_draining(),
        "config_generation": life.generation(),
    })
}

fn status(good: bool, body: &Value) -> Response<Body> {
    let status = match good {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    response(status, "application/json", body.to_string())
}

fn response(status: StatusCode, media: &'static str, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

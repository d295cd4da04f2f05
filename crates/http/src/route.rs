//! Route table, and the paths that need no authentication.

use http::Method;

use super::operator_pages::Page;
use crate::telemetry::Route as Counted;

/// A path that is served over HTTP.
///
/// Every path that is not open passes the same checks as the MCP endpoint first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// Path pattern; `{name}` matches one segment, `{path}` several. A trailing slash makes no difference.
    pub path: &'static str,
    /// Its methods, as the header `Allow` lists them.
    pub methods: &'static str,
    pub(super) place: RouteTarget,
}

/// Target of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RouteTarget {
    /// Path without authentication: probes and clients without credentials must be able to read it.
    Open(Open),
    /// Path for authenticated callers ([`super::authentication`]).
    Guarded(Protected),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Open {
    Page(Page),
    /// Protected resource metadata for OAuth clients (RFC 9728).
    ResourceMetadata,
    /// Playground page; it requests all its data from the endpoint.
    Playground,
    /// Path that another part of the program serves, within the limits of size and rate.
    Public,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protected {
    Mcp,
    /// Endpoint of a subset of the capabilities.
    NamedEndpoint,
    /// Another name of the endpoint, for answers to questions.
    Respond,
    /// The transport of 2024-11-05.
    Legacy,
    /// REST access to tools for clients without MCP, and descriptions of the server.
    Rest(Rest),
    /// Operator pages. On the main port they require authentication; on the admin port they do not.
    Page(Page),
    /// Route that the application handles.
    Custom,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    Tools,
    Tool,
    OpenApi,
    Info,
    Version,
    Ping,
}

/// Every path, of which a request's is the first that fits. There is no other way to be served.
const ROUTES: [Route; 22] = [
    guarded("/mcp", "GET, POST, DELETE", Protected::Mcp),
    open("/health", GET, Open::Page(Page::Health)),
    open("/livez", GET, Open::Page(Page::Live)),
    open("/readyz", GET, Open::Page(Page::Ready)),
    open("/health/ready", GET, Open::Page(Page::Ready)),
    open("/startupz", GET, Open::Page(Page::Started)),
    guarded("/health/detailed", GET, Protected::Page(Page::Details)),
    guarded("/metrics", GET, Protected::Page(Page::Metrics)),
    open(
        "/.well-known/oauth-protected-resource",
        METADATA,
        Open::ResourceMetadata,
    ),
    open(
        "/.well-known/oauth-protected-resource/{path}",
        METADATA,
        Open::ResourceMetadata,
    ),
    guarded("/tools", GET, Protected::Rest(Rest::Tools)),
    guarded("/tools/{name}", "POST", Protected::Rest(Rest::Tool)),
    guarded("/openapi.json", GET, Protected::Rest(Rest::OpenApi)),
    guarded("/info", GET, Protected::Rest(Rest::Info)),
    guarded("/version", GET, Protected::Rest(Rest::Version)),
    guarded("/ping", GET, Protected::Rest(Rest::Ping)),
    open("/", GET, Open::Playground),
    guarded("/mcp/respond", "POST", Protected::Respond),
    guarded("/sse", "GET", Protected::Legacy),
    guarded("/mcp/sse", "GET", Protected::Legacy),
    guarded(MESSAGES, "POST", Protected::Legacy),
    // Behind those of other names.
    guarded("/mcp/{name}", "GET, POST, DELETE", Protected::NamedEndpoint),
];

/// Path for the messages of the transport of 2024-11-05.
pub(super) const MESSAGES: &str = "/messages";
/// Methods of the endpoint where sessions have no notification streams.
pub(super) const METHODS_WITHOUT_STREAMS: &str = "POST, DELETE";
const GET: &str = "GET, HEAD";
/// Pages ask whether they may ask.
const METADATA: &str = "GET, HEAD, OPTIONS";

const fn open(path: &'static str, methods: &'static str, place: Open) -> Route {
    Route {
        path,
        methods,
        place: RouteTarget::Open(place),
    }
}

const fn guarded(path: &'static str, methods: &'static str, place: Protected) -> Route {
    Route {
        path,
        methods,
        place: RouteTarget::Guarded(place),
    }
}

/// Every path that is served over HTTP.
///
/// ```
/// let routes = longshore::transport::http::routes();
/// let open: Vec<_> = routes.iter().filter(|route| route.is_open()).map(|route| route.path).collect();
/// assert_eq!(open[..5], ["/health", "/livez", "/readyz", "/health/ready", "/startupz"]);
/// ```
pub fn routes() -> &'static [Route] {
    &ROUTES
}

impl Route {
    /// The endpoint's.
    pub(super) const MCP: &'static Self = &ROUTES[0];

    /// Common entry for all application routes.
    pub(super) const CUSTOM: &'static Self = &guarded("/*", "*", Protected::Custom);

    /// Common entry for all paths of [`PublicPaths`](super::PublicPaths).
    pub(super) const PUBLIC: &'static Self = &open("/*", "*", Open::Public);

    /// Returns true if the request is served even under memory pressure: it frees memory or reports its use.
    pub(super) fn frees_memory(&self, method: &Method) -> bool {
        match self.place {
            RouteTarget::Guarded(Protected::Page(_)) => true,
            RouteTarget::Guarded(_) => *method == Method::DELETE,
            RouteTarget::Open(_) => false,
        }
    }

    /// Returns true if the path is served without authentication.
    pub fn is_open(&self) -> bool {
        matches!(self.place, RouteTarget::Open(_))
    }

    /// Looks up the route of a path, with the raw value of `{name}`.
    #[inline]
    pub(super) fn of(path: &str) -> Option<(&'static Self, &str)> {
        let path = match path.strip_suffix('/') {
            None | Some("" | "/") => path,
            Some(path) => path,
        };
        ROUTES
            .iter()
            .find_map(|route| Some((route, route.matches(path)?)))
    }

    fn matches<'p>(&self, path: &'p str) -> Option<&'p str> {
        if let Some(parent) = self.path.strip_suffix("{path}") {
            return path.strip_prefix(parent).filter(|rest| !rest.is_empty());
        }
        let Some(parent) = self.path.strip_suffix("{name}") else {
            return (self.path == path).then_some("");
        };
        path.strip_prefix(parent)
            .filter(|name| !name.is_empty() && !name.contains('/'))
    }

    /// Returns true if the path supports a method.
    pub(super) fn has(&self, method: &Method) -> bool {
        let mut methods = self.methods.split(", ");
        methods.any(|has| has == "*" || has == method.as_str())
    }

    /// Returns true if `Host` and `Origin` are not checked. Probes call by address from the machine's operator, and
    /// public documents are readable from every origin.
    pub(super) fn is_for_everybody(&self) -> bool {
        matches!(
            self.place,
            RouteTarget::Open(Open::Page(_) | Open::ResourceMetadata | Open::Public)
        )
    }

    /// Metrics label of the route.
    pub(super) fn counted(&self) -> Counted {
        match self.place {
            RouteTarget::Guarded(
                Protected::Mcp | Protected::NamedEndpoint | Protected::Respond | Protected::Legacy,
            ) => Counted::Mcp,
            RouteTarget::Guarded(Protected::Rest(_)) => Counted::Rest,
            RouteTarget::Guarded(Protected::Page(_)) | RouteTarget::Open(Open::Page(_)) => {
                Counted::Operators
            }
            RouteTarget::Guarded(Protected::Custom)
            | RouteTarget::Open(Open::ResourceMetadata | Open::Playground | Open::Public) => {
                Counted::None
            }
        }
    }

    /// The page for operators that is there.
    pub(super) fn page(&self) -> Option<Page> {
        match self.place {
            RouteTarget::Guarded(Protected::Page(page)) | RouteTarget::Open(Open::Page(page)) => {
                Some(page)
            }
            RouteTarget::Guarded(_)
            | RouteTarget::Open(Open::ResourceMetadata | Open::Playground | Open::Public) => None,
        }
    }

    /// Returns true if rejections on this route are JSON-RPC errors. Elsewhere they are problem documents.
    pub(super) fn speaks_rpc(&self) -> bool {
        matches!(
            self.place,
            RouteTarget::Guarded(
                Protected::Mcp | Protected::NamedEndpoint | Protected::Respond | Protected::Legacy
            )
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_of(path: &str) -> Option<(&'static str, &str)> {
        Route::of(path).map(|(route, name)| (route.path, name))
    }

    #[test]
    fn every_route_is_found_by_its_path_with_and_without_a_slash_at_the_end() {
        for route in routes() {
            for end in ["", "/"] {
                // There is one path to the root.
                if (route.path, end) == ("/", "/") {
                    continue;
                }
                let path = route
                    .path
                    .replace("{name}", "echo")
                    .replace("{path}", "a/b");
                let path = format!("{path}{end}");
                assert_eq!(path_of(&path).map(|(path, _)| path), Some(route.path));
            }
        }
    }

    #[test]
    fn a_name_is_one_segment_and_not_empty() {
        assert_eq!(path_of("/tools/a%20b"), Some(("/tools/{name}", "a%20b")));
        assert_eq!(path_of("/tools/"), Some(("/tools", "")));
        for nowhere in [
            "/tools/a/b",
            "/tools//",
            "/toolsx",
            "//",
            "",
            "/mcpx",
            "//mcp",
        ] {
            assert_eq!(path_of(nowhere), None, "{nowhere}");
        }
    }

    #[test]
    fn methods_are_whole_words() {
        let (mcp, _) = Route::of("/mcp").expect("a route");
        assert!(mcp.has(&Method::POST) && mcp.has(&Method::DELETE));
        assert!(!mcp.has(&Method::PUT));
        let part = Method::from_bytes(b"POS").expect("a token");
        assert!(!mcp.has(&part));
        assert!(Route::CUSTOM.has(&part));
    }

    #[test]
    fn pages_and_paths_of_the_application_are_not_counted_as_tools() {
        let counted = |path| Route::of(path).map(|(route, _)| route.counted());
        assert_eq!(counted("/tools/echo"), Some(Counted::Rest));
        assert_eq!(counted("/livez"), Some(Counted::Operators));
        assert_eq!(counted("/"), Some(Counted::None));
        for other in [Route::CUSTOM, Route::PUBLIC] {
            assert_eq!(other.counted(), Counted::None);
        }
    }
}

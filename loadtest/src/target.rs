//! Target server, which has to be on this machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use http::Uri;
use http::uri::Scheme;

/// The URL of an MCP endpoint on a loopback address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Socket address to connect to.
    pub(crate) address: SocketAddr,
    /// The path of the endpoint.
    pub(crate) path: String,
}

impl Target {
    /// The endpoint that every server of ours has.
    pub(crate) fn mcp(address: SocketAddr) -> Self {
        Self {
            address,
            path: "/mcp".to_owned(),
        }
    }
}

/// Reason why a URL is rejected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    #[error("not a URL")]
    Unreadable(#[from] http::uri::InvalidUri),
    #[error("only http:// URLs can be driven")]
    NotHttp,
    #[error("the URL names no host")]
    NoHost,
    #[error(
        "only loopback addresses are driven, and {host} is none: this is a measuring tool, not a weapon"
    )]
    NotLoopback { host: String },
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(url: &str) -> Result<Self, TargetError> {
        let url: Uri = url.parse()?;
        if url.scheme() != Some(&Scheme::HTTP) {
            return Err(TargetError::NotHttp);
        }
        let host = url.host().ok_or(TargetError::NoHost)?;
        // Names are not resolved: an answer of the resolver could be any machine.
        let ip = match host.trim_start_matches('[').trim_end_matches(']').parse() {
            Ok(ip) => ip,
            Err(_) if host.eq_ignore_ascii_case("localhost") => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Err(_) => {
                return Err(TargetError::NotLoopback {
                    host: host.to_owned(),
                });
            }
        };
        if !ip.is_loopback() {
            return Err(TargetError::NotLoopback {
                host: host.to_owned(),
            });
        }
        let path = url
            .path_and_query()
            .map_or("/", |path| path.as_str())
            .to_owned();
        Ok(Self {
            address: SocketAddr::new(ip, url.port_u16().unwrap_or(80)),
            path,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_urls_are_targets() {
        let cases = [
            ("http://127.0.0.1:3000/mcp", "127.0.0.1:3000", "/mcp"),
            (
                "http://localhost:8080/team/mcp",
                "127.0.0.1:8080",
                "/team/mcp",
            ),
            ("http://[::1]:3000/mcp?a=b", "[::1]:3000", "/mcp?a=b"),
            ("http://127.9.9.9", "127.9.9.9:80", "/"),
        ];
        for (url, address, path) in cases {
            let target: Target = url.parse().expect(url);
            assert_eq!(
                (target.address.to_string().as_str(), target.path.as_str()),
                (address, path),
                "{url}"
            );
        }
    }

    #[test]
    fn everything_else_is_refused_by_name() {
        let cases = [
            (
                "http://example.com/mcp",
                "only loopback addresses are driven, and example.com is none",
            ),
            (
                "http://10.0.0.1:3000/mcp",
                "only loopback addresses are driven, and 10.0.0.1 is none",
            ),
            (
                "http://0.0.0.0:3000/mcp",
                "only loopback addresses are driven, and 0.0.0.0 is none",
            ),
            (
                "http://localhost.example.com/",
                "only loopback addresses are driven",
            ),
            (
                "http://[2001:db8::1]/mcp",
                "only loopback addresses are driven",
            ),
            ("https://127.0.0.1:3000/mcp", "only http:// URLs"),
            ("127.0.0.1:3000", "only http:// URLs"),
            ("http://", "not a URL"),
            ("", "not a URL"),
        ];
        for (url, reason) in cases {
            let error = url.parse::<Target>().expect_err(url);
            assert!(error.to_string().starts_with(reason), "{url}: {error}");
        }
    }
}

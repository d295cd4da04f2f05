//! Local listener for the OAuth redirect.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use url::Url;

/// Parameters that an issuer sends with the redirect.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Redirected {
    pub(crate) code: Option<String>,
    pub(crate) state: Option<String>,
    pub(crate) iss: Option<String>,
    pub(crate) error: Option<String>,
    pub(crate) error_description: Option<String>,
}

pub(super) struct Callback {
    listener: TcpListener,
    address: SocketAddr,
}

const PATH: &str = "/callback";
const HEAD_BYTES: usize = 16 * 1024;
/// Maximum number of connections whose requests are read at the same time.
const CONNECTIONS_MAX: usize = 16;
/// Request timeout. A browser sends its request immediately.
const PATIENCE: Duration = Duration::from_secs(5);

impl Callback {
    /// Listens on a port; 0 takes any that is free.
    pub(super) async fn listen(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Returns the redirect URI for the issuer (RFC 8252, 7.3).
    pub(super) fn redirect_uri(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    /// Waits for a redirect with this state. Requests with another state are rejected, because any process can send
    /// them. Connections without a request, which browsers open in advance, delay no other.
    pub(super) async fn wait(&self, state: &str) -> io::Result<Redirected> {
        let mut requests = FuturesUnordered::new();
        loop {
            let (mut stream, request) = tokio::select! {
                accepted = self.listener.accept(), if requests.len() < CONNECTIONS_MAX => {
                    let (mut stream, _) = accepted?;
                    requests.push(async move {
                        let request = timeout(PATIENCE, read(&mut stream)).await;
                        (stream, request)
                    });
                    continue;
                }
                Some(read) = requests.next() => read,
            };
            let Ok(Ok(Some(redirected))) = request else {
                respond(&mut stream, "404 Not Found", "This page does not exist.").await;
                continue;
            };
            let is_ours = redirected.state.as_deref().is_some_and(|shown| {
                verify_slices_are_equal(shown.as_bytes(), state.as_bytes()).is_ok()
            });
            if !is_ours {
                let text = "This belongs to no login that is waited for.";
                respond(&mut stream, "400 Bad Request", text).await;
                continue;
            }
            let text = match redirected.error {
                None => "You can close this page and go back to the terminal.",
                Some(_) => "The login was rejected; the terminal shows the reason.",
            };
            respond(&mut stream, "200 OK", text).await;
            return Ok(redirected);
        }
    }
}

/// Returns the query parameters of a request for the callback path; `None` for any other request.
async fn read(stream: &mut TcpStream) -> io::Result<Option<Redirected>> {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let read = stream.read(&mut buffer).await?;
        if read == 0 || HEAD_BYTES < head.len() {
            return Ok(None);
        }
        head.extend_from_slice(&buffer[..read]);
    }
    let head = String::from_utf8_lossy(&head);
    Ok(head.lines().next().and_then(redirected))
}

fn redirected(line: &str) -> Option<Redirected> {
    let mut words = line.split(' ');
    let target = match (words.next(), words.next()) {
        (Some("GET"), Some(target)) if target.starts_with('/') => target,
        _ => return None,
    };
    let url: Url = format!("http://localhost{target}").parse().ok()?;
    if url.path() != PATH {
        return None;
    }
    let mut found = Redirected::default();
    for (name, value) in url.query_pairs() {
        let place = match &*name {
            "code" => &mut found.code,
            "state" => &mut found.state,
            "iss" => &mut found.iss,
            "error" => &mut found.error,
            "error_description" => &mut found.error_description,
            _ => continue,
        };
        // RFC 6749, 3.1: a parameter must not be repeated.
        if place.replace(value.into_owned()).is_some() {
            return None;
        }
    }
    Some(found)
}

async fn respond(stream: &mut TcpStream, status: &str, text: &str) {
    let body =
        format!("<!doctype html><meta charset=utf-8><title>Longshore</title><p>{text}</p>\n");
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {length}\r\n\
         cache-control: no-store\r\nreferrer-policy: no-referrer\r\nx-content-type-options: nosniff\r\n\
         content-security-policy: default-src 'none'\r\nconnection: close\r\n\r\n{body}"
    );
    // The browser may have disconnected.
    let _ = timeout(PATIENCE, async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_without_a_request_does_not_delay_the_redirect() {
        let callback = Callback::listen(0).await.expect("a port");
        let _idle = TcpStream::connect(callback.address).await.expect("open");
        let visit = async {
            let mut browser = TcpStream::connect(callback.address).await.expect("open");
            let request = b"GET /callback?code=a&state=s HTTP/1.1\r\n\r\n";
            browser.write_all(request).await.expect("sent");
            let mut page = String::new();
            browser.read_to_string(&mut page).await.expect("a page");
            page
        };
        let both = async { tokio::join!(callback.wait("s"), visit) };
        let both = timeout(PATIENCE / 2, both).await;
        let (redirected, page) = both.expect("at once");
        assert_eq!(redirected.expect("a redirect").code.as_deref(), Some("a"));
        assert!(page.contains("go back to the terminal"), "{page}");
    }

    #[test]
    fn what_comes_back_is_read_from_the_query_and_nothing_twice() {
        let of = |target: &str| redirected(&format!("GET {target} HTTP/1.1"));
        let found = of("/callback?code=a%20b&state=s&iss=https%3A%2F%2Fx&other=1").expect("read");
        assert_eq!(found.code.as_deref(), Some("a b"));
        assert_eq!(found.iss.as_deref(), Some("https://x"));
        assert_eq!(of("/callback?code=a&code=b&state=s"), None);
        assert_eq!(of("/other?code=a"), None);
        assert_eq!(of("http://evil/callback?code=a"), None);
        assert_eq!(redirected("POST /callback?code=a HTTP/1.1"), None);
        assert_eq!(redirected(""), None);
    }
}

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Mutex;

use futures_util::future::BoxFuture;

use super::*;
use crate::net::testing::{response, serve};
use crate::net::{Guard, Resolve};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Resolver that maps every name to this machine.
struct Here;

impl Resolve for Here {
    fn addresses<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async { Ok(vec![LOCAL]) })
    }
}

fn pages(change: impl FnOnce(&mut FetchConfig)) -> Pages {
    let mut config = FetchConfig::default();
    change(&mut config);
    let client = Client::builder(Guard::public().allow_loopback()).resolver(Arc::new(Here));
    Pages::with(&config, client).expect("a client")
}

async fn get(pages: &Pages, url: &str) -> Result<String, String> {
    let page = pages.fetch(url, FetchInitiator::Model, false).await;
    page.map(|page| format!("{}{}", page.prefix, page.text))
        .map_err(|e| e.to_string())
}

/// Returns the requests received, in order.
fn asked(seen: &Mutex<Vec<String>>) -> Vec<String> {
    let seen = seen.lock().expect("no panic");
    let paths = seen
        .iter()
        .map(|request| request.split(' ').nth(1).expect("a path").to_owned());
    paths.collect()
}

fn base(server: SocketAddr) -> String {
    format!("http://site.example:{}", server.port())
}

#[tokio::test]
async fn a_model_leaves_alone_what_robots_txt_asks_it_to_and_a_person_need_not() {
    let (server, seen) = serve(|request| match request.split(' ').nth(1) {
        Some("/robots.txt") => response("200 OK", b"user-agent: *\ndisallow: /private"),
        _ => response("200 OK\r\ncontent-type: text/html", b"<p>words"),
    })
    .await;
    let pages = pages(|_| {});
    let base = base(server);
    assert_eq!(
        get(&pages, &format!("{base}/open")).await.as_deref(),
        Ok("words")
    );
    let message = get(&pages, &format!("{base}/private?a"))
        .await
        .expect_err("disallowed");
    assert!(
        message.contains("/private?a") && message.contains("prompt \"fetch\""),
        "{message}"
    );
    assert_eq!(
        asked(&seen),
        ["/robots.txt", "/open"],
        "the site is asked once"
    );
    let page = pages
        .fetch(&format!("{base}/private"), FetchInitiator::Person, false)
        .await
        .expect("a page");
    assert_eq!(page.text, "words");
    let agents: Vec<String> = {
        let seen = seen.lock().expect("no panic");
        let lines = seen.iter().flat_map(|request| request.lines());
        lines
            .filter_map(|line| line.strip_prefix("user-agent: ").map(str::to_owned))
            .collect()
    };
    assert_eq!(agents.len(), 3);
    assert!(
        agents[..2]
            .iter()
            .all(|agent| agent.contains("(Autonomous")),
        "{agents:?}"
    );
    assert!(agents[2].contains("(User-Specified"), "{agents:?}");
}

#[tokio::test]
async fn each_redirect_is_looked_at_like_the_first_url() {
    let (server, seen) = serve(|request| {
        let host = request
            .lines()
            .find_map(|line| line.strip_prefix("host: "))
            .expect("a host");
        let port = host.rsplit_once(':').expect("a port").1;
        match request.split(' ').nth(1) {
            Some("/robots.txt") if host.starts_with("other") => {
                response("200 OK", b"user-agent: *\ndisallow: /closed")
            }
            Some("/robots.txt") => response("404 Not Found", b""),
            Some("/to-closed") => response(
                &format!("302 Found\r\nlocation: http://other.example:{port}/closed"),
                b"",
            ),
            Some("/to-open") => response(
                &format!("301 Moved Permanently\r\nlocation: http://other.example:{port}/open"),
                b"",
            ),
            Some("/loop") => response("307 Temporary Redirect\r\nlocation: /loop", b""),
            Some("/file") => response("302 Found\r\nlocation: file:///etc/passwd", b""),
            Some("/mail") => response("302 Found\r\nlocation: http://other.example:25/", b""),
            _ => response("200 OK\r\ncontent-type: text/html", b"there"),
        }
    })
    .await;
    let guard = Guard::public().allow_loopback().web_ports_only();
    let client = Client::builder(guard).resolver(Arc::new(Here));
    let pages = Pages::with(&FetchConfig::default(), client).expect("a client");
    let base = base(server);
    assert_eq!(
        get(&pages, &format!("{base}/to-open")).await.as_deref(),
        Ok("there")
    );
    let message = get(&pages, &format!("{base}/to-closed"))
        .await
        .expect_err("disallowed");
    assert!(message.contains("other.example"), "{message}");
    assert!(!asked(&seen).contains(&"/closed".to_owned()));
    for (path, part) in [
        ("/loop", "redirects further than 5 times"),
        ("/file", "no host"),
        ("/mail", "belongs to another protocol"),
    ] {
        let message = get(&pages, &format!("{base}{path}")).await.expect_err(path);
        assert!(message.contains(part), "{path}: {message}");
    }
    assert_eq!(
        asked(&seen).iter().filter(|path| *path == "/loop").count(),
        6
    );
}

#[tokio::test]
async fn a_site_that_does_not_say_what_it_allows_is_taken_at_its_word() {
    for (robots, allowed) in [
        ("404 Not Found", true),
        ("410 Gone", true),
        ("401 Unauthorized", false),
        ("403 Forbidden", false),
        ("500 Internal Server Error", false),
        ("503 Service Unavailable", false),
        ("302 Found\r\nlocation: /robots.txt", true),
        ("302 Found\r\nlocation: http://[", false),
        ("200 OK\r\ncontent-length: 9", false),
    ] {
        let (server, seen) = serve(move |request| match request.split(' ').nth(1) {
            Some("/robots.txt") => response(robots, b""),
            _ => response("200 OK", b"page"),
        })
        .await;
        let url = format!("{}/page", base(server));
        let got = get(&pages(|_| {}), &url).await;
        assert_eq!(got.is_ok(), allowed, "{robots}: {got:?}");
        assert_eq!(
            asked(&seen).contains(&"/page".to_owned()),
            allowed,
            "{robots}"
        );
        let careless = pages(|config| config.robots = false);
        assert!(get(&careless, &url).await.is_ok(), "{robots}");
    }
}

/// RFC 9309, 2.3.1.1: rules that are there are followed, also compressed ones. RFC 9110, 8.4: an encoding that is not
/// understood is not read as if there were none.
#[tokio::test]
async fn compressed_rules_are_followed_and_unreadable_ones_forbid_the_page() {
    const GZIP: &[u8] =
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x2b\x2d\x4e\x2d\xd2\x4d\x4c\x4f\xcd\x2b\
              \xb1\x52\xd0\xe2\x4a\xc9\x2c\x4e\xcc\xc9\xc9\x2f\xb7\x52\xd0\x2f\x28\xca\x2c\x4b\
              \x2c\x49\xe5\x02\x00\x5b\x24\x14\x82\x21\x00\x00\x00";
    for (encoding, body, expected) in [
        ("gzip", GZIP, "asks programs not to fetch"),
        ("X-Gzip", GZIP, "asks programs not to fetch"),
        (
            "identity",
            b"user-agent: *\ndisallow: /private",
            "asks programs not to fetch",
        ),
        ("gzip", &GZIP[..20], "Failed to fetch robots.txt"),
        ("gzip", b"user-agent: *", "Failed to fetch robots.txt"),
        ("br", GZIP, "Failed to fetch robots.txt"),
        ("gzip, gzip", GZIP, "Failed to fetch robots.txt"),
    ] {
        let head = format!("200 OK\r\ncontent-encoding: {encoding}");
        let (server, seen) = serve(move |request| match request.split(' ').nth(1) {
            Some("/robots.txt") => response(&head, body),
            _ => response("200 OK", b"page"),
        })
        .await;
        let pages = pages(|_| {});
        let said = get(&pages, &format!("{}/private", base(server))).await;
        let said = said.expect_err(encoding);
        assert!(said.contains(expected), "{encoding}: {said}");
        assert_eq!(asked(&seen), ["/robots.txt"], "{encoding}");
        if expected.starts_with("asks") {
            let open = get(&pages, &format!("{}/open", base(server))).await;
            assert_eq!(open.as_deref(), Ok("page"), "{encoding}");
        }
    }
}

#[tokio::test]
async fn what_is_there_becomes_text_or_is_said_to_be_none() {
    let (server, _) = serve(|request| match request.split(' ').nth(1) {
        Some("/html") => response(
            "200 OK\r\ncontent-type: text/html; charset=iso-8859-1",
            b"<h1>caf\xe9</h1>",
        ),
        Some("/untyped") => response("200 OK", b"<!doctype html><html><b>x</b>"),
        Some("/mistyped") => response("200 OK\r\ncontent-type: text/plain", b"<HTML><b>x</b>"),
        Some("/json") => response("200 OK\r\ncontent-type: application/json", b"{\"a\":1}"),
        Some("/markdown") => response(
            "200 OK\r\ncontent-type: text/markdown; charset=utf-8",
            b"# It is *that* already",
        ),
        Some("/empty") => response("200 OK\r\ncontent-type: text/html", b"<script>1</script>"),
        Some("/image") => response("200 OK\r\ncontent-type: image/png", b"\x89PNG\r\n\x1a\n\0"),
        Some("/gone") => response("410 Gone", b"secret"),
        Some("/unmodified") => response("304 Not Modified", b""),
        _ => response("404 Not Found", b""),
    })
    .await;
    let pages = pages(|_| {});
    let base = base(server);
    for (path, expected) in [
        ("/html", "# café"),
        ("/untyped", "**x**"),
        ("/markdown", "# It is *that* already"),
        ("/mistyped", "**x**"),
        (
            "/json",
            "Content type application/json cannot be simplified to markdown, but here is the raw content:\n{\"a\":1}",
        ),
        (
            "/empty",
            "<error>Page failed to be simplified from HTML</error>",
        ),
    ] {
        assert_eq!(
            get(&pages, &format!("{base}{path}")).await.as_deref(),
            Ok(expected),
            "{path}"
        );
    }
    for (path, part) in [
        ("/image", "it is image/png of 9 bytes, not text"),
        ("/gone", "- status code 410"),
        ("/unmodified", "- status code 304"),
    ] {
        let message = get(&pages, &format!("{base}{path}")).await.expect_err(path);
        assert!(
            message.contains(part) && !message.contains("secret"),
            "{path}: {message}"
        );
    }
    let raw = pages
        .fetch(&format!("{base}/html"), FetchInitiator::Model, true)
        .await
        .expect("a page");
    assert!(
        raw.prefix.contains("text/html; charset=iso-8859-1") && raw.text == "<h1>café</h1>",
        "{raw:?}"
    );
    for (url, part) in [
        ("example.com", "write it whole"),
        ("", "write it whole"),
        ("mailto:a@b.example", "write it whole"),
        ("http://", "write it whole"),
        ("ftp://site.example/", "only http and https"),
        (
            "http://user:secret@site.example/",
            "must not hold a user name",
        ),
    ] {
        let message = get(&pages, url).await.expect_err(url);
        assert!(message.contains(part), "{url}: {message}");
        assert!(!message.contains("secret"), "{message}");
    }
    let long = format!("{base}/{}", "a".repeat(URL_BYTES_MAX));
    assert!(
        get(&pages, &long)
            .await
            .expect_err("long")
            .contains("it may have 8192")
    );
}

#[tokio::test]
async fn rules_beyond_the_limit_are_not_read_and_not_waited_for() {
    let (server, _) = serve(|request| match request.split(' ').nth(1) {
        Some("/robots.txt") => response("200 OK", &b"user-agent: *\n".repeat(100_000)),
        _ => response("200 OK", b"page"),
    })
    .await;
    assert_eq!(
        get(&pages(|_| {}), &format!("{}/a", base(server)))
            .await
            .as_deref(),
        Ok("page")
    );
}

#[tokio::test(start_paused = true)]
async fn so_many_pages_are_fetched_at_once_and_others_wait() {
    let pages = pages(|config| config.concurrency = 1);
    let held = pages.places.acquire().await.expect("a place");
    let begun = Instant::now();
    let message = get(&pages, "http://site.example/").await.expect_err("busy");
    assert_eq!(message, "other pages are being fetched; try again later");
    assert_eq!(begun.elapsed().as_secs(), 20);
    drop(held);
}

#[tokio::test]
async fn a_conversion_that_fails_is_told_from_a_slow_one() {
    let (server, _) = serve(|_| response("200 OK\r\ncontent-type: text/html", b"<p>words")).await;
    let url = format!("{}/page", base(server));
    for (fetch_seconds, conversion, expected) in [
        (
            60,
            Duration::from_secs(1),
            format!(
                "Failed to convert {url} to text: it waited 1 s for other calls and did not begin; try again later"
            ),
        ),
        (
            5,
            Duration::from_secs(60),
            format!(
                "Failed to fetch {url}: fetching it and converting it to text took longer than 5 s (builtin.fetch.timeout_seconds); try again later, or fetch a shorter page"
            ),
        ),
    ] {
        let mut pages = pages(|config| {
            config.robots = false;
            config.timeout_seconds = fetch_seconds;
        });
        pages.conversions = Blocking::new(1, conversion);
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let (began, begun) = tokio::sync::oneshot::channel();
        let other = pages.conversions.run(move |_| {
            let _ = began.send(());
            let _ = held.recv();
            Ok(())
        });
        let fetched = async {
            begun.await.expect("it has begun");
            let fetched = get(&pages, &url).await;
            drop(hold);
            fetched
        };
        let (_, fetched) = tokio::join!(other, fetched);
        assert_eq!(fetched, Err(expected));
    }
}

#[test]
fn markdown_that_is_not_the_whole_page_says_so() {
    let page = "word ".repeat(2 * 1024 * 1024);
    let converted = text_of(page.as_bytes(), "text/html", false, &Stop::never());
    let (_, text) = converted.expect("a text");
    assert!(text.ends_with(CUT), "{}", &text[text.len() - 200..]);
    let raw = text_of(page.as_bytes(), "text/html", true, &Stop::never());
    assert_eq!(raw.expect("a text").1, page);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    for (change, part) in [
        (
            (|c: &mut FetchConfig| c.egress.hosts = vec!["http://x".to_owned()])
                as fn(&mut FetchConfig),
            "builtin.fetch.egress has hosts that cannot be",
        ),
        (
            |c| c.user_agent_user = "a\nb".to_owned(),
            "builtin.fetch.user_agent_user is not a valid",
        ),
        (
            |c| c.user_agent_user = String::new(),
            "builtin.fetch.user_agent_user is not a valid",
        ),
        (
            |c| c.user_agent_autonomous = "7/1.0".to_owned(),
            "begins with no name",
        ),
    ] {
        let mut config = FetchConfig::default();
        change(&mut config);
        let message = Pages::new(&config).map(drop).expect_err(part).to_string();
        assert!(message.contains(part), "{message}");
    }
}

//! The fetch toolset against malicious sites: only permitted addresses are reached.
//!
//! Only 127.0.0.2 is permitted. A canary at 127.0.0.1, on the same port, counts its requests.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use longshore::{App, Config, Harness};
use serde_json::{Value, json};

use super::reference::Reference;
use crate::support::free_port;

const HERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Answers each request, given its path, by writing to the socket.
fn site(
    at: Ipv4Addr,
    port: u16,
    answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((at, port)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let visits = Arc::new(AtomicUsize::new(0));
    let (count, answer) = (Arc::clone(&visits), Arc::new(answer));
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(mut socket) = socket else { return };
            count.fetch_add(1, Ordering::SeqCst);
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || {
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && socket.read(&mut byte).is_ok_and(|n| n == 1) {
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                answer(&path, &mut socket);
                let _ = socket.shutdown(Shutdown::Write);
            });
        }
    });
    (address, visits)
}

fn write(socket: &mut TcpStream, head: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n");
    let _ = socket.write_all(head.as_bytes());
    let _ = socket.write_all(body);
}

/// A site at the permitted place and a canary at the other one, at one port.
fn site_and_canary(
    answer: impl Fn(&str, &mut TcpStream) + Send + Sync + Clone + 'static,
) -> (u16, Arc<AtomicUsize>) {
    let port = free_port();
    let (_, canary) = site(Ipv4Addr::LOCALHOST, port, |_, socket| {
        write(socket, "200 OK", b"the canary's secret");
    });
    site(HERE, port, answer);
    (port, canary)
}

fn fetcher(change: impl FnOnce(&mut Config)) -> Harness {
    let mut config = Config {
        toolsets: vec!["fetch".to_owned()],
        ..Config::default()
    };
    config.builtin.fetch.egress.networks = vec!["127.0.0.2/32".parse().expect("a network")];
    change(&mut config);
    App::new().config(config).harness().expect("a valid server")
}

async fn fetch(server: &Harness, url: &str) -> Value {
    server
        .call("fetch", json!({"url": url}))
        .await
        .expect("a result")
        .into_json()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}

/// Ways to write an address that may not be reached, by name. `PORT` is the canary's.
const CASES: &[(&str, &str)] = &[
    ("loopback", "http://127.0.0.1:PORT/"),
    ("loopback-https", "https://127.0.0.1:PORT/"),
    ("loopback-upper-case-scheme", "HTTP://127.0.0.1:PORT/"),
    ("loopback-name", "http://localhost:PORT/"),
    ("loopback-name-upper-case", "http://LOCALHOST:PORT/"),
    ("loopback-name-dot", "http://localhost.:PORT/"),
    ("loopback-name-below", "http://a.localhost:PORT/"),
    ("loopback-name-below-dot", "http://a.b.localhost.:PORT/"),
    (
        "loopback-name-wide-letters",
        "http://ｌｏｃａｌｈｏｓｔ:PORT/",
    ),
    ("loopback-name-escaped", "http://%6c%6fcalhost:PORT/"),
    ("loopback-two-parts", "http://127.1:PORT/"),
    ("loopback-three-parts", "http://127.0.1:PORT/"),
    ("loopback-integer", "http://2130706433:PORT/"),
    ("loopback-hex", "http://0x7f000001:PORT/"),
    ("loopback-hex-upper", "http://0X7F000001:PORT/"),
    ("loopback-hex-parts", "http://0x7f.0x0.0x0.0x1:PORT/"),
    ("loopback-hex-mixed", "http://0x7f.1:PORT/"),
    ("loopback-octal", "http://017700000001:PORT/"),
    ("loopback-octal-parts", "http://0177.0.0.01:PORT/"),
    ("loopback-octal-long", "http://0000177.0.0.1:PORT/"),
    ("loopback-trailing-dot", "http://127.0.0.1.:PORT/"),
    ("loopback-escaped", "http://%31%32%37.0.0.1:PORT/"),
    ("loopback-escaped-dots", "http://127%2e0%2e0%2e1:PORT/"),
    ("loopback-circled", "http://①②⑦.⓪.⓪.①:PORT/"),
    ("loopback-wide-digits", "http://１２７.０.０.１:PORT/"),
    ("loopback-ideographic-dots", "http://127。0。0。1:PORT/"),
    ("loopback-wide-dots", "http://127．0．0．1:PORT/"),
    ("loopback-soft-hyphen", "http://127.0.0.1\u{ad}:PORT/"),
    ("loopback-zero-width", "http://127.0.0.\u{200b}1:PORT/"),
    ("loopback-other", "http://127.0.0.3:PORT/"),
    ("loopback-end", "http://127.255.255.254:PORT/"),
    ("loopback-v6", "http://[::1]:PORT/"),
    ("loopback-v6-long", "http://[0:0:0:0:0:0:0:1]:PORT/"),
    ("loopback-v6-zeros", "http://[0000:0000::0001]:PORT/"),
    ("mapped", "http://[::ffff:127.0.0.1]:PORT/"),
    ("mapped-hex", "http://[::ffff:7f00:1]:PORT/"),
    ("mapped-long", "http://[0:0:0:0:0:ffff:7f00:0001]:PORT/"),
    ("mapped-permitted", "http://[::ffff:127.0.0.2]:PORT/"),
    ("mapped-private", "http://[::ffff:10.0.0.1]/"),
    ("mapped-metadata", "http://[::ffff:169.254.169.254]/"),
    ("compatible", "http://[::127.0.0.1]:PORT/"),
    ("compatible-hex", "http://[::7f00:1]:PORT/"),
    ("compatible-private", "http://[::a00:1]/"),
    ("translated", "http://[::ffff:0:127.0.0.1]:PORT/"),
    ("nat64-loopback", "http://[64:ff9b::127.0.0.1]:PORT/"),
    ("nat64-private", "http://[64:ff9b::a00:1]/"),
    ("nat64-metadata", "http://[64:ff9b::a9fe:a9fe]/"),
    ("nat64-local", "http://[64:ff9b:1::808:808]/"),
    ("6to4-loopback", "http://[2002:7f00:1::]:PORT/"),
    ("6to4-private", "http://[2002:a00:1::1]/"),
    ("6to4-metadata", "http://[2002:a9fe:a9fe::]/"),
    ("teredo", "http://[2001:0:7f00:1::]/"),
    ("teredo-server", "http://[2001::80ff:fffe]/"),
    ("isatap-loopback", "http://[2a00:1450::5efe:7f00:1]/"),
    ("isatap-private", "http://[2a00:1450::200:5efe:a00:1]/"),
    ("unspecified", "http://0.0.0.0:PORT/"),
    ("unspecified-short", "http://0:PORT/"),
    ("unspecified-hex", "http://0x0:PORT/"),
    ("unspecified-v6", "http://[::]:PORT/"),
    ("this-network", "http://0.1.2.3/"),
    ("private-10", "http://10.0.0.1/"),
    ("private-10-integer", "http://167772161/"),
    ("private-10-end", "http://10.255.255.255/"),
    ("private-172", "http://172.16.0.1/"),
    ("private-172-end", "http://172.31.255.255/"),
    ("private-192", "http://192.168.0.1/"),
    ("private-192-hex", "http://0xc0a80001/"),
    ("private-192-three-parts", "http://192.168.1/"),
    ("shared", "http://100.64.0.1/"),
    ("shared-end", "http://100.127.255.255/"),
    ("link-local", "http://169.254.0.1/"),
    ("metadata", "http://169.254.169.254/latest/meta-data/"),
    ("metadata-integer", "http://2852039166/"),
    ("metadata-hex", "http://0xa9fea9fe/"),
    ("metadata-octal", "http://0251.0376.0251.0376/"),
    ("metadata-two-parts", "http://169.16689662/"),
    ("metadata-trailing-dot", "http://169.254.169.254./"),
    ("metadata-containers", "http://169.254.170.2/v2/credentials"),
    ("metadata-azure", "http://168.63.129.16/"),
    ("metadata-alibaba", "http://100.100.100.200/"),
    ("metadata-oracle", "http://192.0.0.192/"),
    ("metadata-aws-v6", "http://[fd00:ec2::254]/"),
    ("metadata-google-v6", "http://[fd20:ce::254]/"),
    ("unique-local", "http://[fc00::1]/"),
    ("unique-local-fd", "http://[fd12:3456:789a::1]/"),
    ("link-local-v6", "http://[fe80::1]/"),
    ("link-local-v6-zone", "http://[fe80::1%25eth0]/"),
    ("link-local-v6-end", "http://[febf::1]/"),
    ("site-local-v6", "http://[fec0::1]/"),
    ("protocol-assignments", "http://192.0.0.1/"),
    ("documentation-1", "http://192.0.2.1/"),
    ("documentation-2", "http://198.51.100.1/"),
    ("documentation-3", "http://203.0.113.1/"),
    ("documentation-v6", "http://[2001:db8::1]/"),
    ("documentation-v6-new", "http://[3fff::1]/"),
    ("benchmark", "http://198.18.0.1/"),
    ("benchmark-v6", "http://[2001:2::1]/"),
    ("orchid", "http://[2001:20::1]/"),
    ("discard-v6", "http://[100::1]/"),
    ("segments-v6", "http://[5f00::1]/"),
    ("6to4-relay", "http://192.88.99.1/"),
    ("multicast", "http://224.0.0.1/"),
    ("multicast-end", "http://239.255.255.255/"),
    ("multicast-v6", "http://[ff02::1]/"),
    ("reserved", "http://240.0.0.1/"),
    ("broadcast", "http://255.255.255.255/"),
    ("broadcast-integer", "http://4294967295/"),
    ("unassigned-v6", "http://[4000::1]/"),
    ("user-name", "http://user@127.0.0.2:PORT/"),
    (
        "user-name-and-password",
        "http://user:password@127.0.0.2:PORT/",
    ),
    (
        "user-name-like-a-host",
        "http://127.0.0.2:PORT@127.0.0.1:PORT/",
    ),
    ("user-name-escaped", "http://127.0.0.2%40127.0.0.1:PORT/"),
    (
        "fragment-like-a-user",
        "http://127.0.0.1:PORT#@127.0.0.2:PORT/",
    ),
    (
        "query-like-a-user",
        "http://127.0.0.1:PORT?@127.0.0.2:PORT/",
    ),
    (
        "backslash-like-a-user",
        "http://127.0.0.1:PORT\\@127.0.0.2:PORT/",
    ),
    ("backslashes", "http:\\\\127.0.0.1:PORT\\"),
    ("one-slash", "http:/127.0.0.1:PORT/"),
    ("no-slashes", "http:127.0.0.1:PORT/"),
    ("many-slashes", "http://///127.0.0.1:PORT/"),
    ("leading-space", " http://127.0.0.1:PORT/"),
    ("tab-in-scheme", "ht\ttp://127.0.0.1:PORT/"),
    ("newline-in-host", "http://127.0.\n0.1:PORT/"),
    ("newline-in-path", "http://127.0.0.1:PORT/\r\nHost: a"),
    ("null-in-host", "http://127.0.0.1\0.example.com/"),
    ("space-in-host", "http://127.0.0.2 127.0.0.1:PORT/"),
    ("port-zero", "http://127.0.0.2:0/"),
    ("port-too-large", "http://127.0.0.2:65536/"),
    ("port-negative", "http://127.0.0.2:-1/"),
    ("port-of-ssh", "http://127.0.0.2:22/"),
    ("port-of-mail", "http://127.0.0.2:25/"),
    ("port-of-printers", "http://127.0.0.2:515/"),
    ("scheme-file", "file:///etc/passwd"),
    ("scheme-file-host", "file://localhost/etc/passwd"),
    ("scheme-ftp", "ftp://127.0.0.1/"),
    ("scheme-gopher", "gopher://127.0.0.1:PORT/_GET%20/"),
    ("scheme-dict", "dict://127.0.0.1:PORT/info"),
    ("scheme-ldap", "ldap://127.0.0.1:PORT/"),
    ("scheme-ws", "ws://127.0.0.1:PORT/"),
    ("scheme-data", "data:text/html,hello"),
    ("scheme-javascript", "javascript:alert(1)"),
    ("scheme-unix", "unix:///var/run/docker.sock"),
    ("scheme-jar", "jar:http://127.0.0.1:PORT/!/"),
    ("scheme-view-source", "view-source:http://127.0.0.1:PORT/"),
    ("scheme-none", "//127.0.0.1:PORT/"),
    ("no-host", "http:///"),
];

#[tokio::test]
async fn no_way_to_write_an_address_reaches_what_may_not_be_reached() {
    let (port, canary) = site_and_canary(|path, socket| {
        // A redirect to the literal content of the path.
        let target = path.strip_prefix("/to/").map(percent_decoded);
        match target {
            Some(target) => {
                let _ = socket.write_all(b"HTTP/1.1 302 Found\r\nlocation: ");
                let _ = socket.write_all(&target);
                let _ = socket.write_all(b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            }
            None if path == "/robots.txt" => write(socket, "404 Not Found", b""),
            None => write(socket, "200 OK", b"the site itself"),
        }
    });
    let server = fetcher(|config| config.builtin.fetch.timeout_seconds = 5);
    let own = fetch(&server, &format!("http://127.0.0.2:{port}/")).await;
    assert!(text(&own).ends_with("the site itself"), "{own}");
    assert!(CASES.len() >= 100, "{}", CASES.len());
    for (case, url) in CASES {
        let url = url.replace("PORT", &port.to_string());
        let begun = Instant::now();
        let result = fetch(&server, &url).await;
        assert_eq!(result["isError"], true, "{case}: {result}");
        assert!(!text(&result).contains("secret"), "{case}: {result}");
        let prompt = server
            .get_prompt("fetch", json!({"url": url}))
            .await
            .expect("messages");
        let shown = prompt["messages"][0]["content"]["text"]
            .as_str()
            .expect("a text");
        assert!(
            !shown.contains("secret") && !shown.contains("the site itself"),
            "{case}: {shown}"
        );
        // Redirects of a permitted site are restricted too. Line breaks would end the header.
        if !url.contains(['\r', '\n', '\0']) {
            let redirected = fetch(
                &server,
                &format!("http://127.0.0.2:{port}/to/{}", percent_encoded(&url)),
            )
            .await;
            let is_relative = ["no-slashes", "one-slash"].contains(case);
            assert!(
                redirected["isError"] == true
                    || (is_relative && !text(&redirected).contains("secret")),
                "{case}: {redirected}"
            );
        }
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{case} was tried rather than refused"
        );
    }
    assert_eq!(canary.load(Ordering::SeqCst), 0, "somebody has come by");
}

fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let pairs = text.split('%').skip(1);
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap_or(b'?'))
        .collect()
}

#[tokio::test]
async fn a_robots_txt_leads_no_further_than_a_page() {
    let (port, canary) = site_and_canary(|path, socket| match path {
        "/robots.txt" => {
            let port = socket.local_addr().expect("an address").port();
            write(
                socket,
                &format!("302 Found\r\nlocation: http://127.0.0.1:{port}/robots.txt"),
                b"",
            );
        }
        _ => write(socket, "200 OK", b"the site itself"),
    });
    let server = fetcher(|_| {});
    let result = fetch(&server, &format!("http://127.0.0.2:{port}/")).await;
    assert_eq!(result["isError"], true, "{result}");
    assert!(
        text(&result).contains("robots.txt") && !text(&result).contains("the site itself"),
        "{result}"
    );
    assert_eq!(canary.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn what_never_ends_is_given_up_and_takes_no_memory() {
    let (port, _) = site_and_canary(|path, socket| {
        let endless = |socket: &mut TcpStream, head: &str, part: &[u8]| {
            let _ = socket.write_all(head.as_bytes());
            while socket.write_all(part).is_ok() {}
        };
        let slow = |socket: &mut TcpStream, part: &[u8]| {
            while socket.write_all(part).is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        let part = [b'a'; 64 * 1024];
        match path {
            "/robots.txt" => write(socket, "404 Not Found", b""),
            "/endless" => endless(socket, "HTTP/1.1 200 OK\r\n\r\n", &part),
            "/announced" => endless(
                socket,
                "HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n",
                &part,
            ),
            "/chunks" => {
                let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
                while socket.write_all(b"10000\r\n").is_ok()
                    && socket.write_all(&part).is_ok()
                    && socket.write_all(b"\r\n").is_ok()
                {}
            }
            "/bomb" => write(
                socket,
                "200 OK\r\ncontent-encoding: gzip\r\ncontent-type: text/html",
                &bomb(),
            ),
            "/headers" => {
                let _ = socket.write_all(b"HTTP/1.1 200 OK\r\n");
                endless(
                    socket,
                    "",
                    b"x-more: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n",
                );
            }
            "/header" => endless(socket, "HTTP/1.1 200 OK\r\nx-long: ", &part),
            "/informational" => endless(
                socket,
                "",
                b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n",
            ),
            "/redirect-body" => endless(
                socket,
                "HTTP/1.1 302 Found\r\nlocation: /end\r\n\r\n",
                &part,
            ),
            "/slow-head" => slow(socket, b"H"),
            "/slow-body" => {
                let _ = socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
                slow(socket, b"a");
            }
            "/silent" => {
                let _ = socket.read(&mut [0]);
            }
            "/end" => write(socket, "200 OK", b"the end"),
            _ => write(socket, "302 Found\r\nlocation: /again", b""),
        }
    });
    let patient = fetcher(|config| config.builtin.fetch.timeout_seconds = 60);
    let hasty = fetcher(|config| config.builtin.fetch.timeout_seconds = 2);
    for (path, part) in [
        ("/endless", "larger than 5242880 bytes"),
        ("/announced", "larger than 5242880 bytes"),
        ("/chunks", "larger than 5242880 bytes"),
        ("/bomb", "larger than 5242880 bytes"),
        ("/headers", "broke"),
        ("/header", "broke"),
        ("/informational", ""),
        ("/slow-head", ""),
        ("/slow-body", "took longer than 2 s"),
        ("/silent", "took longer than 2 s"),
        ("/again", "redirects further than 5 times"),
    ] {
        let is_slow = ["/slow-head", "/slow-body", "/silent", "/informational"].contains(&path);
        let server = if is_slow { &hasty } else { &patient };
        let result = fetch(server, &format!("http://127.0.0.2:{port}{path}")).await;
        assert_eq!(result["isError"], true, "{path}: {}", text(&result).len());
        assert!(text(&result).contains(part), "{path}: {}", text(&result));
    }
    let result = fetch(&patient, &format!("http://127.0.0.2:{port}/redirect-body")).await;
    assert!(text(&result).ends_with("the end"), "{result}");
}

/// Sixty-four megabytes of nothing.
fn bomb() -> Vec<u8> {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let part = vec![0; 1024 * 1024];
    for _ in 0..64 {
        encoder.write_all(&part).expect("memory");
    }
    encoder.finish().expect("memory")
}

#[tokio::test]
async fn the_reference_server_says_the_same_of_ordinary_pages() {
    let Some(program) = std::env::var_os("LONGSHORE_REFERENCE_FETCH") else {
        let told = "SKIPPED: set LONGSHORE_REFERENCE_FETCH to the program mcp-server-fetch to compare with it\n";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), told.as_bytes());
        return;
    };
    const PAGE: &str = "<!doctype html><html><head><title>T</title></head><body><h1>Head</h1><p>Some <b>bold</b> and <i>soft</i> words \
        with a <a href=\"/x\">link</a>.</p><ul><li>one</li><li>two</li></ul><pre>code\n here</pre><p>Last &amp; done.</p></body></html>";
    let (port, _) = site_and_canary(|path, socket| match path {
        "/robots.txt" => write(socket, "200 OK", b"user-agent: *\ndisallow: /private\n"),
        "/page" => write(
            socket,
            "200 OK\r\ncontent-type: text/html; charset=utf-8",
            PAGE.as_bytes(),
        ),
        "/text" => write(
            socket,
            "200 OK\r\ncontent-type: text/plain",
            "0123456789é".repeat(1000).as_bytes(),
        ),
        "/json" => write(
            socket,
            "200 OK\r\ncontent-type: application/json",
            b"{\"a\": [1, 2]}",
        ),
        "/empty" => write(socket, "200 OK\r\ncontent-type: text/html", b""),
        "/redirect" => write(socket, "302 Found\r\nlocation: /text", b""),
        "/redirect-private" => write(socket, "302 Found\r\nlocation: /private", b""),
        "/none" => write(socket, "404 Not Found", b""),
        _ => write(
            socket,
            "200 OK\r\ncontent-type: text/html",
            b"<html><body><p>words</p></body></html>",
        ),
    });
    let mut theirs = Reference::start(Command::new(program).arg("--allow-private-ips"));
    let ours = fetcher(|_| {});
    let base = format!("http://127.0.0.2:{port}");
    for (same, arguments) in [
        (true, json!({"url": base})),
        (true, json!({"url": format!("{base}/page"), "raw": true})),
        (
            true,
            json!({"url": format!("{base}/text"), "max_length": 20}),
        ),
        (
            true,
            json!({"url": format!("{base}/text"), "max_length": 20, "start_index": 10_990}),
        ),
        (
            true,
            json!({"url": format!("{base}/text"), "start_index": 20_000}),
        ),
        (true, json!({"url": format!("{base}/json")})),
        (true, json!({"url": format!("{base}/empty")})),
        (true, json!({"url": format!("{base}/redirect")})),
        // The level of headings and the sign of lists are matters of taste.
        (false, json!({"url": format!("{base}/page")})),
        // These fail, in words of their own.
        (false, json!({"url": format!("{base}/private")})),
        (false, json!({"url": format!("{base}/redirect-private")})),
        (false, json!({"url": format!("{base}/none")})),
        (false, json!({"url": "nonsense"})),
        (false, json!({"url": base, "max_length": 0})),
        (false, json!({"url": base, "start_index": -1})),
        (false, json!({"url": base, "max_length": "5"})),
    ] {
        let expected = theirs.call("fetch", arguments.clone());
        let answer = ours
            .call("fetch", arguments.clone())
            .await
            .expect("a result");
        assert_eq!(
            answer["isError"] == true,
            expected["isError"] == true,
            "{arguments}: {answer} {expected}"
        );
        if same {
            assert_eq!(text(&answer), text(&expected), "{arguments}");
        } else if answer["isError"] != true {
            let plain = |result: &Value| {
                let words = text(result)
                    .replace("## ", "# ")
                    .replace("* one", "- one")
                    .replace("* two", "- two");
                words.trim().to_owned()
            };
            assert_eq!(plain(&answer), plain(&expected), "{arguments}");
        }
    }
}

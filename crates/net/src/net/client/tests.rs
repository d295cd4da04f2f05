use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::net::resolve::Resolve;
use crate::net::testing::{response, serve};
use crate::net::{PinnedClient, with_causes};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Answers each question with the next list of addresses, the last one again and again.
struct Scripted {
    answers: Vec<Vec<IpAddr>>,
    asked: AtomicUsize,
}

impl Scripted {
    fn always(addresses: &[IpAddr]) -> Arc<Self> {
        Self::in_turn([addresses.to_vec()])
    }

    fn in_turn(answers: impl Into<Vec<Vec<IpAddr>>>) -> Arc<Self> {
        Arc::new(Self {
            answers: answers.into(),
            asked: AtomicUsize::new(0),
        })
    }
}

impl Resolve for Scripted {
    fn addresses<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let turn = self.asked.fetch_add(1, Ordering::Relaxed);
        let answer = self.answers[turn.min(self.answers.len() - 1)].clone();
        Box::pin(async move { Ok(answer) })
    }
}

fn client(guard: Guard, resolver: Arc<Scripted>) -> Client {
    Client::builder(guard)
        .resolver(resolver)
        .redirects(5)
        .max_body(10_000)
        .build()
        .expect("a client")
}

fn url(text: &str) -> Url {
    text.parse().expect("a URL")
}

async fn fetch(client: &Client, text: &str) -> Result<FetchedResponse, String> {
    client
        .fetch(OutgoingRequest::get(url(text)))
        .await
        .map_err(|e| e.to_string())
}

#[tokio::test]
async fn a_name_is_connected_to_at_an_address_that_was_looked_at() {
    let (server, seen) = serve(|_| response("200 OK\r\ncontent-length: 5", b"hello")).await;
    let resolver = Scripted::always(&[LOCAL]);
    let client = client(Guard::public().allow_loopback(), resolver);
    let answer = fetch(
        &client,
        &format!("http://api.example:{}/a?b=1#c", server.port()),
    )
    .await;
    assert_eq!(answer.expect("an answer").body, "hello");
    let request = seen.lock().expect("no panic")[0].to_ascii_lowercase();
    assert!(request.starts_with("get /a?b=1 http/1.1\r\n"), "{request}");
    assert!(
        request.contains(&format!("host: api.example:{}\r\n", server.port())),
        "{request}"
    );
    assert!(request.contains("accept-encoding: gzip\r\n"), "{request}");
}

#[tokio::test]
async fn one_closed_address_among_open_ones_closes_the_name() {
    let public: IpAddr = "93.184.216.34".parse().expect("an address");
    for answer in [
        vec![LOCAL],
        vec![public, LOCAL],
        vec!["::ffff:127.0.0.1".parse().expect("an address")],
        vec!["169.254.169.254".parse().expect("an address"), public],
        vec!["fd00::1".parse().expect("an address")],
        vec!["::7f00:1".parse().expect("an address")],
    ] {
        let client = client(Guard::public(), Scripted::always(&answer));
        let message = fetch(&client, "http://rebound.example/")
            .await
            .expect_err("refused");
        assert_eq!(
            message,
            "rebound.example is at an address that may not be reached from here"
        );
    }
    let nobody = client(Guard::public(), Scripted::always(&[]));
    assert_eq!(
        fetch(&nobody, "http://a.example/")
            .await
            .expect_err("refused"),
        "a.example has no address"
    );
}

#[tokio::test]
async fn a_name_that_turns_private_after_the_first_look_is_not_followed() {
    let (server, seen) = serve(|_| response("200 OK", b"secret")).await;
    let public: IpAddr = "192.0.2.1".parse().expect("an address");
    let network = "192.0.2.0/24".parse().expect("a network");
    // The first address has no server. A second lookup would return the address of this machine.
    let resolver = Scripted::in_turn([vec![public], vec![LOCAL]]);
    let guard = Guard::public().allow_network(network);
    let client = Client::builder(guard)
        .resolver(resolver.clone())
        .deadlines(Deadlines::total(Duration::from_millis(200)))
        .build()
        .expect("a client");
    let text = format!("http://rebound.example:{}/", server.port());
    assert!(fetch(&client, &text).await.is_err());
    assert_eq!(resolver.asked.load(Ordering::Relaxed), 1);
    let message = fetch(&client, &text).await.expect_err("refused");
    assert!(message.contains("may not be reached"), "{message}");
    assert!(seen.lock().expect("no panic").is_empty());
}

#[tokio::test]
async fn redirects_are_looked_at_like_any_url() {
    for (location, part) in [
        (
            "http://127.0.0.1:1/",
            "127.0.0.1 is at an address that may not be reached",
        ),
        ("http://[::1]/", "may not be reached"),
        ("//169.254.169.254/latest/", "may not be reached"),
        ("file:///etc/passwd", "it names no host"),
        ("gopher://api.example/", "only http and https"),
        ("http://user:secret@api.example/", "user name"),
        ("http://[", "it is not a valid URL"),
    ] {
        let head = format!("302 Found\r\nlocation: {location}");
        let (server, _) = serve(move |_| response(&head, b"")).await;
        let own = url(&format!("http://api.example:{}/", server.port()));
        // The first host is trusted, and where it sends us is not.
        let client = client(Guard::public().trust(&own), Scripted::always(&[LOCAL]));
        let message = fetch(&client, own.as_str()).await.expect_err(location);
        assert!(
            message.contains(part) && !message.contains("secret"),
            "{location}: {message}"
        );
    }
}

#[tokio::test]
async fn redirects_end_and_take_no_secret_along() {
    let (server, seen) = serve(|request| {
        let port = request
            .lines()
            .find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("host: ")?
                    .rsplit_once(':')?
                    .1
                    .parse::<u16>()
                    .ok()
            })
            .expect("a port");
        if request.starts_with("GET /loop") {
            return response("302 Found\r\nlocation: /loop", b"");
        }
        if request.starts_with("POST /form") {
            return response("303 See Other\r\nlocation: /end", b"");
        }
        if request.starts_with("POST /again") {
            return response(
                &format!("307 Temporary Redirect\r\nlocation: http://other.example:{port}/end"),
                b"",
            );
        }
        if request.starts_with("GET /other") {
            return response(
                &format!("302 Found\r\nlocation: http://other.example:{port}/end"),
                b"",
            );
        }
        response("200 OK", b"end")
    })
    .await;
    let client = client(Guard::public().allow_loopback(), Scripted::always(&[LOCAL]));
    let base = format!("http://api.example:{}", server.port());
    assert_eq!(
        fetch(&client, &format!("{base}/loop"))
            .await
            .expect_err("endless"),
        "api.example redirects further than 5 times"
    );
    let secret = HeaderValue::from_static("Bearer secret");
    let with_secret = |request: OutgoingRequest| {
        request
            .header(http::header::AUTHORIZATION, secret.clone())
            .header(HeaderName::from_static("x-api-key"), secret.clone())
            .header(http::header::COOKIE, secret.clone())
    };
    seen.lock().expect("no panic").clear();
    let other = with_secret(OutgoingRequest::get(url(&format!("{base}/other"))));
    let answer = client.fetch(other).await.expect("an answer");
    assert_eq!(answer.url.host_str(), Some("other.example"));
    {
        let seen = seen.lock().expect("no panic");
        assert!(
            seen[0].contains("secret") && !seen[1].contains("secret"),
            "{seen:?}"
        );
    }
    seen.lock().expect("no panic").clear();
    let form = with_secret(OutgoingRequest::post(
        url(&format!("{base}/form")),
        "text/plain",
        "body",
    ));
    client.fetch(form).await.expect("an answer");
    {
        let seen = seen.lock().expect("no panic");
        assert!(
            seen[1].starts_with("GET /end") && !seen[1].contains("body"),
            "{seen:?}"
        );
        assert!(
            seen[1].contains("secret"),
            "it is the same origin: {seen:?}"
        );
    }
    let again = OutgoingRequest::post(url(&format!("{base}/again")), "text/plain", "body");
    let message = client.fetch(again).await.expect_err("refused").to_string();
    assert!(message.contains("not sent to another host"), "{message}");
}

#[tokio::test]
async fn a_request_that_was_handled_before_its_redirect_failed_may_have_happened() {
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let there = format!("http://{}/", closed.local_addr().expect("bound"));
    drop(closed);
    let client = client(Guard::public().allow_loopback(), Scripted::always(&[LOCAL]));
    for (status, method, may_have_happened) in [
        ("303 See Other", Method::POST, true),
        ("302 Found", Method::POST, true),
        ("307 Temporary Redirect", Method::POST, false),
        ("302 Found", Method::GET, false),
    ] {
        let head = format!("{status}\r\nlocation: {there}");
        let (server, _) = serve(move |_| response(&head, b"")).await;
        let request = OutgoingRequest::new(method, url(&format!("http://{server}/")));
        let error = client.fetch(request).await.expect_err("nobody is there");
        assert_eq!(error.may_have_happened(), may_have_happened, "{status}");
        assert!(with_causes(&error).contains("cannot connect"), "{error:?}");
    }
}

#[tokio::test]
async fn without_leave_a_redirect_is_an_answer() {
    let (server, seen) = serve(|_| response("302 Found\r\nlocation: /next", b"")).await;
    let client = Client::builder(Guard::public().allow_loopback())
        .build()
        .expect("a client");
    let answer = fetch(&client, &format!("http://127.0.0.1:{}/", server.port())).await;
    assert_eq!(answer.expect("an answer").status, StatusCode::FOUND);
    assert_eq!(seen.lock().expect("no panic").len(), 1);
}

#[tokio::test]
async fn answers_are_read_up_to_a_size_after_decompression() {
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write as _;

    let gzip = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    };
    let fitting = gzip(&[b'a'; 10_000]);
    let bomb = gzip(&vec![b'a'; 5_000_000]);
    let (server, _) = serve(
        move |request| match request.split(' ').nth(1).expect("a path") {
            "/small" => response("200 OK\r\ncontent-length: 10000", &[b'a'; 10_000]),
            "/announced" => response("200 OK\r\ncontent-length: 10001", b"a"),
            "/unannounced" => response("200 OK", &[b'a'; 10_001]),
            "/gzip" => response("200 OK\r\ncontent-encoding: GZIP", &fitting),
            "/bomb" => response("200 OK\r\ncontent-encoding: gzip", &bomb),
            "/twice" => response("200 OK\r\ncontent-encoding: gzip, gzip", &fitting),
            "/br" => response("200 OK\r\ncontent-encoding: br", b"x"),
            "/liar" => response("200 OK\r\ncontent-encoding: gzip", b"plain"),
            "/head" => response(&format!("200 OK\r\nx-long: {}", "a".repeat(3_000_000)), b""),
            _ => response("404 Not Found", b"no"),
        },
    )
    .await;
    let client = client(Guard::public().allow_loopback(), Scripted::always(&[LOCAL]));
    let get = async |path: &str| {
        fetch(
            &client,
            &format!("http://127.0.0.1:{}{path}", server.port()),
        )
        .await
    };
    assert_eq!(get("/small").await.expect("fits").body.len(), 10_000);
    assert_eq!(get("/gzip").await.expect("fits").body.len(), 10_000);
    assert_eq!(get("/none").await.expect("an answer").status, 404);
    for path in ["/announced", "/unannounced", "/bomb"] {
        let message = get(path).await.expect_err(path);
        assert_eq!(
            message, "the response of 127.0.0.1 is larger than 10000 bytes",
            "{path}"
        );
    }
    for path in ["/twice", "/br", "/liar"] {
        let message = get(path).await.expect_err(path);
        assert!(
            message.contains("has an unsupported content encoding"),
            "{path}: {message}"
        );
    }
    assert_eq!(
        get("/head").await.expect_err("too large"),
        "the connection to 127.0.0.1 broke"
    );
}

#[tokio::test]
async fn who_does_not_answer_is_given_up() {
    let listener = TcpListener::bind((LOCAL, 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            let read = socket.read(&mut buffer).await.unwrap_or_default();
            if buffer[..read].starts_with(b"GET /begin") {
                let _ = socket.write_all(b"HTTP/1.1 200 OK\r\n\r\nbegun").await;
            }
            held.push(socket);
        }
    });
    let get = async |path: &str, deadlines: Deadlines| {
        let client = Client::builder(Guard::public().allow_loopback())
            .deadlines(deadlines)
            .build()
            .expect("a client");
        let request = OutgoingRequest::get(url(&format!("http://127.0.0.1:{port}{path}")));
        client.fetch(request).await.expect_err("no whole answer")
    };
    let short = Duration::from_millis(50);
    let first_byte = Deadlines {
        connect: short,
        tls: short,
        first_byte: short,
        ..Deadlines::default()
    };
    let error = get("/", first_byte).await;
    assert_eq!(
        error.to_string(),
        "127.0.0.1 took longer than 0.05 s to begin its response"
    );
    let idle = Deadlines {
        idle: short,
        ..Deadlines::default()
    };
    let error = get("/begin", idle).await;
    assert_eq!(
        error.to_string(),
        "127.0.0.1 took longer than 0.05 s to continue its response"
    );
    let error = get("/", Deadlines::total(short)).await;
    assert_eq!(
        error.to_string(),
        "127.0.0.1 took longer than 0.05 s to answer"
    );
    assert!(error.may_have_happened() && error.is_fault_of_server());
}

#[tokio::test]
async fn nobody_there_is_told_from_somebody_who_fails() {
    let client = client(Guard::public().allow_loopback(), Scripted::always(&[LOCAL]));
    let error = client
        .fetch(OutgoingRequest::get(url("http://127.0.0.1:1/")))
        .await
        .expect_err("nobody");
    assert!(!error.may_have_happened(), "{error}");
    let (server, _) = serve(|_| b"I speak something else\r\n\r\n".to_vec()).await;
    let target = url(&format!("http://127.0.0.1:{}/", server.port()));
    let error = client
        .fetch(OutgoingRequest::get(target.clone()))
        .await
        .expect_err("no HTTP");
    assert!(
        matches!(error, FetchError::Broken { .. }) && error.may_have_happened(),
        "{error}"
    );
    let listener = TcpListener::bind((LOCAL, 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket
                .write_all(b"I do not speak TLS, and say so at length")
                .await;
        }
    });
    let secure = url(&format!("https://127.0.0.1:{port}/"));
    let error = client
        .fetch(OutgoingRequest::get(secure))
        .await
        .expect_err("no TLS");
    assert!(
        matches!(error, FetchError::Tls { .. }) && !error.may_have_happened(),
        "{error}"
    );
}

#[tokio::test]
async fn headers_about_the_connection_are_the_clients_own() {
    let (server, seen) = serve(|_| response("200 OK", b"")).await;
    let client = client(Guard::public().allow_loopback(), Scripted::always(&[LOCAL]));
    let mut request = OutgoingRequest::post(
        url(&format!("http://127.0.0.1:{}/", server.port())),
        "text/plain",
        "abc",
    );
    for (name, value) in [
        ("host", "evil.example"),
        ("content-length", "1"),
        ("transfer-encoding", "chunked"),
        ("connection", "upgrade"),
        ("upgrade", "h2c"),
        ("x-own", "kept"),
    ] {
        let value = HeaderValue::from_static(value);
        request.headers.insert(HeaderName::from_static(name), value);
    }
    client.fetch(request).await.expect("an answer");
    let seen = seen.lock().expect("no panic")[0].to_ascii_lowercase();
    assert!(
        seen.contains("content-length: 3\r\n") && seen.contains("x-own: kept"),
        "{seen}"
    );
    for part in ["evil", "chunked", "upgrade"] {
        assert!(!seen.contains(part), "{seen}");
    }
}

// RFC 9110, 8.6: a user agent sends Content-Length if the method anticipates content and there is none.
#[tokio::test]
async fn rfc9110_8_6_a_method_that_anticipates_a_body_states_the_length_of_an_empty_one() {
    let (server, seen) = serve(|_| response("200 OK", b"")).await;
    let client = client(Guard::public().allow_loopback(), Scripted::always(&[LOCAL]));
    let target = url(&format!("http://127.0.0.1:{}/", server.port()));
    let pinned = PinnedClient::new(client.clone(), target.clone()).expect("permitted");
    for (method, is_stated) in [
        (Method::POST, true),
        (Method::PUT, true),
        (Method::PATCH, true),
        (Method::GET, false),
        (Method::DELETE, false),
    ] {
        let request = OutgoingRequest::new(method.clone(), target.clone());
        client.fetch(request).await.expect("a response");
        let headers = pinned.headers(HeaderMap::new());
        let sent = pinned.send(method.clone(), headers, Bytes::new()).await;
        sent.expect("a response");
        for text in seen.lock().expect("no panic").drain(..) {
            let states = text.to_ascii_lowercase().contains("content-length: 0\r\n");
            assert_eq!(states, is_stated, "{method}: {text}");
        }
    }
}

#[tokio::test]
async fn names_of_this_machine_need_no_name_server() {
    let resolver = crate::net::SystemResolver::default();
    for name in ["localhost", "localhost.", "a.localhost"] {
        let found = resolver.addresses(name).await.expect("this machine");
        assert!(found.iter().all(IpAddr::is_loopback), "{name}: {found:?}");
    }
}

#[test]
fn what_is_no_certificate_is_refused() {
    for pem in [
        &b""[..],
        b"hello",
        b"-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----",
    ] {
        assert!(Client::builder(Guard::public()).roots(pem).is_err());
    }
    let request = OutgoingRequest::get(url("https://a.example/?token=secret"));
    assert!(!format!("{request:?}").contains("secret"));
}

#[tokio::test]
async fn a_large_response_is_read_only_while_there_is_memory_for_it() {
    let (server, _) = serve(|_| {
        let body = vec![b'x'; 200_000];
        response("200 OK\r\ncontent-length: 200000", &body)
    })
    .await;
    let memory = MemoryBudget::default();
    let client = Client::builder(Guard::public().allow_loopback())
        .memory(memory.clone())
        .build()
        .expect("a client");
    let text = format!("http://127.0.0.1:{}/", server.port());
    assert!(fetch(&client, &text).await.is_ok());
    memory.set_room(1);
    let message = fetch(&client, &text).await.expect_err("no memory");
    assert!(message.contains("limits.memory_bytes"), "{message}");
    memory.set_room(1 << 20);
    assert!(fetch(&client, &text).await.is_ok());
}

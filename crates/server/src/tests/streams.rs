//! Streams and their ends.

use super::*;

/// Messages of an HTTP+SSE session wait for five seconds if the client does not read. Then the session ends.
#[tokio::test(start_paused = true)]
async fn a_session_that_nobody_reads_is_evicted_after_five_seconds() {
    let server = server();
    let worker = at(START);
    let principal = Arc::new(Principal::anonymous());
    let mut stream = server
        .open_sse_session(&principal, None, "/messages", None)
        .unwrap_or_else(|reply| panic!("{reply:?}"));
    let mut cx = Context::from_waker(Waker::noop());
    let Poll::Ready(Some(StreamEvent {
        data: EventData::Message(path),
        ..
    })) = stream.poll_next(&mut cx)
    else {
        panic!("the first event says where to post");
    };
    let path = String::from_utf8(path.to_vec()).expect("UTF-8");
    let id = path.rsplit('=').next().expect("an id").to_owned();
    let ping = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    let post = || {
        let mut cx = Context::from_waker(Waker::noop());
        server.post_sse_message(
            &mut cx,
            (&worker, RequestOrigin::default()),
            &principal,
            &id,
            &ping,
        )
    };
    // The queue holds 64 responses; the next ones wait.
    for _ in 0..64 {
        post().unwrap_or_else(|reply| panic!("{reply:?}")).await;
    }
    let waits = tokio::spawn(post().unwrap_or_else(|reply| panic!("{reply:?}")));
    tokio::task::yield_now().await;
    tokio::time::advance(Duration::from_millis(4_990)).await;
    tokio::task::yield_now().await;
    assert!(!waits.is_finished());
    assert!(post().is_ok(), "it is still there");
    tokio::time::advance(Duration::from_millis(20)).await;
    waits.await.expect("no panic");
    assert!(
        matches!(post(), Err(MaybeReady::Ready(Reply::Response(answer))) if answer.refusal == Some(RejectReason::SessionUnknown))
    );
    // The end of the stream tells the client.
    assert!(matches!(stream.poll_next(&mut cx), Poll::Ready(None)));
}

/// A stream ends when the credential that opened it expires.
#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_what_its_caller_has_shown_does() {
    let server = server();
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970")
        .as_secs();
    for (principal, seconds) in [
        (Principal::new("ada").with_expiry(now + 60), 61),
        (Principal::new("ada").with_expiry(now.saturating_sub(1)), 1),
    ] {
        let mut stream = listen_as(principal, &server);
        let mut cx = Context::from_waker(Waker::noop());
        let deadline = stream.deadline().expect("an end");
        assert!(deadline <= tokio::time::Instant::now() + Duration::from_secs(seconds));
        tokio::time::advance(Duration::from_secs(seconds)).await;
        // SUB-05: with the response that ends it.
        let last = stream.poll_next(&mut cx);
        let is_answer = |event: &StreamEvent| matches!(event.data, EventData::Response(_));
        assert!(matches!(last, Poll::Ready(Some(event)) if is_answer(&event)));
        assert!(matches!(stream.poll_next(&mut cx), Poll::Ready(None)));
    }
}

/// The Go SDK 1.4 closes its session after six streams that end without a new id, and 1.2 at an event without data. VER-06: the
/// client has not sent `initialized`, and gets no other request.
#[tokio::test(start_paused = true)]
async fn ver_06_an_idle_stream_of_an_earlier_revision_ends_with_a_ping_that_has_an_id() {
    let (server, worker) = (server(), at(START));
    let session = session(&server, &worker);
    let principal = Arc::new(Principal::anonymous());
    let mut last_id = None;
    for _ in 0..3 {
        let (mut headers, mcp) = headers_of(&[("mcp-session-id", &session)]);
        if let Some(id) = &last_id {
            headers.insert("last-event-id", HeaderValue::try_from(id).expect("visible"));
        }
        let opening = server.open_stream(
            &worker,
            &head(&principal, &mut headers, &mcp),
            VersionHeader::Absent,
        );
        let Ok(opening) = opening else {
            panic!("refused")
        };
        let Reply::Stream(mut stream) = opening.await else {
            panic!("no stream")
        };
        let mut cx = Context::from_waker(Waker::noop());
        assert!(stream.poll_next(&mut cx).is_pending(), "LH-16");
        // The maximum age, with its noise.
        tokio::time::advance(Duration::from_secs(4000)).await;
        let Poll::Ready(Some(event)) = stream.poll_next(&mut cx) else {
            panic!("no last event")
        };
        let EventData::Message(ping) = event.data else {
            panic!("no message")
        };
        let ping: Value = serde_json::from_slice(&ping).expect("JSON");
        assert_eq!(ping["method"], "ping");
        assert!(matches!(stream.poll_next(&mut cx), Poll::Ready(None)));
        let answer = json!({"jsonrpc": "2.0", "id": ping["id"], "result": {}});
        let answered = post(&server, &worker, Some(&session), &answer);
        assert!(matches!(answered, Reply::Accepted), "{answered:?}");
        let id = event.id.map(|id| id.to_string());
        assert_ne!(id, last_id);
        last_id = id;
    }
}

//! Streams and their ends.

use super::*;

/// Messages of an HTTP+SSE session wait for five seconds if the client does not read. Then the session ends.
#[tokio::test(start_paused = true)]
async fn a_session_that_nobody_reads_is_evicted_after_five_seconds() {
    let server = server();
    let worker = at(START);
    let principal = Arc::new(Principal::anonymous());
    let mut stream = server
        .open_sse_session(&principal, None, "/messages")
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

use super::*;

#[test]
fn trace_contexts_read_back_and_nothing_else_is_one() {
    // TRC-01
    let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let context = TraceContext::parse(text).expect("a context");
    assert_eq!(context.traceparent(), text);
    assert!(context.is_sampled());
    assert_eq!(context.trace_id(), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(context.span_id(), "b7ad6b7169203331");
    let later = "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-what-comes";
    assert!(TraceContext::parse(later).is_some_and(|c| !c.is_sampled()));
    for wrong in [
        "",
        "00",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
        "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ] {
        assert_eq!(TraceContext::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn a_caller_decides_if_it_may_and_else_the_share_does() {
    let mut parent = TraceContext {
        trace_id: 1,
        span_id: 1,
        flags: SAMPLED,
    };
    assert!(Sampler::new(true, 0.0).samples(Some(&parent), 1));
    assert!(!Sampler::new(false, 0.0).samples(Some(&parent), 1));
    parent.flags = 0;
    assert!(!Sampler::new(true, 1.0).samples(Some(&parent), 1));
    assert!(Sampler::new(false, 1.0).samples(Some(&parent), 1));
    assert!(Sampler::new(true, 1.0).samples(None, u128::MAX));
    let one_percent = Sampler::new(true, 0.01);
    let sampled = (0..100_000).filter(|_| one_percent.samples(None, new_trace_id()));
    let sampled = sampled.count();
    assert!((800..1200).contains(&sampled), "{sampled}");
}

#[test]
fn what_a_thread_works_on_is_known_until_it_is_done() {
    let outer = TraceContext {
        trace_id: 1,
        span_id: 1,
        flags: 0,
    };
    let inner = TraceContext {
        trace_id: 2,
        ..outer
    };
    assert_eq!(current(), None);
    let entered = enter(outer);
    {
        let _inner = enter(inner);
        assert_eq!(current(), Some(inner));
    }
    assert_eq!(current(), Some(outer));
    drop(entered);
    assert_eq!(current(), None);
}

#[test]
fn the_message_of_an_error_is_cut() {
    let text = "ü".repeat(TOLD_MAX_BYTES);
    let answer = serde_json::json!({"id": 1, "error": {"code": 1, "message": text}});
    let message = message_of(answer.to_string().as_bytes()).expect("a message");
    assert_eq!(message, "ü".repeat(TOLD_MAX_BYTES / 2));
}

#[test]
fn an_unsampled_request_keeps_the_context_of_its_caller() {
    let tracer = |sampler| {
        Arc::new(Tracer {
            sampler,
            arguments: None,
            results: None,
            secrets: ArcSwap::default(),
            spans: BatchQueue::new(10, 10),
            dropped: Counter::default(),
        })
    };
    let request = Request {
        id: "1",
        method: "ping".into(),
        params: message::Params::default(),
    };
    let begun = |sampler, text: &'static str| {
        let headers =
            HeaderMap::from_iter([(TRACEPARENT.clone(), http::HeaderValue::from_static(text))]);
        let propagation = Propagation::default();
        let traced = tracer(sampler).begin(propagation, &request, Some(&headers), None);
        (traced.draft.is_some(), traced.context.traceparent())
    };
    let sampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    let (as_caller, never) = (Sampler::new(true, 1.0), Sampler::new(false, 0.0));
    assert_eq!(begun(as_caller, unsampled), (false, unsampled.to_owned()));
    // The caller's span exists, whatever this server does.
    assert_eq!(begun(never, sampled), (false, sampled.to_owned()));
    let (is_recorded, own) = begun(as_caller, sampled);
    assert!(
        is_recorded && own.starts_with(&sampled[..36]) && own != sampled,
        "{own}"
    );
    // Without a caller there is a new trace, which no server records.
    let traced = tracer(never).begin(Propagation::default(), &request, None, None);
    assert!(traced.draft.is_none() && !traced.context.is_sampled());
}

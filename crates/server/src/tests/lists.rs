//! Lists, their pages and their changes.

use super::*;

#[test]
fn what_is_offered_is_measured_anew_once_it_is_replaced() {
    let server = server();
    let offered = |names: &[&str]| {
        let config = ServerConfig::default();
        let prepared = server.prepare(catalog(names), &config, Admission::default());
        server.install(prepared);
        let page = crate::telemetry::prometheus_page(&server.telemetry().metrics.families());
        ["longshore_tools ", "longshore_tools_size_bytes "].map(|name| {
            let value = page.lines().find_map(|line| line.strip_prefix(name));
            value.expect("a value").parse::<usize>().expect("a number")
        })
    };
    let [none, nothing_told] = offered(&[]);
    assert_eq!((none, nothing_told), (0, 0));
    let [one, reported] = offered(&["a"]);
    assert_eq!(one, 1);
    assert_eq!(offered(&["a", "b"]), [2, 2 * reported]);
}

/// A caller is notified of a changed list only if its visible part differs.
#[tokio::test]
async fn who_sees_no_difference_is_not_told_that_a_list_has_changed() {
    let rules = json!({"rules": [{"effect": "deny", "principals": ["ada"], "tools": ["secret*"]}]});
    let policy = || {
        let config = serde_json::from_value(rules.clone()).expect("sound rules");
        crate::auth::Policy::new(&config).expect("sound rules")
    };
    let server = server();
    let serve = |names: &[&str]| {
        let admission = Admission {
            policy: policy(),
            ..Admission::default()
        };
        let prepared = server.prepare(catalog(names), &ServerConfig::default(), admission);
        server.install(prepared)
    };
    serve(&["open", "secret"]);
    tokio::spawn(Arc::clone(&server).run_notifications());
    let mut streams = ["ada", "eve"].map(|name| listen_as(Principal::new(name), &server));
    let mut reported = async || {
        server.streams.announcer().tools_changed();
        have_news(&mut streams).await
    };
    assert_eq!(reported().await, [true, true], "the application says so");
    assert!(serve(&["open", "secret", "secret_too"]).tools);
    assert_eq!(reported().await, [false, true]);
    serve(&["open", "open_too", "secret"]);
    assert_eq!(reported().await, [true, true]);
}

/// Changed rules and a tool search change lists too, for those who see a difference.
#[tokio::test]
async fn changed_rules_and_a_search_are_changes_of_the_list_for_whom_it_differs() {
    let server = server();
    let serve = |denied: Option<&str>, above: Option<usize>| {
        let rules = denied
            .map(|denied| json!({"effect": "deny", "principals": ["ada"], "tools": [denied]}));
        let rules: Vec<_> = rules.into_iter().collect();
        let rules = serde_json::from_value(json!({ "rules": rules })).expect("sound rules");
        let admission = Admission {
            policy: crate::auth::Policy::new(&rules).expect("sound rules"),
            ..Admission::default()
        };
        let mut config = ServerConfig::default();
        config.search.above = above;
        let catalog = catalog(&["first", "second", "third"]);
        server.install(server.prepare(catalog, &config, admission))
    };
    serve(Some("first"), None);
    tokio::spawn(Arc::clone(&server).run_notifications());
    let mut streams = ["ada", "eve"].map(|name| listen_as(Principal::new(name), &server));
    let mut told = async |changes: ListChanges| {
        if changes.tools {
            server.streams.announcer().tools_changed();
        }
        have_news(&mut streams).await
    };
    assert_eq!(told(serve(Some("first"), None)).await, [false, false]);
    assert_eq!(told(serve(Some("second"), None)).await, [true, false]);
    // Beyond two tools, those of the search are listed instead.
    assert_eq!(told(serve(Some("second"), Some(2))).await, [false, true]);
    assert_eq!(told(serve(Some("second"), None)).await, [false, true]);
    // Without rules, it is not known what each caller saw before.
    assert_eq!(told(serve(None, None)).await, [true, true]);
    assert_eq!(told(serve(None, None)).await, [false, false]);
    assert_eq!(told(serve(None, Some(2))).await, [true, true]);
}

/// Returns which of the streams have an event, once all tasks have run.
async fn have_news(streams: &mut [Box<dyn EventSource>; 2]) -> [bool; 2] {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let mut cx = Context::from_waker(Waker::noop());
    [0, 1].map(|at| streams[at].poll_next(&mut cx).is_ready())
}

#[test]
fn list_02_a_page_is_sent_as_it_lies_in_the_catalog() {
    let server = server();
    let worker = at(START);
    let id = session(&server, &worker);
    let list = |id_of_request: u32| {
        let list = json!({"jsonrpc": "2.0", "id": id_of_request, "method": "tools/list"});
        match post(&server, &worker, Some(&id), &list) {
            Reply::Response(answer) => answer,
            other => panic!("{other:?}"),
        }
    };
    let (one, other) = (list(1), list(2));
    assert_eq!(&*one.head, br#"{"jsonrpc":"2.0","id":1"#);
    assert_eq!(
        one.rest.pieces()[0].as_ptr(),
        other.rest.pieces()[0].as_ptr()
    );
}

#[test]
fn pag_01_a_cursor_of_another_endpoint_is_refused() {
    let (server, other) = at_two_endpoints(&["a", "b"]);
    let worker = at(START);
    let list = |server: &Arc<Server>, params: Value| {
        let id = session(server, &at(START));
        let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": params});
        text(post(server, &worker, Some(&id), &list))
    };
    let first = list(&server, json!({}));
    let params = json!({"cursor": first["result"]["nextCursor"]});
    assert_eq!(
        list(&server, params.clone())["result"]["tools"][0]["name"],
        "b"
    );
    assert_eq!(list(&other, params)["error"]["code"], -32602);
}

#[test]
fn list_02_every_page_of_every_revision_is_sent_as_it_lies_in_the_catalog() {
    let server = Arc::new(server_with(KeyRing::random(), &["a", "b", "c"]));
    let worker = at(START);
    let page = |session: &str, cursor: &Value| {
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": cursor}});
        match post(&server, &worker, Some(session), &list) {
            Reply::Response(answer) => answer.rest.pieces()[0].clone(),
            other => panic!("{other:?}"),
        }
    };
    let (one, other) = (session(&server, &worker), session(&server, &worker));
    let mut cursor = Value::Null;
    for last in [false, false, true] {
        let bytes = page(&one, &cursor);
        assert_eq!(bytes.as_ptr(), page(&other, &cursor).as_ptr());
        let rest = bytes
            .strip_prefix(b",\"result\":")
            .and_then(|b| b.strip_suffix(b"}"));
        let result: Value = serde_json::from_slice(rest.expect("a result")).expect("JSON");
        cursor = result["nextCursor"].clone();
        assert_eq!(cursor.is_null(), last);
    }
}

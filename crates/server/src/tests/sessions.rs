//! Sessions and their ends.

use super::*;

#[test]
fn lh_08_a_session_ends_a_day_after_it_began_however_busy_it_is() {
    let server = server();
    let worker = at(START);
    let id = session(&server, &worker);
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    for (now, expected) in [
        (START, None),
        (START + DAY - 1, None),
        (START + DAY, Some(RejectReason::SessionUnknown)),
        (START + 2 * DAY, Some(RejectReason::SessionUnknown)),
    ] {
        worker.set_now(now);
        assert_eq!(
            refusal(&post(&server, &worker, Some(&id), &ping)),
            expected,
            "{now}"
        );
        // A worker that has not cached the id gives the same result.
        assert_eq!(
            refusal(&post(&server, &at(now), Some(&id), &ping)),
            expected,
            "{now}"
        );
    }
}

#[test]
fn lh_08_a_session_may_end_sooner_and_that_is_counted() {
    let config = ServerConfig {
        session_seconds: 60,
        ..ServerConfig::default()
    };
    let server = Arc::new(Server::new(ServerParts {
        config,
        ..of(Catalog::default())
    }));
    let worker = at(START);
    let id = session(&server, &worker);
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    for (now, expected, hits) in [
        (START + 59, None, 0),
        (START + 60, Some(RejectReason::SessionUnknown), 1),
    ] {
        worker.set_now(now);
        let found = refusal(&post(&server, &worker, Some(&id), &ping));
        assert_eq!(found, expected, "{now}");
        assert_eq!(server.limits.hits.of(Limit::SessionSeconds), hits);
    }
    // An unknown id is not an ended session.
    post(&server, &worker, Some("x"), &ping);
    assert_eq!(server.limits.hits.of(Limit::SessionSeconds), 1);
}

#[test]
fn lh_08_a_session_of_another_endpoint_is_unknown() {
    let (server, other) = at_two_endpoints(&[]);
    let worker = at(START);
    let id = session(&server, &worker);
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    assert_eq!(refusal(&post(&server, &worker, Some(&id), &ping)), None);
    // Also on the worker that has cached the id for the other endpoint.
    for worker in [&worker, &at(START)] {
        let foreign = post(&other, worker, Some(&id), &ping);
        assert_eq!(refusal(&foreign), Some(RejectReason::SessionUnknown));
    }
}

#[test]
fn lh_08_a_session_of_somebody_else_is_unknown() {
    let server = server();
    let worker = at(START);
    let id = session(&server, &worker);
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    let stranger = post_as(Principal::local(), &server, &worker, Some(&id), &ping);
    assert_eq!(refusal(&stranger), Some(RejectReason::SessionUnknown));
    assert_eq!(refusal(&post(&server, &worker, Some(&id), &ping)), None);
}

#[test]
fn a_further_initialize_over_stdio_negotiates_again_in_the_same_session() {
    let server = server();
    let peer = StdioPeer::default();
    let send = |method: &str, params: Value| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        at_once(over_stdio(&server, Principal::local(), &peer, START, &body))
    };
    let initialize = |version: &str| {
        let params = json!({"protocolVersion": version, "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}});
        send("initialize", params)
    };
    let first = initialize("2025-11-25");
    assert_eq!(first["result"]["protocolVersion"], "2025-11-25", "{first}");
    let name = peer.session().expect("a session").log_name.clone();
    let second = initialize("2024-11-05");
    assert_eq!(
        second["result"]["protocolVersion"], "2024-11-05",
        "{second}"
    );
    let session = peer.session().expect("a session");
    assert_eq!(session.revision, Revision::V2024_11_05);
    assert_eq!(session.log_name, name, "its subscriptions and calls stay");
    assert_eq!(initialize("2025-11-25")["error"], Value::Null);
    assert_eq!(send("ping", json!({}))["result"], json!({}));
    // The position is in a part of the message that the client does not see on its own.
    for (method, params) in [
        ("tools/list", json!({"cursor": 5})),
        ("logging/setLevel", json!({})),
    ] {
        let error = send(method, params)["error"].to_string();
        assert!(
            error.contains("Invalid params") && !error.contains("column"),
            "{error}"
        );
    }
}

/// A server of 2026-07-28 alone would have to name its versions. This one has another for every client.
#[test]
fn era_06_no_version_of_initialize_is_refused() {
    let server = server();
    for version in ["2026-07-28", "2031-01-01", "", "draft"] {
        let params = json!({"protocolVersion": version});
        let initialize =
            json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        let offered = text(post(&server, &at(START), None, &initialize));
        assert_eq!(offered["result"]["protocolVersion"], "2025-11-25");
    }
}

//! Arrays of messages, which one revision has.

use super::{Case, INVALID, Lifecycle, META, Sessions, bytes, run_on, server, stateless};

#[test]
fn rpc_06_08_arrays_are_for_one_revision() {
    let server = server();
    let sessions = Sessions::of(&server);
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let many = format!("[{}]", vec![ping; 51].join(","));
    let mut cases = Vec::new();
    for (name, body) in [
        ("an array of a request", format!("[{ping}]")),
        ("an array of a notification", format!("[{note}]")),
        ("an empty array", "[]".to_owned()),
        ("an array of numbers", "[1,2,3]".to_owned()),
        ("an array of an array", format!("[[{ping}]]")),
        ("too many", many.clone()),
    ] {
        for revision in ["2024-11-05", "2025-06-18", "2025-11-25"] {
            let bytes = sessions.post(Lifecycle::Handshake(revision), "", None, &body);
            let case = Case::new(format!("{name}, {revision}"), bytes);
            cases.push(case.error(400, INVALID, ""));
        }
        let alone = stateless("ping", None, &body);
        cases.push(Case::new(format!("{name}, stateless"), alone).error(400, INVALID, ""));
        // Without a session, the error is about the session or the array.
        let case = Case::new(format!("{name}, nobody"), bytes(&[], &body));
        cases.push(case.error(400, INVALID, ""));
    }
    let batches = Lifecycle::Handshake("2025-03-26");
    let post = |body: &str| sessions.post(batches, "", None, body);
    for (name, body, ids) in [
        ("one", format!("[{ping}]"), 1),
        ("with a notification", format!("[{note},{ping}]"), 1),
        (
            "with a response",
            format!(r#"[{{"jsonrpc":"2.0","id":9,"result":{{}}}},{ping}]"#),
            1,
        ),
        ("with space", format!(" [ {ping} ] "), 1),
    ] {
        assert_eq!(ids, 1);
        cases.push(Case::new(format!("batch, {name}"), post(&body)).status(&[200]));
    }
    for (name, body) in [
        ("of notifications", format!("[{note},{note}]")),
        (
            "of responses",
            r#"[{"jsonrpc":"2.0","id":9,"result":{}}]"#.to_owned(),
        ),
    ] {
        cases.push(Case::new(format!("batch, {name}"), post(&body)).status(&[202]));
    }
    for (name, body) in [("empty", "[]".to_owned()), ("too many", many)] {
        let case = Case::new(format!("batch, {name}"), post(&body));
        cases.push(case.error(400, INVALID, ""));
    }
    for (name, body) in [("cut", format!("[{ping}")), ("comma", format!("[{ping},]"))] {
        let case = Case::new(format!("batch, {name}"), post(&body));
        cases.push(case.error(400, -32700, ""));
    }
    // An error of one message is reported for that message.
    for body in [
        format!("[1,{ping}]"),
        format!("[null,{ping}]"),
        format!("[\"x\",{ping}]"),
        format!("[[],{ping}]"),
        format!("[{{}},{ping}]"),
        format!(r#"[{{"jsonrpc":"2.0","id":5,"method":"initialize","params":{{}}}},{ping}]"#),
        format!(r#"[{{"jsonrpc":"2.0","id":5,"method":"unknown"}},{ping}]"#),
        format!(r#"[{{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{{{META}}}}},{ping}]"#),
    ] {
        cases.push(Case::new(format!("batch, {body:.60}"), post(&body)).status(&[200]));
    }
    run_on(&server, cases);
}

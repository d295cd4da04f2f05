//! A login that is kept in the state that replicas share.

use std::sync::atomic::Ordering;

use longshore::source::TokenStore;
use serde_json::{Value, json};

use super::world::{World, has_tool};
use crate::support::{
    RedisServer, Running, Serve, Served, Stateless, assert_contains, longshore, until,
};

const KEY: &str = "a key that all of these replicas have and nobody else";

fn replica(redis: &RedisServer, upstream: &Value) -> Running {
    let upstream = serde_json::from_value(upstream.clone()).expect("valid");
    Serve::new()
        .configured(|c| {
            c.state.url = Some(redis.url().into());
            c.state.timeout_ms = 5000;
            c.seal.keys = vec![KEY.to_owned().into()];
            c.tokens.store = Some(TokenStore::State);
            c.upstreams.insert("up".to_owned(), upstream);
        })
        .start()
}

fn call(server: &Running) -> Value {
    let call = json!({"name": "up__secret", "arguments": {}});
    server
        .session("2025-11-25")
        .request("tools/call", &call)
        .result()
}

#[test]
fn replicas_use_a_login_in_their_state_get_each_token_once_and_show_it_to_nobody() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let world = World::new(json!({}));
    let upstream = json!({"url": world.server(), "auth": {"login": true}});
    let file = world.configuration(&json!({
        "state": {"url": redis.url(), "timeout_ms": 5000}, "seal": {"keys": [KEY]},
        "tokens": {"store": "state"}, "upstreams": {"up": upstream},
    }));
    let config = ["--config", &*file];
    let (done, said) = world.begin_at("up", &config).consent(&world.site.url);
    assert!(
        done && said.contains("in the state that replicas share"),
        "{said}"
    );
    assert!(world.login().is_none(), "nothing is left here");

    let (one, two) = (replica(&redis, &upstream), replica(&redis, &upstream));
    // A process of its own that logs everything.
    let arguments = [
        "run",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--config",
        &file,
    ];
    let mut three = Served::start(longshore(&arguments, &[("LONGSHORE_LOG", "trace")]));
    let log = three.read_to_end();
    let secret = Stateless::call("up__secret", json!({})).text();
    let work = || {
        std::thread::scope(|scope| {
            let calls = [
                scope.spawn(|| call(&one)["content"][0]["text"] == "done"),
                scope.spawn(|| call(&two)["content"][0]["text"] == "done"),
                scope.spawn(|| three.ask(&secret).contains("done")),
            ];
            let done = calls.map(|call| call.join().expect("no panic"));
            assert_eq!(done, [true; 3]);
        });
    };
    work();
    assert_eq!(
        world.site.asked("/token").len(),
        1,
        "the one of the login is good"
    );
    // The server rejects all of them, and the issuer accepts each refresh token once.
    for number in 1..=3 {
        world.taken_back.store(number, Ordering::Relaxed);
        work();
        assert_eq!(world.site.asked("/token").len(), number + 1);
    }
    // A command shares the stored token as well.
    let listed = world.run(&["list", "up", "--config", &file]);
    assert!(has_tool(&listed), "{listed:?}");

    let logins = world.run(&["logins", "--config", &file]);
    let logins = String::from_utf8(logins.stdout).expect("UTF-8");
    let kept: Vec<Value> = serde_json::from_str(&logins).expect("JSON");
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0]["server"], world.server());
    three.process.signal("TERM");
    assert_eq!(three.process.exit_code(), Some(0));
    let log = log.join().expect("read");
    assert!(
        log.contains("TRACE") || log.contains("\"trace\""),
        "it says little"
    );
    let holds = "for _, key in ipairs(redis.call('KEYS', '*')) do \
                 if redis.call('TYPE', key).ok == 'string' \
                 and string.find(redis.call('GET', key), ARGV[1], 1, true) then return 1 end \
                 end return 0";
    for canary in ["access1", "access4", "refresh1", "refresh4", KEY] {
        for (what, text) in [("the log", &log), ("a list", &logins), ("a login", &said)] {
            assert!(!text.contains(canary), "{what} shows {canary}");
        }
        assert_eq!(redis.say(&["EVAL", holds, "0", canary]), ["0"], "{canary}");
    }
    assert_eq!(
        redis.say(&["EVAL", "return #redis.call('KEYS', '*oauth:grants:*')", "0"]),
        ["1"]
    );

    let out = world.run(&["logout", "up", "--config", &file]);
    assert!(out.status.success(), "{out:?}");
    let revoked = world.site.asked("/revoke").pop().expect("told");
    assert_eq!(revoked.field("token").as_deref(), Some("refresh4"));
    until(|| (call(&one)["isError"] == true).then_some(()));
    let listed = world.run(&["list", "up", "--config", &file]);
    let said = String::from_utf8(listed.stderr).expect("UTF-8");
    assert_contains(&said, &["no user has logged in; run `longshore login`"]);
    assert_eq!(
        redis.say(&["EVAL", "return #redis.call('KEYS', '*oauth:grants:*')", "0"]),
        ["0"]
    );
}

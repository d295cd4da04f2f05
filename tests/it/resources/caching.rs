//! Contents that are kept for their time to live.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longshore::{App, CacheScope, ResourceDefinition, resource_fn};
use serde_json::json;

use super::{definition, stateless_read};
use crate::support::{Checked as _, Serve, Stateless};

/// A resource that says how often it was read.
fn counting(definition: ResourceDefinition) -> impl longshore::IntoResource {
    let count = AtomicUsize::new(0);
    resource_fn(definition, move |_| {
        let count = count.fetch_add(1, Ordering::Relaxed) + 1;
        async move { Ok(count.to_string()) }
    })
}

#[tokio::test(start_paused = true)]
async fn cache_01_what_was_read_stays_good_for_its_time_to_live() {
    let harness = App::new()
        .resource(counting(
            definition("test://kept").ttl(Duration::from_secs(60)),
        ))
        .resource(counting(definition("test://anew")))
        .checked_harness()
        .expect("valid");
    let read = async |uri: &str| {
        let read = harness.read(uri).await.expect("contents");
        let text = read["contents"][0]["text"]
            .as_str()
            .expect("text")
            .to_owned();
        (text, read["ttlMs"].as_u64().expect("a time"))
    };
    assert_eq!(read("test://kept").await, ("1".to_owned(), 60_000));
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!(read("test://kept").await, ("1".to_owned(), 40_000));
    tokio::time::advance(Duration::from_secs(40)).await;
    assert_eq!(read("test://kept").await, ("2".to_owned(), 60_000));
    for count in ["1", "2"] {
        assert_eq!(read("test://anew").await, (count.to_owned(), 0));
    }
}

#[tokio::test]
async fn what_was_announced_as_changed_is_read_again_at_once() {
    let app = App::new();
    let announcer = app.announcer();
    let harness = app
        .resource(counting(
            definition("test://kept").ttl(Duration::from_secs(60)),
        ))
        .checked_harness()
        .expect("valid");
    for count in ["1", "2", "3"] {
        for _ in 0..2 {
            let read = harness.read("test://kept").await.expect("contents");
            assert_eq!(read["contents"][0]["text"], count);
        }
        announcer.resource_changed("test://kept");
    }
}

#[test]
fn cache_04_only_public_contents_are_kept_for_callers_nobody_knows() {
    let minute = |uri: &str| definition(uri).ttl(Duration::from_secs(60));
    let server = Serve::new()
        .app(|app| {
            app.resource(counting(minute("test://own")))
                .resource(counting(
                    minute("test://all").cache_scope(CacheScope::Public),
                ))
        })
        .start();
    for (uri, texts) in [("test://own", ["1", "2"]), ("test://all", ["1", "1"])] {
        for text in texts {
            let read = stateless_read(&server, uri);
            assert_eq!(read["result"]["contents"][0]["text"], text, "{uri}");
        }
    }
    // The subscription holds in all protocol versions.
    let params = json!({"uri": "test://all"});
    let read = server
        .session("2024-11-05")
        .request("resources/read", &params);
    assert_eq!(read.result()["contents"][0]["text"], "1");
}

#[test]
fn cache_04_what_not_everybody_may_read_is_public_to_no_cache_outside() {
    let minute = definition("test://all").ttl(Duration::from_secs(60));
    let app = |app: App| app.resource(counting(minute.cache_scope(CacheScope::Public)));
    let server = Serve::new()
        .app(app)
        .configured(crate::auth::with_keys)
        .start();
    for key in [crate::auth::CI, crate::auth::BOB] {
        let read = Stateless::new("resources/read", json!({"uri": "test://all"}))
            .and("authorization", &crate::auth::bearer(key))
            .send(&server)
            .result();
        assert_eq!(read["contents"][0]["text"], "1", "it is shared here");
        assert_eq!(read["cacheScope"], "private");
    }
}

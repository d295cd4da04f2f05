//! The time toolset.

use serde_json::json;

use super::{call, refusal, serve};
use crate::support::{Stateless, assert_contains};

#[test]
fn it_tells_and_converts_times() {
    let server = serve("time", json!({"time": {"local_zone": "Europe/Berlin"}}));
    let listed = Stateless::new("tools/list", json!({}))
        .send(&server)
        .result();
    let description = listed["tools"][0]["description"].as_str().expect("a text");
    assert!(description.contains("Europe/Berlin"), "{description}");

    let now = call(
        &server,
        "get_current_time",
        json!({"timezone": "Asia/Tokyo"}),
    );
    let now = &now["structuredContent"];
    assert_eq!(now["timezone"], "Asia/Tokyo");
    assert_eq!(now["is_dst"], false);
    let datetime = now["datetime"].as_str().expect("a time");
    assert!(
        datetime.ends_with("+09:00") && datetime.len() == 25,
        "{datetime}"
    );

    let arguments =
        json!({"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Kathmandu"});
    let converted = call(&server, "convert_time", arguments);
    let text = converted["content"][0]["text"].as_str().expect("a text");
    let same: serde_json::Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(same, converted["structuredContent"]);
    assert_eq!(same["time_difference"], "+5.75h");
    let target = same["target"]["datetime"].as_str().expect("a time");
    assert!(target.ends_with("T17:45:00+05:45"), "{target}");
}

#[test]
fn what_is_no_zone_is_a_failure_that_the_model_reads() {
    let server = serve("time", json!({}));
    let failed = call(
        &server,
        "get_current_time",
        json!({"timezone": "Mars/Olympus"}),
    );
    assert_eq!(failed["isError"], true);
    let text = failed["content"][0]["text"].as_str().expect("a text");
    assert_contains(&text, &["Mars/Olympus", "Asia/Tokyo"]);
    let told = refusal("time", json!({"time": {"local_zone": "Berlin"}}));
    assert!(told.contains("builtin.time.local_zone"), "{told}");
}

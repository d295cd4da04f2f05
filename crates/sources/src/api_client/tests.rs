use std::sync::Arc;

use super::*;

const OPTIONS: RequestOptions<'_> = RequestOptions {
    repeatable: true,
    authenticated: false,
    accepted: &[404, 503],
};

#[test]
fn how_long_to_wait_is_said_in_seconds_or_by_a_date() {
    let now: Timestamp = "2026-11-23T12:00:00Z".parse().expect("a time");
    for (said, expected) in [
        ("7", Some(7)),
        (" 7 ", Some(7)),
        ("Mon, 23 Nov 2026 12:01:00 GMT", Some(60)),
        ("Mon, 23 Nov 2026 11:00:00 GMT", Some(0)),
        ("18446744073709551615", Some(u64::MAX)),
        ("soon", None),
        ("-1", None),
    ] {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, said.parse().expect("a value"))]);
        let found = retry_after(&headers, now);
        assert_eq!(found, expected.map(Duration::from_secs), "{said}");
    }
}

#[test]
fn a_delay_of_any_length_can_be_held_against_a_deadline() {
    let deadline = Instant::now() + Duration::from_secs(30);
    for (seconds, expected) in [(1, true), (31, false), (u64::MAX, false)] {
        let delay = Duration::from_secs(seconds);
        assert_eq!(is_before(delay, deadline), expected, "{seconds}");
    }
}

#[test]
fn operators_are_told_of_what_is_down_and_of_credentials_and_not_of_what_a_caller_asked_for() {
    let fares = |error: FetchError| Fares::of(Err(&error.into()), OPTIONS);
    let refused = fares(FetchError::Connect {
        host: "api.example.com".to_owned(),
        port: 443,
        source: Arc::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)),
    });
    assert_eq!(
        refused,
        Fares::Badly("cannot connect to api.example.com:443: connection refused".to_owned())
    );
    let large = FetchError::TooLarge {
        host: "api.example.com".to_owned(),
        max: 10,
    };
    assert_eq!(fares(large), Fares::Unknown);
}

#[test]
fn a_status_that_is_configured_as_success_is_no_failure_and_not_retried() {
    for (status, expected, fares) in [
        (503, (false, false), Fares::Well),
        (404, (false, false), Fares::Well),
        (
            502,
            (true, true),
            Fares::Badly("it responded with 502 Bad Gateway".to_owned()),
        ),
        (429, (false, true), Fares::Well),
    ] {
        let status = StatusCode::from_u16(status).expect("a status");
        assert_eq!(judged(Ok(status), OPTIONS), expected);
        assert_eq!(Fares::of(Ok(status), OPTIONS), fares);
    }
}

#[tokio::test]
async fn each_origin_has_a_circuit_breaker_and_the_statistics_are_of_all() {
    let config = crate::net::BulkheadConfig {
        breaker_failures: 1,
        ..Default::default()
    };
    let hosts = Hosts::new("api", &config);
    let host = |url: &str| hosts.of(&url.parse().expect("a URL"));
    let down = host("http://a.example/x");
    down.bulkhead.enter().await.expect("closed").unreachable();
    assert!(host("http://a.example/y").bulkhead.enter().await.is_err());
    for other in [
        "https://a.example/x",
        "http://a.example:81/x",
        "http://b.example/x",
    ] {
        let host = host(other);
        host.bulkhead.enter().await.expect(other).succeeded();
    }
    let stats = hosts.stats();
    assert_eq!(
        (stats.entered, stats.failed, stats.refused_tripped),
        (4, 1, 1)
    );
    assert_eq!(stats.breaker, crate::net::BreakerState::Tripped);
}

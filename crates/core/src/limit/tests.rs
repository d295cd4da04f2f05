use super::*;

const SOMEBODY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
const ANOTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

fn limited_by(config: &LimitConfig) -> Limits {
    Limits::new(config, &Metrics::default())
}

fn rate(per_second: f64, burst: u32) -> RateConfig {
    RateConfig { per_second, burst }
}

#[test]
fn by_default_nobody_without_a_proof_is_limited_in_what_it_asks() {
    let limits = limited_by(&LimitConfig::default());
    for _ in 0..100_000 {
        assert!(limits.arrive(SOMEBODY).is_ok());
        assert!(limits.admit(&Principal::anonymous()).is_ok());
        assert!(limits.call("tool").is_ok());
    }
    assert!(limits.has_room(&Principal::anonymous(), None, None));
    assert!(
        Limit::ALL
            .into_iter()
            .all(|limit| limits.hits.of(limit) == 0)
    );
}

#[test]
fn addresses_are_told_apart_and_all_together_have_a_limit_too() {
    let limits = limited_by(&LimitConfig {
        address: rate(0.001, 2),
        server: rate(0.001, 3),
        ..LimitConfig::default()
    });
    let asked = [SOMEBODY, SOMEBODY, SOMEBODY, ANOTHER, ANOTHER]
        .map(|address| limits.arrive(address).err().map(|refused| refused.limit));
    let (address, server) = (Some(Limit::AddressRate), Some(Limit::ServerRate));
    assert_eq!(asked, [None, None, address, None, server]);
    assert_eq!(limits.hits.of(Limit::AddressRate), 1);
    assert_eq!(limits.hits.of(Limit::ServerRate), 1);
}

#[test]
fn sessions_of_an_address_begin_at_a_rate() {
    let limits = limited_by(&LimitConfig {
        initialize_per_minute: Some(3),
        ..LimitConfig::default()
    });
    let anonymous = Principal::anonymous();
    let begin = |address| limits.begin_session(&anonymous, address);
    assert!((0..3).all(|_| begin(Some(SOMEBODY)).is_ok()));
    let refused = begin(Some(SOMEBODY)).expect_err("too many");
    assert_eq!(refused.limit.setting(), "limits.initialize_per_minute");
    assert!(refused.retry_after_seconds() <= 20);
    assert!(begin(Some(ANOTHER)).is_ok());
    assert!(
        (0..100).all(|_| begin(None).is_ok()),
        "no socket, no address"
    );
}

#[test]
fn who_fails_to_prove_itself_too_often_is_told_to_wait() {
    let limits = limited_by(&LimitConfig::default());
    assert!((0..10).all(|_| limits.failed_proof(Some(SOMEBODY)).is_ok()));
    let refused = limits.failed_proof(Some(SOMEBODY)).expect_err("too often");
    assert_eq!(refused.limit, Limit::FailedAuthentications);
    assert!(limits.failed_proof(Some(ANOTHER)).is_ok());
}

#[test]
fn addresses_that_may_be_a_balancer_are_limited_only_if_somebody_says_so() {
    let balancer = Some(IpAddr::from([10, 0, 0, 1]));
    let anonymous = Principal::anonymous();
    let limits = limited_by(&LimitConfig::default());
    for _ in 0..10_000 {
        assert!(limits.failed_proof(balancer).is_ok());
        assert!(limits.begin_session(&anonymous, balancer).is_ok());
    }
    let limits = limited_by(&LimitConfig {
        initialize_per_minute: Some(1),
        failed_authentications_per_minute: Some(1),
        ..LimitConfig::default()
    });
    assert!(limits.failed_proof(balancer).is_ok() && limits.failed_proof(balancer).is_err());
    let begin = || limits.begin_session(&anonymous, balancer);
    assert!(begin().is_ok() && begin().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_call_has_a_place_of_its_tool_and_of_the_server() {
    let tool = ToolLimitConfig {
        calls: Some(1),
        ..ToolLimitConfig::default()
    };
    let limits = limited_by(&LimitConfig {
        tools: [("slow".to_owned(), tool)].into(),
        calls: Some(2),
        queue: 0,
        ..LimitConfig::default()
    });
    let anonymous = Principal::anonymous();
    let tool = limits.call("slow").expect("no rate");
    let tool = tool.as_deref();
    assert!(limits.has_room(&anonymous, None, tool));
    let held = limits.turn(&anonymous, None, tool).take();
    assert!(!limits.has_room(&anonymous, None, tool) && limits.has_room(&anonymous, None, None));
    let refused = limits.turn(&anonymous, None, tool).wait().await;
    assert_eq!(refused.expect_err("none is left").limit, Limit::ToolCalls);
    let other = limits
        .turn(&anonymous, None, None)
        .wait()
        .await
        .expect("one is left");
    let refused = limits.turn(&anonymous, None, None).wait().await;
    assert_eq!(refused.expect_err("none is left").limit, Limit::Calls);
    drop((held, other));
    assert!(limits.turn(&anonymous, None, tool).wait().await.is_ok());
    assert_eq!(limits.hits.of(Limit::ToolCalls), 1);
    assert_eq!(limits.hits.of(Limit::Calls), 1);
}

#[test]
fn a_tool_has_the_rate_that_was_set_for_it() {
    let tool = ToolLimitConfig {
        per_second: 0.001,
        burst: 1,
        calls: None,
    };
    let limits = limited_by(&LimitConfig {
        tools: [("slow".to_owned(), tool)].into(),
        ..LimitConfig::default()
    });
    assert!(limits.call("slow").is_ok());
    assert_eq!(
        limits.call("slow").expect_err("once").limit,
        Limit::ToolRate
    );
    assert!((0..100).all(|_| limits.call("fast").is_ok()));
}

#[test]
fn changed_limits_hold_at_once_and_what_is_unchanged_goes_on() {
    let mut config = LimitConfig {
        address: rate(0.001, 2),
        initialize_per_minute: Some(1),
        ..LimitConfig::default()
    };
    let limits = limited_by(&config);
    let anonymous = Principal::anonymous();
    assert!(limits.arrive(SOMEBODY).is_ok());
    assert!(limits.begin_session(&anonymous, Some(SOMEBODY)).is_ok());
    assert!(limits.call("slow").expect("no limit").is_none());
    let tool = ToolLimitConfig {
        per_second: 0.001,
        burst: 1,
        calls: Some(1),
    };
    config.tools.insert("slow".to_owned(), tool);
    config.initialize_per_minute = Some(2);
    limits.take_on(&config);
    // The first assertion took one of the two tokens.
    assert!(limits.arrive(SOMEBODY).is_ok() && limits.arrive(SOMEBODY).is_err());
    let begin = || limits.begin_session(&anonymous, Some(SOMEBODY));
    assert!(begin().is_ok() && begin().is_ok() && begin().is_err());
    assert!(limits.call("slow").is_ok() && limits.call("slow").is_err());
    config.queue_ms += 1;
    config.address = RateConfig::default();
    limits.take_on(&config);
    assert!((0..10).all(|_| limits.arrive(SOMEBODY).is_ok()));
    // Neither the queue nor the number of calls at once concerns the rate.
    assert!(limits.call("slow").is_err());
    config.tools.insert(
        "slow".to_owned(),
        ToolLimitConfig {
            calls: Some(2),
            ..tool
        },
    );
    limits.take_on(&config);
    assert!(limits.call("slow").is_err());
    config.tools.clear();
    limits.take_on(&config);
    assert!((0..10).all(|_| limits.call("slow").is_ok()));
}

#[tokio::test(start_paused = true)]
async fn calls_that_run_keep_their_places_over_a_change_elsewhere() {
    let mut config = LimitConfig {
        calls: Some(1),
        queue: 0,
        ..LimitConfig::default()
    };
    let limits = limited_by(&config);
    let anonymous = Principal::anonymous();
    let held = limits.turn(&anonymous, None, None).take();
    config.address = rate(1.0, 1);
    limits.take_on(&config);
    assert!(!limits.has_room(&anonymous, None, None));
    drop(held);
    assert!(limits.has_room(&anonymous, None, None));
    config.calls = Some(2);
    limits.take_on(&config);
    let two = [0, 1].map(|_| limits.turn(&anonymous, None, None).take());
    assert!(!limits.has_room(&anonymous, None, None));
    drop(two);
}

use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::net::testing::{response, serve};

fn json_keys(id: &str, seconds: i64) -> Vec<u8> {
    let end = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
    let body = format!(
        r#"{{"Code":"Success","AccessKeyId":"{id}","SecretAccessKey":"s3cr3t","Token":"t0ken","Expiration":"{}"}}"#,
        end.strftime("%Y-%m-%dT%H:%M:%SZ")
    );
    response("200 OK", body.as_bytes())
}

fn of<'v>(variables: impl IntoIterator<Item = (&'v str, String)>, machine: bool) -> Workload {
    let probe = Probe::of(variables);
    let found = Workload::of(&probe, "eu-west-1", machine);
    found.expect("can be used").expect("there is one")
}

#[tokio::test]
async fn a_container_asks_with_its_token_and_again_only_before_the_keys_end() {
    let count = AtomicUsize::new(0);
    let (address, seen) = serve(move |_| match count.fetch_add(1, Ordering::Relaxed) {
        0 => json_keys("one", 3600),
        _ => json_keys("two", 3600),
    })
    .await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    std::fs::write(&file, "from-a-file\n").expect("written");
    let workload = of(
        [
            (
                "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                format!("http://{address}/v1/credentials"),
            ),
            (
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                file.display().to_string(),
            ),
            (
                "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                "not this one".to_owned(),
            ),
        ],
        false,
    );
    for _ in 0..3 {
        assert_eq!(workload.keys().await.expect("keys").id, "one");
    }
    let keys = workload.keys().await.expect("keys");
    assert_eq!(keys.session.as_ref().map(Secret::expose), Some("t0ken"));
    // Simulates that the credentials expire in five minutes.
    let given = workload.given.load_full().expect("given");
    workload.given.store(Some(Arc::new(Given {
        keys: given.keys.clone(),
        expires: given.expires,
        renew: SystemTime::now(),
    })));
    assert_eq!(workload.keys().await.expect("keys").id, "two");
    let seen = seen.lock().expect("no panic");
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen[0].starts_with("GET /v1/credentials "), "{}", seen[0]);
    assert!(
        seen[0].contains("authorization: from-a-file\r\n"),
        "{}",
        seen[0]
    );
    let debug = format!("{keys:?}");
    assert!(
        !debug.contains("s3cr3t") && !debug.contains("t0ken"),
        "{debug}"
    );
}

#[tokio::test]
async fn keys_that_are_good_for_a_while_outlive_a_service_that_fails() {
    let fails = Arc::new(StdMutex::new(false));
    let answers = Arc::clone(&fails);
    let (address, _) = serve(move |_| match *answers.lock().expect("no panic") {
        false => json_keys("one", 120),
        true => response("500 Internal Server Error", b"secret words"),
    })
    .await;
    let url = format!("http://{address}/");
    let workload = of([("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.clone())], false);
    workload.keys().await.expect("keys");
    *fails.lock().expect("no panic") = true;
    let given = workload.given.load_full().expect("given");
    let at = |expires: SystemTime| {
        let renew = SystemTime::now();
        let keys = given.keys.clone();
        workload.given.store(Some(Arc::new(Given {
            keys,
            expires,
            renew,
        })));
    };
    at(given.expires);
    assert_eq!(workload.keys().await.expect("the old ones").id, "one");
    at(SystemTime::now() + Duration::from_secs(5));
    let problem = workload.keys().await.expect_err("they have ended");
    assert!(
        problem.contains("500") && !problem.contains("words"),
        "{problem}"
    );
}

#[tokio::test]
async fn a_role_is_taken_on_with_a_token_that_is_read_each_time() {
    let (address, seen) = serve(|_| {
        let body = "<AssumeRoleWithWebIdentityResponse><Credentials><AccessKeyId>ASIA</AccessKeyId>\
                    <SecretAccessKey>s3/cr+t=</SecretAccessKey><SessionToken>t0ken</SessionToken>\
                    <Expiration>2999-01-01T00:00:00Z</Expiration></Credentials>";
        response("200 OK", body.as_bytes())
    })
    .await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    std::fs::write(&file, "ey.web+identity").expect("written");
    let workload = of(
        [
            ("AWS_WEB_IDENTITY_TOKEN_FILE", file.display().to_string()),
            ("AWS_ROLE_ARN", "arn:aws:iam::1:role/longshore".to_owned()),
            ("AWS_ENDPOINT_URL_STS", format!("http://{address}/")),
        ],
        false,
    );
    let keys = workload.keys().await.expect("keys");
    assert_eq!((&*keys.id, keys.secret.expose()), ("ASIA", "s3/cr+t="));
    let seen = seen.lock().expect("no panic");
    let (head, body) = seen[0].split_once("\r\n\r\n").expect("a request");
    assert!(head.starts_with("POST / "), "{head}");
    assert!(
        body.contains("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Flongshore"),
        "{body}"
    );
    assert!(
        body.contains("WebIdentityToken=ey.web%2Bidentity"),
        "{body}"
    );
}

#[tokio::test]
async fn a_machine_is_asked_in_the_second_version_and_only_if_told_to() {
    let (address, seen) =
        serve(
            |request: &str| match request.split(' ').nth(1).unwrap_or_default() {
                "/latest/api/token" => response("200 OK", b"imds-token"),
                "/latest/meta-data/iam/security-credentials/" => response("200 OK", b"my-role\n"),
                "/latest/meta-data/iam/security-credentials/my-role" => json_keys("machine", 3600),
                _ => response("404 Not Found", b""),
            },
        )
        .await;
    let endpoint = [(
        "AWS_EC2_METADATA_SERVICE_ENDPOINT",
        format!("http://{address}"),
    )];
    let probe = Probe::of(endpoint.clone());
    assert!(matches!(Workload::of(&probe, "eu-west-1", false), Ok(None)));
    let keys = of(endpoint, true).keys().await.expect("keys");
    assert_eq!(keys.id, "machine");
    let seen = seen.lock().expect("no panic");
    assert!(seen[0].starts_with("PUT /latest/api/token "), "{}", seen[0]);
    for request in &seen[1..] {
        assert!(
            request.contains("x-aws-ec2-metadata-token: imds-token"),
            "{request}"
        );
    }
}

#[test]
fn what_a_platform_names_is_the_only_address_that_opens() {
    let client = |variables: &[(&str, &str)], machine| {
        let probe = Probe::of(variables.iter().copied());
        let workload = Workload::of(&probe, "eu-west-1", machine);
        workload.expect("can be used").expect("there is one").client
    };
    let permits = |client: &Client, address: &str, port| {
        let address = address.parse().expect("an address");
        client.guard().permits("x", port, address)
    };
    let ecs = client(
        &[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/x")],
        false,
    );
    assert!(permits(&ecs, "169.254.170.2", 80));
    assert!(!permits(&ecs, "169.254.169.254", 80));
    let eks = "http://169.254.170.23/v1/credentials";
    let eks = client(&[("AWS_CONTAINER_CREDENTIALS_FULL_URI", eks)], false);
    assert!(permits(&eks, "169.254.170.23", 80) && !permits(&eks, "169.254.170.2", 80));
    let machine = client(&[], true);
    assert!(permits(&machine, "169.254.169.254", 80));
    for other in [
        "http://169.254.170.2/",
        "http://10.0.0.1/",
        "http://example.com/",
    ] {
        let url = other.parse().expect("a URL");
        assert!(machine.guard().check_url(&url).is_err(), "{other}");
    }
}

#[test]
fn variables_that_lead_elsewhere_are_refused() {
    for (variable, value) in [
        (
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "http://169.254.169.254/x",
        ),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://10.0.0.1/x"),
        (
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "http://evil.example/x",
        ),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "file:///etc/passwd"),
        (
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "https://169.254.169.254/x",
        ),
        ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "@evil.example/"),
    ] {
        let probe = Probe::of([(variable, value)]);
        assert!(Workload::of(&probe, "eu-west-1", false).is_err(), "{value}");
    }
}

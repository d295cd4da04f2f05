use super::*;

fn check(guard: &Guard, url: &str) -> Result<(), String> {
    let url = Url::parse(url).map_err(|e| e.to_string())?;
    guard.check_url(&url).map_err(|e| e.to_string())
}

/// Addresses that are not for everybody, in every form in which a URL can have them.
const CLOSED: &[&str] = &[
    // This machine.
    "127.0.0.1",
    "127.0.0.1:80",
    "127.1",
    "127.0.1",
    "127.255.255.254",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "0177.1",
    "017700000001",
    "127.0.0.0x1",
    "127.0x0.1",
    "0x7F.0x0.0x0.0x1",
    "%31%32%37.0.0.1",
    "127%2e0%2e0%2e1",
    "①②⑦.⓪.⓪.①",
    "127。0。0。1",
    "127．0．0．1",
    "127｡1",
    "127.0.0.1.",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[0000::0001]",
    "[::0001]",
    // No address.
    "0.0.0.0",
    "0",
    "0x0",
    "00",
    "0.0",
    "0.1.2.3",
    "[::]",
    "[0::0]",
    // Mapped, compatible, translated.
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:7f00:1]",
    "[::ffff:10.0.0.1]",
    "[::ffff:169.254.169.254]",
    "[::ffff:8.8.8.8]",
    "[::ffff:0:127.0.0.1]",
    "[::127.0.0.1]",
    "[::7f00:1]",
    "[::a9fe:a9fe]",
    "[::8.8.8.8]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b::10.0.0.1]",
    "[64:ff9b::169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1::10.0.0.1]",
    "[64:ff9b:1::8.8.8.8]",
    "[2002:7f00:1::]",
    "[2002:a00:1::1]",
    "[2002:a9fe:a9fe::]",
    "[2002:c0a8:101::1]",
    "[2001::1]",
    "[2001:0:7f00:1::]",
    // Private.
    "10.0.0.1",
    "10.255.255.255",
    "0xa.1",
    "012.0.0.1",
    "167772161",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "192.168.1",
    "3232235777",
    "0xc0a80101",
    "[fc00::1]",
    "[fd12:3456::1]",
    "[fdff:ffff::1]",
    // Shared, and what clouds answer their own machines on.
    "100.64.0.1",
    "100.127.255.255",
    "100.100.100.200",
    "169.254.0.1",
    "169.254.169.254",
    "169.254.43518",
    "0xa9fea9fe",
    "2852039166",
    "0251.0376.0251.0376",
    "0xa9.0xfe.0xa9.0xfe",
    "168.63.129.16",
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "[2a00:1450::5efe:7f00:1]",
    "[2a00:1450::5efe:10.0.0.1]",
    "[2a00:1450::200:5efe:a9fe:a9fe]",
    "[fe80::1]",
    "[fe80::a9fe:a9fe]",
    "[febf::1]",
    "192.0.0.1",
    "192.0.0.192",
    "[fec0::1]",
    // Documentation, benchmarks, relays.
    "192.0.2.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.7",
    "203.0.113.9",
    "192.88.99.1",
    "[2001:db8::1]",
    "[2001:2::1]",
    "[2001:10::1]",
    "[2001:20::1]",
    "[3fff::1]",
    "[100::1]",
    "[5f00::1]",
    // Multicast, reserved and broadcast addresses.
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "0xffffffff",
    "4294967295",
    "[ff02::1]",
    "[ff00::]",
    "[4000::1]",
    "[8000::1]",
];

const OPEN: &[&str] = &[
    "1.1.1.1",
    "8.8.8.8",
    "134744072",
    "0x08080808",
    "11.0.0.1",
    "9.255.255.255",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.1",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "191.255.255.255",
    "192.0.1.1",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "168.63.129.17",
    "[2606:4700:4700::1111]",
    "[2001:4860:4860::8888]",
    "[2001:200::1]",
    "[2a00::1]",
    "[2a00:1450::5efe:808:808]",
    "[3ffe::1]",
    "[64:ff9b::8.8.8.8]",
    "example.com",
    "xn--bcher-kva.example",
    "bücher.example",
];

#[test]
fn only_public_addresses_are_open_however_they_are_written() {
    assert!(CLOSED.len() > 100, "{}", CLOSED.len());
    for host in CLOSED {
        for url in [format!("http://{host}/"), format!("https://{host}/a?b#c")] {
            assert!(
                check(&Guard::public(), &url).is_err(),
                "{url} was let through"
            );
        }
    }
    for host in OPEN {
        for url in [format!("http://{host}/"), format!("https://{host}:8443/")] {
            assert_eq!(check(&Guard::public(), &url), Ok(()), "{url}");
        }
    }
}

#[test]
fn what_a_url_may_not_be() {
    for (url, part) in [
        ("file:///etc/passwd", "host"),
        ("ftp://example.com/", "only http and https"),
        ("gopher://example.com/", "only http and https"),
        ("ws://example.com/", "only http and https"),
        (
            "javascript://example.com/%0aalert(1)",
            "only http and https",
        ),
        ("data:text/plain,hello", "host"),
        ("unix:/run/docker.sock", "host"),
        ("http://user@example.com/", "user name"),
        ("http://user:password@example.com/", "user name"),
        ("http://:password@example.com/", "user name"),
        ("http://example.com@127.0.0.1/", "user name"),
        ("http://127.0.0.1#@example.com/", "127.0.0.1"),
        ("http://127.0.0.1\\@example.com/", "127.0.0.1"),
        ("http://127.0.0.1?@example.com/", "127.0.0.1"),
        ("http:127.0.0.1", "127.0.0.1"),
        ("http:/127.0.0.1", "127.0.0.1"),
        ("http:\\\\127.0.0.1\\", "127.0.0.1"),
        ("ht\ntp://127.0.0.1/", "127.0.0.1"),
        ("http://127.0.0.1\t/", "127.0.0.1"),
        (" http://127.0.0.1/", "127.0.0.1"),
        ("HTTP://127.0.0.1/", "127.0.0.1"),
        ("http://example.com:0/", "port 0"),
    ] {
        let message = check(&Guard::public(), url).expect_err(url);
        assert!(message.contains(part), "{url}: {message}");
    }
    let long = format!("http://{}example.com/", "a.".repeat(130));
    assert!(check(&Guard::public(), &long).is_err());
    for refused in [
        "http://",
        "http://[fe80::1%25eth0]/",
        "http://[::1",
        "http://exa mple.com/",
        "http://a:99999/",
    ] {
        assert!(check(&Guard::public(), refused).is_err(), "{refused}");
    }
}

fn of(config: &EgressConfig) -> Guard {
    config.guard().expect("hosts")
}

#[test]
fn hosts_may_be_limited_to_those_that_are_named() {
    let guard = of(&EgressConfig {
        hosts: [
            "api.example.com",
            "*.example.org",
            "odd.example:8443",
            "Bücher.example",
        ]
        .map(str::to_owned)
        .into(),
        denied_hosts: vec!["no.example.org".to_owned()],
        ..EgressConfig::default()
    });
    for open in [
        "https://api.example.com/",
        "https://API.EXAMPLE.COM./",
        "http://a.example.org/",
        "http://a.b.example.org/",
        "https://odd.example:8443/",
        "https://xn--bcher-kva.example/",
    ] {
        assert_eq!(check(&guard, open), Ok(()), "{open}");
    }
    for closed in [
        "https://example.com/",
        "https://example.org/",
        "https://.example.org/",
        "https://badexample.org/",
        "https://api.example.com.evil.example/",
        "https://odd.example/",
        "https://no.example.org/",
        "https://8.8.8.8/",
    ] {
        assert!(check(&guard, closed).is_err(), "{closed}");
    }
}

#[test]
fn a_denied_address_is_denied_behind_a_name_too() {
    let guard = of(&EgressConfig {
        denied_hosts: ["10.0.0.5", "93.184.216.34:80"].map(str::to_owned).into(),
        networks: vec!["10.0.0.0/8".parse().expect("a network")],
        ..EgressConfig::default()
    });
    for (address, port, is_permitted) in [
        ("10.0.0.5", 443, false),
        ("10.0.0.6", 443, true),
        ("93.184.216.34", 80, false),
        ("64:ff9b::5db8:d822", 80, false),
        ("93.184.216.34", 443, true),
    ] {
        let parsed = address.parse().expect("an address");
        let permitted = guard.permits("a.example.com", port, parsed);
        assert_eq!(permitted, is_permitted, "{address} {port}");
    }
}

#[test]
fn what_names_no_host_is_refused() {
    for text in [
        "",
        "*.",
        "*",
        "http://example.com",
        "a b",
        "example.com:",
        "example.com:x",
        "*.10.0.0.1",
        "a/b",
    ] {
        let config = EgressConfig {
            hosts: vec![text.to_owned()],
            ..EgressConfig::default()
        };
        assert!(config.guard().is_err(), "{text:?}");
    }
    for text in ["10.0.0.1", "::1", "[::1]:80", "localhost:3000"] {
        assert!(HostRule::parse(text).is_ok(), "{text:?}");
    }
}

#[test]
fn private_networks_are_open_once_they_are_named_and_no_others() {
    let guard = of(&EgressConfig {
        networks: vec!["10.20.0.0/16".parse().expect("a network")],
        ..EgressConfig::default()
    });
    assert_eq!(check(&guard, "http://10.20.3.4/"), Ok(()));
    assert!(check(&guard, "http://10.21.0.1/").is_err());
    assert!(check(&guard, "http://127.0.0.1/").is_err());
    assert!(check(&guard, "http://[::ffff:10.20.3.4]/").is_err());
    let guard = Guard::public().allow_loopback();
    assert_eq!(check(&guard, "http://127.0.0.1:8080/"), Ok(()));
    assert_eq!(check(&guard, "http://[::1]:8080/"), Ok(()));
    for closed in [
        "http://10.0.0.1/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::127.0.0.1]/",
        "http://0.0.0.0/",
    ] {
        assert!(check(&guard, closed).is_err(), "{closed}");
    }
}

#[test]
fn a_trusted_host_may_be_private_but_never_where_clouds_keep_credentials() {
    let trust = |url: &str| {
        Guard::public()
            .https_only()
            .trust(&Url::parse(url).expect("a URL"))
    };
    for own in [
        "http://127.0.0.1:8080/",
        "http://10.0.0.1/",
        "http://[fd12::1]/",
        "http://100.64.0.1/",
    ] {
        assert_eq!(check(&trust(own), own), Ok(()), "{own}");
    }
    for never in [
        "http://169.254.169.254/",
        "http://[fe80::1]/",
        "http://[fd00:ec2::254]/",
        "http://[fd20:ce::254]/",
        "http://100.100.100.200/",
        "http://0.0.0.0/",
        "http://224.0.0.1/",
    ] {
        assert!(check(&trust(never), never).is_err(), "{never}");
    }
    // Neither another port nor another host is trusted along with it.
    let guard = trust("http://127.0.0.1:8080/");
    assert!(check(&guard, "http://127.0.0.1:8081/").is_err());
    assert!(check(&guard, "http://127.0.0.2:8080/").is_err());
    assert!(guard.permits("127.0.0.1", 8080, "127.0.0.1".parse().expect("an address")));
    let named = trust("http://orders.internal/");
    assert!(named.permits(
        "orders.internal",
        80,
        "10.0.0.1".parse().expect("an address")
    ));
    assert!(!named.permits(
        "orders.internal",
        80,
        "169.254.169.254".parse().expect("an address")
    ));
    assert!(!named.permits(
        "other.internal",
        80,
        "10.0.0.1".parse().expect("an address")
    ));
}

#[test]
fn ports_of_other_protocols_are_closed_where_only_the_web_is_meant() {
    let own = Url::parse("http://orders.example:25/").expect("a URL");
    let guard = of(&EgressConfig {
        hosts: vec!["*.example".to_owned(), "mail.example:25".to_owned()],
        ..EgressConfig::default()
    });
    let guard = guard.web_ports_only().trust(&own);
    for closed in [
        "http://a.example:25/",
        "https://a.example:22/",
        "http://a.example:6667/",
        "http://a.example:10080/",
    ] {
        let message = check(&guard, closed).expect_err(closed);
        assert!(message.contains("another protocol"), "{message}");
    }
    for open in [
        "http://a.example/",
        "https://a.example/",
        "http://a.example:8080/",
        "http://a.example:3000/",
        "http://mail.example:25/",
        "http://orders.example:25/",
    ] {
        assert_eq!(check(&guard, open), Ok(()), "{open}");
    }
    assert_eq!(
        check(&Guard::public(), "http://a.example:25/"),
        Ok(()),
        "nobody has said so"
    );
    assert!(PORTS_OF_OTHERS.is_sorted());
}

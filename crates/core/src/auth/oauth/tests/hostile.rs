//! Tokens that somebody has made to get in with, each named by what is wrong with it.

use super::*;

/// Name, token, and what the refusal says; `None` if the token is good after all.
struct Cases(Vec<(String, String, Option<&'static str>)>);

impl Cases {
    fn add(&mut self, name: impl Into<String>, token: String, refusal: Option<&'static str>) {
        self.0.push((name.into(), token, refusal));
    }
}

const MALFORMED: Option<&str> = Some("the token is malformed");
const ALGORITHM: Option<&str> = Some("the token is signed with an algorithm that is not accepted");
const SIGNATURE: Option<&str> = Some("the signature of the token is wrong");
const EXTENSION: Option<&str> = Some("the token demands an extension that is not known");
const KIND: Option<&str> = Some("the token is not an access token");
const NO_TIME: Option<&str> = Some("a time in the token is not a number");
const NO_AUDIENCE: Option<&str> = Some("the token has no audience");
const FOREIGN: Option<&str> = Some("the token was issued for another audience");
const NO_SUBJECT: Option<&str> = Some("the token has no subject");
const NO_ISSUER: Option<&str> = Some("the token has no issuer");
const OTHER_ISSUER: Option<&str> = Some("the token is of another issuer");
const UNKNOWN_KEY: Option<&str> = Some("the token is signed with a key that is not known");
const WORDS: Option<&str> = Some("the scopes or groups in the token are not strings");

#[test]
fn no_hostile_token_gets_in_and_no_good_one_is_refused() {
    let (rsa, ec, ed) = (
        Signer::rsa("rsa", "RS256"),
        Signer::es256("ec"),
        Signer::ed25519("ed"),
    );
    let stranger = Signer::es256("ec");
    let tokens = tokens(|_| {});
    let issuer = &tokens.0.issuers[0];
    issuer.hold(&set_of(&[&rsa, &ec, &ed]));
    let mut cases = Cases(Vec::new());
    algorithms(&mut cases, &rsa, &ec, &ed);
    headers(&mut cases, &ec, &stranger);
    shapes(&mut cases, &ec);
    signatures(&mut cases, &rsa, &ec, &ed, &stranger);
    times(&mut cases, &ec);
    parties(&mut cases, &ec);
    assert!(170 <= cases.0.len(), "{}", cases.0.len());
    // The first key that is not known is asked for; after that, the others are refused at once.
    let first = stranger.token_of(
        header_with(&stranger, "kid", "first".into()),
        claims().to_string(),
    );
    assert!(matches!(judged(&tokens, &first), AuthOutcome::Later(_)));
    issuer.end_fetch();
    let mut wrong = Vec::new();
    for (name, token, refusal) in &cases.0 {
        let found = fault(judged(&tokens, token));
        if found.as_deref() != *refusal {
            wrong.push(format!("{name}: {found:?} instead of {refusal:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        cases.0.len(),
        wrong.join("\n")
    );
}

/// A good header with a member changed; `null` takes it away.
fn header_with(signer: &Signer, name: &str, value: Value) -> String {
    let mut header = signer.header();
    let members = header.as_object_mut().expect("an object");
    match value {
        Value::Null => members.remove(name),
        value => members.insert(name.to_owned(), value),
    };
    header.to_string()
}

fn algorithms(cases: &mut Cases, rsa: &Signer, ec: &Signer, ed: &Signer) {
    let claims = claims().to_string();
    for name in [
        "none",
        "None",
        "NONE",
        "nOnE",
        "",
        "HS256",
        "HS384",
        "HS512",
        "RS384",
        "RS512",
        "PS384",
        "PS512",
        "ES384",
        "ES512",
        "ES256K",
        "rs256",
        "Es256",
        "RS256 ",
        "RSA-OAEP",
        "dir",
        "A128KW",
        "EdDSA\u{0}",
        "Ed448",
    ] {
        for signer in [rsa, ec] {
            let header = header_with(signer, "alg", name.into());
            cases.add(
                format!("alg {name:?} by {}", signer.algorithm),
                signer.token_of(&header, &claims),
                ALGORITHM,
            );
        }
        let unsigned = format!(
            "{}.{}.",
            encode(header_with(ec, "alg", name.into())),
            encode(&claims)
        );
        cases.add(
            format!("alg {name:?} without a signature"),
            unsigned,
            ALGORITHM,
        );
    }
    for (name, value) in [
        ("a number", json!(256)),
        ("a list", json!(["ES256"])),
        ("an object", json!({})),
        ("true", json!(true)),
        ("absent", Value::Null),
    ] {
        cases.add(
            format!("alg is {name}"),
            ec.token_of(header_with(ec, "alg", value), &claims),
            ALGORITHM,
        );
    }
    // The key decides about the algorithm: a token cannot have another.
    for signer in [rsa, ec, ed] {
        for name in ["RS256", "PS256", "ES256", "EdDSA"]
            .iter()
            .filter(|n| **n != signer.algorithm)
        {
            let header = header_with(signer, "alg", (*name).into());
            cases.add(
                format!("{name} with a key for {}", signer.algorithm),
                signer.token_of(&header, &claims),
                ALGORITHM,
            );
        }
    }
    // The public key as a shared secret.
    let public = ec.jwk["x"].as_str().expect("a text");
    let header = header_with(ec, "alg", "HS256".into());
    let message = format!("{}.{}", encode(&header), encode(&claims));
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, public.as_bytes());
    let mac = aws_lc_rs::hmac::sign(&key, message.as_bytes());
    cases.add(
        "HMAC with the public key",
        format!("{message}.{}", encode(mac.as_ref())),
        ALGORITHM,
    );
    for signer in [rsa, ec, ed] {
        cases.add(
            format!("a good one by {}", signer.algorithm),
            signer.token(&super::claims()),
            None,
        );
    }
}

fn headers(cases: &mut Cases, ec: &Signer, stranger: &Signer) {
    let claims = claims().to_string();
    let mut with = |name: &str, value: Value, refusal| {
        let token = ec.token_of(header_with(ec, name, value.clone()), &claims);
        cases.add(format!("{name}: {value}"), token, refusal);
    };
    for value in [
        json!([]),
        json!(["exp"]),
        json!(["b64"]),
        json!("exp"),
        json!({}),
        json!(1),
    ] {
        with("crit", value, EXTENSION);
    }
    with("b64", json!(false), EXTENSION);
    with("b64", json!(true), EXTENSION);
    for kind in [
        "JWT",
        "jwt",
        "at+jwt",
        "AT+JWT",
        "application/at+jwt",
        "application/JWT",
    ] {
        with("typ", json!(kind), None);
    }
    with("typ", Value::Null, None);
    for kind in [
        "",
        "dpop+jwt",
        "logout+jwt",
        "secevent+jwt",
        "id_token",
        "JOSE",
        "at",
        "application/",
        "at+jwt ",
    ] {
        with("typ", json!(kind), KIND);
    }
    for kind in [json!(1), json!(["JWT"]), json!({}), json!(true)] {
        with("typ", kind, KIND);
    }
    for id in [json!(1), json!(["ec"]), json!({}), json!(true)] {
        with("kid", id, MALFORMED);
    }
    for id in [
        "",
        "unknown",
        "EC",
        "ec ",
        "../../../dev/null",
        "ec' OR '1'='1",
        "ec\u{0}",
        "|cat /etc/passwd",
    ] {
        with("kid", json!(id), UNKNOWN_KEY);
    }
    // Without an id there must be no doubt, and for ES256 there is but one.
    with("kid", Value::Null, None);
    // Where a key could be had is not looked at.
    for name in ["jku", "x5u"] {
        with(name, json!("https://attacker.example/keys"), None);
    }
    for name in ["jku", "x5u"] {
        let token = stranger.token_of(
            header_with(stranger, name, json!("https://attacker.example/keys")),
            &claims,
        );
        cases.add(format!("{name} of the attacker's key"), token, SIGNATURE);
    }
    for name in ["jwk", "x5c"] {
        let token = stranger.token_of(header_with(stranger, name, stranger.jwk.clone()), &claims);
        cases.add(format!("{name} is the attacker's key"), token, SIGNATURE);
    }
    let mut raw = |name: &str, header: &str, refusal| {
        cases.add(name, ec.token_of(header, &claims), refusal);
    };
    raw(
        "alg twice",
        r#"{"alg":"ES256","alg":"ES256","kid":"ec"}"#,
        MALFORMED,
    );
    raw(
        "alg twice, once none",
        r#"{"alg":"none","alg":"ES256","kid":"ec"}"#,
        MALFORMED,
    );
    raw(
        "alg twice, once escaped",
        r#"{"alg":"ES256","\u0061lg":"none","kid":"ec"}"#,
        MALFORMED,
    );
    raw(
        "kid twice",
        r#"{"alg":"ES256","kid":"ec","kid":"other"}"#,
        MALFORMED,
    );
    raw(
        "an unknown member twice",
        r#"{"alg":"ES256","kid":"ec","x":1,"x":2}"#,
        MALFORMED,
    );
    raw("a header that is a list", r#"["ES256"]"#, MALFORMED);
    raw("a header that is a text", r#""ES256""#, MALFORMED);
    raw("a header that is null", "null", MALFORMED);
    raw("a header that is no JSON", "ES256", MALFORMED);
    raw("an empty header", "", MALFORMED);
    raw("an empty object as header", "{}", ALGORITHM);
    raw(
        "a header with something behind it",
        r#"{"alg":"ES256","kid":"ec"}x"#,
        MALFORMED,
    );
    raw(
        "a header with a byte order mark",
        "\u{feff}{\"alg\":\"ES256\",\"kid\":\"ec\"}",
        MALFORMED,
    );
    raw(
        "a header with a comma too many",
        r#"{"alg":"ES256","kid":"ec",}"#,
        MALFORMED,
    );
    raw(
        "a header with a comment",
        r#"{"alg":"ES256"/**/,"kid":"ec"}"#,
        MALFORMED,
    );
    let deep = format!(
        r#"{{"alg":"ES256","kid":"ec","x":{}{}}}"#,
        "[".repeat(4_000),
        "]".repeat(4_000)
    );
    raw("a header of great depth", &deep, MALFORMED);
    let utf8 = [br#"{"alg":"ES256","kid":"ec","x":""#.as_slice(), b"\xff\"}"].concat();
    cases.add(
        "a header that is not UTF-8",
        ec.token_of(utf8, &claims),
        MALFORMED,
    );
    let huge = format!(
        r#"{{"alg":"ES256","kid":"ec","x":"{}"}}"#,
        "x".repeat(17_000)
    );
    cases.add(
        "a header that is too long",
        ec.token_of(huge, &claims),
        Some("the token is too long"),
    );
}

fn shapes(cases: &mut Cases, ec: &Signer) {
    let good = ec.token(&claims());
    let [header, payload, signature]: [&str; 3] = good
        .split('.')
        .collect::<Vec<_>>()
        .try_into()
        .expect("three parts");
    let characters = Some("the token has characters that no token has");
    for (name, token, refusal) in [
        ("one part", header.to_owned(), Some("absent")),
        ("two parts", format!("{header}.{payload}"), Some("absent")),
        ("four parts", format!("{good}.x"), Some("absent")),
        ("five parts", format!("{good}.x.y"), Some("absent")),
        ("nothing but dots", "..".to_owned(), MALFORMED),
        (
            "is not a header name, which is one or more letters, digits or !#$%&'*+-.^_`|~",
            format!(".{payload}.{signature}"),
            MALFORMED,
        ),
        ("no claims", format!("{header}..{signature}"), MALFORMED),
        ("no signature", format!("{header}.{payload}."), SIGNATURE),
        (
            "padding behind the header",
            format!("{header}==.{payload}.{signature}"),
            MALFORMED,
        ),
        (
            "padding behind the claims",
            format!("{header}.{payload}=.{signature}"),
            MALFORMED,
        ),
        (
            "padding behind the signature",
            format!("{good}="),
            MALFORMED,
        ),
        (
            "characters of the other alphabet",
            format!("{header}.{payload}.+{}", &signature[1..]),
            MALFORMED,
        ),
        (
            "a space inside",
            format!("{header}. {payload}.{signature}"),
            characters,
        ),
        ("a comma behind", format!("{good},"), characters),
        ("in quotation marks", format!("\"{good}\""), characters),
        ("a percent sign", format!("{good}%20"), characters),
        (
            "a tilde in the signature",
            format!("{header}.{payload}.~{}", &signature[1..]),
            MALFORMED,
        ),
        (
            "parts in another order",
            format!("{payload}.{header}.{signature}"),
            ALGORITHM,
        ),
        (
            "twice the header",
            format!("{header}.{header}.{signature}"),
            NO_ISSUER,
        ),
    ] {
        cases.add(name, token, refusal);
    }
    // 64 bytes end in the middle of a character, whose other bits must be zero.
    let mut loose = good.clone();
    let last = loose.pop().expect("a character");
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let at = alphabet.find(last).expect("a character of the alphabet");
    loose.push(alphabet.as_bytes()[at | 1] as char);
    cases.add("bits that say nothing", loose, MALFORMED);
    let header = ec.header().to_string();
    let text = claims().to_string();
    let inside = &text[1..text.len() - 1];
    let mut raw = |name: &str, claims: &str, refusal| {
        cases.add(name, ec.token_of(&header, claims), refusal);
    };
    raw("claims that are a list", "[]", MALFORMED);
    raw("claims that are a text", "\"x\"", MALFORMED);
    raw("claims that are null", "null", MALFORMED);
    raw("claims that are no JSON", "alice", MALFORMED);
    raw("no claims at all", "", MALFORMED);
    raw("an empty object as claims", "{}", NO_ISSUER);
    for (name, more) in [
        ("aud", format!(r#""aud":"{RESOURCE}""#)),
        ("iss", format!(r#""iss":"{ISSUER}""#)),
        ("exp", r#""exp":9999999999"#.to_owned()),
        ("sub", r#""sub":"alice""#.to_owned()),
        ("scope", r#""scope":"admin""#.to_owned()),
        ("aud, escaped", format!(r#""\u0061ud":"{RESOURCE}""#)),
        ("something inside", r#""x":{"a":1,"a":2}"#.to_owned()),
    ] {
        raw(
            &format!("{name} twice"),
            &format!("{{{inside},{more}}}"),
            MALFORMED,
        );
        raw(
            &format!("{name} twice, the other way round"),
            &format!("{{{more},{inside}}}"),
            MALFORMED,
        );
    }
    raw(
        "NaN as expiry",
        &text.replace(&format!("{}", NOW + 600), "NaN"),
        MALFORMED,
    );
    raw(
        "Infinity as expiry",
        &text.replace(&format!("{}", NOW + 600), "Infinity"),
        MALFORMED,
    );
    raw(
        "a number with a plus",
        &text.replace(&format!("{}", NOW + 600), "+1800000600"),
        MALFORMED,
    );
    raw(
        "something behind the claims",
        &format!("{text}{{}}"),
        MALFORMED,
    );
    raw(
        "claims in single quotes",
        &text.replace('"', "'"),
        MALFORMED,
    );
    let deep = format!(
        r#"{{{inside},"x":{}{}}}"#,
        "[".repeat(4_000),
        "]".repeat(4_000)
    );
    raw("claims of great depth", &deep, MALFORMED);
    let objects = format!(
        r#"{{{inside},"x":{}1{}}}"#,
        r#"{"a":"#.repeat(20),
        "}".repeat(20)
    );
    raw("objects of some depth", &objects, MALFORMED);
    raw(
        "claims with a NUL",
        &text.replace("alice", "ali\u{0}ce"),
        MALFORMED,
    );
}

fn signatures(cases: &mut Cases, rsa: &Signer, ec: &Signer, ed: &Signer, stranger: &Signer) {
    for signer in [rsa, ec, ed] {
        let name = signer.algorithm;
        let good = signer.token(&claims());
        let (message, signature) = good.rsplit_once('.').expect("parts");
        let bytes = URL_SAFE_NO_PAD.decode(signature).expect("base64");
        let mut with = |what: &str, bytes: Vec<u8>| {
            cases.add(
                format!("{name}: {what}"),
                format!("{message}.{}", encode(bytes)),
                SIGNATURE,
            );
        };
        let mut flipped = bytes.clone();
        flipped[5] ^= 1;
        with("a bit flipped", flipped);
        let mut last = bytes.clone();
        *last.last_mut().expect("a byte") ^= 0x80;
        with("the last byte changed", last);
        with("one byte less", bytes[1..].to_vec());
        with("one byte more", [&bytes[..], &[0]].concat());
        with("one byte in front", [&[0], &bytes[..]].concat());
        with("all zeros", vec![0; bytes.len()]);
        with("all ones", vec![0xff; bytes.len()]);
        with("twice", [&bytes[..], &bytes[..]].concat());
        with("nothing", Vec::new());
        let mut other = claims();
        other["sub"] = "root".into();
        let swapped = signer.token(&other);
        let (foreign, _) = swapped.rsplit_once('.').expect("parts");
        cases.add(
            format!("{name}: of another message"),
            format!("{foreign}.{signature}"),
            SIGNATURE,
        );
    }
    cases.add(
        "signed by a stranger under a known id",
        stranger.token(&claims()),
        SIGNATURE,
    );
    // ES256 has both numbers side by side; ASN.1 is what other protocols have.
    let good = ec.token(&claims());
    let (message, signature) = good.rsplit_once('.').expect("parts");
    let bytes = URL_SAFE_NO_PAD.decode(signature).expect("base64");
    let number = |bytes: &[u8]| [&[2, 33, 0][..], bytes].concat();
    let pair = [number(&bytes[..32]), number(&bytes[32..])].concat();
    let der = [&[0x30, 70][..], &pair].concat();
    cases.add(
        "ES256 in ASN.1",
        format!("{message}.{}", encode(der)),
        SIGNATURE,
    );
    let half = [&bytes[..32], &[0; 32]].concat();
    cases.add(
        "ES256 with s = 0",
        format!("{message}.{}", encode(half)),
        SIGNATURE,
    );
    let half = [&[0; 32], &bytes[32..]].concat();
    cases.add(
        "ES256 with r = 0",
        format!("{message}.{}", encode(half)),
        SIGNATURE,
    );
}

/// Good claims with a member changed; `"absent"` takes it away.
fn claims_with(name: &str, value: &Value) -> Value {
    let mut claims = claims();
    let members = claims.as_object_mut().expect("an object");
    match value {
        Value::String(text) if text == "absent" => members.remove(name),
        value => members.insert(name.to_owned(), value.clone()),
    };
    claims
}

fn times(cases: &mut Cases, ec: &Signer) {
    let mut with = |name: &str, value: Value, refusal| {
        let claims = claims_with(name, &value);
        cases.add(format!("{name}: {value}"), ec.token(&claims), refusal);
    };
    let expired = Some("the token has expired");
    with("exp", json!("absent"), Some("the token has no expiry"));
    for value in [
        Value::Null,
        json!((NOW + 600).to_string()),
        json!("never"),
        json!(true),
        json!([NOW + 600]),
        json!({}),
        json!(-1),
        json!(1e300),
        json!(-1e300),
        json!(1e17),
    ] {
        with("exp", value, NO_TIME);
    }
    for (value, refusal) in [
        (json!(0), expired),
        (json!(NOW - 3600), expired),
        (json!(NOW - 60), expired),
        (json!(NOW - 59), None),
        (json!(NOW), None),
        (json!(NOW as f64 + 0.5), None),
        (json!(9_007_199_254_740_991_u64), None),
    ] {
        with("exp", value, refusal);
    }
    for (name, early) in [
        ("nbf", "the token is not valid yet"),
        ("iat", "the token was issued in the future"),
    ] {
        with(name, json!("absent"), None);
        for value in [
            Value::Null,
            json!("9999999999"),
            json!((NOW - 10).to_string()),
            json!(false),
            json!([]),
            json!({}),
            json!(-1),
            json!(1e300),
        ] {
            with(name, value, NO_TIME);
        }
        with(name, json!(NOW + 60), None);
        with(name, json!(NOW + 61), Some(early));
        with(name, json!(NOW + 86_400), Some(early));
    }
}

fn parties(cases: &mut Cases, ec: &Signer) {
    let mut with = |name: &str, value: Value, refusal| {
        let claims = claims_with(name, &value);
        let shown: String = value.to_string().chars().take(60).collect();
        cases.add(format!("{name}: {shown}"), ec.token(&claims), refusal);
    };
    for value in [
        json!("absent"),
        Value::Null,
        json!(1),
        json!([ISSUER]),
        json!({}),
    ] {
        with("iss", value, NO_ISSUER);
    }
    for value in [
        "",
        "https://id.example.com/",
        "https://ID.example.com",
        "http://id.example.com",
        "https://id.example.com.attacker.example",
        "https://attacker.example",
        "id.example.com",
        " https://id.example.com",
        "https://id.example.com#",
        "https://id.example.com\u{0}",
    ] {
        with("iss", json!(value), OTHER_ISSUER);
    }
    for value in [
        json!("absent"),
        Value::Null,
        json!(1),
        json!(true),
        json!({}),
        json!([]),
        json!([1]),
        json!([RESOURCE, 1]),
        json!([RESOURCE, null]),
        json!([[RESOURCE]]),
    ] {
        with("aud", value, NO_AUDIENCE);
    }
    for value in [
        "",
        "https://mcp.example.com",
        "https://mcp.example.com/mcp/x",
        "https://mcp.example.com/MCP",
        "https://MCP.example.com/mcp",
        "http://mcp.example.com/mcp",
        "https://mcp.example.com.attacker.example/mcp",
        "*",
        "https://mcp.example.com/mcp https://other.example",
        "https://mcp.example.com/mcp\u{0}",
        "account",
        "client",
    ] {
        with("aud", json!(value), FOREIGN);
    }
    with("aud", json!(["https://other.example", "x"]), FOREIGN);
    with("aud", json!(["https://other.example", RESOURCE]), None);
    with("aud", json!(format!("{RESOURCE}/")), None);
    for value in [
        json!("absent"),
        Value::Null,
        json!(""),
        json!(1),
        json!(["alice"]),
        json!({}),
        json!("a".repeat(1025)),
        json!("a\nb"),
        json!("\u{7f}"),
    ] {
        with("sub", value, NO_SUBJECT);
    }
    with("sub", json!("\u{e4}\u{6c34} alice"), None);
    for value in [
        json!(1),
        json!({}),
        json!(true),
        json!([1]),
        json!(["mcp", null]),
    ] {
        with("scope", value, WORDS);
    }
    for value in [json!("absent"), Value::Null, json!(""), json!(["mcp"])] {
        with("scope", value, None);
    }
    with("groups", json!([1]), WORDS);
    with("groups", json!({"a": 1}), WORDS);
    with("groups", json!(["ops"]), None);
    with(
        "scope",
        json!("a ".repeat(2_000)),
        Some("the token has too many scopes or groups"),
    );
}

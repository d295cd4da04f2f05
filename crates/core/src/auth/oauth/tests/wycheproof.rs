//! Vectors of others: the signatures and keys of Project Wycheproof (github.com/C2SP/wycheproof, commit dac1dd4,
//! Apache-2.0), shortened to what concerns verifying.

use super::*;

/// What the vectors hold valid and this server refuses, because it is stricter than the specification.
fn is_refused_on_purpose(key: &Value, header: &Value) -> bool {
    let accepted = ["RS256", "PS256", "ES256", "EdDSA"];
    let algorithm = header["alg"].as_str().unwrap_or_default();
    let for_others = key["use"].as_str().is_some_and(|u| u != "sig")
        || key["kty"] == "oct"
        || key["key_ops"]
            .as_array()
            .is_some_and(|ops| !ops.iter().any(|o| o == "verify"));
    for_others || !accepted.contains(&algorithm)
}

fn check(vectors: &str, verified_min: usize) {
    let vectors: Value = serde_json::from_str(vectors).expect("JSON");
    let (mut verified, mut refused) = (0, 0);
    for group in vectors["testGroups"].as_array().expect("groups") {
        let key = match &group["public"] {
            Value::Null => &group["private"],
            public => public,
        };
        let set = match key.get("keys") {
            Some(_) => key.to_string(),
            None => json!({"keys": [key]}).to_string(),
        };
        for test in group["tests"].as_array().expect("tests") {
            let Some(jws) = test["jws"].as_str() else {
                continue;
            };
            let good = verifies(&set, jws);
            let name = format!("{} {}: {}", group["comment"], test["tcId"], test["comment"]);
            match test["result"].as_str() {
                Some("valid") if good => verified += 1,
                Some("valid") => {
                    let header = jws.split('.').next().unwrap_or_default();
                    let header = URL_SAFE_NO_PAD.decode(header).unwrap_or_default();
                    let header: Value = serde_json::from_slice(&header).unwrap_or_default();
                    let single = key.get("keys").map_or(key, |keys| &keys[0]);
                    assert!(is_refused_on_purpose(single, &header), "{name} is valid");
                }
                _ => {
                    assert!(!good, "{name} is invalid");
                    refused += 1;
                }
            }
        }
    }
    assert!(
        verified_min <= verified && verified < refused,
        "{verified}, {refused}"
    );
}

/// Whether our own reader and verifier take the signature. The payloads of the vectors are no claims.
fn verifies(set: &str, jws: &str) -> bool {
    let Ok(keys) = keys::KeySet::read(set.as_bytes()) else {
        return false;
    };
    Token::verifies(jws, &keys)
}

#[test]
fn signatures_of_wycheproof_are_told_apart() {
    check(include_str!("data/json_web_signature_test.json"), 10);
}

#[test]
fn keys_of_wycheproof_are_used_for_what_they_are_for() {
    check(include_str!("data/json_web_key_test.json"), 0);
}

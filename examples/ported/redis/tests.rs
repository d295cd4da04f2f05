use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use redis::Arg;
use serde_json::json;

use super::*;

/// Strings and lists in memory.
#[derive(Default)]
struct Memory(Mutex<BTreeMap<String, Vec<String>>>);

impl Store for Memory {
    async fn run(&self, command: Cmd) -> Result<Value, RedisError> {
        let words: Vec<String> = command
            .args_iter()
            .filter_map(|word| match word {
                Arg::Simple(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
                _ => None,
            })
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = |text: &String| Value::BulkString(text.clone().into_bytes());
        let texts = |texts: &[String]| Value::Array(texts.iter().map(text).collect());
        Ok(match words[..] {
            ["SET", key, value, ..] => {
                all.insert(key.to_owned(), vec![value.to_owned()]);
                Value::Okay
            }
            ["GET", key] => all.get(key).map_or(Value::Nil, |values| text(&values[0])),
            ["RPUSH", key, value] => {
                let list = all.entry(key.to_owned()).or_default();
                list.push(value.to_owned());
                Value::Int(list.len() as i64)
            }
            ["LRANGE", key, "0", "-1"] => texts(all.get(key).map_or(&[], Vec::as_slice)),
            ["DEL", key] => Value::Int(all.remove(key).is_some().into()),
            ["EXISTS", key] => Value::Int(all.contains_key(key).into()),
            ["EXPIRE", key, _] => Value::Int(all.contains_key(key).into()),
            ["DBSIZE"] => Value::Int(all.len() as i64),
            // A page has one key.
            ["SCAN", cursor, ..] => {
                let at: usize = cursor.parse().expect("a number");
                let next = if at + 1 < all.len() { at + 1 } else { 0 };
                let keys: Vec<String> = all.keys().skip(at).take(1).cloned().collect();
                Value::Array(vec![text(&next.to_string()), texts(&keys)])
            }
            _ => {
                let unknown = (redis::ErrorKind::Extension, "unknown command");
                return Err(RedisError::from(unknown));
            }
        })
    }
}

#[tokio::test]
async fn values_are_set_and_read() -> longshore::Result {
    let server = app(Memory::default()).harness()?;
    assert_eq!(server.tools().await?.len(), 28);
    for (value, text) in [
        (json!("a"), "a"),
        (json!({"b": 1}), r#"{"b":1}"#),
        (json!(7), "7"),
    ] {
        let set = json!({"key": "k", "value": value, "expiration": 60});
        assert_eq!(server.call("set", set).await?.text(), "k is set");
        assert_eq!(server.call("get", json!({"key": "k"})).await?.text(), text);
    }
    assert!(
        server
            .call("delete", json!({"key": "k"}))
            .await?
            .structured::<bool>()?
    );
    let gone = server.call("get", json!({"key": "k"})).await?;
    assert_eq!((gone.is_error(), &*gone.text()), (true, "k does not exist"));
    Ok(())
}

#[tokio::test]
async fn lists_have_a_default_range() -> longshore::Result {
    let server = app(Memory::default()).harness()?;
    for value in ["a", "b"] {
        server
            .call("rpush", json!({"name": "l", "value": value}))
            .await?;
    }
    let all = server.call("lrange", json!({"name": "l"})).await?;
    assert_eq!(all.structured::<Vec<String>>()?, ["a", "b"]);
    let failed = server.call("lpop", json!({"name": "l"})).await?;
    assert!(
        failed.is_error() && failed.text().starts_with("unknown command"),
        "{failed}"
    );
    Ok(())
}

#[tokio::test]
async fn a_scan_reports_its_progress() -> longshore::Result {
    let server = app(Memory::default()).harness()?;
    for key in ["a", "b"] {
        server
            .call("set", json!({"key": key, "value": "x"}))
            .await?;
    }
    let all = server.call("scan_all_keys", json!({})).await?;
    assert_eq!(all.structured::<Vec<String>>()?, ["a", "b"]);
    assert_eq!(all.progress()[0].progress, 1.0);
    let some = server.call("scan_keys", json!({"pattern": "*"})).await?;
    assert_eq!(some["structuredContent"]["cursor"], 1);
    Ok(())
}

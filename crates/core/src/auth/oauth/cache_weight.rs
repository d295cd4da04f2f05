//! Memory sizes of cached principals, for the bounds of caches.

use serde_json::{Map, Value};

use crate::auth::Principal;

/// Size of a cache entry and of a principal without its attributes, in bytes.
pub(super) const ENTRY_BYTES: u64 = 512;
/// Size of a member's place in a map besides its name and value, in bytes: hash, index and spare room.
const MEMBER_BYTES: usize = 32;

/// Returns the approximate memory size of a cached principal, in bytes.
///
/// Parsed claims can take many times the memory of their text: a digit takes as much as any other value.
pub(super) fn principal_bytes(principal: &Principal) -> u64 {
    let words = principal.scopes().chain(principal.groups());
    let words: usize = words.map(|word| size_of::<Box<str>>() + word.len()).sum();
    ENTRY_BYTES + (words + members_bytes(principal.claims())) as u64
}

fn members_bytes(members: &Map<String, Value>) -> usize {
    let place = MEMBER_BYTES + size_of::<String>() + size_of::<Value>();
    let each = members.iter();
    each.map(|(name, value)| place + name.capacity() + heap_bytes(value))
        .sum()
}

/// Memory that a value takes beyond its own place.
fn heap_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.capacity(),
        Value::Array(items) => {
            let places = items.capacity() * size_of::<Value>();
            places + items.iter().map(heap_bytes).sum::<usize>()
        }
        Value::Object(members) => members_bytes(members),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_weigh_what_they_take_in_memory() {
        let claims = |value: Value| match json!({ "a": value }) {
            Value::Object(claims) => Principal::anonymous().with_claims(claims),
            _ => unreachable!("an object"),
        };
        let text = principal_bytes(&claims("x".repeat(2000).into()));
        assert!((2000..3000).contains(&text), "{text}");
        let digits = principal_bytes(&claims(vec![0; 1000].into()));
        assert!(1000 * size_of::<Value>() as u64 <= digits, "{digits}");
    }
}

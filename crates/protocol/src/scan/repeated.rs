//! Finds members that an object has twice.

use std::borrow::Cow;
use std::collections::HashSet;

use super::{ScanError, Scanner};

/// A step in the path to a value.
enum PathStep<'a> {
    Member(Cow<'a, str>),
    Item(usize),
}

/// Finds the first repeated member name of an object in a document. Returns its path, as in `items[0].name`.
#[cold]
pub fn repeated_member(document: &str) -> Option<String> {
    let mut path = Vec::new();
    // The scanner has rejected everything that it does not read.
    let found = look_for_repeated(&mut Scanner::new(document), &mut path);
    if found != Ok(true) {
        return None;
    }
    let mut text = String::new();
    for step in path {
        match step {
            PathStep::Item(index) => text.push_str(&format!("[{index}]")),
            PathStep::Member(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(&name);
            }
        }
    }
    Some(text)
}

/// Recursion is bounded by [`DEPTH_MAX`].
fn look_for_repeated<'a>(
    scanner: &mut Scanner<'a>,
    path: &mut Vec<PathStep<'a>>,
) -> Result<bool, ScanError> {
    match scanner.peek() {
        Some(b'{') => {
            // Most objects have so few that comparing is faster than hashing.
            const FEW: usize = 16;
            let mut few: Vec<Cow<'a, str>> = Vec::new();
            let mut many: HashSet<Cow<'a, str>> = HashSet::new();
            let mut begun = false;
            while let Some(key) = scanner.next_key(&mut begun)? {
                let name = key.unescape();
                path.push(PathStep::Member(name.clone()));
                let is_repeated = few.contains(&name) || many.contains(&name);
                if is_repeated || look_for_repeated(scanner, path)? {
                    return Ok(true);
                }
                if few.len() < FEW {
                    few.push(name);
                } else {
                    many.insert(name);
                }
                path.pop();
            }
            Ok(false)
        }
        Some(b'[') => {
            let mut index = 0;
            let mut found = false;
            scanner
                .array(|scanner| {
                    path.push(PathStep::Item(index));
                    index += 1;
                    found = look_for_repeated(scanner, path)?;
                    if found {
                        // Ends the walk.
                        return scanner.error("a member appears twice");
                    }
                    path.pop();
                    Ok(())
                })
                .or_else(|error| if found { Ok(()) } else { Err(error) })?;
            Ok(found)
        }
        _ => scanner.value().map(|_| false),
    }
}

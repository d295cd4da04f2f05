//! Protocol methods of an application's own.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::error::AppError;
use crate::protocol::Method;
use crate::server::MethodHandler;

/// Name and handler of a method.
pub(super) type Added = (String, Arc<dyn MethodHandler>);

/// Returns the handlers by name.
pub(super) fn by_name(
    added: Vec<Added>,
) -> Result<HashMap<String, Arc<dyn MethodHandler>>, AppError> {
    let mut methods = HashMap::with_capacity(added.len());
    for (name, handler) in added {
        if let Some(problem) = fault_of(&name) {
            return Err(AppError::Method { name, problem });
        }
        match methods.entry(name) {
            Entry::Vacant(entry) => entry.insert(handler),
            Entry::Occupied(entry) => {
                let name = entry.key().clone();
                let problem = "it was added twice; rename one of them";
                return Err(AppError::Method { name, problem });
            }
        };
    }
    Ok(methods)
}

/// Returns the problem with a name. A method that could never be called is an error at start.
fn fault_of(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("a method has a name, such as \"com.example/load\"");
    }
    Method::parse(name).map(|_| {
        "the specification defines it, and the server handles it; use a name with your own prefix, such as \"com.example/load\""
    })
}

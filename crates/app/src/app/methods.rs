//! The methods that an application adds.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::AppError;
use crate::protocol::Method;
use crate::server::MethodHandler;

/// A method and who answers it, as they were added.
pub(super) type Added = (String, Arc<dyn MethodHandler>);

/// Methods by name, each with one who answers it.
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
                let problem = "it was added twice; give one of them another name";
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
        "it is the specification's own, which the server answers; names with a prefix of one's own, such as \
         \"com.example/load\", never clash"
    })
}

//! Values that an application shares with its tools, resources and prompts.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Values of an application, one of each type, as collected by `App::provide`.
///
/// Parameters with `#[state]` are taken from it once, at start. A handwritten [`Tool`](crate::Tool) can do the same in
/// its [`bind`](crate::Tool::bind).
///
/// ```
/// use longshore::catalog::Provided;
///
/// struct Rates(Vec<f64>);
///
/// let mut provided = Provided::default();
/// provided.insert(Rates(vec![1.08]));
/// assert_eq!(provided.get::<Rates>().expect("inserted").0, [1.08]);
/// let missing = provided.get::<String>().expect_err("there is none");
/// assert_eq!(missing.type_name(), "alloc::string::String");
/// ```
#[derive(Clone, Default)]
pub struct Provided(HashMap<TypeId, Value>);

#[derive(Clone)]
struct Value {
    type_name: &'static str,
    value: Arc<dyn Any + Send + Sync>,
}

/// A value that is needed and was not provided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a value of the type `{type_name}` is needed, and none was provided; add it with App::provide"
)]
pub struct Unprovided {
    type_name: &'static str,
}

impl Unprovided {
    /// The name of its type, with the path.
    pub fn type_name(self) -> &'static str {
        self.type_name
    }
}

impl Provided {
    /// Adds a value, or replaces the one of the same type.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.insert_shared(Arc::new(value));
    }

    /// Adds a value that others share, or replaces the one of the same type.
    pub(super) fn insert_shared<T: Send + Sync + 'static>(&mut self, value: Arc<T>) {
        let type_name = type_name::<T>();
        self.0.insert(TypeId::of::<T>(), Value { type_name, value });
    }

    /// Adds the values of another application, for types of which there is none yet.
    #[doc(hidden)]
    #[must_use]
    pub fn or(mut self, others: &Self) -> Self {
        for (kind, value) in &others.0 {
            self.0.entry(*kind).or_insert_with(|| value.clone());
        }
        self
    }

    /// Returns true if there are no values.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a type.
    ///
    /// # Errors
    ///
    /// None of this type was provided.
    pub fn get<T: Send + Sync + 'static>(&self) -> Result<Arc<T>, Unprovided> {
        let found = self.0.get(&TypeId::of::<T>());
        let found = found.and_then(|found| Arc::clone(&found.value).downcast().ok());
        found.ok_or(Unprovided {
            type_name: type_name::<T>(),
        })
    }
}

impl fmt::Debug for Provided {
    /// The types alone: a value may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut types: Vec<_> = self.0.values().map(|value| value.type_name).collect();
        types.sort_unstable();
        f.debug_tuple("Provided").field(&types).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_value_of_a_type_replaces_the_earlier_one() {
        let mut provided = Provided::default();
        provided.insert(1_u32);
        let before = provided.clone();
        provided.insert(2_u32);
        assert_eq!(provided.get::<u32>().as_deref(), Ok(&2));
        assert_eq!(before.get::<u32>().as_deref(), Ok(&1));
        assert!(provided.get::<u64>().is_err());
    }

    #[test]
    fn debug_output_has_types_and_no_values() {
        let mut provided = Provided::default();
        provided.insert("a secret".to_owned());
        assert_eq!(
            format!("{provided:?}"),
            r#"Provided(["alloc::string::String"])"#
        );
    }
}

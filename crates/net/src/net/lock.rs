//! Locks that stay usable after a thread that held them has panicked.
//!
//! A panic of one request must not fail all later ones. Code that holds a lock leaves its content valid at every step.

use std::sync::{MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard};

/// A [`std::sync::Mutex`] without poisoning.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(content: T) -> Self {
        Self(std::sync::Mutex::new(content))
    }

    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A [`std::sync::RwLock`] without poisoning.
#[derive(Debug, Default)]
pub struct RwLock<T>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    pub const fn new(content: T) -> Self {
        Self(std::sync::RwLock::new(content))
    }

    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_panic_of_a_holder_leaves_the_content_accessible() {
        let (mutex, lock) = (Mutex::new(1), RwLock::new(1));
        let panics = catch_unwind(AssertUnwindSafe(|| {
            (*mutex.lock(), *lock.write()) = (2, 2);
            let _held = (mutex.lock(), lock.write());
            panic!("expected");
        }));
        assert!(panics.is_err());
        assert_eq!((*mutex.lock(), *lock.read()), (2, 2));
        *lock.write() = 3;
        assert_eq!((mutex.into_inner(), *lock.read()), (2, 3));
    }
}

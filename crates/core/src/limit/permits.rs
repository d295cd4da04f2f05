//! Concurrency permits of one call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use super::concurrency::{ConcurrencyLimit, Permit};
use super::{Limit, LimitCounters, LimitExceeded, Pressure};

/// Permits that a call holds or waits for.
#[derive(Debug)]
pub struct PermitRequest {
    pub(super) places: [Option<ConcurrencyLimit>; 3],
    pub(super) hits: Arc<LimitCounters>,
    /// A [`Pressure`].
    pub(super) memory: Arc<AtomicU8>,
    pub(super) busy: ActiveCall,
}

/// The places of one call, until this is dropped.
#[derive(Debug)]
pub struct CallPermits {
    places: [Option<Permit>; 3],
    _busy: ActiveCall,
}

impl CallPermits {
    /// Gives the permits to other calls, until [`take_again`](Self::take_again).
    pub fn release(&mut self) {
        self.places.iter_mut().flatten().for_each(Permit::release);
    }

    /// Waits for permits in place of the released ones.
    pub async fn take_again(mut self) -> Self {
        for place in self.places.iter_mut().flatten() {
            place.take_again().await;
        }
        self
    }
}

/// Counts a call for as long as it has places or waits for them.
#[derive(Debug)]
pub(super) struct ActiveCall(Arc<AtomicUsize>);

impl ActiveCall {
    pub(super) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for ActiveCall {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl PermitRequest {
    /// Waits for all of them.
    ///
    /// # Errors
    ///
    /// Too many wait already, it takes too long, or memory has become short meanwhile.
    pub async fn wait(self) -> Result<CallPermits, LimitExceeded> {
        let mut held = [const { None }; 3];
        for (held, places) in held.iter_mut().zip(self.places) {
            let Some(places) = places else {
                continue;
            };
            let place = match places.wait() {
                Ok(waiting) => waiting.await,
                Err(refused) => Err(refused),
            };
            *held = Some(place.inspect_err(|refused| self.hits.count(refused.limit))?);
        }
        if Pressure::of(self.memory.load(Relaxed)) == Pressure::Critical {
            self.hits.count(Limit::Memory);
            return Err(LimitExceeded::MEMORY);
        }
        Ok(CallPermits {
            places: held,
            _busy: self.busy,
        })
    }

    /// Takes the free permits, for a call that runs already.
    pub fn take(self) -> CallPermits {
        let places = self.places;
        CallPermits {
            places: places.map(|places| places.map(|places| places.take())),
            _busy: self.busy,
        }
    }
}

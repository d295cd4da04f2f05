//! The clock of a worker, and the timer that hyper's HTTP/2 has.
//!
//! hyper asks what time it is three times for each request, to know when a connection was last heard of; that decides when
//! the client is sent a ping, seconds later. The worker's clock, which ticks once a second, is good enough for it and costs
//! no look at the system's. And it polls a sleep with each request, to see whether that ping is due: a flag says so.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use hyper_util::rt::TokioTimer;

/// Seconds since a worker started, counted by its sweep.
#[derive(Debug)]
pub(crate) struct WorkerClock {
    began: Instant,
    seconds: AtomicU32,
}

impl WorkerClock {
    #[inline]
    pub(crate) fn now(&self) -> u32 {
        self.seconds.load(Relaxed)
    }

    pub(crate) fn tick(&self) -> u32 {
        self.seconds.fetch_add(1, Relaxed) + 1
    }

    /// The time of its next tick: what is to happen so long after now happens a second late at most, and never early.
    #[inline]
    fn instant(&self) -> Instant {
        self.began + Duration::from_secs(u64::from(self.now()) + 1)
    }
}

impl Default for WorkerClock {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            seconds: AtomicU32::new(0),
        }
    }
}

/// tokio's timer, and the time to the second.
#[derive(Debug)]
pub(super) struct CoarseTimer {
    clock: Arc<WorkerClock>,
    timer: TokioTimer,
}

impl CoarseTimer {
    pub(super) fn new(clock: Arc<WorkerClock>) -> Self {
        Self {
            clock,
            timer: TokioTimer::new(),
        }
    }
}

impl Timer for CoarseTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(QuietSleep::new(self.timer.sleep(duration)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(QuietSleep::new(self.timer.sleep_until(deadline)))
    }

    fn now(&self) -> Instant {
        self.clock.instant()
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, new_deadline: Instant) {
        *sleep = self.sleep_until(new_deadline);
    }
}

/// A sleep that is asked only once it has rung.
struct QuietSleep {
    sleep: Pin<Box<dyn Sleep>>,
    /// What it rings; `None` until it is asked for the first time.
    alarm: Option<Arc<Alarm>>,
}

#[derive(Debug)]
struct Alarm {
    task: Waker,
    has_rung: AtomicBool,
}

impl QuietSleep {
    fn new(sleep: Pin<Box<dyn Sleep>>) -> Self {
        Self { sleep, alarm: None }
    }
}

impl Sleep for QuietSleep {}

impl Future for QuietSleep {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(alarm) = &self.alarm
            && alarm.task.will_wake(cx.waker())
            && !alarm.has_rung.load(Acquire)
        {
            return Poll::Pending;
        }
        let alarm = Arc::new(Alarm {
            task: cx.waker().clone(),
            has_rung: AtomicBool::new(false),
        });
        self.alarm = Some(Arc::clone(&alarm));
        let waker = Waker::from(alarm);
        self.sleep.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.has_rung.store(true, Release);
        self.task.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Counts how often it is asked.
    struct Asked(Pin<Box<dyn Sleep>>, Arc<AtomicUsize>);

    impl Sleep for Asked {}

    impl Future for Asked {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            self.1.fetch_add(1, Relaxed);
            self.0.as_mut().poll(cx)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_sleep_is_asked_when_it_has_rung_and_by_somebody_else() {
        let asked = Arc::new(AtomicUsize::new(0));
        let sleep = TokioTimer::new().sleep(Duration::from_secs(20));
        let mut sleep = QuietSleep::new(Box::pin(Asked(sleep, Arc::clone(&asked))));
        let began = tokio::time::Instant::now();
        let somebody = &mut Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut sleep).poll(somebody).is_pending());
        let mut rounds = 0;
        poll_fn(|cx| {
            rounds += 1;
            let mut polled = Poll::Pending;
            for _ in 0..3 {
                if polled.is_pending() {
                    polled = Pin::new(&mut sleep).poll(cx);
                }
            }
            polled
        })
        .await;
        assert_eq!((rounds, asked.load(Relaxed)), (2, 3));
        assert_eq!(began.elapsed(), Duration::from_secs(20));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_that_is_moved_is_the_one_that_counts() {
        let timer = CoarseTimer::new(Arc::default());
        let began = tokio::time::Instant::now();
        let mut sleep = timer.sleep(Duration::from_secs(5));
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(sleep.as_mut().poll(cx).is_pending());
        timer.reset(&mut sleep, began.into_std() + Duration::from_secs(60));
        sleep.await;
        assert_eq!(began.elapsed(), Duration::from_secs(60));
    }
}

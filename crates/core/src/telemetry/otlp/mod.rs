//! Sending what was observed to a collector, by the OpenTelemetry protocol.
//!
//! One thread with a runtime of its own collects and sends, so that no request ever waits for a collector. Each signal is
//! sent apart, so that none waits for another's collector. What does not fit into a queue is dropped and counted.

mod client;
#[cfg(feature = "cli")]
mod examine;
mod metrics;
mod records;
mod send;
mod spans;

use std::io;
use std::thread;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::config::SpanNames;
use super::metrics::Metrics;
use super::outbox::Outbox;
use super::records::Record;
use super::settings::{Batching, ExportSettings};
use super::trace::Span;
#[cfg(feature = "cli")]
pub use examine::examine;
use send::{MetricSender, RecordSender, SpanSender, resource};

/// The thread that sends.
#[derive(Debug)]
pub(crate) struct Exporter {
    stop: watch::Sender<bool>,
    done: oneshot::Receiver<()>,
    /// Where spans go, if there is a place for them.
    pub(super) spans: Option<Outbox<Box<Span>>>,
    /// Where log records go, if there is a place for them.
    pub(super) records: Option<mpsc::Sender<Record>>,
}

impl Exporter {
    /// Starts the thread.
    pub(super) fn start(
        settings: ExportSettings,
        metrics: Metrics,
        names: SpanNames,
    ) -> io::Result<Self> {
        for doubt in &settings.doubts {
            tracing::warn!("{doubt}");
        }
        let spans = Outbox::new(settings.spans.queue, settings.spans.batch);
        let (records, inbox) = mpsc::channel(settings.records.queue);
        let (stop, stopped) = watch::channel(false);
        let (tell_done, done) = oneshot::channel();
        let exporter = Self {
            stop,
            done,
            spans: settings.traces.is_some().then(|| spans.clone()),
            records: settings.logs.is_some().then_some(records),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        thread::Builder::new()
            .name("longshore-telemetry".to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    let resource = resource(&settings);
                    let of_spans = SpanSender::new(&settings, &resource, &metrics, names);
                    let of_records = RecordSender::new(&settings, &resource, &metrics);
                    let of_metrics = MetricSender::new(&settings, resource, metrics);
                    let stopped = Stopped(stopped);
                    tokio::join!(
                        pass_spans(spans, of_spans, settings.spans, stopped.clone()),
                        pass_records(inbox, of_records, settings.records, stopped.clone()),
                        pass_metrics(of_metrics, settings.metric_interval, stopped),
                    );
                    let _ = tell_done.send(());
                });
            })?;
        Ok(exporter)
    }

    /// Sends what is there, and ends.
    pub async fn flush(self, within: Duration) {
        drop(self.spans);
        drop(self.records);
        let _ = self.stop.send(true);
        if tokio::time::timeout(within, self.done).await.is_err() {
            tracing::debug!("the collector took too long; what was left is lost");
        }
    }
}

/// Sends spans, a batch at once and what there is from time to time; and what waits, when it is stopped.
async fn pass_spans(
    spans: Outbox<Box<Span>>,
    sender: Option<SpanSender>,
    settings: Batching,
    mut stopped: Stopped,
) {
    let Some(mut sender) = sender else { return };
    let mut ticks = ticks(settings.delay).await;
    while !stopped.is() {
        tokio::select! {
            biased;
            () = stopped.wait() => break,
            () = spans.filled() => {}
            _ = ticks.tick() => {
                sender.send(spans.take_some()).await;
            }
        }
        while !stopped.is() && sender.send(spans.take_batch()).await {}
    }
    // No more than there may be at the end: who goes on putting spans in does not keep it from ending.
    let batches = settings.queue.div_ceil(settings.batch);
    for _ in 0..batches {
        if !sender.send(spans.take_some()).await {
            break;
        }
    }
}

/// The same with log records.
async fn pass_records(
    mut inbox: mpsc::Receiver<Record>,
    sender: Option<RecordSender>,
    settings: Batching,
    mut stopped: Stopped,
) {
    let Some(mut sender) = sender else { return };
    let mut ticks = ticks(settings.delay).await;
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            biased;
            () = stopped.wait() => break,
            _ = ticks.tick() => sender.send(std::mem::take(&mut batch)).await,
            Some(record) = inbox.recv() => {
                batch.push(record);
                if settings.batch <= batch.len() {
                    sender.send(std::mem::take(&mut batch)).await;
                }
            }
        }
    }
    for _ in 0..settings.queue {
        let Ok(record) = inbox.try_recv() else { break };
        batch.push(record);
        if settings.batch <= batch.len() {
            sender.send(std::mem::take(&mut batch)).await;
        }
    }
    sender.send(batch).await;
}

/// Sends what was counted, each time that `interval` is over and when it is stopped.
async fn pass_metrics(sender: Option<MetricSender>, interval: Duration, mut stopped: Stopped) {
    let Some(mut sender) = sender else { return };
    let mut ticks = ticks(interval).await;
    loop {
        tokio::select! {
            biased;
            () = stopped.wait() => break,
            _ = ticks.tick() => sender.send().await,
        }
    }
    sender.send().await;
}

/// The first tick comes after `period`, and none is made up for.
async fn ticks(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    ticks
}

/// Whether what is there is to be sent, and nothing more.
#[derive(Clone)]
struct Stopped(watch::Receiver<bool>);

impl Stopped {
    /// It is, too, when the one who would say so is gone.
    fn is(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    async fn wait(&mut self) {
        // An error is that nobody is left who could say it.
        let _ = self.0.wait_for(|is_stopped| *is_stopped).await;
    }
}

//! OTLP export to a collector.
//!
//! A background task on the control runtime collects and sends, so that no request waits for a collector. Each signal is
//! sent separately, so that none waits for the collector of another. Data that exceeds a queue is dropped and counted.

mod client;
mod health;
#[cfg(feature = "cli")]
mod probe;
mod metrics;
mod records;
mod send;
mod spans;

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::config::SpanNames;
use super::export_queue::BatchQueue;
use super::metrics::Metrics;
use super::records::Record;
use super::settings::{Batching, ExportSettings};
use super::trace::Span;
use crate::net::{Background, OnFailure};
#[cfg(feature = "cli")]
pub use probe::examine;
use send::{MetricSender, RecordSender, SpanSender, resource};

/// Handle to the task that sends.
#[derive(Debug)]
pub(crate) struct Exporter {
    stop: watch::Sender<bool>,
    done: oneshot::Receiver<()>,
    /// Endpoint for spans, if configured.
    pub(super) spans: Option<BatchQueue<Box<Span>>>,
    /// Endpoint for log records, if configured.
    pub(super) records: Option<mpsc::Sender<Record>>,
}

impl Exporter {
    /// Starts the task.
    pub(super) fn start(
        settings: ExportSettings,
        metrics: Metrics,
        names: SpanNames,
        background: &Background,
    ) -> Self {
        for doubt in &settings.doubts {
            tracing::warn!("{doubt}");
        }
        let spans = BatchQueue::new(settings.spans.queue, settings.spans.batch);
        let (records, inbox) = mpsc::channel(settings.records.queue);
        let (stop, stopped) = watch::channel(false);
        let (tell_done, done) = oneshot::channel();
        let exporter = Self {
            stop,
            done,
            spans: settings.traces.is_some().then(|| spans.clone()),
            records: settings.logs.is_some().then_some(records),
        };
        let exporting = async move {
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
        };
        background.run("telemetry: export", OnFailure::Continue, exporting);
        exporter
    }

    /// Exports the queued items and stops the thread.
    pub async fn flush(self, within: Duration) {
        drop(self.spans);
        drop(self.records);
        let _ = self.stop.send(true);
        if tokio::time::timeout(within, self.done).await.is_err() {
            tracing::warn!(
                "the collector did not respond in time; telemetry and audit records that it has not received are lost"
            );
        }
    }
}

/// Exports complete batches immediately and incomplete ones periodically. Exports the rest when stopped.
async fn pass_spans(
    spans: BatchQueue<Box<Span>>,
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
                sender.send(spans.take_some(), &stopped).await;
            }
        }
        while !stopped.is() && sender.send(spans.take_batch(), &stopped).await {}
    }
    // Bounded by the queue's capacity: continued writes must not delay the shutdown.
    let batches = settings.queue.div_ceil(settings.batch);
    for _ in 0..batches {
        if !sender.send(spans.take_some(), &stopped).await {
            break;
        }
    }
}

/// Exports log records in the same way.
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
            _ = ticks.tick() => sender.send(std::mem::take(&mut batch), &stopped).await,
            Some(record) = inbox.recv() => {
                batch.push(record);
                if settings.batch <= batch.len() {
                    sender.send(std::mem::take(&mut batch), &stopped).await;
                }
            }
        }
    }
    for _ in 0..settings.queue {
        let Ok(record) = inbox.try_recv() else { break };
        batch.push(record);
        if settings.batch <= batch.len() {
            sender.send(std::mem::take(&mut batch), &stopped).await;
        }
    }
    sender.send(batch, &stopped).await;
}

/// Exports metrics at each interval and when stopped.
async fn pass_metrics(sender: Option<MetricSender>, interval: Duration, mut stopped: Stopped) {
    let Some(mut sender) = sender else { return };
    let mut ticks = ticks(interval).await;
    loop {
        tokio::select! {
            biased;
            () = stopped.wait() => break,
            _ = ticks.tick() => sender.send(&stopped).await,
        }
    }
    sender.send(&stopped).await;
}

/// Creates an interval whose first tick comes after `period`. Missed ticks are skipped.
async fn ticks(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    ticks
}

/// Shutdown signal: export the rest, then stop.
#[derive(Clone)]
struct Stopped(watch::Receiver<bool>);

impl Stopped {
    /// Returns true also if the sender of the signal is gone.
    fn is(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    async fn wait(&mut self) {
        // An error means that the sender is gone, which also means shutdown.
        let _ = self.0.wait_for(|is_stopped| *is_stopped).await;
    }
}

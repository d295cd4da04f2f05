//! Sending what was observed to a collector, by the OpenTelemetry protocol.
//!
//! One thread with a runtime of its own collects and sends, so that no request ever waits for a collector. What does not
//! fit into a queue is dropped and counted.

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

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::config::SpanNames;
use super::metrics::Metrics;
use super::outbox::Outbox;
use super::records::Record;
use super::settings::ExportSettings;
use super::trace::Span;
#[cfg(feature = "cli")]
pub(super) use examine::examine;
use send::Collector;

/// The thread that sends.
#[derive(Debug)]
pub(crate) struct Exporter {
    stop: oneshot::Sender<()>,
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
        let (records, mut record_inbox) = mpsc::channel(settings.records.queue);
        let (stop, mut stopped) = oneshot::channel();
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
                    let collector = Collector::new(&settings, metrics, names);
                    let mut round = Round::new(&settings, collector);
                    round.run(&spans, &mut record_inbox, &mut stopped).await;
                    let _ = tell_done.send(());
                });
            })?;
        Ok(exporter)
    }

    /// Sends what is there, and ends.
    pub(crate) async fn flush(self, within: Duration) {
        drop(self.spans);
        drop(self.records);
        let _ = self.stop.send(());
        if tokio::time::timeout(within, self.done).await.is_err() {
            tracing::debug!("the collector took too long; what was left is lost");
        }
    }
}

/// What the thread does, over and over.
struct Round {
    collector: Collector,
    records: Vec<Record>,
    record_batch: usize,
    span_ticks: Interval,
    record_ticks: Interval,
    metric_ticks: Interval,
}

impl Round {
    fn new(settings: &ExportSettings, collector: Collector) -> Self {
        let ticks = |period| {
            let mut ticks = interval(period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        };
        Self {
            collector,
            records: Vec::new(),
            record_batch: settings.records.batch,
            span_ticks: ticks(settings.spans.delay),
            record_ticks: ticks(settings.records.delay),
            metric_ticks: ticks(settings.metric_interval),
        }
    }

    async fn run(
        &mut self,
        spans: &Outbox<Box<Span>>,
        records: &mut mpsc::Receiver<Record>,
        stopped: &mut oneshot::Receiver<()>,
    ) {
        // The first ticks come at once, when there is nothing yet.
        self.span_ticks.tick().await;
        self.record_ticks.tick().await;
        self.metric_ticks.tick().await;
        loop {
            tokio::select! {
                biased;
                _ = &mut *stopped => break,
                () = spans.filled() => self.send_spans(|| spans.take_batch()).await,
                Some(record) = records.recv() => {
                    self.records.push(record);
                    if self.record_batch <= self.records.len() {
                        self.send_records().await;
                    }
                }
                _ = self.span_ticks.tick() => self.send_spans(|| spans.take_some()).await,
                _ = self.record_ticks.tick() => self.send_records().await,
                _ = self.metric_ticks.tick() => self.collector.send_metrics().await,
            }
        }
        while let Ok(record) = records.try_recv() {
            self.records.push(record);
        }
        self.send_spans(|| spans.take_some()).await;
        self.send_records().await;
        self.collector.send_metrics().await;
    }

    /// Sends what is taken, until there is nothing to take.
    async fn send_spans(&mut self, take: impl Fn() -> Vec<Box<Span>>) {
        loop {
            let spans = take();
            if spans.is_empty() {
                return;
            }
            self.collector.send_spans(spans).await;
        }
    }

    async fn send_records(&mut self) {
        if !self.records.is_empty() {
            let records = std::mem::take(&mut self.records);
            self.collector.send_records(records).await;
        }
    }
}

//! Subscriptions. All share one connection, which is opened in the background and restored when it is lost.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use redis::aio::{PubSub, PubSubSink};
use redis::{Msg, RedisError, RedisResult};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::connector::{Deployment, FollowedMaster, unreachable};
use crate::net::{self, Mutex};
use crate::state::{Subscription, SubscriptionEvent};

/// Subscriptions of this process, by channel.
pub(super) struct Subscriptions {
    way: Deployment,
    registry: Mutex<Registry>,
    /// Notified of changes of the registry.
    changed: Notify,
}

#[derive(Default)]
struct Registry {
    next: u64,
    channels: HashMap<Arc<str>, HashMap<u64, Subscriber>>,
    /// True while a task holds the connection.
    has_driver: bool,
}

struct Subscriber {
    messages: mpsc::Sender<SubscriptionEvent>,
    missed: Arc<AtomicBool>,
    /// Waits until the server has confirmed the subscription.
    confirmed: Option<oneshot::Sender<RedisResult<()>>>,
}

/// A subscription; removed on drop.
pub(super) struct Listener {
    subscriptions: Arc<Subscriptions>,
    channel: Arc<str>,
    number: u64,
    messages: mpsc::Receiver<SubscriptionEvent>,
    missed: Arc<AtomicBool>,
}

/// Maximum number of messages that wait for one subscriber.
const WAITING_MAX: usize = 1024;
/// Maximum duration of connecting, also if several sentinels or nodes do not respond.
const CONNECT_MAX: Duration = Duration::from_secs(15);
/// Delay before a lost connection is opened again.
const RETRY: Duration = Duration::from_millis(500);
/// Interval of the heartbeat on a silent connection, and timeout of a command.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Time without subscriptions after which the connection is closed.
const LINGER: Duration = Duration::from_secs(10);

impl Subscriptions {
    pub(super) fn new(way: Deployment) -> Arc<Self> {
        Arc::new(Self {
            way,
            registry: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Subscribes to a channel. A caller that stops waiting does not stop the connection from being opened.
    pub(super) async fn subscribe(self: &Arc<Self>, channel: String) -> RedisResult<Listener> {
        let (listener, confirmed) = self.register(channel.into());
        let ended = |_| Err(unreachable("its connection ended unexpectedly"));
        confirmed.await.unwrap_or_else(ended).map(|()| listener)
    }

    fn register(
        self: &Arc<Self>,
        channel: Arc<str>,
    ) -> (Listener, oneshot::Receiver<RedisResult<()>>) {
        let (sender, messages) = mpsc::channel(WAITING_MAX);
        let (confirmed, is_confirmed) = oneshot::channel();
        let missed = Arc::new(AtomicBool::new(false));
        let mut registry = self.registry.lock();
        registry.next += 1;
        let number = registry.next;
        let subscriber = Subscriber {
            messages: sender,
            missed: Arc::clone(&missed),
            confirmed: Some(confirmed),
        };
        let of_channel = registry.channels.entry(Arc::clone(&channel)).or_default();
        of_channel.insert(number, subscriber);
        let needs_driver = !std::mem::replace(&mut registry.has_driver, true);
        drop(registry);
        if needs_driver {
            net::spawn(Arc::clone(self).drive());
        }
        self.changed.notify_one();
        let listener = Listener {
            subscriptions: Arc::clone(self),
            channel,
            number,
            messages,
            missed,
        };
        (listener, is_confirmed)
    }

    /// Holds the connection, until there is no subscription.
    async fn drive(self: Arc<Self>) {
        let mut driver = Driver {
            subscriptions: &self,
            is_finished: false,
        };
        loop {
            let opened = timeout(CONNECT_MAX, self.way.listen()).await;
            let opened = opened.unwrap_or_else(|_| Err(unreachable("connecting took too long")));
            let served = match opened {
                Ok((connection, followed)) => self.serve(connection, followed).await,
                Err(error) => Err(error),
            };
            if let Err(error) = &served {
                self.pause(error).await;
            }
            if driver.finishes() {
                return;
            }
        }
    }

    /// Waits before the next attempt. Subscriptions fail meanwhile.
    async fn pause(&self, error: &RedisError) {
        let mut pause = std::pin::pin!(sleep(RETRY));
        loop {
            self.reject_waiting(error);
            tokio::select! {
                () = &mut pause => return,
                () = self.changed.notified() => {}
            }
        }
    }

    /// Forwards messages until there is no subscription for a while.
    async fn serve(&self, connection: PubSub, mut followed: FollowedMaster) -> RedisResult<()> {
        let (mut sink, mut stream) = connection.split();
        let mut active = HashSet::new();
        self.sync(&mut sink, &mut active).await?;
        loop {
            let patience = if active.is_empty() { LINGER } else { HEARTBEAT };
            tokio::select! {
                () = self.changed.notified() => self.sync(&mut sink, &mut active).await?,
                () = followed.is_left() => return Err(unreachable("another server is the master")),
                message = timeout(patience, stream.next()) => match message {
                    Ok(Some(message)) => self.deliver(&message),
                    Ok(None) => return Err(unreachable("the connection broke off")),
                    Err(_) if active.is_empty() => return Ok(()),
                    Err(_) => drop(in_time(sink.ping::<redis::Value>()).await?),
                },
            }
        }
    }

    /// Subscribes to the channels of the registry on the server, and confirms new subscriptions.
    async fn sync(&self, sink: &mut PubSubSink, active: &mut HashSet<Arc<str>>) -> RedisResult<()> {
        loop {
            let (added, removed) = self.differences(active);
            if !added.is_empty() {
                in_time(sink.subscribe(names(&added))).await?;
                self.report_missed(&added);
                active.extend(added);
            } else if !removed.is_empty() {
                in_time(sink.unsubscribe(names(&removed))).await?;
                active.retain(|channel| !removed.contains(channel));
            } else {
                self.confirm(active);
                return Ok(());
            }
        }
    }

    fn differences(&self, active: &HashSet<Arc<str>>) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let registry = self.registry.lock();
        let wanted = registry.channels.keys();
        let added = wanted.filter(|channel| !active.contains(*channel));
        let removed = active
            .iter()
            .filter(|channel| !registry.channels.contains_key(*channel));
        (added.cloned().collect(), removed.cloned().collect())
    }

    /// Tells subscribers of a former connection that messages may have been lost.
    fn report_missed(&self, channels: &[Arc<str>]) {
        let registry = self.registry.lock();
        let of_channels = channels
            .iter()
            .filter_map(|name| registry.channels.get(name));
        for subscriber in of_channels.flat_map(HashMap::values) {
            if subscriber.confirmed.is_none() {
                subscriber.send(SubscriptionEvent::Missed);
            }
        }
    }

    fn confirm(&self, active: &HashSet<Arc<str>>) {
        for (channel, subscribers) in &mut self.registry.lock().channels {
            let is_active = active.contains(channel);
            for subscriber in subscribers.values_mut().filter(|_| is_active) {
                subscriber.answer(Ok(()));
            }
        }
    }

    fn reject_waiting(&self, error: &RedisError) {
        let mut registry = self.registry.lock();
        let subscribers = registry.channels.values_mut();
        for subscriber in subscribers.flat_map(HashMap::values_mut) {
            subscriber.answer(Err(error.clone()));
        }
    }

    fn deliver(&self, message: &Msg) {
        let registry = self.registry.lock();
        let Some(subscribers) = registry.channels.get(message.get_channel_name()) else {
            return;
        };
        let bytes = Bytes::copy_from_slice(message.get_payload_bytes());
        for subscriber in subscribers.values() {
            subscriber.send(SubscriptionEvent::Message(bytes.clone()));
        }
    }
}

impl Subscriber {
    fn send(&self, event: SubscriptionEvent) {
        if self.messages.try_send(event).is_err() {
            self.missed.store(true, Ordering::Release);
        }
    }

    fn answer(&mut self, result: RedisResult<()>) {
        if let Some(confirmed) = self.confirmed.take() {
            // The caller may have stopped waiting.
            let _ = confirmed.send(result);
        }
    }
}

/// The task that holds the connection. If it is aborted, the next subscription starts another one.
struct Driver<'s> {
    subscriptions: &'s Subscriptions,
    is_finished: bool,
}

impl Driver<'_> {
    /// Returns true if there is no subscription. A later one starts another driver.
    fn finishes(&mut self) -> bool {
        let mut registry = self.subscriptions.registry.lock();
        self.is_finished = registry.channels.is_empty();
        registry.has_driver = !self.is_finished;
        self.is_finished
    }
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.subscriptions.registry.lock().has_driver = false;
        }
    }
}

impl Subscription for Listener {
    fn next(&mut self) -> BoxFuture<'_, SubscriptionEvent> {
        Box::pin(async {
            if self.missed.swap(false, Ordering::AcqRel) {
                return SubscriptionEvent::Missed;
            }
            match self.messages.recv().await {
                Some(heard) => heard,
                None => std::future::pending().await,
            }
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut registry = self.subscriptions.registry.lock();
        if let Some(subscribers) = registry.channels.get_mut(&self.channel) {
            subscribers.remove(&self.number);
            if subscribers.is_empty() {
                registry.channels.remove(&self.channel);
            }
        }
        drop(registry);
        self.subscriptions.changed.notify_one();
    }
}

fn names(channels: &[Arc<str>]) -> Vec<&str> {
    channels.iter().map(|channel| &**channel).collect()
}

async fn in_time<T>(command: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let late = |_| Err(unreachable("it does not respond in time"));
    timeout(HEARTBEAT, command).await.unwrap_or_else(late)
}

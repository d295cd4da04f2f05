//! Subscriptions that outlive their connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use redis::RedisResult;
use redis::aio::PubSub;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::connector::Deployment;
use crate::net;
use crate::state::{Subscription, SubscriptionEvent};

/// A subscription. A task holds its connection.
pub(super) struct Listener {
    messages: mpsc::Receiver<SubscriptionEvent>,
    missed: Arc<AtomicBool>,
    task: AbortHandle,
}

/// Messages that may wait.
const WAITING_MAX: usize = 1024;
/// After which time a connection that is lost is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// Interval of the heartbeat on a silent connection.
const LIFE_SIGN: Duration = Duration::from_secs(15);

impl Listener {
    pub(super) async fn begin(way: Deployment, channel: String) -> RedisResult<Self> {
        let connection = connect(&way, &channel).await?;
        let (sender, messages) = mpsc::channel(WAITING_MAX);
        let missed = Arc::new(AtomicBool::new(false));
        let task = net::spawn(listen(
            way,
            channel,
            connection,
            sender,
            Arc::clone(&missed),
        ));
        Ok(Self {
            messages,
            missed,
            task: task.abort_handle(),
        })
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
        self.task.abort();
    }
}

async fn connect(way: &Deployment, channel: &str) -> RedisResult<PubSub> {
    let mut connection = way.listen().await?;
    connection.subscribe(channel).await?;
    Ok(connection)
}

async fn listen(
    way: Deployment,
    channel: String,
    mut connection: PubSub,
    sender: mpsc::Sender<SubscriptionEvent>,
    missed: Arc<AtomicBool>,
) {
    loop {
        let (mut sink, mut stream) = connection.split();
        loop {
            let message = tokio::time::timeout(LIFE_SIGN, stream.next()).await;
            match message {
                Ok(Some(message)) => {
                    let bytes = Bytes::copy_from_slice(message.get_payload_bytes());
                    if sender.try_send(SubscriptionEvent::Message(bytes)).is_err() {
                        missed.store(true, Ordering::Release);
                    }
                }
                Ok(None) => break,
                Err(_) => {
                    let ping = tokio::time::timeout(LIFE_SIGN, sink.ping::<redis::Value>()).await;
                    if !matches!(ping, Ok(Ok(_))) {
                        break;
                    }
                }
            }
        }
        connection = loop {
            tokio::time::sleep(RETRY).await;
            if sender.is_closed() {
                return;
            }
            let connecting = connect(&way, &channel);
            if let Ok(Ok(connection)) = tokio::time::timeout(LIFE_SIGN, connecting).await {
                break connection;
            }
        };
        // Messages sent in between are lost.
        if sender.try_send(SubscriptionEvent::Missed).is_err() {
            missed.store(true, Ordering::Release);
        }
    }
}

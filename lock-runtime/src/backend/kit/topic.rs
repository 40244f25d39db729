//! A key's wake-up messages inside one process: a counter that listeners compare with the last value they saw,
//! so that nothing is missed between two looks, however many listeners share it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::Boxed;
use tokio::sync::Notify;

/// A counter of messages, which publishers raise and listeners compare.
#[derive(Debug, Default)]
pub(crate) struct Topic {
    messages: AtomicU64,
    raised: Notify,
}

impl Topic {
    /// Counts a message and wakes every listener that waits.
    pub(crate) fn raise(&self) {
        self.messages.fetch_add(1, Ordering::Release);
        self.raised.notify_waiters();
    }

    pub(crate) fn messages(&self) -> u64 {
        self.messages.load(Ordering::Acquire)
    }

    /// Resolves once the counter differs from `seen`, and returns it.
    pub(crate) async fn beyond(&self, seen: u64) -> u64 {
        let mut raised = pin!(self.raised.notified());
        loop {
            // Registered before the counter is read: a raise in between is not missed.
            raised.as_mut().enable();
            let messages = self.messages();
            if messages != seen {
                return messages;
            }
            raised.as_mut().await;
            raised.set(self.raised.notified());
        }
    }
}

/// Remembers how much of a topic was heard.
#[derive(Debug)]
pub(crate) struct Subscription {
    topic: Arc<Topic>,
    seen: u64,
}

impl Subscription {
    /// Returns a subscription that hears the messages from now on.
    pub(crate) fn new(topic: Arc<Topic>) -> Subscription {
        let seen = topic.messages();
        Subscription { topic, seen }
    }

    pub(crate) fn topic(&self) -> &Arc<Topic> {
        &self.topic
    }

    pub(crate) fn heard(&mut self) -> Boxed<'_, u64> {
        Box::pin(async {
            let messages = self.topic.beyond(self.seen).await;
            messages - std::mem::replace(&mut self.seen, messages)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_between_two_looks_are_heard_once_and_counted() {
        let topic = Arc::new(Topic::default());
        let (mut first, mut second) = (
            Subscription::new(topic.clone()),
            Subscription::new(topic.clone()),
        );
        topic.raise();
        assert_eq!(first.heard().await, 1);
        assert_eq!(second.heard().await, 1);
        assert!(futures_pending(first.heard()).await);
        topic.raise();
        topic.raise();
        assert_eq!(first.heard().await, 2, "one hint, which says how many");
        assert!(futures_pending(first.heard()).await);
    }

    async fn futures_pending(future: impl Future) -> bool {
        let mut future = pin!(future);
        std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending()))
            .await
    }
}

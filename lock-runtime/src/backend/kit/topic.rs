//! Wake-up messages inside one process. Each topic has a counter, and each listener compares it with the value that it
//! last saw. So no listener misses a message between two looks, however many listeners share the topic.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::backend::{Boxed, Listen};
use crate::sync::Mutex;

/// The topics that have listeners, by name.
#[derive(Debug, Default)]
pub(crate) struct WakeUps {
    topics: Mutex<HashMap<Box<str>, CountedTopic>>,
}

/// A topic, and the number of its listeners.
type CountedTopic = (Arc<WakeUpTopic>, usize);

impl WakeUps {
    /// Returns a listener that receives the messages from now on.
    pub(crate) fn listen(self: &Arc<Self>, name: &str) -> TopicListener {
        let mut topics = self.topics.lock();
        let (topic, listeners) = topics.entry(name.into()).or_default();
        *listeners += 1;
        TopicListener {
            seen: topic.messages(),
            topic: topic.clone(),
            name: name.into(),
            topics: self.clone(),
        }
    }

    /// Returns the number of listeners.
    pub(crate) fn listeners(&self, name: &str) -> usize {
        self.topics.lock().get(name).map_or(0, |(_, count)| *count)
    }

    /// Returns the number of topics.
    #[cfg(simulation)]
    pub(crate) fn count(&self) -> usize {
        self.topics.lock().len()
    }

    /// Counts a message and wakes every listener that waits.
    pub(crate) fn raise(&self, name: &str) {
        if let Some((topic, _)) = self.topics.lock().get(name) {
            topic.raise();
        }
    }

    /// Wakes all listeners, because messages may have been missed.
    #[cfg(feature = "postgres")]
    pub(crate) fn raise_all(&self) {
        for (topic, _) in self.topics.lock().values() {
            topic.raise();
        }
    }
}

/// A counter of messages, which publishers raise and listeners compare.
#[derive(Debug, Default)]
struct WakeUpTopic {
    messages: AtomicU64,
    raised: Notify,
}

impl WakeUpTopic {
    fn raise(&self) {
        self.messages.fetch_add(1, Ordering::Release);
        self.raised.notify_waiters();
    }

    fn messages(&self) -> u64 {
        self.messages.load(Ordering::Acquire)
    }

    /// Waits until the counter differs from `seen`, and returns it.
    async fn wait_past(&self, seen: u64) -> u64 {
        let mut raised = pin!(self.raised.notified());
        loop {
            // The waiter is registered before the counter is read, so that a raise in between is not missed.
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

/// A listener of a topic. It remembers the last count that it saw.
#[derive(Debug)]
pub(crate) struct TopicListener {
    topic: Arc<WakeUpTopic>,
    seen: u64,
    name: Box<str>,
    topics: Arc<WakeUps>,
}

impl Listen for TopicListener {
    fn heard(&mut self) -> Boxed<'_, u64> {
        Box::pin(async {
            let messages = self.topic.wait_past(self.seen).await;
            messages - std::mem::replace(&mut self.seen, messages)
        })
    }
}

impl Drop for TopicListener {
    fn drop(&mut self) {
        let mut topics = self.topics.topics.lock();
        if let Some((_, listeners)) = topics.get_mut(&self.name) {
            *listeners -= 1;
            if *listeners == 0 {
                topics.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_between_two_looks_are_counted_once() {
        let topics = Arc::new(WakeUps::default());
        let (mut first, mut second) = (topics.listen("a"), topics.listen("a"));
        topics.raise("b");
        topics.raise("a");
        assert_eq!(first.heard().await, 1);
        assert_eq!(second.heard().await, 1);
        assert!(futures_pending(first.heard()).await);
        topics.raise("a");
        topics.raise("a");
        assert_eq!(first.heard().await, 2, "one hint, which says how many");
        assert!(futures_pending(first.heard()).await);
        assert_eq!(topics.listeners("a"), 2);
        drop((first, second));
        assert_eq!(topics.listeners("a"), 0);
        assert!(topics.topics.lock().is_empty(), "nobody listens");
    }

    async fn futures_pending(future: impl Future) -> bool {
        let mut future = pin!(future);
        std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending()))
            .await
    }
}

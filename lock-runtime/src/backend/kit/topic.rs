//! Wake-up messages inside one process. Each topic counts its messages, and each listener compares the count with the one
//! that it last saw. So no listener misses a message between two looks, however many listeners share the topic.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::backend::{Boxed, Listen};
use crate::sync::Mutex;

/// The topics that have listeners, by name.
#[derive(Debug, Default)]
pub(crate) struct WakeUps {
    topics: Mutex<HashMap<Box<str>, CountedTopic>>,
}

/// A topic, whose messages tell nothing but that they came.
pub(crate) type WakeUpTopic = watch::Sender<()>;

/// A topic, and the number of its listeners.
type CountedTopic = (WakeUpTopic, usize);

impl WakeUps {
    /// Returns a listener that receives the messages from now on.
    pub(crate) fn listen(self: &Arc<Self>, name: &str) -> TopicListener {
        let mut topics = self.topics.lock();
        let (topic, listeners) = topics.entry(name.into()).or_default();
        *listeners += 1;
        TopicListener {
            messages: topic.subscribe(),
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

    /// Sends a message to every listener of the topic.
    pub(crate) fn raise(&self, name: &str) {
        if let Some(topic) = self.topic(name) {
            topic.send_replace(());
        }
    }

    /// Returns the topic to send to, if it has listeners. It is sent to with everything unlocked: a waker may poll the
    /// listener's task at once, and that may drop the listener.
    pub(crate) fn topic(&self, name: &str) -> Option<WakeUpTopic> {
        let topics = self.topics.lock();
        topics.get(name).map(|(topic, _)| topic.clone())
    }

    /// Wakes all listeners, because messages may have been missed.
    pub(crate) fn raise_all(&self) {
        let topics = self.topics.lock().values().cloned().collect::<Vec<_>>();
        topics.iter().for_each(|(topic, _)| topic.send_replace(()));
    }
}

/// A listener of a topic.
#[derive(Debug)]
pub(crate) struct TopicListener {
    /// Remembers which messages the listener has seen.
    messages: watch::Receiver<()>,
    name: Box<str>,
    topics: Arc<WakeUps>,
}

impl Listen for TopicListener {
    fn heard(&mut self) -> Boxed<'_> {
        Box::pin(async {
            // There is no error: the topic lives as long as its listeners.
            let _ = self.messages.changed().await;
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
pub(crate) mod tests {
    use std::pin::pin;
    use std::task::{Context, Wake, Waker};
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn messages_between_two_looks_are_one_hint() {
        let topics = Arc::new(WakeUps::default());
        let (mut first, mut second) = (topics.listen("a"), topics.listen("a"));
        topics.raise("b");
        topics.raise("a");
        first.heard().await;
        second.heard().await;
        assert!(futures_pending(first.heard()).await);
        topics.raise("a");
        topics.raise("a");
        first.heard().await;
        assert!(futures_pending(first.heard()).await);
        assert_eq!(topics.listeners("a"), 2);
        drop((first, second));
        assert_eq!(topics.listeners("a"), 0);
        assert!(topics.topics.lock().is_empty(), "nobody listens");
    }

    /// Runs once, when it is woken.
    struct Runs<F>(Mutex<Option<F>>);

    impl<F: FnOnce() + Send + 'static> Wake for Runs<F> {
        fn wake(self: Arc<Self>) {
            let run = self.0.lock().take();
            run.into_iter().for_each(|run| run());
        }
    }

    /// Has `raise` wake a task of that listener, which runs `then` at once.
    pub(crate) fn wake_by(
        listener: &mut dyn Listen,
        then: impl FnOnce() + Send + 'static,
        raise: impl FnOnce(),
    ) {
        let waker = Waker::from(Arc::new(Runs(Mutex::new(Some(then)))));
        let mut heard = listener.heard();
        let polled = heard.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        raise();
    }

    /// Runs a test that would end in a deadlock, which alone takes as long.
    pub(crate) fn without_a_deadlock(test: impl FnOnce() + Send + 'static) {
        let (ended, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            test();
            ended.send(()).unwrap();
        });
        end.recv_timeout(Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn a_waker_may_drop_a_listener_at_once() {
        without_a_deadlock(|| {
            let topics = Arc::new(WakeUps::default());
            let raises: &[fn(&WakeUps)] = &[|topics| topics.raise("a"), WakeUps::raise_all];
            for raise in raises {
                let other = topics.listen("a");
                wake_by(
                    &mut topics.listen("a"),
                    || drop(other),
                    || {
                        raise(&topics);
                        assert_eq!(topics.listeners("a"), 1);
                    },
                );
            }
        });
    }

    async fn futures_pending(future: impl Future) -> bool {
        let mut future = pin!(future);
        std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending()))
            .await
    }
}

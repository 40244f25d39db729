//! The listeners of each channel. They share a reference-counted topic with a counter, so that no listener misses a
//! message between two looks.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::reservations::Reservations;
use crate::backend::{Boxed, Listen};
use crate::sync::Modelled;
use crate::values::{Moment, clock};

/// The time for which a channel stays subscribed after its last listener is dropped. On a hot key, the next waiter
/// comes soon.
const LINGER: Duration = Duration::from_secs(2);

/// The channels that have listeners. Callers add and remove listeners; the subscriber's task opens and closes the
/// channels at the server; the connection's task counts messages.
#[derive(Default)]
pub(crate) struct Topics {
    table: Modelled<TopicTable>,
    /// Whether there are topics. It is written under the table's lock and read without it, twice for each hold: nearly always
    /// there are none.
    are_some: AtomicBool,
    /// The places on waiting lists for which a message may come.
    pub(crate) reservations: Reservations,
    /// Signalled by callers if there is a channel to subscribe to, or a first channel begins to linger.
    changed: Notify,
}

#[derive(Debug, Default)]
struct TopicTable {
    topics: HashMap<Arc<str>, ChannelTopic>,
    /// The channels that are still to be subscribed to.
    fresh: Vec<Arc<str>>,
    /// The channels without listeners, each once, and the time at which to check it.
    idle: VecDeque<(Moment, Arc<str>)>,
    unreachable: bool,
}

#[derive(Debug)]
struct ChannelTopic {
    signal: watch::Sender<Signal>,
    listeners: usize,
    idle_since: Moment,
    /// Whether the topic is in `TopicTable::idle`.
    lingers: bool,
}

#[derive(Clone, Copy, Debug)]
struct Signal {
    /// Raised by every message that the lock is free, and by every subscription but the first one.
    count: u64,
    state: SubscriptionState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SubscriptionState {
    Opening,
    Open,
    /// The channel is not subscribed to. The count is raised once it is.
    NotSubscribed,
}

fn is_lost(signal: &watch::Sender<Signal>) {
    signal.send_modify(|signal| signal.state = SubscriptionState::NotSubscribed);
}

impl Topics {
    pub(crate) fn listen(self: &Arc<Self>, channel: String) -> ChannelListener {
        let channel: Arc<str> = channel.into();
        let mut table = self.table.lock();
        let table = &mut *table;
        let topic = table.topics.entry(channel.clone()).or_insert_with(|| {
            table.fresh.push(channel.clone());
            self.are_some.store(true, Ordering::Relaxed);
            self.changed.notify_one();
            let state = if table.unreachable {
                SubscriptionState::NotSubscribed
            } else {
                SubscriptionState::Opening
            };
            ChannelTopic {
                signal: watch::Sender::new(Signal { count: 0, state }),
                listeners: 0,
                idle_since: clock::now(),
                lingers: false,
            }
        });
        topic.listeners += 1;
        let signal = topic.signal.subscribe();
        let seen = signal.borrow().count;
        ChannelListener {
            topics: self.clone(),
            channel,
            signal,
            seen,
        }
    }

    /// Returns `true` if this process receives the messages on `channel`.
    pub(crate) fn is_open(&self, channel: &str) -> bool {
        self.table
            .lock()
            .topics
            .get(channel)
            .is_some_and(|topic| topic.signal.borrow().state == SubscriptionState::Open)
    }

    /// Returns `true` if this process listens to no channel.
    pub(crate) fn is_empty(&self) -> bool {
        !self.are_some.load(Ordering::Relaxed)
    }

    /// Counts a message on the channel.
    pub(crate) fn count_message(&self, channel: &str) {
        if let Some(signal) = self.signal(channel) {
            signal.send_modify(|signal| signal.count += 1);
        }
    }

    /// Returns the signal of a channel. It is sent with the table unlocked: a waker may poll the listener's task at once, and
    /// that may drop the listener.
    fn signal(&self, channel: &str) -> Option<watch::Sender<Signal>> {
        let table = self.table.lock();
        table.topics.get(channel).map(|topic| topic.signal.clone())
    }

    /// Notes that there will be no connection any more, so that listeners do not wait for one before they ask the
    /// store.
    pub(crate) fn unreachable(&self) {
        let mut table = self.table.lock();
        table.unreachable = true;
        let topics = table.topics.values();
        let signals: Vec<_> = topics.map(|topic| topic.signal.clone()).collect();
        drop(table);
        signals.iter().for_each(is_lost);
    }

    /// Waits until there are channels to [take](Topics::take_fresh), or until that time.
    pub(crate) async fn changed_or(&self, until: Option<Moment>) {
        let changed = self.changed.notified();
        match until {
            None => changed.await,
            Some(until) => tokio::select! {
                () = changed => {}
                () = clock::sleep_until(until) => {}
            },
        }
    }

    /// Takes the channels that were asked for since the last call.
    pub(crate) fn take_fresh(&self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.table.lock().fresh)
    }

    /// Notes that this channel is subscribed to. Unless it is for the first time, wakes all listeners, which may have missed
    /// messages: where the slot has moved, the server before may have confirmed the channel late.
    pub(crate) fn opened(&self, channel: &str) {
        if let Some(signal) = self.signal(channel) {
            signal.send_modify(|signal| {
                if signal.state != SubscriptionState::Opening {
                    signal.count += 1;
                }
                signal.state = SubscriptionState::Open;
            });
        }
    }

    /// Notes that this channel is not subscribed to at the moment, so that listeners do not wait before they ask the store.
    pub(crate) fn not_subscribed(&self, channel: &str) {
        if let Some(signal) = self.signal(channel) {
            is_lost(&signal);
        }
    }

    /// Forgets the channels that have lingered long enough. A later listener makes a new topic, whose subscription is
    /// sent after the end of the old one. Also returns the time at which to look again.
    pub(crate) fn take_idle(&self) -> (Vec<Arc<str>>, Option<Moment>) {
        let mut table = self.table.lock();
        let table = &mut *table;
        let mut ended = Vec::new();
        while let Some((when, _)) = table.idle.front() {
            if !when.has_passed() {
                return (ended, Some(*when));
            }
            let Some((_, channel)) = table.idle.pop_front() else {
                break;
            };
            let Some(topic) = table.topics.get_mut(&channel) else {
                continue;
            };
            let until = topic.idle_since + LINGER;
            if topic.listeners > 0 {
                topic.lingers = false;
            } else if !until.has_passed() {
                table.idle.push_back((until, channel));
            } else {
                table.topics.remove(&channel);
                let are_some = !table.topics.is_empty();
                self.are_some.store(are_some, Ordering::Relaxed);
                // A channel that nobody has taken is not subscribed to, and must not be any more.
                let asked_for = table.fresh.len();
                table.fresh.retain(|fresh| *fresh != channel);
                if table.fresh.len() == asked_for {
                    ended.push(channel);
                }
            }
        }
        (ended, None)
    }
}

/// One listener of one channel.
pub(crate) struct ChannelListener {
    topics: Arc<Topics>,
    channel: Arc<str>,
    signal: watch::Receiver<Signal>,
    /// The count at the last look.
    seen: u64,
}

impl Listen for ChannelListener {
    fn ready(&mut self) -> Boxed<'_> {
        Box::pin(async {
            // An error means that the topic is gone, and with it all messages.
            let _ = self
                .signal
                .wait_for(|signal| signal.state != SubscriptionState::Opening)
                .await;
        })
    }

    fn heard(&mut self) -> Boxed<'_> {
        Box::pin(async {
            let seen = self.seen;
            let changed = self.signal.wait_for(|signal| signal.count != seen).await;
            // There is no error: the topic lives as long as its listeners.
            if let Ok(signal) = changed {
                self.seen = signal.count;
            }
        })
    }
}

impl Drop for ChannelListener {
    fn drop(&mut self) {
        let mut table = self.topics.table.lock();
        let table = &mut *table;
        let Some(topic) = table.topics.get_mut(&self.channel) else {
            return;
        };
        topic.listeners -= 1;
        if topic.listeners > 0 {
            return;
        }
        topic.idle_since = clock::now();
        if !topic.lingers {
            topic.lingers = true;
            if table.idle.is_empty() {
                self.topics.changed.notify_one();
            }
            table
                .idle
                .push_back((topic.idle_since + LINGER, self.channel.clone()));
        }
    }
}

#[cfg(test)]
mod models;

#[cfg(test)]
mod tests;

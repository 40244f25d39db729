//! The task that subscribes to each channel on the node that has the channel's slot, and follows the slot.
//!
//! This holds for classic channels, too: their messages reach every node, but a node counts only its own listeners.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::super::sentinel::Address;
use super::Cluster;
use crate::backend::EventSink;
use crate::backend::kit::closed::until_closed;
use crate::backend::redis::pubsub::subscriber::{
    ChannelCommand, FirstTry, Subscriber, SubscriberNote,
};
use crate::backend::redis::pubsub::topics::Topics;
use crate::values::{Backoff, Moment, clock, key};

/// The pause before a channel is tried again that a node has refused. Meanwhile the table is brought up to date.
const RETRY: Duration = Duration::from_millis(100);
/// The longest such pause. The pause doubles each time that a try changes nothing.
const LATEST_RETRY: Duration = Duration::from_secs(2);

/// The task that sends channels to the subscribers of nodes.
pub(in super::super) struct Subscriptions {
    pub(in super::super) cluster: Arc<Cluster>,
    pub(in super::super) topics: Arc<Topics>,
    /// The callback for events. The control channel, which names the holders of forced releases, is a classic channel,
    /// and every connection receives its messages.
    pub(in super::super) events: EventSink,
    pub(in super::super) tried: watch::Sender<FirstTry>,
    pub(in super::super) closed: watch::Receiver<bool>,
}

struct NodeSubscriber {
    commands: mpsc::UnboundedSender<ChannelCommand>,
    /// `None` while it connects for the first time.
    up: Option<bool>,
}

struct Switchboard<'a> {
    subscriptions: &'a Subscriptions,
    notes: mpsc::UnboundedSender<(Address, SubscriberNote)>,
    sessions: HashMap<Address, NodeSubscriber>,
    homes: HashMap<Arc<str>, Address>,
    /// Channels that no node accepts at the moment.
    homeless: Vec<Arc<str>>,
    retry: Option<Moment>,
    /// The pauses between two tries.
    pauses: Backoff,
    tried_at: Moment,
}

impl Subscriptions {
    pub(in super::super) async fn run(self) {
        until_closed(self.closed.clone(), self.keep()).await;
        self.topics.unreachable();
    }

    async fn keep(&self) {
        let (notes, mut heard) = mpsc::unbounded_channel();
        let mut changed = self.cluster.table.changes();
        let mut board = Switchboard {
            subscriptions: self,
            notes,
            sessions: HashMap::new(),
            homes: HashMap::new(),
            homeless: Vec::new(),
            retry: None,
            pauses: Backoff::new(RETRY, LATEST_RETRY),
            tried_at: clock::now(),
        };
        loop {
            let (ended, next_idle) = self.topics.take_idle();
            board.end(&ended);
            for channel in self.topics.take_fresh() {
                board.settle(channel);
            }
            board.settle_again();
            board.ensure_control();
            let wake = [next_idle, board.retry].into_iter().flatten();
            let wake = wake.reduce(Moment::earlier);
            tokio::select! {
                () = self.topics.changed_or(wake) => {}
                _ = changed.changed() => board.move_channels(),
                Some(note) = heard.recv() => {
                    board.note(note);
                    while let Ok(note) = heard.try_recv() {
                        board.note(note);
                    }
                }
            }
        }
    }
}

impl Switchboard<'_> {
    /// Sends the channel to the node that has its slot.
    fn settle(&mut self, channel: Arc<str>) {
        let slot = key::slot(channel.as_bytes());
        let Some(node) = self.subscriptions.cluster.table.owner(slot) else {
            self.retry_later(channel);
            return;
        };
        self.homes.insert(channel.clone(), node.address.clone());
        let subscriber = self.subscriber(&node.address);
        // An error means that the backend is closing.
        let _ = subscriber.commands.send(ChannelCommand::Join(channel));
    }

    fn retry_later(&mut self, channel: Arc<str>) {
        self.subscriptions.topics.not_subscribed(&channel);
        self.subscriptions.cluster.doubt();
        self.homeless.push(channel);
        if self.retry.is_none() {
            if self.tried_at.elapsed() > LATEST_RETRY {
                self.pauses.reset();
            }
            self.retry = Some(clock::now() + self.pauses.pause());
        }
    }

    fn settle_again(&mut self) {
        if self.retry.is_some_and(|retry| retry.has_passed()) {
            (self.retry, self.tried_at) = (None, clock::now());
            for channel in std::mem::take(&mut self.homeless) {
                self.settle(channel);
            }
        }
    }

    fn end(&mut self, channels: &[Arc<str>]) {
        for channel in channels {
            self.homeless.retain(|homeless| homeless != channel);
            if let Some(home) = self.homes.remove(channel) {
                self.leave(&home, channel.clone());
            }
        }
    }

    fn leave(&self, home: &Address, channel: Arc<str>) {
        if let Some(subscriber) = self.sessions.get(home) {
            let _ = subscriber.commands.send(ChannelCommand::Leave(channel));
        }
    }

    /// Moves the channels whose slots have moved, and retries the channels without a node.
    fn move_channels(&mut self) {
        let table = &self.subscriptions.cluster.table;
        let mut moved = std::mem::take(&mut self.homeless);
        self.retry = None;
        self.pauses.reset();
        for (channel, home) in &self.homes {
            let owner = table.owner(key::slot(channel.as_bytes()));
            if owner.is_some_and(|owner| owner.address != *home) {
                moved.push(channel.clone());
            }
        }
        for channel in moved {
            if let Some(home) = self.homes.remove(&channel) {
                self.leave(&home, channel.clone());
            }
            // Until it is subscribed to again, messages may be missed.
            self.subscriptions.topics.not_subscribed(&channel);
            self.settle(channel);
        }
        let masters = table.masters();
        let homes = &self.homes;
        // A subscriber ends when the last sender of its commands is dropped.
        self.sessions.retain(|address, _| {
            masters.iter().any(|node| node.address == *address)
                || homes.values().any(|home| home == address)
        });
    }

    fn note(&mut self, (address, note): (Address, SubscriberNote)) {
        match note {
            SubscriberNote::Up => self.is_up(&address, true),
            SubscriberNote::Down(_) => self.is_up(&address, false),
            SubscriberNote::Refused(channel) => {
                // The channel may be at another node by now.
                if self.homes.get(&channel) == Some(&address) {
                    self.homes.remove(&channel);
                    self.retry_later(channel);
                }
            }
        }
    }

    fn is_up(&mut self, address: &Address, up: bool) {
        self.subscriptions.tried.send_replace(FirstTry::Over);
        if let Some(subscriber) = self.sessions.get_mut(address) {
            subscriber.up = Some(up);
        }
        if !up {
            self.subscriptions.cluster.doubt();
        }
    }

    /// Makes sure that at least one subscriber receives the control channel, if any node answers.
    fn ensure_control(&mut self) {
        let may_receive = |subscriber: &NodeSubscriber| subscriber.up != Some(false);
        if self.sessions.values().any(may_receive) {
            return;
        }
        let mut masters = self.subscriptions.cluster.table.masters();
        fastrand::shuffle(&mut masters);
        let fresh = |address: &Address| !self.sessions.contains_key(address);
        if let Some(node) = masters.iter().find(|node| fresh(&node.address)) {
            let address = node.address.clone();
            self.subscriber(&address);
        }
    }

    fn subscriber(&mut self, address: &Address) -> &NodeSubscriber {
        self.sessions.entry(address.clone()).or_insert_with(|| {
            let (sender, commands) = mpsc::unbounded_channel();
            let cluster = &self.subscriptions.cluster;
            let (notes, from) = (self.notes.clone(), address.clone());
            let subscriber = Subscriber {
                target: Arc::new(cluster.target(address)),
                topics: self.subscriptions.topics.clone(),
                events: self.subscriptions.events.clone(),
                channels: cluster.channels(),
                timeout: cluster.opening.options.call_timeout,
                // An error means that the backend is closing.
                on_note: Box::new(move |note| _ = notes.send((from.clone(), note))),
            };
            let closed = self.subscriptions.closed.clone();
            let running = subscriber.run(commands);
            let runtime = &cluster.opening.runtime;
            runtime.spawn(until_closed(closed, running));
            NodeSubscriber {
                commands: sender,
                up: None,
            }
        })
    }
}

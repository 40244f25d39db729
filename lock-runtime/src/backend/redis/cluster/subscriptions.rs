//! The task that subscribes to each channel on the node that has the channel's slot, and follows the slot.
//!
//! This holds for classic channels, too: their messages reach every node, but a node counts only its own listeners.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::Cluster;
use crate::backend::kit::closed::until_closed;
use crate::backend::kit::hosts::Address;
use crate::backend::redis::pubsub::subscriber::{
    ChannelCommand, FirstTry, Subscriber, SubscriberNote,
};
use crate::backend::redis::pubsub::topics::Topics;
use crate::values::{Backoff, Moment, clock, key};

/// The pause before a channel is tried again that a node has refused. Meanwhile the table is brought up to date.
const RETRY: Duration = Duration::from_millis(100);
/// The longest such pause. The pause doubles each time that a try changes nothing.
const LATEST_RETRY: Duration = Duration::from_secs(2);

struct NodeSubscriber {
    commands: mpsc::UnboundedSender<ChannelCommand>,
    is_down: bool,
}

/// What the task that sends channels to the subscribers of nodes works on.
struct Switchboard {
    cluster: Arc<Cluster>,
    topics: Arc<Topics>,
    tried: watch::Sender<FirstTry>,
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

impl Cluster {
    /// Keeps the channels of the topics subscribed to until the backend is closed.
    pub(in super::super) async fn keep_subscribed(
        self: Arc<Self>,
        topics: Arc<Topics>,
        tried: watch::Sender<FirstTry>,
    ) {
        let closed = self.closed.clone();
        until_closed(closed, Switchboard::keep(self, topics.clone(), tried)).await;
        topics.unreachable();
    }
}

impl Switchboard {
    async fn keep(cluster: Arc<Cluster>, topics: Arc<Topics>, tried: watch::Sender<FirstTry>) {
        let (notes, mut heard) = mpsc::unbounded_channel();
        let mut changed = cluster.table.changes();
        let mut board = Switchboard {
            cluster,
            topics,
            tried,
            notes,
            sessions: HashMap::new(),
            homes: HashMap::new(),
            homeless: Vec::new(),
            retry: None,
            pauses: Backoff::new(RETRY, LATEST_RETRY),
            tried_at: clock::now(),
        };
        loop {
            let (ended, next_idle) = board.topics.take_idle();
            board.end(&ended);
            for channel in board.topics.take_fresh() {
                board.settle(channel);
            }
            board.settle_again();
            board.ensure_control();
            let wake = [next_idle, board.retry].into_iter().flatten();
            let wake = wake.reduce(Moment::earlier);
            tokio::select! {
                () = board.topics.changed_or(wake) => {}
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

    /// Sends the channel to the node that has its slot.
    fn settle(&mut self, channel: Arc<str>) {
        let slot = key::slot(channel.as_bytes());
        let Some(node) = self.cluster.table.owner(slot) else {
            self.retry_later(channel);
            return;
        };
        self.homes.insert(channel.clone(), node.address.clone());
        let subscriber = self.subscriber(&node.address);
        // An error means that the backend is closing.
        let _ = subscriber.commands.send(ChannelCommand::Join(channel));
    }

    fn retry_later(&mut self, channel: Arc<str>) {
        self.topics.not_subscribed(&channel);
        self.cluster.doubt();
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
        let cluster = self.cluster.clone();
        let table = &cluster.table;
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
            self.topics.not_subscribed(&channel);
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
            SubscriberNote::Up => self.is_down(&address, false),
            SubscriberNote::Down(_) => self.is_down(&address, true),
            SubscriberNote::Refused(channel) => {
                // The channel may be at another node by now.
                if self.homes.get(&channel) == Some(&address) {
                    self.homes.remove(&channel);
                    self.retry_later(channel);
                }
            }
        }
    }

    fn is_down(&mut self, address: &Address, is_down: bool) {
        self.tried.send_replace(FirstTry::Over);
        if let Some(subscriber) = self.sessions.get_mut(address) {
            subscriber.is_down = is_down;
        }
        if is_down {
            self.cluster.doubt();
        }
    }

    /// Makes sure that at least one subscriber receives the control channel, if any node answers.
    fn ensure_control(&mut self) {
        // One that connects for the first time may receive it soon.
        if self.sessions.values().any(|subscriber| !subscriber.is_down) {
            return;
        }
        let mut masters = self.cluster.table.masters();
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
            let cluster = &self.cluster;
            let (notes, from) = (self.notes.clone(), address.clone());
            let subscriber = Subscriber {
                target: Arc::new(cluster.target(address)),
                topics: self.topics.clone(),
                // The control channel, which names the holders of forced releases, is a classic channel: every connection
                // receives its messages.
                events: cluster.opening.events.clone(),
                channels: cluster.channels(),
                timeout: cluster.opening.options.call_timeout,
                // An error means that the backend is closing.
                on_note: Box::new(move |note| _ = notes.send((from.clone(), note))),
            };
            let closed = cluster.closed.clone();
            let running = subscriber.run(commands);
            let runtime = &cluster.opening.runtime;
            runtime.spawn(until_closed(closed, running));
            NodeSubscriber {
                commands: sender,
                is_down: false,
            }
        })
    }
}

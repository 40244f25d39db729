//! The channels of one node, on one pub/sub connection after the other.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::super::sentinel::Address;
use super::Redirect;
use crate::backend::kit::outage::Outage;
use crate::backend::redis::cluster::pubsub_connection::PubsubConnection;
use crate::backend::redis::connection::{
    Target,
    dial::{self, STABLE},
};
use crate::backend::redis::pubsub::subscribe::{PING_EVERY, Refusals};
use crate::backend::redis::pubsub::topics::Topics;
use crate::backend::{EventSink, Fault};
use crate::values::{ClusterChannels, clock};

/// The most channels in one message to the connection's task.
const BATCH: usize = 512;

pub(super) enum Command {
    Join {
        channel: Arc<str>,
        /// True if the listeners may have missed something.
        renewed: bool,
    },
    Leave {
        channel: Arc<str>,
    },
}

pub(super) enum Note {
    Up {
        address: Address,
    },
    Down {
        address: Address,
    },
    /// The node does not have the channel's slot, or not any more.
    Refused {
        address: Address,
        channel: Arc<str>,
    },
}

pub(super) struct NodeSubscriber {
    pub(super) target: Target,
    pub(super) address: Address,
    pub(super) topics: Arc<Topics>,
    pub(super) events: EventSink,
    pub(super) channels: ClusterChannels,
    /// The timeout of each request.
    pub(super) timeout: Duration,
    pub(super) notes: mpsc::UnboundedSender<Note>,
}

/// The channels of this subscriber, and whether their listeners may have missed something.
type Mine = HashMap<Arc<str>, bool>;
type Commands = mpsc::UnboundedReceiver<Command>;

/// The error that nobody will send commands any more.
struct Ended;

impl NodeSubscriber {
    pub(super) async fn run(self, mut commands: Commands) {
        let _ = self.keep_alive(&mut commands).await;
    }

    async fn keep_alive(&self, commands: &mut Commands) -> Result<(), Ended> {
        let mut outage = Outage::new("a subscription to the lock store");
        let mut pauses = dial::pauses();
        let mut refusals = Refusals::default();
        let mut mine = Mine::new();
        let mut deaf = false;
        loop {
            let fault = match self.connect(commands, &mut mine, deaf).await? {
                Ok(pubsub) => {
                    let since = clock::now();
                    let mut talk = Talk {
                        subscriber: self,
                        pubsub,
                        refusals: &mut refusals,
                    };
                    let fault = match talk.begin(&mut mine).await {
                        Ok(()) => {
                            outage.is_over(self.target.shown());
                            self.note(Note::Up {
                                address: self.address.clone(),
                            });
                            talk.serve(commands, &mut mine).await?
                        }
                        Err(fault) => fault,
                    };
                    if since.elapsed() > STABLE {
                        pauses.reset();
                    }
                    fault
                }
                Err(fault) => fault,
            };
            deaf = true;
            let channels: Vec<_> = mine.keys().cloned().collect();
            self.topics.deaf(&channels);
            mine.values_mut().for_each(|renewed| *renewed = true);
            self.note(Note::Down {
                address: self.address.clone(),
            });
            outage.is_on(self.target.shown(), &fault);
            let pause = clock::now() + pauses.pause();
            while !pause.has_passed() {
                tokio::select! {
                    () = clock::sleep_until(pause) => {}
                    command = commands.recv() => self.keep_for_later(command, &mut mine, true)?,
                }
            }
        }
    }

    fn note(&self, note: Note) {
        // An error means that the backend is closing.
        let _ = self.notes.send(note);
    }

    /// Reports that the channel needs another home.
    fn refuse(&self, channel: &Arc<str>) {
        self.note(Note::Refused {
            address: self.address.clone(),
            channel: channel.clone(),
        });
    }

    /// Connects, and takes commands meanwhile. Listeners do not have to wait for a node that is away before they look
    /// for themselves.
    async fn connect(
        &self,
        commands: &mut Commands,
        mine: &mut Mine,
        deaf: bool,
    ) -> Result<Result<PubsubConnection, Fault>, Ended> {
        let (topics, events) = (self.topics.clone(), self.events.clone());
        let connecting = PubsubConnection::open(&self.target, self.timeout, topics, events);
        let mut connecting = pin!(connecting);
        loop {
            tokio::select! {
                connected = &mut connecting => return Ok(connected),
                command = commands.recv() => self.keep_for_later(command, mine, deaf)?,
            }
        }
    }

    fn keep_for_later(
        &self,
        command: Option<Command>,
        mine: &mut Mine,
        deaf: bool,
    ) -> Result<(), Ended> {
        match command.ok_or(Ended)? {
            Command::Join { channel, renewed } => {
                if deaf {
                    self.topics.deaf(std::slice::from_ref(&channel));
                }
                mine.insert(channel, renewed || deaf);
            }
            Command::Leave { channel } => _ = mine.remove(&channel),
        }
        Ok(())
    }
}

/// One connection's life.
struct Talk<'a> {
    subscriber: &'a NodeSubscriber,
    pubsub: PubsubConnection,
    refusals: &'a mut Refusals,
}

impl Talk<'_> {
    async fn begin(&mut self, mine: &mut Mine) -> Result<(), Fault> {
        match self.pubsub.hear_control().await {
            Err(Fault::Denied(reason)) => self.refusals.of_control(&reason),
            subscribed => subscribed?,
        }
        let channels = mine
            .iter()
            .map(|(channel, renewed)| (channel.clone(), *renewed));
        let channels = channels.collect();
        self.join(channels, mine).await
    }

    async fn serve(&mut self, commands: &mut Commands, mine: &mut Mine) -> Result<Fault, Ended> {
        let mut next_ping = clock::now() + PING_EVERY;
        let heard = self.pubsub.heard.clone();
        loop {
            tokio::select! {
                () = heard.cut.notified() => {
                    return Ok(Fault::unknown("the connection was cut"));
                }
                () = heard.dropped.notified() => {
                    if let Err(fault) = self.let_go(mine).await {
                        return Ok(fault);
                    }
                }
                command = commands.recv() => {
                    if let Err(fault) = self.obey(command.ok_or(Ended)?, commands, mine).await {
                        return Ok(fault);
                    }
                }
                () = clock::sleep_until(next_ping) => {
                    let NodeSubscriber { target, timeout, .. } = self.subscriber;
                    let connection = &mut self.pubsub.connection;
                    if let Err(fault) = dial::sign_of_life(connection, target, *timeout).await {
                        return Ok(fault);
                    }
                    next_ping = clock::now() + PING_EVERY;
                }
            }
        }
    }

    /// Carries out this command and those after it, in their order.
    async fn obey(
        &mut self,
        first: Command,
        commands: &mut Commands,
        mine: &mut Mine,
    ) -> Result<(), Fault> {
        let (mut joining, mut leaving) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(command) = next {
            match command {
                Command::Join { channel, renewed } => {
                    // This comes first, because the command is not sent again if the connection ends now.
                    mine.insert(channel.clone(), renewed);
                    if !leaving.is_empty() {
                        self.leave(std::mem::take(&mut leaving)).await?;
                    }
                    joining.push((channel, renewed));
                }
                Command::Leave { channel } => {
                    if !joining.is_empty() {
                        self.join(std::mem::take(&mut joining), mine).await?;
                    }
                    if mine.remove(&channel).is_some() {
                        leaving.push(channel);
                    }
                }
            }
            next = commands.try_recv().ok();
        }
        self.leave(leaving).await?;
        self.join(joining, mine).await
    }

    async fn join(
        &mut self,
        channels: Vec<(Arc<str>, bool)>,
        mine: &mut Mine,
    ) -> Result<(), Fault> {
        let subscriber = self.subscriber;
        for batch in channels.chunks(BATCH) {
            let mut answers = vec![Ok(()); batch.len()];
            let names: Vec<_> = batch.iter().map(|(channel, _)| channel.clone()).collect();
            for verb in self.verbs("SSUBSCRIBE", "SUBSCRIBE") {
                for (answer, one) in answers
                    .iter_mut()
                    .zip(self.pubsub.send(verb, &names).await?)
                {
                    if answer.is_ok() {
                        *answer = one;
                    }
                }
            }
            let mut homeless = Vec::new();
            for ((channel, renewed), answer) in batch.iter().zip(answers) {
                match answer {
                    Ok(()) => subscriber
                        .topics
                        .opened(std::slice::from_ref(channel), *renewed),
                    Err(Fault::Denied(reason)) => {
                        subscriber.topics.refused(channel);
                        self.refusals.of_locks(channel, &reason);
                    }
                    Err(fault) if Redirect::of(&fault).is_some() => {
                        mine.remove(channel);
                        subscriber.refuse(channel);
                        homeless.push(channel.clone());
                    }
                    Err(fault) => return Err(fault),
                }
            }
            self.end_classic(&homeless).await?;
        }
        Ok(())
    }

    /// Gives up the channels whose slots have left the node.
    async fn let_go(&mut self, mine: &mut Mine) -> Result<(), Fault> {
        let dropped = self.pubsub.heard.take_dropped();
        let names = dropped.iter().filter_map(|name| str::from_utf8(name).ok());
        let gone = names.filter_map(|name| Some(mine.remove_entry(name)?.0));
        let gone: Vec<Arc<str>> = gone.collect();
        self.subscriber.topics.deaf(&gone);
        for channel in &gone {
            self.subscriber.refuse(channel);
        }
        self.end_classic(&gone).await
    }

    /// Ends the classic subscriptions to channels that are gone. Classic channels stay where they are when a slot
    /// leaves.
    async fn end_classic(&mut self, gone: &[Arc<str>]) -> Result<(), Fault> {
        if self.subscriber.channels.are_classic() {
            for batch in gone.chunks(BATCH) {
                self.pubsub.send("UNSUBSCRIBE", batch).await?;
            }
        }
        Ok(())
    }

    async fn leave(&mut self, channels: Vec<Arc<str>>) -> Result<(), Fault> {
        for batch in channels.chunks(BATCH) {
            for verb in self.verbs("SUNSUBSCRIBE", "UNSUBSCRIBE") {
                for answer in self.pubsub.send(verb, batch).await? {
                    // A node that has lost the slot refuses as well, and has ended the subscription by itself. Without
                    // the right to unsubscribe, only the end of the connection ends it. Otherwise subscriptions would
                    // add up.
                    if let Err(fault @ Fault::Denied(_)) = answer {
                        return Err(fault);
                    }
                }
            }
        }
        Ok(())
    }

    fn verbs(
        &self,
        sharded: &'static str,
        classic: &'static str,
    ) -> impl Iterator<Item = &'static str> + use<> {
        let channels = self.subscriber.channels;
        let sharded = channels.are_sharded().then_some(sharded);
        sharded
            .into_iter()
            .chain(channels.are_classic().then_some(classic))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{server::Server, until};
    use super::*;
    use crate::backend::Listen;
    use redis::Value;

    const SHORT: Duration = Duration::from_millis(200);

    #[tokio::test]
    async fn what_was_ordered_while_the_connection_ended_is_not_forgotten() {
        let server = Server::start().await;
        let topics = Arc::new(Topics::default());
        let (commands, taken) = mpsc::unbounded_channel();
        let (notes, mut noted) = mpsc::unbounded_channel();
        let subscriber = NodeSubscriber {
            target: Target::parse(&server.url()).unwrap(),
            address: "a".into(),
            topics: topics.clone(),
            events: Arc::new(|_| ()),
            channels: ClusterChannels::Sharded,
            timeout: SHORT,
            notes,
        };
        tokio::spawn(subscriber.run(taken));
        let join = |channel: &str| Command::Join {
            channel: channel.into(),
            renewed: false,
        };
        let [_left, mut joined] = ["left", "joined"].map(|name| topics.listen(name.to_owned()));
        assert!(commands.send(join("left")).is_ok());
        until("it is subscribed to", async || topics.is_open("left")).await;
        // On a busy machine the first connection may have failed.
        while noted.try_recv().is_ok() {}
        server.signal("STOP");
        // Both are sent in one burst, with no other task running in between.
        let channel = "left".into();
        assert!(commands.send(Command::Leave { channel }).is_ok());
        assert!(commands.send(join("joined")).is_ok());
        while !matches!(noted.recv().await, Some(Note::Down { .. })) {}
        server.signal("CONT");
        until("it is subscribed to", async || topics.is_open("joined")).await;
        joined.heard().await;
        let channels = server.run("PUBSUB SHARDCHANNELS").await;
        assert_eq!(
            channels,
            Value::Array(vec![Value::BulkString(b"joined".into())])
        );
    }
}

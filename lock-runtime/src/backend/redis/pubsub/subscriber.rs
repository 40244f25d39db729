//! The task that keeps channels of one server subscribed, on one pub/sub connection after the other.

use std::collections::HashSet;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::connection::PubsubConnection;
use super::messages::CONTROL;
use super::topics::Topics;
use crate::backend::kit::closed::until_closed;
use crate::backend::kit::outage::Outage;
use crate::backend::redis::cluster::Redirect;
use crate::backend::redis::connection::Target;
use crate::backend::redis::connection::dial::{self, STABLE};
use crate::backend::{EventSink, Fault};
use crate::observe::metrics::logged;
use crate::values::{ClusterChannels, StoreError, clock};

/// The interval at which a quiet connection is asked for a sign of life.
const PING_EVERY: Duration = Duration::from_secs(10);
/// The most channels in one message to the connection's task.
const BATCH: usize = 512;
/// The number of connections that are cut during SUBSCRIBE before the subscriber reports that the server lacks pub/sub.
/// Fewer cuts may be an accident.
const CUTS: u32 = 3;

pub(crate) enum ChannelCommand {
    Join(Arc<str>),
    Leave(Arc<str>),
}

pub(crate) enum SubscriberNote {
    Up,
    /// There is no connection. The verdict counts only if it is the first one.
    Down(FirstTry),
    /// The server is a node that does not have the channel's slot, or no longer has it.
    Refused(Arc<str>),
}

/// The outcome of the first attempt to subscribe. A cluster takes any outcome for `Over`.
#[derive(Clone, Debug)]
pub(crate) enum FirstTry {
    UnderWay,
    /// The attempt has succeeded, or has failed as any connection may.
    Over,
    /// All commands work except SUBSCRIBE.
    NoPubSub(Fault),
}

pub(crate) struct Subscriber {
    pub(crate) target: Arc<Target>,
    pub(crate) topics: Arc<Topics>,
    pub(crate) events: EventSink,
    pub(crate) channels: ClusterChannels,
    /// The timeout of each request.
    pub(crate) timeout: Duration,
    pub(crate) on_note: Box<dyn Fn(SubscriberNote) + Send + Sync>,
}

type OwnChannels = HashSet<Arc<str>>;
type Commands = mpsc::UnboundedReceiver<ChannelCommand>;

/// The error that no more commands will come.
struct NoMoreCommands;

impl Subscriber {
    /// Subscribes to the channels of all topics, for a server that has all of them.
    pub(crate) async fn run_alone(self, closed: watch::Receiver<bool>) {
        let topics = self.topics.clone();
        let (sender, commands) = mpsc::unbounded_channel();
        let feed = async {
            loop {
                let (ended, next_idle) = topics.take_idle();
                let leaving = ended.into_iter().map(ChannelCommand::Leave);
                let joining = topics.take_fresh().into_iter().map(ChannelCommand::Join);
                for command in leaving.chain(joining) {
                    // An error means that the backend is closing.
                    let _ = sender.send(command);
                }
                topics.changed_or(next_idle).await;
            }
        };
        let work = async {
            tokio::select! {
                () = feed => {}
                () = self.run(commands) => {}
            }
        };
        until_closed(closed, work).await;
        topics.unreachable();
    }

    /// Carries out commands until all senders are gone.
    pub(crate) async fn run(self, mut commands: Commands) {
        let _ = self.keep_alive(&mut commands).await;
    }

    async fn keep_alive(&self, commands: &mut Commands) -> Result<Infallible, NoMoreCommands> {
        let mut outage = Outage::new("the subscription to the lock store");
        let mut pauses = dial::pauses();
        let mut warned = LoggedWarnings::default();
        let mut own = OwnChannels::new();
        let (mut has_tried, mut cuts) = (false, 0);
        loop {
            let mut first_try = FirstTry::Over;
            let (topics, events) = (self.topics.clone(), self.events.clone());
            let sharded = self.channels.are_sharded();
            let open = PubsubConnection::open(&self.target, sharded, self.timeout, topics, events);
            let opened = self.meanwhile(open, commands, &mut own, has_tried);
            let fault = match opened.await? {
                Ok(pubsub) => {
                    let mut session = PubsubSession {
                        subscriber: self,
                        pubsub,
                        own: &mut own,
                        warned: &mut warned,
                        was_short: false,
                    };
                    let asked_at = clock::now();
                    match session.begin().await {
                        Ok(()) => {
                            outage.notice_end(self.target.shown());
                            (self.on_note)(SubscriberNote::Up);
                            let since = clock::now();
                            let fault = session.serve(commands).await?;
                            // A server that accepts connections and cuts them at once must not be asked without a
                            // pause.
                            if since.elapsed() > STABLE {
                                pauses.reset();
                            }
                            fault
                        }
                        Err(fault) => {
                            cuts += 1;
                            first_try = self.judge(&fault, asked_at.elapsed(), cuts);
                            fault
                        }
                    }
                }
                Err(fault) => fault,
            };
            // Until the next connection is subscribed, the listeners get no messages.
            has_tried = true;
            for channel in &own {
                self.topics.not_subscribed(channel);
            }
            (self.on_note)(SubscriberNote::Down(first_try));
            outage.notice_loss(self.target.shown(), &fault);
            let pause = dial::pause(&mut pauses, &self.target);
            self.meanwhile(pause, commands, &mut own, true).await?;
        }
    }

    /// Judges a SUBSCRIBE that failed on a connection that was just opened: the server may lack pub/sub.
    fn judge(&self, fault: &Fault, waited: Duration, cuts: u32) -> FirstTry {
        let without = || {
            format!(
                "everything but SUBSCRIBE works there ({fault}): a proxy without pub/sub seems to be in between. \
                 Connect to Redis directly"
            )
        };
        let lasting = || FirstTry::NoPubSub(Fault::Impossible(without()).at(self.target.shown()));
        match fault {
            Fault::NotDone(said) if said.to_string().starts_with("ERR") => lasting(),
            // The network may be slow.
            Fault::Unknown(_) if waited >= self.timeout => {
                FirstTry::NoPubSub(Fault::not_done(without()))
            }
            Fault::Unknown(_) if cuts < CUTS => FirstTry::UnderWay,
            Fault::Unknown(_) => lasting(),
            _ => FirstTry::Over,
        }
    }

    /// Waits for `work`, and notes commands meanwhile. After the first attempt, listeners need not wait for a node that does
    /// not answer before they ask the store.
    async fn meanwhile<T>(
        &self,
        work: impl Future<Output = T>,
        commands: &mut Commands,
        own: &mut OwnChannels,
        has_tried: bool,
    ) -> Result<T, NoMoreCommands> {
        let mut work = pin!(work);
        loop {
            let command = tokio::select! {
                done = &mut work => return Ok(done),
                command = commands.recv() => command.ok_or(NoMoreCommands)?,
            };
            match command {
                ChannelCommand::Join(channel) => {
                    if has_tried {
                        self.topics.not_subscribed(&channel);
                    }
                    own.insert(channel);
                }
                ChannelCommand::Leave(channel) => _ = own.remove(&channel),
            }
        }
    }
}

/// The warnings that were logged. Each is logged once, however many channels and connections it is about.
#[derive(Default)]
struct LoggedWarnings {
    locks: bool,
    control: bool,
    ended: bool,
}

impl LoggedWarnings {
    fn of_control(&mut self, reason: &StoreError) {
        if !std::mem::replace(&mut self.control, true) {
            logged!(
                warn,
                %reason,
                channel = CONTROL,
                "the lock store refuses the control channel: holders learn of a forced release only at their next renewal"
            );
        }
    }

    fn of_locks(&mut self, channel: &str, reason: &StoreError) {
        if !std::mem::replace(&mut self.locks, true) {
            logged!(
                warn,
                %reason,
                channel,
                "the lock store refuses lock channels: waiters are not woken by releases of other processes, but ask \
                 again about once a second"
            );
        }
    }

    fn of_ended(&mut self, server: &str) {
        if !std::mem::replace(&mut self.ended, true) {
            logged!(
                warn,
                server,
                "subscriptions have ended though their connection is open: a proxy seems to have replaced its server. They \
                 are begun anew"
            );
        }
    }
}

/// One connection, and the commands that are carried out on it.
struct PubsubSession<'a> {
    subscriber: &'a Subscriber,
    pubsub: PubsubConnection,
    /// The channels that it should be subscribed to.
    own: &'a mut OwnChannels,
    warned: &'a mut LoggedWarnings,
    /// Whether the last look has found less subscriptions than there should be. If they are begun anew and the next look finds
    /// the same, the server counts in another way.
    was_short: bool,
}

impl PubsubSession<'_> {
    async fn begin(&mut self) -> Result<(), Fault> {
        self.join_control().await?;
        let channels = self.own.iter().cloned().collect();
        self.join(channels).await
    }

    /// Asks for a sign of life, and subscribes again to the channels that the server refused. The user may have got the
    /// right to them since, and the server does not end a connection for a right that it gives.
    ///
    /// A proxy may have replaced its server behind the open connection, with which all subscriptions have ended. So the
    /// control channel is subscribed to each time, and the server's count in the answer shows whether the others are gone:
    /// those are subscribed to again as well, and their listeners wake. The connection stays: if a server counts in another
    /// way, that costs some requests once, and no connection. Sharded channels are not looked at. The server counts them apart,
    /// and only nodes of a cluster have them, which are reached by the addresses that they announce.
    async fn look_after(&mut self) -> Result<(), Fault> {
        let Subscriber {
            target,
            timeout,
            topics,
            channels,
            ..
        } = self.subscriber;
        dial::sign_of_life(&mut self.pubsub.dialed.connection, target, *timeout).await?;
        let counted = self.join_control().await?;
        let classic = self
            .own
            .iter()
            .filter(|channel| channels.are_classic() && topics.is_open(channel));
        // The control channel counts as well.
        let is_short = counted.is_some_and(|counted| counted < 1 + classic.count());
        let was_short = std::mem::replace(&mut self.was_short, is_short);
        if is_short && !was_short {
            self.warned.of_ended(target.shown());
            for channel in self.own.iter() {
                topics.not_subscribed(channel);
            }
        }
        let closed = self.own.iter().filter(|channel| !topics.is_open(channel));
        let closed = closed.cloned().collect();
        self.join(closed).await
    }

    /// Returns how many channels the server counts for the connection, without sharded ones, if it allows the control
    /// channel.
    async fn join_control(&mut self) -> Result<Option<usize>, Fault> {
        match self.pubsub.subscribe_control().await {
            Err(Fault::Denied(reason)) => {
                self.warned.of_control(&reason);
                Ok(None)
            }
            counted => counted,
        }
    }

    async fn serve(&mut self, commands: &mut Commands) -> Result<Fault, NoMoreCommands> {
        let mut next_ping = clock::now() + PING_EVERY;
        loop {
            let done = tokio::select! {
                fault = self.pubsub.dialed.ended(&self.subscriber.target) => Err(fault),
                Some(name) = self.pubsub.dropped.recv() => self.give_up_dropped(name).await,
                command = commands.recv() => {
                    self.carry_out(command.ok_or(NoMoreCommands)?, commands).await
                }
                () = clock::sleep_until(next_ping) => {
                    let looked = self.look_after().await;
                    next_ping = clock::now() + PING_EVERY;
                    looked
                }
            };
            if let Err(fault) = done {
                return Ok(fault);
            }
        }
    }

    /// Carries out this command and the commands after it, in their order.
    async fn carry_out(
        &mut self,
        first: ChannelCommand,
        commands: &mut Commands,
    ) -> Result<(), Fault> {
        let (mut joining, mut leaving) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(command) = next {
            match command {
                ChannelCommand::Join(channel) => {
                    // The channel is noted first, because the command is not sent again if the connection ends now.
                    self.own.insert(channel.clone());
                    if !leaving.is_empty() {
                        self.leave(std::mem::take(&mut leaving)).await?;
                    }
                    joining.push(channel);
                }
                ChannelCommand::Leave(channel) => {
                    // As above: the next connection must not subscribe to it.
                    let was_own = self.own.remove(&channel);
                    if !joining.is_empty() {
                        self.join(std::mem::take(&mut joining)).await?;
                    }
                    if was_own {
                        leaving.push(channel);
                    }
                }
            }
            next = commands.try_recv().ok();
        }
        self.leave(leaving).await?;
        self.join(joining).await
    }

    async fn join(&mut self, channels: Vec<Arc<str>>) -> Result<(), Fault> {
        let subscriber = self.subscriber;
        for batch in channels.chunks(BATCH) {
            let mut answers = vec![Ok(()); batch.len()];
            for verb in self.verbs("SSUBSCRIBE", "SUBSCRIBE") {
                for (answer, one) in answers.iter_mut().zip(self.pubsub.send(verb, batch).await?) {
                    if answer.is_ok() {
                        *answer = one;
                    }
                }
            }
            let mut homeless = Vec::new();
            for (channel, answer) in batch.iter().zip(answers) {
                match answer {
                    Ok(()) => subscriber.topics.opened(channel),
                    Err(Fault::Denied(reason)) => {
                        subscriber.topics.not_subscribed(channel);
                        self.warned.of_locks(channel, &reason);
                    }
                    Err(fault)
                        if subscriber.channels.are_sharded() && Redirect::of(&fault).is_some() =>
                    {
                        self.own.remove(channel);
                        (subscriber.on_note)(SubscriberNote::Refused(channel.clone()));
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
    async fn give_up_dropped(&mut self, first: Vec<u8>) -> Result<(), Fault> {
        let mut dropped = vec![first];
        while let Ok(name) = self.pubsub.dropped.try_recv() {
            dropped.push(name);
        }
        let names = dropped.iter().filter_map(|name| str::from_utf8(name).ok());
        let gone: Vec<Arc<str>> = names.filter_map(|name| self.own.take(name)).collect();
        for channel in &gone {
            self.subscriber.topics.not_subscribed(channel);
            (self.subscriber.on_note)(SubscriberNote::Refused(channel.clone()));
        }
        self.end_classic(&gone).await
    }

    /// Ends the classic subscriptions to channels that are gone. The server does not end them when a slot leaves.
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
                    // A node that has lost the slot refuses as well, but has already ended the subscription. A user
                    // without the right to unsubscribe can end subscriptions only by ending the connection; otherwise
                    // they would add up.
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
        let classic = channels.are_classic().then_some(classic);
        [sharded, classic].into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Listen;
    use crate::backend::redis::tests::{server::TestServer, until};
    use redis::Value;

    const SHORT: Duration = Duration::from_millis(200);

    #[tokio::test]
    async fn commands_during_the_end_of_a_connection_are_carried_out() {
        for joins_first in [false, true] {
            are_carried_out(joins_first).await;
        }
    }

    async fn are_carried_out(joins_first: bool) {
        let server = TestServer::start().await;
        let topics = Arc::new(Topics::default());
        let (commands, taken) = mpsc::unbounded_channel();
        let (notes, mut noted) = mpsc::unbounded_channel();
        let subscriber = Subscriber {
            target: Arc::new(Target::parse(&server.url()).unwrap()),
            topics: topics.clone(),
            events: Arc::new(|_| ()),
            channels: ClusterChannels::Sharded,
            timeout: SHORT,
            on_note: Box::new(move |note| _ = notes.send(note)),
        };
        tokio::spawn(subscriber.run(taken));
        let join = |channel: &str| ChannelCommand::Join(channel.into());
        let [_left, mut joined] = ["left", "joined"].map(|name| topics.listen(name.to_owned()));
        assert!(commands.send(join("left")).is_ok());
        until("it is subscribed to", async || topics.is_open("left")).await;
        // On a busy machine the first connection may have failed.
        while noted.try_recv().is_ok() {}
        server.signal("STOP");
        // Both commands are sent in one burst, with no other task running in between.
        let mut both = [ChannelCommand::Leave("left".into()), join("joined")];
        if joins_first {
            both.reverse();
        }
        for command in both {
            assert!(commands.send(command).is_ok());
        }
        while !matches!(noted.recv().await, Some(SubscriberNote::Down(_))) {}
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

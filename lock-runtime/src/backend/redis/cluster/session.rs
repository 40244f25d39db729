//! The pub/sub connection to one node.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, PushKind, Value};
use tokio::sync::{Notify, mpsc};

use super::super::channels::ClusterChannels;
use super::super::dial::{self, Backoff, Outage, STABLE};
use super::super::faults;
use super::super::sentinel::Address;
use super::super::subscribe::{PING_EVERY, Refusals, deliver, within};
use super::super::target::Target;
use super::super::topics::Topics;
use super::Detour;
use crate::backend::{EventSink, Fault};
use crate::clock;
use crate::error::StoreError;

/// Channels in one message to the connection's task.
const BATCH: usize = 512;

pub(super) enum Order {
    Join {
        channel: Arc<str>,
        /// Whoever listens may have missed something.
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
    /// The node does not have the channel's slot.
    Refused {
        address: Address,
        channel: Arc<str>,
    },
}

pub(super) struct Session {
    pub(super) target: Target,
    pub(super) address: Address,
    pub(super) topics: Arc<Topics>,
    pub(super) control: Arc<str>,
    pub(super) events: EventSink,
    pub(super) channels: ClusterChannels,
    /// For each request.
    pub(super) timeout: Duration,
    pub(super) notes: mpsc::UnboundedSender<Note>,
}

/// The channels of this session, and whether their listeners may have missed something.
type Mine = HashMap<Arc<str>, bool>;
type Orders = mpsc::UnboundedReceiver<Order>;

/// Nobody will send orders any more.
struct Ended;

impl Session {
    pub(super) async fn run(self, mut orders: Orders) {
        let _ = self.keep_alive(&mut orders).await;
    }

    async fn keep_alive(&self, orders: &mut Orders) -> Result<(), Ended> {
        let mut outage = Outage::new("a subscription to the lock store is");
        let mut backoff = Backoff::new();
        let mut refusals = Refusals::default();
        let mut mine = Mine::new();
        let mut deaf = false;
        loop {
            let fault = match self.connect(orders, &mut mine, deaf).await? {
                Ok(wire) => {
                    let since = clock::now();
                    let mut talk = Talk {
                        session: self,
                        wire,
                        refusals: &mut refusals,
                    };
                    let fault = match talk.begin(&mut mine).await {
                        Ok(()) => {
                            outage.is_over(&self.target);
                            self.note(Note::Up {
                                address: self.address.clone(),
                            });
                            talk.serve(orders, &mut mine).await?
                        }
                        Err(fault) => fault,
                    };
                    if since.elapsed() > STABLE {
                        backoff = Backoff::new();
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
            outage.is_on(&self.target, &fault);
            let pause = clock::now() + backoff.next();
            while !pause.has_passed() {
                tokio::select! {
                    () = clock::sleep_until(pause) => {}
                    order = orders.recv() => self.keep_for_later(order, &mut mine, true)?,
                }
            }
        }
    }

    fn note(&self, note: Note) {
        // An error means that the backend is closing.
        let _ = self.notes.send(note);
    }

    /// Takes orders while it connects. Nobody is to wait for a node that is away before they look for themselves.
    async fn connect(
        &self,
        orders: &mut Orders,
        mine: &mut Mine,
        deaf: bool,
    ) -> Result<Result<Wire, Fault>, Ended> {
        let mut connecting = pin!(Wire::open(self));
        loop {
            tokio::select! {
                connected = &mut connecting => return Ok(connected),
                order = orders.recv() => self.keep_for_later(order, mine, deaf)?,
            }
        }
    }

    fn keep_for_later(
        &self,
        order: Option<Order>,
        mine: &mut Mine,
        deaf: bool,
    ) -> Result<(), Ended> {
        match order.ok_or(Ended)? {
            Order::Join { channel, renewed } => {
                if deaf {
                    self.topics.deaf(std::slice::from_ref(&channel));
                }
                mine.insert(channel, renewed || deaf);
            }
            Order::Leave { channel } => _ = mine.remove(&channel),
        }
        Ok(())
    }
}

struct Wire {
    connection: MultiplexedConnection,
    cut: Arc<Notify>,
    /// The server has ended a subscription by itself.
    dropped: Arc<Notify>,
    /// The subscriptions whose end was asked for.
    ending: Arc<Mutex<HashSet<Vec<u8>>>>,
}

impl Wire {
    async fn open(session: &Session) -> Result<Wire, Fault> {
        let cut = Arc::new(Notify::new());
        let dropped = Arc::new(Notify::new());
        let ending = Arc::new(Mutex::new(HashSet::<Vec<u8>>::new()));
        let (gone, moved, asked) = (cut.clone(), dropped.clone(), ending.clone());
        let topics = session.topics.clone();
        let (control, events) = (session.control.clone(), session.events.clone());
        let on_push = move |push: redis::PushInfo| match push.kind {
            PushKind::Message | PushKind::SMessage => deliver(&push, &topics, &control, &events),
            PushKind::Disconnection => gone.notify_one(),
            PushKind::SUnsubscribe => {
                let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
                let expected = match push.data.first() {
                    Some(Value::BulkString(channel)) => asked.remove(channel),
                    _ => false,
                };
                if !expected {
                    moved.notify_one();
                }
            }
            _ => {}
        };
        let dialed = dial::open(&session.target, session.timeout, on_push).await?;
        Ok(Wire {
            connection: dialed.connection,
            cut,
            dropped,
            ending,
        })
    }
}

/// One connection's life.
struct Talk<'a> {
    session: &'a Session,
    wire: Wire,
    refusals: &'a mut Refusals,
}

impl Talk<'_> {
    async fn begin(&mut self, mine: &mut Mine) -> Result<(), Fault> {
        let session = self.session;
        let control = self.wire.connection.subscribe(&*session.control);
        match within(session.timeout, control).await {
            Err(Fault::Denied(reason)) => self.refusals.of_control(&session.control, &reason),
            subscribed => subscribed?,
        }
        let channels = mine
            .iter()
            .map(|(channel, renewed)| (channel.clone(), *renewed));
        let channels = channels.collect();
        self.join(channels, mine).await
    }

    async fn serve(&mut self, orders: &mut Orders, mine: &mut Mine) -> Result<Fault, Ended> {
        let mut next_ping = clock::now() + PING_EVERY;
        loop {
            tokio::select! {
                () = self.wire.cut.notified() => {
                    return Ok(Fault::Unknown(StoreError::new("the connection was cut")));
                }
                () = self.wire.dropped.notified() => {
                    // The client takes that word for the answer to whatever is under way: no further answer can be
                    // trusted to belong to its question.
                    return Ok(Fault::Unknown(StoreError::new("a slot has left the node")));
                }
                order = orders.recv() => {
                    if let Err(fault) = self.obey(order.ok_or(Ended)?, orders, mine).await {
                        return Ok(fault);
                    }
                }
                () = clock::sleep_until(next_ping) => {
                    let Session { target, timeout, .. } = self.session;
                    let connection = &mut self.wire.connection;
                    if let Err(fault) = dial::sign_of_life(connection, target, *timeout).await {
                        return Ok(fault);
                    }
                    next_ping = clock::now() + PING_EVERY;
                }
            }
        }
    }

    /// This order and those behind it, in their order.
    async fn obey(
        &mut self,
        first: Order,
        orders: &mut Orders,
        mine: &mut Mine,
    ) -> Result<(), Fault> {
        let (mut joining, mut leaving) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(order) = next {
            match order {
                Order::Join { channel, renewed } => {
                    // First, for this order is not given again should the connection end now.
                    mine.insert(channel.clone(), renewed);
                    if !leaving.is_empty() {
                        self.leave(std::mem::take(&mut leaving)).await?;
                    }
                    joining.push((channel, renewed));
                }
                Order::Leave { channel } => {
                    if !joining.is_empty() {
                        self.join(std::mem::take(&mut joining), mine).await?;
                    }
                    if mine.remove(&channel).is_some() {
                        leaving.push(channel);
                    }
                }
            }
            next = orders.try_recv().ok();
        }
        self.leave(leaving).await?;
        self.join(joining, mine).await
    }

    async fn join(
        &mut self,
        channels: Vec<(Arc<str>, bool)>,
        mine: &mut Mine,
    ) -> Result<(), Fault> {
        let session = self.session;
        for batch in channels.chunks(BATCH) {
            let mut answers = vec![Ok(()); batch.len()];
            for verb in self.verbs("SSUBSCRIBE", "SUBSCRIBE") {
                let names = batch.iter().map(|(channel, _)| channel);
                for (answer, one) in answers.iter_mut().zip(self.send(verb, names).await?) {
                    if answer.is_ok() {
                        *answer = one;
                    }
                }
            }
            for ((channel, renewed), answer) in batch.iter().zip(answers) {
                match answer {
                    Ok(()) => session
                        .topics
                        .opened(std::slice::from_ref(channel), *renewed),
                    Err(Fault::Denied(reason)) => {
                        session.topics.refused(channel);
                        self.refusals.of_locks(&reason);
                    }
                    Err(fault) if Detour::of(&fault).is_some() => {
                        mine.remove(channel);
                        session.note(Note::Refused {
                            address: session.address.clone(),
                            channel: channel.clone(),
                        });
                    }
                    Err(fault) => return Err(fault),
                }
            }
        }
        Ok(())
    }

    async fn leave(&mut self, channels: Vec<Arc<str>>) -> Result<(), Fault> {
        for batch in channels.chunks(BATCH) {
            if self.session.channels.are_sharded() {
                let mut ending = self
                    .wire
                    .ending
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                ending.extend(batch.iter().map(|channel| channel.as_bytes().to_vec()));
            }
            for verb in self.verbs("SUNSUBSCRIBE", "UNSUBSCRIBE") {
                // A node that has lost the slot refuses, and has ended the subscription by itself.
                self.send(verb, batch.iter()).await?;
            }
        }
        Ok(())
    }

    fn verbs(
        &self,
        sharded: &'static str,
        classic: &'static str,
    ) -> impl Iterator<Item = &'static str> + use<> {
        let channels = self.session.channels;
        let sharded = channels.are_sharded().then_some(sharded);
        sharded
            .into_iter()
            .chain(channels.are_classic().then_some(classic))
    }

    /// One command for each channel, for those of one command have to be in one slot.
    async fn send(
        &mut self,
        verb: &str,
        channels: impl Iterator<Item = &Arc<str>> + Clone,
    ) -> Result<Vec<Result<(), Fault>>, Fault> {
        let mut pipeline = Pipeline::new();
        for channel in channels.clone() {
            pipeline.cmd(verb).arg(&**channel);
        }
        let count = pipeline.len();
        if count == 0 {
            return Ok(Vec::new());
        }
        let sending = self
            .wire
            .connection
            .send_packed_commands(&pipeline, 0, count);
        let replies = within(self.session.timeout, sending).await?;
        let answers = channels.zip(replies).map(|(channel, reply)| match reply {
            Value::ServerError(error) => Ok(Err(faults::of_call(&error.into()))),
            Value::Push { data, .. } if is_of(&data, channel) => Ok(Ok(())),
            _ => Err(Fault::Unknown(StoreError::new(
                "an answer does not belong to its question",
            ))),
        });
        answers.collect()
    }
}

fn is_of(data: &[Value], channel: &str) -> bool {
    matches!(data.first(), Some(Value::BulkString(name)) if name == channel.as_bytes())
}

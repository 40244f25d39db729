//! One pub/sub connection. It separates the server's own messages about channels from the answers to commands.
//!
//! It is a connection of its own, so that a flood of messages never delays the reply to a renewal, and so that the
//! server can cut a slow subscriber without cutting the commands. It speaks RESP3. The connection's task counts each
//! message for the listeners at once, so no queue can grow.
//!
//! A node of a cluster that loses a slot ends the sharded subscriptions there. Its message for that has the form of an
//! answer to SUNSUBSCRIBE, and the client takes it for the answer to any command that is under way. So where there are
//! sharded channels, each batch of commands ends with a PING whose answer is unique. If the last answer is another one,
//! another message came in between, and the batch is sent again once all messages on their way have arrived.
//! Subscribing or unsubscribing twice does no harm.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use redis::{Pipeline, PushInfo, PushKind, Value};
use tokio::sync::{mpsc, watch};

use super::messages::{CONTROL, event, reservation};
use super::topics::Topics;
use crate::backend::redis::connection::Target;
use crate::backend::redis::connection::dial::{self, Dialed};
use crate::backend::redis::scripting::{self, faults};
use crate::backend::{EventSink, Fault};
use crate::sync::Mutex;

/// The number of times that a batch is sent before the connection is given up.
const ATTEMPTS: usize = 5;

pub(super) struct PubsubConnection {
    pub(super) dialed: Dialed,
    /// Whether the server may end subscriptions by itself.
    sharded: bool,
    timeout: Duration,
    /// The number of the last batch.
    batches: u64,
    messages: Arc<ServerMessages>,
    /// The channels whose subscriptions the server has ended by itself.
    pub(super) dropped: mpsc::UnboundedReceiver<Vec<u8>>,
}

/// The server's messages. The connection's task writes them.
struct ServerMessages {
    dropped: mpsc::UnboundedSender<Vec<u8>>,
    /// The channels whose subscriptions this process has asked to end.
    ending: Mutex<HashSet<Vec<u8>>>,
    /// The number of answers to subscriptions of the control channel. They arrive in the order of all answers.
    marks: watch::Sender<u64>,
}

impl ServerMessages {
    fn receive(&self, push: &PushInfo) {
        let Some(Value::BulkString(channel)) = push.data.first() else {
            return;
        };
        if push.kind == PushKind::Subscribe && channel == CONTROL.as_bytes() {
            self.marks.send_modify(|marks| *marks += 1);
        }
        if push.kind == PushKind::SUnsubscribe && !self.ending.lock().remove(channel) {
            // An error means that the connection is being given up.
            let _ = self.dropped.send(channel.clone());
        }
    }
}

impl PubsubConnection {
    /// Opens a connection. Published messages go to the topics and the events.
    pub(super) async fn open(
        target: &Target,
        sharded: bool,
        timeout: Duration,
        topics: Arc<Topics>,
        events: EventSink,
    ) -> Result<PubsubConnection, Fault> {
        let (sender, dropped) = mpsc::unbounded_channel();
        let messages = Arc::new(ServerMessages {
            dropped: sender,
            ending: Mutex::default(),
            marks: watch::Sender::default(),
        });
        let receiver = messages.clone();
        let on_push = move |push: PushInfo| match push.kind {
            PushKind::Message | PushKind::SMessage => deliver(&push, &topics, &events),
            _ => receiver.receive(&push),
        };
        let dialed = dial::open(target, timeout, Arc::new(on_push)).await?;
        Ok(PubsubConnection {
            dialed,
            sharded,
            timeout,
            batches: 0,
            messages,
            dropped,
        })
    }

    /// Subscribes to the control channel, which does no harm if it is subscribed to already. Returns how many channels the
    /// server then counts for this connection, without sharded ones; `None` if another message took the answer's place.
    pub(super) async fn subscribe_control(&mut self) -> Result<Option<usize>, Fault> {
        let subscribe = redis::cmd("SUBSCRIBE").arg(CONTROL).take();
        let subscribing = scripting::send(&mut self.dialed.connection, &subscribe);
        let answer = within(self.timeout, subscribing).await?;
        Ok(match &answer {
            Value::Push { data, .. } if is_of(data, CONTROL.as_bytes()) => counted(data),
            _ => None,
        })
    }

    /// Sends one command for each channel, because the channels of one command have to be in one slot.
    pub(super) async fn send(
        &mut self,
        verb: &str,
        channels: &[Arc<str>],
    ) -> Result<Vec<Result<(), Fault>>, Fault> {
        if channels.is_empty() {
            return Ok(Vec::new());
        }
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                self.catch_up().await?;
            }
            if let Some(answers) = self.try_send(verb, channels).await? {
                return Ok(answers);
            }
        }
        Err(foreign())
    }

    /// Sends the commands once. Returns `None` if another message came between the answers.
    async fn try_send(
        &mut self,
        verb: &str,
        channels: &[Arc<str>],
    ) -> Result<Option<Vec<Result<(), Fault>>>, Fault> {
        let names = channels.iter().map(|channel| channel.as_bytes());
        let unsubscribes = verb == "SUNSUBSCRIBE";
        if unsubscribes {
            let mut ending = self.messages.ending.lock();
            ending.extend(names.clone().map(Vec::from));
        }
        let mut pipeline = Pipeline::new();
        for name in names.clone() {
            pipeline.cmd(verb).arg(name);
        }
        self.batches += 1;
        let last = self.sharded.then(|| format!("batch {}", self.batches));
        if let Some(last) = &last {
            pipeline.cmd("PING").arg(last);
        }
        let (connection, count) = (&mut self.dialed.connection, pipeline.len());
        let sending = connection.send_packed_commands(&pipeline, 0, count);
        let mut replies = within(self.timeout, sending).await?;
        if unsubscribes {
            // A node that had already lost the slot refuses the command. Then no answer removes these names, so they
            // are removed here.
            let mut ending = self.messages.ending.lock();
            for name in names.clone() {
                ending.remove(name);
            }
        }
        if let Some(last) = last
            && !replies.pop().is_some_and(|reply| is_last(&reply, &last))
        {
            return Ok(None);
        }
        let answers = names.zip(replies).map(|(name, reply)| match reply {
            Value::ServerError(error) => Ok(Err(faults::of_call(&error.into()))),
            Value::Push { data, .. } if is_of(&data, name) => Ok(Ok(())),
            _ => Err(foreign()),
        });
        answers.collect::<Result<_, _>>().map(Some)
    }

    /// Waits until all messages on their way have arrived. After that, no answer is outstanding.
    async fn catch_up(&mut self) -> Result<(), Fault> {
        let mut marks = self.messages.marks.subscribe();
        if *marks.borrow_and_update() == 0 {
            // The control channel is refused to this user, so a new answer could not be distinguished from a late one.
            return Err(foreign());
        }
        // The content of the answer does not matter. Only the mark counts.
        if let Err(fault @ Fault::Unknown(_)) = self.subscribe_control().await {
            return Err(fault);
        }
        match tokio::time::timeout(self.timeout, marks.changed()).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(foreign()),
        }
    }
}

/// Counts a message. Runs on the connection's task.
fn deliver(push: &PushInfo, topics: &Topics, events: &EventSink) {
    let [Value::BulkString(channel), Value::BulkString(payload)] = push.data.as_slice() else {
        return;
    };
    let Ok(channel) = std::str::from_utf8(channel) else {
        return;
    };
    if channel != CONTROL {
        // Noted before the listeners wake.
        if let Some(reservation) = reservation(payload) {
            topics.reservations.receive(reservation);
        }
        topics.count_message(channel);
    } else if let Some(event) = event(payload) {
        events(event);
    }
}

async fn within<T>(
    timeout: Duration,
    request: impl Future<Output = redis::RedisResult<T>>,
) -> Result<T, Fault> {
    match tokio::time::timeout(timeout, request).await {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(error)) => Err(faults::of_call(&error)),
        Err(_) => Err(Fault::unknown(format!("no answer within {timeout:?}"))),
    }
}

/// Returns `true` for the answer to the last PING. If the user may not send PING, that answer is the refusal.
fn is_last(reply: &Value, last: &str) -> bool {
    match reply {
        Value::BulkString(text) => text == last.as_bytes(),
        Value::ServerError(error) => {
            matches!(faults::of_call(&error.clone().into()), Fault::Denied(_))
        }
        _ => false,
    }
}

/// Returns the number of subscriptions in an answer to SUBSCRIBE.
fn counted(data: &[Value]) -> Option<usize> {
    match data {
        [_, Value::Int(count)] => usize::try_from(*count).ok(),
        _ => None,
    }
}

fn is_of(data: &[Value], channel: &[u8]) -> bool {
    matches!(data.first(), Some(Value::BulkString(name)) if name == channel)
}

fn foreign() -> Fault {
    Fault::unknown("an answer does not belong to its question: slots are leaving the node")
}

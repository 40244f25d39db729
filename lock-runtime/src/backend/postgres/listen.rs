//! Waking those who wait: one connection listens for all keys of this process.
//!
//! A notification is a hint. Behind a pooler that gives every transaction another connection, none arrive, and those who
//! wait ask again within the cap of a sleep.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_postgres::{
    AsyncMessage, Client, Connection, NoTls, Notification, Socket, tls::NoTlsStream,
};

use super::faults;
use super::url::Target;
use crate::backend::kit::outage::Outage;
use crate::backend::kit::topic::{Ear, Topic};
use crate::backend::{Event, EventSink, Fault, Listen, Victim};
use crate::values::backoff::Backoff;
use crate::values::clock;
use crate::values::error::StoreError;
use crate::values::holder::HolderId;

/// How often a connection that hears nothing is asked for a sign of life.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// A connection that lived so long is replaced at once.
const STABLE: Duration = Duration::from_secs(1);
/// What the name of a released holder begins with. No topic does.
const VICTIM: char = '!';

/// Who listens in this process.
#[derive(Debug, Default)]
pub(super) struct Topics {
    topics: Mutex<HashMap<String, Weak<Topic>>>,
}

impl Topics {
    fn table(&self) -> MutexGuard<'_, HashMap<String, Weak<Topic>>> {
        // Nothing below panics while the lock is held.
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listen(&self, name: &str) -> Ear {
        let mut table = self.table();
        let topic = table.get(name).and_then(Weak::upgrade).unwrap_or_else(|| {
            let topic = Arc::new(Topic::default());
            table.insert(name.to_owned(), Arc::downgrade(&topic));
            topic
        });
        Ear::new(topic)
    }

    fn heard(&self, name: &str) {
        let topic = self.table().get(name).and_then(Weak::upgrade);
        if let Some(topic) = topic {
            topic.raise();
        }
    }

    /// Something may have been missed.
    fn all_look(&self) {
        for topic in self.table().values().filter_map(Weak::upgrade) {
            topic.raise();
        }
    }

    fn forget(&self, name: &str, ear: &Ear) {
        let mut table = self.table();
        // New listeners take the table's lock as well, so a count of one is this listener alone.
        if Arc::strong_count(ear.topic()) == 1 {
            table.remove(name);
        }
    }
}

/// Whether notifications arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hearing {
    /// The first connection is being opened.
    Opening,
    On,
    /// There is no connection, or none is wanted.
    Off,
}

/// One listener's view of a key.
pub(super) struct Listener {
    name: String,
    ear: Ear,
    topics: Arc<Topics>,
    hearing: watch::Receiver<Hearing>,
}

impl Listener {
    pub(super) fn new(
        topics: &Arc<Topics>,
        hearing: &watch::Receiver<Hearing>,
        name: String,
    ) -> Listener {
        Listener {
            ear: topics.listen(&name),
            name,
            topics: topics.clone(),
            hearing: hearing.clone(),
        }
    }
}

impl Listen for Listener {
    fn ready(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            // An error means that the backend is gone: nothing will be heard.
            let _ = self
                .hearing
                .wait_for(|hearing| *hearing != Hearing::Opening)
                .await;
        })
    }

    fn heard(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.ear.heard()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.topics.forget(&self.name, &self.ear);
    }
}

/// The task that keeps the connection.
pub(super) struct Subscriber {
    pub(super) target: Arc<Target>,
    pub(super) topics: Arc<Topics>,
    pub(super) events: EventSink,
    pub(super) timeout: Duration,
    pub(super) hearing: watch::Sender<Hearing>,
    pub(super) closed: watch::Receiver<bool>,
}

type Stream = Connection<Socket, NoTlsStream>;

impl Subscriber {
    /// Ends when `closed` becomes true, or its sender is gone.
    pub(super) async fn run(self) {
        let mut closed = self.closed.clone();
        tokio::select! {
            _ = closed.wait_for(|closed| *closed) => {}
            () = self.keep() => {}
        }
        self.hearing.send_replace(Hearing::Off);
    }

    async fn keep(&self) {
        let mut outage = Outage::new("the subscription to the lock store is");
        let mut pauses = Backoff::new(Duration::from_millis(50), Duration::from_millis(750));
        loop {
            let fault = match tokio::time::timeout(self.timeout, self.open()).await {
                Ok(Ok((client, heard))) => {
                    outage.is_over(self.target.shown());
                    self.hearing.send_replace(Hearing::On);
                    self.topics.all_look();
                    let since = clock::now();
                    let fault = self.hear(client, heard).await;
                    if since.elapsed() > STABLE {
                        pauses.reset();
                    }
                    fault
                }
                Ok(Err(fault)) => fault,
                Err(_) => Fault::NotDone(StoreError::new("no connection in time")),
            };
            self.hearing.send_replace(Hearing::Off);
            outage.is_on(self.target.shown(), &fault);
            clock::sleep(pauses.pause()).await;
        }
    }

    async fn open(&self) -> Result<(Client, mpsc::UnboundedReceiver<Notification>), Fault> {
        let connected = self.target.config.connect(NoTls).await;
        let (client, stream) = connected.map_err(|error| faults::of_connecting(&error))?;
        let (tell, heard) = mpsc::unbounded_channel();
        tokio::spawn(drive(stream, tell));
        let listen = format!("LISTEN {}", self.target.table.own_name());
        let listening = client.batch_execute(&listen).await;
        listening.map_err(|error| faults::of_connecting(&error))?;
        Ok((client, heard))
    }

    /// Ends when the connection does.
    async fn hear(
        &self,
        client: Client,
        mut heard: mpsc::UnboundedReceiver<Notification>,
    ) -> Fault {
        loop {
            let message = tokio::select! {
                message = heard.recv() => message,
                () = clock::sleep(HEARTBEAT) => {
                    let alive = tokio::time::timeout(self.timeout, client.simple_query("")).await;
                    if !matches!(alive, Ok(Ok(_))) {
                        let silent = StoreError::new("the server gives no sign of life");
                        return Fault::Unknown(silent);
                    }
                    continue;
                }
            };
            let Some(message) = message else {
                return Fault::Unknown(StoreError::new("the connection was cut"));
            };
            match message.payload().strip_prefix(VICTIM) {
                None => self.topics.heard(message.payload()),
                Some(holder) => {
                    if let Some(holder) = HolderId::parse(holder) {
                        (self.events)(Event::ForceReleased(Victim::Id(holder)));
                    }
                }
            }
        }
    }
}

/// Reads the connection, until it ends or nobody hears any more.
async fn drive(mut stream: Stream, tell: mpsc::UnboundedSender<Notification>) {
    while let Some(Ok(message)) = poll_fn(|cx| stream.poll_message(cx)).await {
        if let AsyncMessage::Notification(message) = message
            && tell.send(message).is_err()
        {
            return;
        }
    }
}

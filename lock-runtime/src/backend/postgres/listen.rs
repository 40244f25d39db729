//! The wake-up of waiters: one connection listens for all keys of this process.
//!
//! A notification is a hint. Behind a pooler that gives every transaction another connection, none arrive, and waiters
//! ask again within the longest nap.

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_postgres::{AsyncMessage, Client, Connection, Notification, SimpleQueryMessage, Socket};

use super::tls::Encrypted;
use super::{Server, connection, faults};
use crate::backend::kit::{login::LoginRetries, outage::Outage, topic::WakeUps};
use crate::backend::{Event, EventSink, Fault, Holders};
use crate::values::{Backoff, HolderId, Moment, StoreError, clock};

/// The time after which a silent connection is asked for a sign of life.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// The lifetime of a connection, with those that took its place, after which the pauses between attempts to connect begin
/// anew.
const STABLE: Duration = Duration::from_secs(1);
/// The first character of a message that names the holder of a forced release. No topic begins with it.
const VICTIM: char = '!';

/// The task that keeps the connection.
pub(super) struct PostgresSubscriber {
    pub(super) server: Arc<Server>,
    pub(super) topics: Arc<WakeUps>,
    pub(super) events: EventSink,
}

/// A connection that listens.
struct ListenConnection {
    client: Client,
    heard: mpsc::UnboundedReceiver<Notification>,
    /// The time at which another connection has to take its place.
    renewal: Option<Moment>,
}

impl PostgresSubscriber {
    /// Keeps a connection that listens. Drops `first` after the first attempt to open it.
    pub(super) async fn run(self, first: oneshot::Sender<()>) -> Result<Infallible, Fault> {
        let mut first = Some(first);
        let mut outage = Outage::new("the subscription to the lock store");
        let mut pauses = Backoff::new(Duration::from_millis(50), Duration::from_millis(750));
        loop {
            let opened = self.open().await;
            drop(first.take());
            let fault = match opened {
                Ok(connection) => {
                    outage.notice_end(&self.server.target.shown);
                    let since = clock::now();
                    let fault = self.hear(connection).await;
                    if since.elapsed() > STABLE {
                        pauses.reset();
                    }
                    fault
                }
                Err(fault) => fault,
            };
            outage.notice_loss(&self.server.target.shown, &fault);
            clock::sleep(pauses.pause()).await;
        }
    }

    async fn open(&self) -> Result<ListenConnection, Fault> {
        let dialing = self
            .server
            .target
            .dial(self.server.timeout, connection::connect);
        let ((client, stream), renew_after) = dialing.await?;
        let (tell, heard) = mpsc::unbounded_channel();
        tokio::spawn(drive(stream, tell));
        // A table may have a name that is a word of SQL.
        let listen = format!("LISTEN \"{}\"", self.server.target.table.own_name());
        let listening = client.batch_execute(&listen);
        match tokio::time::timeout(self.server.timeout, listening).await {
            Ok(listening) => listening.map_err(|error| faults::of_connecting(&error))?,
            Err(_) => return Err(silent()),
        }
        Ok(ListenConnection {
            client,
            heard,
            renewal: renew_after.map(|after| clock::now() + after),
        })
    }

    /// Receives the messages of a connection, and of those that take its place, until one ends. Returns the reason.
    async fn hear(&self, mut connection: ListenConnection) -> Fault {
        loop {
            self.topics.raise_all();
            let mut next = pin!(self.open_at(connection.renewal));
            connection = loop {
                tokio::select! {
                    message = connection.heard.recv() => match message {
                        Some(message) => self.tell(&message),
                        None => return Fault::Unknown(StoreError::new("the connection was cut")),
                    },
                    next = &mut next => {
                        // Every notification from before the other connection listened arrives before this answer.
                        let _ = connection.is_alive(self.server.timeout).await;
                        while let Ok(message) = connection.heard.try_recv() {
                            self.tell(&message);
                        }
                        break next;
                    }
                    () = clock::sleep(HEARTBEAT) => {
                        let Server { target, timeout, .. } = &*self.server;
                        if !connection.is_alive(*timeout).await {
                            return silent();
                        }
                        if target.notify && connection.is_deaf(target.table.own_name(), *timeout).await {
                            return Fault::not_done(
                                "the session behind the connection listens no more: behind a pooler of transactions, \
                                 say `lock_notify=off`",
                            );
                        }
                    }
                }
            };
        }
    }

    /// Opens another connection when it is time for one.
    async fn open_at(&self, renewal: Option<Moment>) -> ListenConnection {
        match renewal {
            Some(renewal) => clock::sleep_until(renewal).await,
            None => pending().await,
        }
        let mut tries = LoginRetries::new();
        loop {
            match self.open().await {
                Ok(connection) => return connection,
                Err(fault) => tries.failed(&self.server.target.shown, &fault).await,
            }
        }
    }

    fn tell(&self, message: &Notification) {
        match message.payload().strip_prefix(VICTIM) {
            None => self.topics.raise(message.payload()),
            Some(holder) => {
                if let Some(holder) = HolderId::parse(holder) {
                    (self.events)(Event::ForceReleased(Holders::Id(holder)));
                }
            }
        }
    }
}

impl ListenConnection {
    async fn is_alive(&self, timeout: Duration) -> bool {
        let asked = tokio::time::timeout(timeout, self.client.simple_query(""));
        matches!(asked.await, Ok(Ok(_)))
    }

    /// Whether the session does not listen. A proxy that keeps the connection may have given it another session.
    async fn is_deaf(&self, channel: &str, timeout: Duration) -> bool {
        let channel = channel.replace('\'', "''");
        let listens = format!("SELECT 1 FROM pg_listening_channels() AS c WHERE c = '{channel}'");
        match tokio::time::timeout(timeout, self.client.simple_query(&listens)).await {
            Ok(Ok(said)) => !said
                .iter()
                .any(|said| matches!(said, SimpleQueryMessage::Row(_))),
            // Without the right to look, nobody knows.
            _ => false,
        }
    }
}

fn silent() -> Fault {
    Fault::unknown("the server gives no sign of life")
}

/// Reads the connection until it ends or nothing takes its messages any more.
async fn drive(
    mut stream: Connection<Socket, Encrypted>,
    tell: mpsc::UnboundedSender<Notification>,
) {
    while let Some(Ok(message)) = poll_fn(|cx| stream.poll_message(cx)).await {
        if let AsyncMessage::Notification(message) = message
            && tell.send(message).is_err()
        {
            return;
        }
    }
}

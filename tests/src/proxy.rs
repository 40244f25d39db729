//! A TCP proxy in front of a Redis, PostgreSQL or MySQL server: it cuts, delays or swallows what passes, and counts it.
//!
//! It understands requests and replies as frames, so that a single command's reply or only the pub/sub messages can be
//! lost. `protocol` has all that it knows of them. A connection that lost bytes stays deaf in that direction until it
//! is closed: a stream with a hole in it would hand replies to the wrong requests.

mod link;
mod protocol;
mod switches;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub use protocol::Protocol;
use switches::Switches;

/// One way through the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Requests,
    /// From the server to the client.
    Replies,
}

/// The fate of the connection after [`FaultProxy::lose_reply_to`] has taken a reply away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Nothing arrives on that connection any more, and it stays open.
    Silence,
    /// The connection is cut at the moment when the reply would have arrived.
    Cut,
    /// An error of the proxy arrives in place of the reply, of one packet: it has lost its own connection to MySQL. The
    /// client's connection goes on.
    Lost,
}

/// A proxy on a free loopback port. It ends, with its connections, when dropped.
#[derive(Debug)]
pub struct FaultProxy {
    protocol: Protocol,
    addr: SocketAddr,
    upstream: Arc<Mutex<SocketAddr>>,
    switches: Arc<Switches>,
    accepting: JoinHandle<()>,
}

impl FaultProxy {
    /// Starts to forward connections to a Redis server. The proxy belongs to the current runtime.
    pub async fn start(upstream: SocketAddr) -> Self {
        Self::of(Protocol::Redis, upstream).await
    }

    /// Starts to forward connections to a server of any kind. The proxy belongs to the current runtime.
    pub async fn of(protocol: Protocol, upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a port to bind");
        let addr = listener.local_addr().expect("the proxy's address");
        let switches = Arc::new(Switches::default());
        let upstream = Arc::new(Mutex::new(upstream));
        let accepting = accept(
            protocol,
            listener,
            Arc::clone(&upstream),
            Arc::clone(&switches),
        );
        let accepting = tokio::spawn(accepting);
        Self {
            protocol,
            addr,
            upstream,
            switches,
            accepting,
        }
    }

    /// Returns the protocol that it forwards.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Returns the address that clients connect to.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns `redis://…` of the default user without a password.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.addr)
    }

    /// Makes connections that are opened from now on lead to another server, as if a name had moved.
    pub fn lead_to(&self, upstream: SocketAddr) {
        *lock(&self.upstream) = upstream;
    }

    /// Cuts every connection that is open now.
    pub fn cut(&self) {
        self.switches.cut();
    }

    /// Closes new connections as soon as they are accepted, while `on`.
    pub fn refuse(&self, on: bool) {
        self.switches.set_refusing(on);
    }

    /// Cuts every connection and refuses new ones, until `refuse(false)`.
    pub fn go_down(&self) {
        self.refuse(true);
        self.cut();
    }

    /// Adds latency to one direction. Nothing is reordered.
    pub fn delay(&self, direction: Direction, by: Duration) {
        self.switches.way(direction).set_delay(by);
    }

    /// Takes bytes of one direction and throws them away, while `on`.
    pub fn black_hole(&self, direction: Direction, on: bool) {
        self.switches.way(direction).set_swallowing(on);
    }

    /// Holds bytes of one direction back while `on`. They are delivered late, and none is lost.
    pub fn stall(&self, direction: Direction, on: bool) {
        self.switches.way(direction).set_stalled(on);
    }

    /// Makes the open connections half-open: nothing passes on them any more, and nobody is told. New connections work.
    pub fn freeze_open_connections(&self) {
        self.switches.freeze();
    }

    /// Gives every open connection a new one to the same server, greeted as the client has greeted the first one, and cuts
    /// that. The client is not told. What the server keeps for a connection, such as subscriptions, is lost. This is for
    /// Redis, at a moment at which no request is under way.
    pub fn replace_servers(&self) {
        self.switches.replace_servers();
    }

    /// Returns the number of connections that [`replace_servers`](Self::replace_servers) has given a new one so far.
    pub fn replaced(&self) -> u64 {
        self.switches.replaced()
    }

    /// Loses pub/sub messages while `on`. Confirmations and other replies pass.
    pub fn lose_messages(&self, on: bool) {
        self.switches.set_losing_messages(on);
    }

    /// Forwards the next request for which `matches` (given its arguments) is true, and takes its reply away: the
    /// server has applied the request, and the client does not know. A statement of a database is seen as `PARSE` or
    /// `QUERY` and its text, here and by [`rewrite`](Self::rewrite).
    pub fn lose_reply_to(&self, matches: impl Fn(&[&[u8]]) -> bool + Send + 'static, then: Then) {
        self.switches.set_trap(Box::new(matches), then);
    }

    /// Returns whether the trap of [`lose_reply_to`](Self::lose_reply_to) has caught its request.
    pub fn trap_sprung(&self) -> bool {
        self.switches.trap_sprung()
    }

    /// Forwards other arguments in place of a request's own if `rewrite` returns any. In this way, tests make a real
    /// client and a real server behave as if one of them were broken.
    pub fn rewrite(&self, rewrite: impl Fn(&[&[u8]]) -> Option<Vec<Vec<u8>>> + Send + 'static) {
        self.switches.set_rewrite(Box::new(rewrite));
    }

    /// Returns the number of requests rewritten so far.
    pub fn rewrites(&self) -> u64 {
        self.switches.rewrites()
    }

    /// Returns the number of requests seen so far with this command, whatever its case.
    pub fn count(&self, command: &str) -> u64 {
        self.switches.count(command)
    }

    /// Returns the numbers of all requests seen so far, by upper-case command.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.switches.counts()
    }

    /// Returns the number of all requests seen so far.
    pub fn requests(&self) -> u64 {
        self.counts().values().sum()
    }

    /// Returns the number of pub/sub messages seen so far, including the lost ones.
    pub fn messages(&self) -> u64 {
        self.switches.messages()
    }

    /// Returns the number of connections accepted so far, without refused ones.
    pub fn connections(&self) -> u64 {
        self.switches.accepted()
    }

    /// Returns the number of connections that are open now.
    pub fn open_connections(&self) -> usize {
        self.switches.open()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.switches.cut();
    }
}

fn lock(upstream: &Mutex<SocketAddr>) -> std::sync::MutexGuard<'_, SocketAddr> {
    upstream.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(
    protocol: Protocol,
    listener: TcpListener,
    upstream: Arc<Mutex<SocketAddr>>,
    switches: Arc<Switches>,
) {
    while let Ok((client, _)) = listener.accept().await {
        if switches.is_refusing() {
            continue;
        }
        let link = switches.admit();
        let shared = Arc::clone(&switches);
        let id = link.id;
        let upstream = *lock(&upstream);
        let task = tokio::spawn(async move {
            if let Ok(server) = TcpStream::connect(upstream).await {
                link::forward(protocol, client, server, &shared, &link).await;
            }
            shared.forget(link.id);
        });
        switches.keep(id, task.abort_handle());
    }
}

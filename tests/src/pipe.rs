//! A TCP proxy that knows no protocol. It cuts connections, counts them and holds replies back.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// A proxy on a free loopback port. It ends, with its connections, when dropped.
#[derive(Debug)]
pub struct Pipe {
    addr: SocketAddr,
    stalled: watch::Sender<bool>,
    cut: Arc<Notify>,
    freezes: Arc<AtomicUsize>,
    accepted: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Pipe {
    /// Starts to forward connections to `upstream`. The proxy belongs to the current runtime.
    pub async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a port to bind");
        let addr = listener.local_addr().expect("the proxy's address");
        let (stalled, cut) = (watch::Sender::new(false), Arc::new(Notify::new()));
        let (seen, cutting) = (stalled.subscribe(), cut.clone());
        let freezes = Arc::<AtomicUsize>::default();
        let frozen = freezes.clone();
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = accepted.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, SeqCst);
                let freezing = Freezing::new(&frozen);
                let serving = serve(client, upstream, seen.clone(), cutting.clone(), freezing);
                tokio::spawn(serving);
            }
        });
        Self {
            addr,
            stalled,
            cut,
            freezes,
            accepted,
            accepting,
        }
    }

    /// Returns the address that clients connect to.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Holds replies back while `on`. They are delivered late, and none is lost.
    pub fn stall_replies(&self, on: bool) {
        self.stalled.send_replace(on);
    }

    /// Returns the number of connections that were accepted so far.
    pub fn connections(&self) -> usize {
        self.accepted.load(SeqCst)
    }

    /// Forwards nothing any more on the connections that are open now. They stay open.
    pub fn freeze_open_connections(&self) {
        self.freezes.fetch_add(1, SeqCst);
    }

    /// Cuts every connection that is open now.
    pub fn cut(&self) {
        self.cut.notify_waiters();
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.cut();
        self.accepting.abort();
    }
}

/// Tells a connection that it is frozen.
#[derive(Clone)]
struct Freezing {
    freezes: Arc<AtomicUsize>,
    /// The number of freezes before the connection.
    before: usize,
}

impl Freezing {
    fn new(freezes: &Arc<AtomicUsize>) -> Self {
        Self {
            freezes: freezes.clone(),
            before: freezes.load(SeqCst),
        }
    }

    async fn stop_if_frozen(&self) {
        if self.freezes.load(SeqCst) != self.before {
            std::future::pending::<()>().await;
        }
    }
}

async fn serve(
    client: TcpStream,
    upstream: SocketAddr,
    stalled: watch::Receiver<bool>,
    cut: Arc<Notify>,
    freezing: Freezing,
) {
    let Ok(server) = TcpStream::connect(upstream).await else {
        return;
    };
    let ((requests, to_client), (replies, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        biased;
        () = cut.notified() => {}
        () = forward(requests, to_server, None, &freezing) => {}
        () = forward(replies, to_client, Some(stalled), &freezing) => {}
    }
}

async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut stalled: Option<watch::Receiver<bool>>,
    freezing: &Freezing,
) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if let Some(stalled) = &mut stalled {
            let _ = stalled.wait_for(|stalled| !stalled).await;
        }
        freezing.stop_if_frozen().await;
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

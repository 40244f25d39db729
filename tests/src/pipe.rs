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
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = accepted.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, SeqCst);
                tokio::spawn(serve(client, upstream, seen.clone(), cutting.clone()));
            }
        });
        Self {
            addr,
            stalled,
            cut,
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

async fn serve(
    client: TcpStream,
    upstream: SocketAddr,
    stalled: watch::Receiver<bool>,
    cut: Arc<Notify>,
) {
    let Ok(server) = TcpStream::connect(upstream).await else {
        return;
    };
    let ((requests, to_client), (replies, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        biased;
        () = cut.notified() => {}
        () = forward(requests, to_server, None) => {}
        () = forward(replies, to_client, Some(stalled)) => {}
    }
}

async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut stalled: Option<watch::Receiver<bool>>,
) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if let Some(stalled) = &mut stalled {
            let _ = stalled.wait_for(|stalled| !stalled).await;
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

//! A proxy that passes connections on, and delays all data in both directions by the same time. It is started as
//! `delay-proxy TARGET MICROSECONDS`, prints its address, and ends with its standard input.
//!
//! Timers of the runtime count milliseconds, so one thread sleeps for all connections. The delay is the same for
//! all data, so the chunk that came first is due first, and one queue is enough.

use std::io::Read;
use std::num::NonZeroU64;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

struct Chunk {
    came: Instant,
    /// The data; empty at the end of the connection.
    bytes: Vec<u8>,
    to: UnboundedSender<Vec<u8>>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let target = arguments
        .next()
        .expect("usage: delay-proxy HOST:PORT MICROSECONDS");
    let delay = arguments.next().and_then(|delay| delay.parse().ok());
    let delay = Duration::from_micros(delay.expect("a delay in microseconds"));

    let (queue, due) = channel();
    std::thread::spawn(move || pass_on_when_due(&due, delay));
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!("{}", listener.local_addr().expect("an address"));
    while let Ok((client, _)) = listener.accept().await {
        let Ok(server) = TcpStream::connect(&target).await else {
            continue;
        };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        for (from, to) in [(from_client, to_server), (from_server, to_client)] {
            let (sender, receiver) = unbounded_channel();
            tokio::spawn(take(from, sender, queue.clone()));
            tokio::spawn(give(receiver, to));
        }
    }
}

fn pass_on_when_due(due: &Receiver<Chunk>, delay: Duration) {
    // Without this, the thread would wake up to 50 µs late.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    while let Ok(chunk) = due.recv() {
        let wait = (chunk.came + delay).saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
        let _ = chunk.to.send(chunk.bytes);
    }
}

async fn take(mut from: OwnedReadHalf, to: UnboundedSender<Vec<u8>>, queue: Sender<Chunk>) {
    let mut buffer = vec![0; 65_536];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        let chunk = Chunk {
            came: Instant::now(),
            bytes: buffer[..read].to_vec(),
            to: to.clone(),
        };
        if queue.send(chunk).is_err() || read == 0 {
            return;
        }
    }
}

async fn give(mut due: UnboundedReceiver<Vec<u8>>, mut to: OwnedWriteHalf) {
    while let Some(bytes) = due.recv().await {
        if bytes.is_empty() || to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

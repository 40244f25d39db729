//! One connection through the proxy.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::protocol::{Protocol, Reply};
use super::switches::{Link, Switches};
use super::{Direction, Then};

/// The bytes that were read in one go, and the time of that, from which a delay counts.
type Batch = (Instant, Vec<u8>);

/// The number of batches that are read ahead in a delayed or stalled direction.
const AHEAD: usize = 4_096;

/// Forwards both directions until either end closes, or the trap cuts.
pub(super) async fn forward(
    protocol: Protocol,
    client: TcpStream,
    server: TcpStream,
    all: &Switches,
    link: &Link,
) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (requests, requests_out) = mpsc::channel(AHEAD);
    let (replies, replies_out) = mpsc::channel(AHEAD);
    let asked = AtomicU64::new(0);
    let mut answered = 0;

    let request = |frame: &[u8]| {
        let words = protocol.words(frame);
        if let Some(then) = all.request(&words) {
            let index = asked.load(SeqCst);
            *link.trapped.lock().unwrap_or_else(PoisonError::into_inner) = Some((index, then));
        }
        if protocol.ends_request(frame) {
            asked.fetch_add(1, SeqCst);
        }
        match all.rewritten(&words) {
            Some(other) => Pass::Replace(protocol.with_words(frame, &other)),
            None => Pass::Forward,
        }
    };
    let reply = |frame: &[u8]| {
        let kind = protocol.reply(frame);
        let index = answered;
        answered += u64::from(kind == Reply::End);
        match kind {
            Reply::Message if all.message() => return Pass::Forward,
            Reply::Message => return Pass::Drop,
            Reply::News => return Pass::Forward,
            Reply::Part | Reply::End => {}
        }
        match *link.trapped.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((at, Then::Cut)) if index >= at => Pass::Cut,
            Some((at, Then::Silence)) if index >= at => Pass::Deafen,
            _ => Pass::Forward,
        }
    };
    // The direction that ends first also ends the other: dropping the halves closes both ends.
    tokio::select! {
        () = read(protocol, from_client, requests, all, link, Direction::Requests, request) => {}
        () = read(protocol, from_server, replies, all, link, Direction::Replies, reply) => {}
        () = write(to_server, requests_out, all, Direction::Requests) => {}
        () = write(to_client, replies_out, all, Direction::Replies) => {}
    }
}

enum Pass {
    Forward,
    Replace(Vec<u8>),
    Drop,
    Deafen,
    Cut,
}

async fn read(
    protocol: Protocol,
    mut from: OwnedReadHalf,
    to: mpsc::Sender<Batch>,
    all: &Switches,
    link: &Link,
    direction: Direction,
    mut judge: impl FnMut(&[u8]) -> Pass,
) {
    let mut unread = Vec::with_capacity(16 * 1024);
    while matches!(from.read_buf(&mut unread).await, Ok(1..)) {
        let read_at = Instant::now();
        let mut batch = Vec::new();
        let mut at = 0;
        while let Some(len) = protocol
            .frame_len(&unread[at..])
            .unwrap_or_else(|error| panic!("{}", protocol.complaint(direction, &error)))
        {
            let frame = &unread[at..at + len];
            at += len;
            match judge(frame) {
                Pass::Forward | Pass::Replace(_) if link.is_deaf(direction) => {}
                Pass::Forward | Pass::Replace(_) if all.way(direction).is_swallowing() => {
                    link.deafen(direction);
                }
                Pass::Forward => batch.extend_from_slice(frame),
                Pass::Replace(other) => batch.extend_from_slice(&other),
                Pass::Drop => {}
                Pass::Deafen => link.deafen(direction),
                Pass::Cut => return,
            }
        }
        unread.drain(..at);
        if !batch.is_empty() && to.send((read_at, batch)).await.is_err() {
            return;
        }
    }
}

async fn write(
    mut to: OwnedWriteHalf,
    mut from: mpsc::Receiver<Batch>,
    all: &Switches,
    direction: Direction,
) {
    let way = all.way(direction);
    while let Some((read_at, batch)) = from.recv().await {
        tokio::time::sleep_until(read_at + way.delay()).await;
        way.flowing().await;
        if to.write_all(&batch).await.is_err() {
            return;
        }
    }
}

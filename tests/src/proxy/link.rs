//! One connection through the proxy.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::switches::{Link, Switches};
use super::{Direction, Then};
use crate::resp::{frame_len, strings};

/// What was read in one go, and when: a delay counts from here.
type Batch = (Instant, Vec<u8>);

/// Batches read ahead of a delayed or stalled direction.
const AHEAD: usize = 4_096;

/// Forwards both directions until either end closes, or the trap cuts.
pub(super) async fn forward(client: TcpStream, server: TcpStream, all: &Switches, link: &Link) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (requests, requests_out) = mpsc::channel(AHEAD);
    let (replies, replies_out) = mpsc::channel(AHEAD);
    let asked = AtomicU64::new(0);
    let mut answered = 0;

    let request = |frame: &[u8]| {
        let index = asked.fetch_add(1, SeqCst);
        if let Some(then) = all.request(&strings(frame)) {
            *link.trapped.lock().unwrap_or_else(PoisonError::into_inner) = Some((index, then));
        }
        match all.rewritten(&strings(frame)) {
            Some(other) => Pass::Replace(other),
            None => Pass::Forward,
        }
    };
    let reply = |frame: &[u8]| {
        let kind = strings(frame)
            .first()
            .map(|first| first.to_ascii_lowercase());
        if matches!(
            kind.as_deref(),
            Some(b"message" | b"pmessage" | b"smessage")
        ) {
            return if all.message() {
                Pass::Forward
            } else {
                Pass::Drop
            };
        }
        if frame.first() == Some(&b'>') {
            return Pass::Forward;
        }
        let index = answered;
        answered += 1;
        match *link.trapped.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((at, Then::Cut)) if index >= at => Pass::Cut,
            Some((at, Then::Silence)) if index >= at => Pass::Deafen,
            _ => Pass::Forward,
        }
    };
    // The first direction that ends takes the other with it: dropping the halves closes both ends.
    tokio::select! {
        () = read(from_client, requests, all, link, Direction::Requests, request) => {}
        () = read(from_server, replies, all, link, Direction::Replies, reply) => {}
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
        while let Some(len) =
            frame_len(&unread[at..]).unwrap_or_else(|error| panic!("{direction:?}: {error}"))
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

//! One connection through the proxy.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::protocol::{self, Protocol, Reply};
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
    mut server: TcpStream,
    all: &Switches,
    link: &Link,
) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let Ok(address) = server.peer_addr() else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (requests, mut requests_out) = mpsc::channel(AHEAD);
    let (replies, mut replies_out) = mpsc::channel(AHEAD);
    let asked = AtomicU64::new(0);
    let mut answered = 0;
    // The request with which the client chose its protocol and its user.
    let greeting = Mutex::new(Vec::new());

    let request = |frame: &[u8]| {
        let words = protocol.words(frame);
        if words.len() > 1 && words[0] == b"HELLO" {
            *greeting.lock().unwrap_or_else(PoisonError::into_inner) = frame.to_vec();
        }
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
    let mut reply = |frame: &[u8]| {
        let kind = protocol.reply(frame);
        let index = answered;
        answered += u64::from(kind == Reply::End);
        match kind {
            Reply::Message if all.message() => return Pass::Forward,
            Reply::Message => return Pass::Drop,
            Reply::News => return Pass::Forward,
            Reply::Part | Reply::End => {}
        }
        let mut trapped = link.trapped.lock().unwrap_or_else(PoisonError::into_inner);
        match *trapped {
            Some((at, Then::Cut)) if index >= at => Pass::Cut,
            Some((at, Then::Silence)) if index >= at => Pass::Deafen,
            Some((at, Then::Lost)) if index >= at => {
                *trapped = None;
                Pass::Replace(protocol::server_is_lost())
            }
            _ => Pass::Forward,
        }
    };
    let mut asking = pin!(read(
        protocol,
        from_client,
        requests,
        all,
        link,
        Direction::Requests,
        request,
    ));
    let mut answering = pin!(write(to_client, &mut replies_out, all, Direction::Replies));
    // The direction that ends first also ends the other: dropping the halves closes both ends.
    loop {
        let (from_server, to_server) = server.into_split();
        let (replies, way) = (replies.clone(), Direction::Replies);
        tokio::select! {
            () = &mut asking => return,
            () = &mut answering => return,
            () = read(protocol, from_server, replies, all, link, way, &mut reply) => return,
            () = write(to_server, &mut requests_out, all, Direction::Requests) => return,
            () = link.replace.notified() => {}
        }
        let hello = greeting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let Ok(other) = greeted(protocol, address, &hello).await else {
            return;
        };
        server = other;
        all.note_replaced();
    }
}

/// Connects to a server, sends it the request if there is one, and takes the reply away.
async fn greeted(protocol: Protocol, server: SocketAddr, hello: &[u8]) -> io::Result<TcpStream> {
    let mut server = TcpStream::connect(server).await?;
    server.set_nodelay(true)?;
    server.write_all(hello).await?;
    let mut said = Vec::new();
    while !hello.is_empty() && !matches!(protocol.frame_len(&said), Ok(Some(_))) {
        if server.read_buf(&mut said).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(server)
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
    from: &mut mpsc::Receiver<Batch>,
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

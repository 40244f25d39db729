//! The wake-up of waiters by the messages of the nodes.
//!
//! A release reaches a majority of the nodes, and messages from a majority wake a waiter at once. Fewer messages may be
//! the rest of a release, when nodes or messages are lost. They may also come from an attempt that got a minority of
//! the votes and gave them back. If each of those woke everybody at once, waiters would keep each other busy for as
//! long as a hold lasts. So fewer messages wake a waiter after a pause, which grows while nothing else comes.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use crate::backend::quorum::majority::majority;
use crate::backend::{Boxed, Listen};
use crate::values::{Backoff, Moment, clock};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct QuorumListener {
    listeners: Vec<NodeListener>,
    /// The time to wake although fewer than a majority have sent a message since the caller last woke.
    wake: Option<Moment>,
    pauses: Backoff,
}

struct NodeListener {
    listener: Box<dyn Listen>,
    told: bool,
}

impl QuorumListener {
    pub(super) fn new(listeners: Vec<Box<dyn Listen>>) -> QuorumListener {
        let told = false;
        let node = |listener| NodeListener { listener, told };
        QuorumListener {
            listeners: listeners.into_iter().map(node).collect(),
            wake: None,
            pauses: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
        }
    }
}

/// Waits for a node that has sent no message so far, and notes that it has.
async fn any(listeners: &mut [NodeListener]) {
    let silent = listeners.iter_mut().filter(|node| !node.told);
    let heard = silent.map(|node| (&mut node.told, node.listener.heard()));
    let mut heard: Vec<_> = heard.collect();
    poll_fn(|cx| {
        for (told, heard) in &mut heard {
            if heard.as_mut().poll(cx).is_ready() {
                **told = true;
                return Poll::Ready(());
            }
        }
        Poll::Pending
    })
    .await;
}

impl Listen for QuorumListener {
    fn ready(&mut self) -> Boxed<'_> {
        let spare = self.listeners.len() - majority(self.listeners.len());
        let opening = self.listeners.iter_mut().map(|node| node.listener.ready());
        let mut opening: Vec<_> = opening.collect();
        Box::pin(poll_fn(move |cx| {
            opening.retain_mut(|ready| ready.as_mut().poll(cx).is_pending());
            if opening.len() <= spare {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }))
    }

    fn heard(&mut self) -> Boxed<'_> {
        Box::pin(async {
            let needed = majority(self.listeners.len());
            loop {
                if self.listeners.iter().filter(|node| node.told).count() >= needed {
                    self.pauses.reset();
                    break;
                }
                let told = any(&mut self.listeners);
                let Some(wake) = self.wake else {
                    told.await;
                    // The pause is random, so that waiters that got the same message do not ask at the same time.
                    self.wake = Some(clock::now() + self.pauses.pause());
                    continue;
                };
                tokio::select! {
                    biased;
                    () = told => {}
                    () = clock::sleep_until(wake) => break,
                }
            }
            self.wake = None;
            for node in &mut self.listeners {
                node.told = false;
            }
        })
    }
}

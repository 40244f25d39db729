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
    ready: bool,
    told: bool,
}

impl QuorumListener {
    pub(super) fn new(listeners: Vec<Box<dyn Listen>>) -> QuorumListener {
        let node = |listener| NodeListener {
            listener,
            ready: false,
            told: false,
        };
        QuorumListener {
            listeners: listeners.into_iter().map(node).collect(),
            wake: None,
            pauses: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
        }
    }

    fn count(&self, is: impl Fn(&NodeListener) -> bool) -> usize {
        self.listeners.iter().filter(|node| is(node)).count()
    }

    fn woken(&mut self) {
        self.wake = None;
        for node in &mut self.listeners {
            node.told = false;
        }
    }
}

type AskNode = for<'a> fn(&'a mut dyn Listen) -> Boxed<'a>;

/// Waits for the first listener that has news, and marks it.
async fn any(
    listeners: &mut [NodeListener],
    is_open: fn(&NodeListener) -> bool,
    ask: AskNode,
    mark: fn(&mut NodeListener),
) {
    let index = {
        let open = listeners
            .iter_mut()
            .enumerate()
            .filter(|(_, node)| is_open(node));
        let mut asked: Vec<_> = open
            .map(|(index, node)| (index, ask(node.listener.as_mut())))
            .collect();
        poll_fn(|cx| {
            let told = asked
                .iter_mut()
                .find_map(|(index, told)| told.as_mut().poll(cx).is_ready().then_some(*index));
            told.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    };
    if let Some(node) = listeners.get_mut(index) {
        mark(node);
    }
}

impl Listen for QuorumListener {
    fn ready(&mut self) -> Boxed<'_> {
        Box::pin(async {
            while self.count(|node| node.ready) < majority(self.listeners.len()) {
                any(
                    &mut self.listeners,
                    |node| !node.ready,
                    |listener| listener.ready(),
                    |node| node.ready = true,
                )
                .await;
            }
        })
    }

    fn heard(&mut self) -> Boxed<'_> {
        Box::pin(async {
            loop {
                if self.count(|node| node.told) >= majority(self.listeners.len()) {
                    self.pauses.reset();
                    break;
                }
                let told = any(
                    &mut self.listeners,
                    |node| !node.told,
                    |listener| listener.heard(),
                    |node| node.told = true,
                );
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
            self.woken();
        })
    }
}

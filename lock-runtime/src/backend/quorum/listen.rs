//! Waking by whichever node tells.
//!
//! A release reaches a majority of the nodes, and a majority of messages wakes at once. Fewer may be what is left of a
//! release when nodes or messages are lost, but also an attempt of somebody who got a minority of the votes and gave
//! them back: if each of those woke everybody at once, waiters would keep each other busy for as long as a hold lasts.
//! So they wake after a pause, which grows while nothing else comes.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use crate::backend::quorum::majority::majority;
use crate::backend::{Boxed, Listen};
use crate::values::{Backoff, Moment, clock};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct QuorumListener {
    ears: Vec<Ear>,
    /// When to wake, though fewer than a majority have told since the caller last woke.
    wake: Option<Moment>,
    pauses: Backoff,
}

struct Ear {
    listener: Box<dyn Listen>,
    ready: bool,
    told: bool,
}

impl QuorumListener {
    pub(super) fn new(listeners: Vec<Box<dyn Listen>>) -> QuorumListener {
        let ear = |listener| Ear {
            listener,
            ready: false,
            told: false,
        };
        QuorumListener {
            ears: listeners.into_iter().map(ear).collect(),
            wake: None,
            pauses: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
        }
    }

    fn count(&self, is: impl Fn(&Ear) -> bool) -> usize {
        self.ears.iter().filter(|ear| is(ear)).count()
    }

    fn woken(&mut self) {
        self.wake = None;
        for ear in &mut self.ears {
            ear.told = false;
        }
    }
}

type Ask = for<'a> fn(&'a mut dyn Listen) -> Boxed<'a>;

fn ready(listener: &mut dyn Listen) -> Boxed<'_> {
    listener.ready()
}

fn heard(listener: &mut dyn Listen) -> Boxed<'_> {
    listener.heard()
}

/// Marks the first of the ears that have something to say.
async fn any(ears: &mut [Ear], is_open: fn(&Ear) -> bool, ask: Ask, mark: fn(&mut Ear)) {
    let index = {
        let open = ears.iter_mut().enumerate().filter(|(_, ear)| is_open(ear));
        let mut asked: Vec<_> = open
            .map(|(index, ear)| (index, ask(ear.listener.as_mut())))
            .collect();
        poll_fn(|cx| {
            let told = asked
                .iter_mut()
                .find_map(|(index, told)| told.as_mut().poll(cx).is_ready().then_some(*index));
            told.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    };
    if let Some(ear) = ears.get_mut(index) {
        mark(ear);
    }
}

impl Listen for QuorumListener {
    fn ready(&mut self) -> Boxed<'_> {
        Box::pin(async {
            while self.count(|ear| ear.ready) < majority(self.ears.len()) {
                any(
                    &mut self.ears,
                    |ear| !ear.ready,
                    ready,
                    |ear| ear.ready = true,
                )
                .await;
            }
        })
    }

    fn heard(&mut self) -> Boxed<'_> {
        Box::pin(async {
            loop {
                if self.count(|ear| ear.told) >= majority(self.ears.len()) {
                    self.pauses.reset();
                    return self.woken();
                }
                let told = any(
                    &mut self.ears,
                    |ear| !ear.told,
                    heard,
                    |ear| ear.told = true,
                );
                let Some(wake) = self.wake else {
                    told.await;
                    // By chance: no two waiters that were told by one message ask at one time.
                    self.wake = Some(clock::now() + self.pauses.pause());
                    continue;
                };
                tokio::select! {
                    biased;
                    () = told => {}
                    () = clock::sleep_until(wake) => return self.woken(),
                }
            }
        })
    }
}

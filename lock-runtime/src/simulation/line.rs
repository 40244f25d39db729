//! The way between a process and a store, and what becomes of the messages on it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::sync::Mutex;

/// What passes between a process and a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A request, which has an answer.
    Request {
        /// The name of the operation.
        operation: &'static str,
        /// Whether a client may send it again on another connection, if the first one broke.
        repeatable: bool,
    },
    /// A message that the store sends by itself: of a release, or of an event.
    Push,
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// How long it takes to its receiver; `None` if it is lost.
    pub there: Option<Duration>,
    /// How long its answer takes; `None` if that is lost.
    pub back: Option<Duration>,
    /// How long after the first one a second copy of it arrives, if one does.
    pub again: Option<Duration>,
    /// The sender knows that it cannot be sent.
    pub refused: bool,
}

/// Decides what becomes of messages.
pub trait Network: Send {
    /// Returns the fate of a message of `process` to `store`, or of a push from `store` to `process`, that is sent `at` this
    /// time.
    fn fate(&mut self, at: Duration, process: usize, store: usize, message: Message) -> Fate;
}

/// A network that processes and stores share.
#[derive(Clone)]
pub struct Passing(Arc<Mutex<Box<dyn Network>>>);

impl Passing {
    /// Returns the network that `decides`.
    pub fn by(decides: impl Network + 'static) -> Passing {
        Passing(Arc::new(Mutex::new(Box::new(decides))))
    }

    pub(super) fn fate(
        &self,
        at: Duration,
        process: usize,
        store: usize,
        message: Message,
    ) -> Fate {
        self.0.lock().fate(at, process, store, message)
    }
}

impl fmt::Debug for Passing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passing")
    }
}

/// What is on its way to one place, in the order of arrival. `F` is what it does there.
pub(super) struct Road<F: ?Sized> {
    parcels: Mutex<BinaryHeap<Reverse<Parcel<F>>>>,
    sent: AtomicU64,
}

struct Parcel<F: ?Sized> {
    at: Duration,
    /// Of two that arrive at one time, the one that was sent first comes first.
    number: u64,
    does: Box<F>,
}

impl<F: ?Sized> Default for Road<F> {
    fn default() -> Road<F> {
        Road {
            parcels: Mutex::default(),
            sent: AtomicU64::new(0),
        }
    }
}

impl<F: ?Sized> Road<F> {
    pub(super) fn send(&self, at: Duration, does: Box<F>) {
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        let parcel = Parcel { at, number, does };
        self.parcels.lock().push(Reverse(parcel));
    }

    /// Returns what arrives next before `until`, and when.
    pub(super) fn next(&self, until: Duration) -> Option<(Duration, Box<F>)> {
        let mut parcels = self.parcels.lock();
        let Reverse(first) = parcels.peek()?;
        if first.at >= until {
            return None;
        }
        let Reverse(first) = parcels.pop()?;
        Some((first.at, first.does))
    }
}

impl<F: ?Sized> PartialEq for Parcel<F> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<F: ?Sized> Eq for Parcel<F> {}

impl<F: ?Sized> PartialOrd for Parcel<F> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<F: ?Sized> Ord for Parcel<F> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

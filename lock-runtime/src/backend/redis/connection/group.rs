//! The acquires and releases of one connection that may share a script, and the choice of those that do. `sharing.rs`
//! sends them.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use tokio::sync::oneshot;

use crate::backend::Fault;
use crate::backend::redis::scripting::grouped::{AcquireTerms, OneAcquire, OneRelease};
use crate::backend::redis::scripting::outcomes::{AcquireReply, Announced, ReleaseReply};
use crate::sync::Mutex;
use crate::values::{Key, Moment};

/// The largest number of keys in a script. Such a script keeps the server from other work for a fifth of a millisecond
/// at most: an acquire takes 3 to 4 µs for each key, and half a microsecond more for every hundred bytes of the key.
const LARGEST: usize = 48;

/// A script whose keys have this number of bytes gets no further key.
const MOST_BYTES: usize = 8192;

/// The requests of one connection that may share a script.
///
/// The release that compensates an acquire whose caller has gone must be sent after it, or the acquire must never be
/// sent. So while a task is about to send the waiting requests, no request that might belong to them is sent by itself.
#[derive(Debug, Default)]
pub(super) struct ScriptGroup {
    pub(super) under_way: AtomicUsize,
    /// Written only while `waiting` is locked.
    pub(super) is_sending: AtomicBool,
    pub(super) waiting: Mutex<WaitingRequests>,
}

#[derive(Debug, Default)]
pub(crate) struct WaitingRequests {
    pub(super) releases: VecDeque<GroupItem<OneRelease>>,
    pub(super) acquires: VecDeque<GroupItem<OneAcquire>>,
    /// The time until which each request is sent by itself. It is set when a group was refused because a right was
    /// missing, since most of its requests may have the rights that they need.
    pub(super) alone_until: Option<Moment>,
}

#[derive(Debug)]
pub(super) struct GroupItem<T: Groupable> {
    pub(super) terms: T::Terms,
    pub(super) asked: T,
    pub(super) deadline: Moment,
    pub(super) answer: oneshot::Sender<Answered<T>>,
}

/// `None` if the request is to be sent by itself.
pub(super) type Answered<T> = Option<Result<<T as Groupable>::Answer, Fault>>;

/// A request that may share its script with requests of the same terms.
#[expect(private_interfaces, reason = "implemented here alone")]
pub(crate) trait Groupable: Sized {
    type Terms: Copy + Debug + PartialEq;
    type Answer: Debug;
    /// Whether a request that is sent by itself may overtake the waiting ones. A release may not: it may compensate one
    /// of them.
    const MAY_OVERTAKE: bool;

    fn among(waiting: &mut WaitingRequests) -> &mut VecDeque<GroupItem<Self>>;

    fn key(&self) -> &Key;
}

#[expect(private_interfaces, reason = "implemented here alone")]
impl Groupable for OneAcquire {
    type Terms = AcquireTerms;
    type Answer = AcquireReply;
    const MAY_OVERTAKE: bool = true;

    fn among(waiting: &mut WaitingRequests) -> &mut VecDeque<GroupItem<OneAcquire>> {
        &mut waiting.acquires
    }

    fn key(&self) -> &Key {
        &self.key
    }
}

#[expect(private_interfaces, reason = "implemented here alone")]
impl Groupable for OneRelease {
    type Terms = ();
    type Answer = Announced<ReleaseReply>;
    const MAY_OVERTAKE: bool = false;

    fn among(waiting: &mut WaitingRequests) -> &mut VecDeque<GroupItem<OneRelease>> {
        &mut waiting.releases
    }

    fn key(&self) -> &Key {
        &self.key
    }
}

/// Takes from the front as many requests as one script may have, if they have the terms of the first one. The others
/// keep their places, and the next task sends them. Requests whose callers have gone are never sent.
pub(super) fn taken<T: Groupable>(waiting: &mut VecDeque<GroupItem<T>>) -> Vec<GroupItem<T>> {
    let mut taken: Vec<GroupItem<T>> = Vec::with_capacity(waiting.len().min(LARGEST));
    let (mut others, mut bytes) = (Vec::new(), 0);
    while taken.len() + others.len() < LARGEST
        && bytes < MOST_BYTES
        && let Some(item) = waiting.pop_front()
    {
        if item.answer.is_closed() {
            continue;
        }
        match taken.first() {
            Some(first) if first.terms != item.terms => others.push(item),
            _ => {
                bytes += item.asked.key().raw().len();
                taken.push(item);
            }
        }
    }
    for item in others.into_iter().rev() {
        waiting.push_front(item);
    }
    taken
}

#[cfg(test)]
mod tests;

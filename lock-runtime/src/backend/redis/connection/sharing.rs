//! Group commit: acquires and releases that are made while others are under way share a script.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;

use super::group::{Answered, GroupItem, Groupable, taken};
use super::link::Live;
use crate::backend::Fault;
use crate::backend::redis::scripting::Script;
use crate::backend::redis::scripting::grouped::Each;
use crate::values::{Moment, clock};

/// If fewer requests than this are under way, a request is sent at once by itself: too few would share its script to
/// make up for the task that sends it. DESIGN.md has the measurements.
const FEW: usize = 2;

/// The time for which the connection sends no groups after the server refused one because a right was missing: the
/// right to load the script, or the right to one of its keys.
const REFUSED: Duration = Duration::from_secs(1);

/// Counts a request as under way until this is dropped.
pub(crate) struct UnderWay<'a> {
    live: &'a Live,
    /// The number of requests that were under way before it.
    others: usize,
}

impl<'a> UnderWay<'a> {
    /// Counts a request that may share its script with others.
    pub(crate) fn enter(live: &'a Live) -> UnderWay<'a> {
        let others = live.group().under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay { live, others }
    }

    /// Sends the request with others of its kind. Returns `None` if the caller has to send it now, by itself: because
    /// few requests are under way, or because the shared script did nothing for it.
    ///
    /// If this future is dropped, the request may have been sent or not. After the drop, it is sent only if a task has
    /// already taken it.
    pub(crate) async fn share<T: Groupable>(
        &self,
        asked: impl FnOnce() -> (T::Terms, T),
        now: Moment,
        deadline: Moment,
    ) -> Answered<T> {
        let group = self.live.group();
        let is_alone = self.others < FEW && !group.is_sending.load(Ordering::Acquire);
        // In a cluster with its sixteen thousand slots, hardly two requests have the same slot.
        let is_cluster = self.live.address().is_some() || self.live.link.keeps_to_slots();
        if is_alone || is_cluster || now.has_reached(deadline) {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        let (terms, asked) = asked();
        let item = GroupItem {
            terms,
            asked,
            deadline,
            answer,
        };
        let is_first = {
            let mut waiting = group.waiting.lock();
            let is_next = T::MAY_OVERTAKE || !group.is_sending.load(Ordering::Acquire);
            if is_next
                && waiting
                    .alone_until
                    .is_some_and(|until| !now.has_reached(until))
            {
                return None;
            }
            T::among(&mut waiting).push_back(item);
            !group.is_sending.swap(true, Ordering::AcqRel)
        };
        if is_first {
            Dispatch::begin(self.live.clone());
        }
        match tokio::time::timeout_at(deadline.tick(), answered).await {
            Ok(Ok(answer)) => answer,
            // The task was dropped with its runtime.
            Ok(Err(_)) => Some(Err(Fault::runtime_ended())),
            Err(_) => Some(Err(self.live.link.unanswered())),
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.live.group().under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The task that sends the waiting requests. Each connection has one at a time.
struct Dispatch {
    live: Live,
    is_over: bool,
}

impl Dispatch {
    fn begin(live: Live) {
        let handle = live.handle().clone();
        let dispatch = Dispatch {
            live,
            is_over: false,
        };
        handle.spawn(dispatch.send());
    }

    async fn send(self) {
        // One reply from the server wakes many tasks. Those that are ready now add their requests before the group is
        // sent.
        after_ready_tasks().await;
        let (releases, acquires) = {
            let mut waiting = self.live.group().waiting.lock();
            (taken(&mut waiting.releases), taken(&mut waiting.acquires))
        };
        let (live, now) = (self.live.clone(), clock::now());
        let mut asked = pin!(async {
            // Releases are polled first: an acquire may want a lock that one of them frees.
            tokio::join!(biased; ask(&live, releases, now), ask(&live, acquires, now))
        });
        // The first poll queues both scripts on the connection: any later request is queued after them.
        let first = poll_fn(|context| Poll::Ready(asked.as_mut().poll(context))).await;
        self.pass_on();
        if first.is_pending() {
            asked.await;
        }
    }

    /// Starts the next task if more requests have arrived meanwhile.
    fn pass_on(mut self) {
        self.is_over = true;
        let group = self.live.group();
        let waiting = group.waiting.lock();
        if waiting.releases.is_empty() && waiting.acquires.is_empty() {
            group.is_sending.store(false, Ordering::Release);
            return;
        }
        drop(waiting);
        Dispatch::begin(self.live.clone());
    }
}

impl Drop for Dispatch {
    /// Clears the queue when the runtime has ended. The waiting callers notice because their items are dropped.
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let group = self.live.group();
        let mut waiting = group.waiting.lock();
        let untold = std::mem::take(&mut *waiting);
        group.is_sending.store(false, Ordering::Release);
        // The queue is unlocked first, because dropping the items wakes their callers.
        drop(waiting);
        drop(untold);
    }
}

/// Yields once, so that the tasks that are ready on this thread run first.
///
/// `tokio::task::yield_now` would also wait until the runtime has polled for I/O. That is one more system call for each
/// group, and the group would be sent later.
async fn after_ready_tasks() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

async fn ask<T: Groupable>(live: &Live, items: Vec<GroupItem<T>>, now: Moment)
where
    Each<T, T::Terms>: Script<Reply = Vec<Option<T::Answer>>>,
{
    let Some(terms) = items.first().map(|item| item.terms) else {
        return;
    };
    let deadlines = items.iter().map(|item| item.deadline);
    let deadline = deadlines.reduce(Moment::later).unwrap_or(now);
    let (all, answers): (Vec<_>, Vec<_>) = items
        .into_iter()
        .map(|item| (item.asked, item.answer))
        .unzip();
    let script = Each { terms, all };
    match live.link.call(live, &script, true, now, deadline).await {
        Ok(replies) => {
            for (answer, reply) in answers.into_iter().zip(replies) {
                // An error means that the caller has gone. Its own guard gives back a lock that it was granted.
                _ = answer.send(reply.map(Ok));
            }
        }
        Err(fault) => {
            if matches!(fault, Fault::Denied(_)) {
                live.group().waiting.lock().alone_until = Some(clock::now() + REFUSED);
            }
            for answer in answers {
                _ = answer.send(match &fault {
                    // Nothing was done: perhaps because of one key, or because the server did not know the script.
                    Fault::Denied(_) | Fault::NotDone(_) => None,
                    fault => Some(Err(fault.clone())),
                });
            }
        }
    }
}

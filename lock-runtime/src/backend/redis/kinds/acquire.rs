//! Acquire, and what undoes it when nobody knows whether it happened.

use std::sync::Arc;
use std::time::Duration;

use super::{exclusive, fair, permits, read_write};
use crate::backend::redis::connection::link::Live;
use crate::backend::redis::kinds::exclusive_scripts::AcquireReply;
use crate::backend::redis::router::Admission;
use crate::backend::redis::{GaveBack, Inner};
use crate::backend::{AcquireRequest, Acquired, Fault, Granted, HoldRef};
use crate::values::backoff::Backoff;
use crate::values::clock::{self, Moment};
use crate::values::error::StoreError;
use crate::values::holder::HolderId;
use crate::values::key::Key;
use crate::values::kind::Kind;

pub(crate) async fn acquire(
    inner: &Arc<Inner>,
    request: AcquireRequest<'_>,
) -> Result<Acquired, Fault> {
    let deadline = request.asked_at + request.timeout;
    let key = request.hold_ref.key;
    let mut at = inner.admit(key, request.asked_at, deadline).await?;

    let mut fence = Fence::of(&request);
    let mut late = false;
    loop {
        let reply = attempt(inner, &mut at, &request, fence, deadline).await;
        if let Some(redirect) = inner.redirect(&reply) {
            if redirect.splits() && key.kind().is_mutex() && fence == Fence::Together {
                fence = Fence::Apart;
            }
            // Another request: the lease counts from its sending, and its date is by the other node's clock.
            at = inner.admit_elsewhere(redirect, at, key, deadline).await?;
            continue;
        }
        let Admission { live, sent_at, .. } = &mut at;
        match reply? {
            AcquireReply::Granted { token, time } => {
                live.clock().saw(time, *sent_at);
                let sent_at = *sent_at;
                return Ok(Acquired::Granted(Granted { token, sent_at }));
            }
            AcquireReply::Busy { left, time } => {
                live.clock().saw(time, *sent_at);
                return Ok(Acquired::Busy { left });
            }
            AcquireReply::Queued { left, first, time } => {
                live.clock().saw(time, *sent_at);
                return Ok(Acquired::Queued { left, first });
            }
            AcquireReply::Stale { time } => live.clock().saw(time, *sent_at),
        }
        // The second attempt is for a first one that was refused as too late: then the clock was not known, or jumped.
        if std::mem::replace(&mut late, true) {
            return Err(Fault::NotDone(StoreError::new(
                "the request reached the lock store too late",
            )));
        }
        *sent_at = clock::now();
    }
}

/// How the token comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fence {
    None,
    /// By the script that takes the lock.
    Together,
    /// By another one after it: while a slot of a cluster moves, the fence's key may be at another node.
    Apart,
}

impl Fence {
    fn of(request: &AcquireRequest<'_>) -> Fence {
        match request.fenced {
            true => Fence::Together,
            false => Fence::None,
        }
    }
}

/// One request on that connection.
async fn attempt(
    inner: &Arc<Inner>,
    at: &mut Admission,
    request: &AcquireRequest<'_>,
    fence: Fence,
    deadline: Moment,
) -> Result<AcquireReply, Fault> {
    let (live, sent_at, permit) = (&at.live, at.sent_at, &mut at.permit);
    let not_after = live.clock().not_after(sent_at, deadline);
    // Armed before the first poll, disarmed by a definite answer: between them, a drop compensates.
    let undo = Undo::armed(inner, live, request, not_after, deadline);
    let asked = AcquireRequest {
        fenced: request.fenced && fence != Fence::Apart,
        ..*request
    };
    let mut reply = ask(live, &asked, not_after, sent_at, deadline).await;
    if fence == Fence::Apart
        && let Ok(AcquireReply::Granted { token, .. }) = &mut reply
    {
        // The token's request has a permit of its own, perhaps of another node's connection.
        *permit = None;
        // Still armed: without a token it is given back.
        *token = Box::pin(exclusive::token(inner, request, deadline)).await?;
    }
    // Who waits for a fair lock and got no answer asks again as the same holder: only a drop ends that.
    let asks_again = request.hold_ref.key.kind() == Kind::Fair;
    if asks_again || !matches!(reply, Err(Fault::Unknown(_) | Fault::Closed(_))) {
        undo.disarm();
    }
    reply
}

async fn ask(
    live: &Live,
    request: &AcquireRequest<'_>,
    not_after: u64,
    now: Moment,
    deadline: Moment,
) -> Result<AcquireReply, Fault> {
    match request.hold_ref.key.kind() {
        Kind::Mutex | Kind::Fenced => {
            exclusive::acquire(live, request, not_after, now, deadline).await
        }
        Kind::Permits => permits::acquire(live, request, not_after, now, deadline).await,
        Kind::Fair => fair::acquire(live, request, not_after, now, deadline).await,
        Kind::Read | Kind::Write => {
            read_write::acquire(live, request, not_after, now, deadline).await
        }
    }
}

/// Compensates on drop unless it was disarmed.
pub(crate) struct Undo<'a> {
    inner: &'a Arc<Inner>,
    live: &'a Live,
    request: &'a AcquireRequest<'a>,
    not_after: u64,
    deadline: Moment,
    armed: bool,
}

impl<'a> Undo<'a> {
    pub(crate) fn armed(
        inner: &'a Arc<Inner>,
        live: &'a Live,
        request: &'a AcquireRequest<'a>,
        not_after: u64,
        deadline: Moment,
    ) -> Undo<'a> {
        Undo {
            inner,
            live,
            request,
            not_after,
            deadline,
            armed: true,
        }
    }

    pub(crate) fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let compensation = Compensation {
            inner: self.inner.clone(),
            live: self.live.clone(),
            key: self.request.hold_ref.key.clone(),
            holder: self.request.hold_ref.holder,
            permits: self.request.hold_ref.permits,
            not_after: self.not_after,
            over: self.deadline + self.request.ttl.duration() + SLACK,
        };
        let pending = Pending::one(self.inner);
        self.inner.handle.spawn(async move {
            compensation.run().await;
            drop(pending);
        });
    }
}

/// The estimate of the server's time may be late by a round trip, and so may a lease's end.
const SLACK: Duration = Duration::from_secs(1);

/// The pauses between two tries to give back what nobody wants.
pub(crate) fn undo_pauses() -> Backoff {
    Backoff::new(Duration::from_millis(2), Duration::from_millis(250))
}

/// A release of what may have been acquired, repeated until it cannot happen any more.
pub(crate) struct Compensation {
    pub(crate) inner: Arc<Inner>,
    /// The connection that carried the acquire.
    pub(crate) live: Live,
    pub(crate) key: Key,
    pub(crate) holder: HolderId,
    pub(crate) permits: u32,
    pub(crate) not_after: u64,
    /// When the lease, had it been granted at the last moment, has ended by itself.
    pub(crate) over: Moment,
}

impl Compensation {
    pub(crate) async fn run(&self) {
        let hold_ref = HoldRef {
            key: &self.key,
            holder: self.holder,
            permits: self.permits,
        };
        let mut next = Some(self.live.clone());
        let mut past = false;
        let mut pauses = undo_pauses();
        while !self.over.has_passed() {
            let now = clock::now();
            let deadline = (now + self.inner.call_timeout).earlier(self.over);
            let live = match next.take() {
                Some(live) => Ok((live, now)),
                None => self.inner.route(&self.key, now, deadline).await,
            };
            let answer = match live {
                Ok((live, now)) => {
                    let answer = self.inner.release(&live, hold_ref, now, deadline).await;
                    // A node that sends this release elsewhere has executed the acquire before it, or has sent that
                    // elsewhere, too, to a caller who had gone. So whatever the acquire did is done: where the slot is
                    // being moved to, the key has arrived as a whole, for a node sends on what it does not have any
                    // more, and a slot is given away only when it is empty. No acquire can come behind this release.
                    if let Some(redirect) = self.inner.redirect(&answer) {
                        past |= live.is_one_with(&self.live);
                        let next_node = self.inner.follow(redirect, &live, &self.key, deadline);
                        next = next_node.await.ok().map(|(live, _)| live);
                        if next.is_some() {
                            continue;
                        }
                    }
                    answer.map(|answer| (answer, live))
                }
                Err(fault) => Err(fault),
            };
            match answer {
                Err(Fault::Closed(_)) => return,
                // On the connection of the acquire, this release was executed after it. On another one it may have
                // been before it, until the server itself is past the time after which it refuses the acquire.
                Ok((answer, live)) => {
                    let settled = match answer {
                        GaveBack::Done => true,
                        GaveBack::NotHeld { time } => {
                            past || live.is_one_with(&self.live) || time > self.not_after
                        }
                    };
                    // What a deposed master forgets, the new one may still have.
                    let deadline = clock::now() + self.inner.call_timeout;
                    if settled && self.inner.vouch(Some(live), deadline).await.is_ok() {
                        return;
                    }
                }
                Err(_) => {}
            }
            clock::sleep(pauses.pause()).await;
        }
    }
}

/// Counts one compensation for as long as it lives, even if its task is aborted.
pub(crate) struct Pending(Arc<Inner>);

impl Pending {
    pub(crate) fn one(inner: &Arc<Inner>) -> Pending {
        inner.pending.send_modify(|pending| *pending += 1);
        Pending(inner.clone())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.pending.send_modify(|pending| *pending -= 1);
    }
}

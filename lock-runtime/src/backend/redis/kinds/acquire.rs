//! Acquires, and the releases that undo them when their outcome is unknown.

use std::sync::Arc;
use std::time::Duration;

use super::request::{Releasing, Sending};
use super::{exclusive, fair, listed, permits, read_write, release};
use crate::backend::kit::undo::Undo;
use crate::backend::redis::connection::Live;
use crate::backend::redis::router::{AcquireRoute, Router};
use crate::backend::redis::scripting::outcomes::{AcquireReply, Dated};
use crate::backend::{
    AcquireRequest, Acquired, AskedKind, Fault, Granted, HoldRef, Released, WithRelease,
};
use crate::values::{Backoff, Counted, HolderId, Key, Kind, Moment, clock, rare};

pub(crate) async fn acquire(
    router: &Arc<Router>,
    request: &AcquireRequest<'_>,
) -> Result<Acquired, Fault> {
    let key = request.hold_ref.key;
    let routed = router.route_acquire(key, request.asked_at, request.deadline());
    let mut at = routed.await?;

    // Whether another script makes the token after the grant: while a slot of a cluster moves, the fence may be at another
    // node.
    let mut is_apart = false;
    loop {
        let reply = attempt(router, &mut at, request, is_apart).await;
        if let Some(redirect) = router.redirect(&reply) {
            is_apart |= redirect.splits() && key.kind().is_mutex() && request.fenced;
            // This is another request: its lease counts from its own sending, and its date is by the other node's
            // clock.
            let followed = router.follow_acquire(redirect, at, key, request.deadline());
            at = rare(followed).await?;
            continue;
        }
        let reply = match reply {
            Err(fault) => return Err(router.named(fault, key, AskedKind::Lock(key.kind())).await),
            Ok(reply) => reply,
        };
        let (done, time) = match reply {
            AcquireReply::Granted {
                token,
                time,
                tenure,
            } => {
                let granted = Granted::leased(token, at.sent_at);
                let terms = tenure.as_deref().map(|tenure| {
                    Box::new(exclusive::tenure_terms(router, key, token, tenure, time))
                });
                (Some(Acquired::Granted(granted, terms)), time)
            }
            AcquireReply::Busy {
                left,
                kept,
                first,
                time,
            } => {
                // Where there is a list, a release tells: a look at the list costs more than a rest.
                if !kept && first.is_none() && !router.keeps_list(key) {
                    router.wanted.note(key, 1);
                }
                (Some(Acquired::Busy { left, kept, first }), time)
            }
            AcquireReply::Stale { time } => (None, time),
        };
        if let Some(acquired) = at.settle(Dated { done, time })? {
            return Ok(acquired);
        }
    }
}

/// Sends one request on the connection of the route.
async fn attempt(
    router: &Arc<Router>,
    at: &mut AcquireRoute,
    request: &AcquireRequest<'_>,
    is_apart: bool,
) -> Result<AcquireReply, Fault> {
    let live = &at.live;
    live.may_carry(request.hold_ref.holder)?;
    let not_after = live.clock().not_after(at.sent_at, request.deadline());
    let undo = Undo::armed(|| {
        let sent = Some((live.clone(), not_after));
        Compensation::of(router, request, sent, request.deadline()).start();
    });
    let sending = Sending {
        router,
        at,
        request,
        fenced: request.fenced && !is_apart,
        not_after,
    };
    let mut reply = ask(&sending).await;
    if is_apart && let Ok(AcquireReply::Granted { token, .. }) = &mut reply {
        // The request for the token takes a permit of its own, perhaps of another node's connection.
        at.permit = None;
        // The guard is still armed: without a token, the lock is given back.
        *token = rare(exclusive::token(router, request)).await?;
    }
    // A fair waiter without an answer asks again as the same holder, so only a drop undoes its request.
    let asks_again = request.hold_ref.key.kind() == Kind::Fair;
    if asks_again || !matches!(reply, Err(Fault::Unknown(_) | Fault::Closed(_))) {
        undo.disarm();
    }
    reply
}

/// Sends the request once.
async fn ask(sending: &Sending<'_>) -> Result<AcquireReply, Fault> {
    match sending.request.hold_ref.key.kind() {
        Kind::Mutex | Kind::Fenced => exclusive::acquire(sending).await,
        Kind::Semaphore => rare(permits::acquire(sending)).await,
        Kind::Fair => rare(fair::acquire(sending)).await,
        Kind::Read | Kind::Write => rare(read_write::acquire(sending)).await,
    }
}

/// The estimate of the server's time may be late by a round trip, and then the lease's end is late, too.
const SLACK: Duration = Duration::from_secs(1);

/// A release that undoes an acquire that was executed, or may have been. It is repeated until the server confirms it,
/// or until the acquire cannot be executed any more.
pub(crate) struct Compensation {
    router: Arc<Router>,
    key: Key,
    holder: HolderId,
    permits: u32,
    listed: bool,
    /// The connection that carried the acquire, and the acquire's date. `None` if the acquire was answered, so that no
    /// copy of it is under way.
    sent: Option<(Live, u64)>,
    /// The time at which the lease has ended by itself, even if the lock was granted at the last moment.
    over: Moment,
    /// Keeps the backend from closing.
    _pending: Counted,
}

impl Compensation {
    /// `granted_by`: the latest time at which the server may have granted the lock.
    pub(crate) fn of(
        router: &Arc<Router>,
        request: &AcquireRequest<'_>,
        sent: Option<(Live, u64)>,
        granted_by: Moment,
    ) -> Compensation {
        let hold_ref = request.hold_ref;
        listed::forget(&router.topics, hold_ref);
        Compensation {
            router: router.clone(),
            key: hold_ref.key.clone(),
            holder: hold_ref.holder,
            permits: hold_ref.permits,
            listed: hold_ref.listed,
            sent,
            over: granted_by + request.ttl.duration() + SLACK,
            _pending: router.pending.enter(),
        }
    }

    /// Returns `true` if this connection carried the acquire.
    fn is_behind(&self, live: &Live) -> bool {
        let sent = self.sent.as_ref();
        sent.is_some_and(|(carried, _)| live.is_one_with(carried))
    }

    pub(crate) fn start(self) {
        let handle = self.router.handle.clone();
        handle.spawn(self.run());
    }

    pub(crate) async fn run(self) {
        let hold_ref = HoldRef {
            key: &self.key,
            holder: self.holder,
            permits: self.permits,
            listed: self.listed,
        };
        let mut next = self.sent.as_ref().map(|(live, _)| live.clone());
        let mut past = self.sent.is_none();
        let mut pauses = Backoff::new(Duration::from_millis(2), Duration::from_millis(250));
        // The right may come back, and the server writes each refusal into its log.
        let mut refusals = Backoff::new(Duration::from_millis(250), Duration::from_secs(5));
        while !self.over.has_passed() {
            let now = clock::now();
            let deadline = (now + self.router.call_timeout).earlier(self.over);
            let live = match next.take() {
                Some(live) => Ok((live, now)),
                None => self.router.route(&self.key, now, deadline).await,
            };
            let answer = match live {
                Ok((live, now)) => {
                    let releasing = Releasing {
                        router: &self.router,
                        live: &live,
                        hold_ref,
                        with: WithRelease::default(),
                        undoes: true,
                        sent_at: now,
                        deadline,
                    };
                    let answer = release::ask(&releasing).await;
                    // A node that redirects this release has either executed the acquire before it, or has redirected
                    // the acquire as well, to a caller that had gone. So the acquire has already had all of its effect.
                    // At the node to which the slot moves, all of the lock's keys have arrived: a node redirects only
                    // requests for keys that it no longer has, and gives a slot away only when it is empty. So no
                    // acquire can come after this release.
                    if let Some(redirect) = self.router.redirect(&answer) {
                        past |= self.is_behind(&live);
                        let next_node = self.router.follow(redirect, &live, &self.key, deadline);
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
                // On the connection of the acquire, this release was executed after it. On another connection, the
                // release may have been executed first, as long as the server's own time is not past the acquire's
                // date.
                Ok((answer, live)) => {
                    let refused = |(_, not_after): &(_, u64)| answer.time > *not_after;
                    let settled = answer.released != Released::NotHeld
                        || past
                        || self.is_behind(&live)
                        || self.sent.as_ref().is_some_and(refused);
                    // A deposed master may confirm the release while the new master still has the lock, so the answer
                    // needs a vouch.
                    let deadline = clock::now() + self.router.call_timeout;
                    if settled && self.router.vouch(Some(live), deadline).await.is_ok() {
                        return;
                    }
                }
                Err(Fault::Denied(_)) => clock::sleep(refusals.pause()).await,
                Err(_) => {}
            }
            clock::sleep(pauses.pause()).await;
        }
    }
}

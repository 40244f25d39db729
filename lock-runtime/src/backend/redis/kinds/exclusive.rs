//! Kinds with one holder at a time: mutex and fenced lock, Redisson's `RLock` and `RFencedLock`. Also the parts that
//! they share with the writer of a read/write lock.

use super::listed;
use super::request::{Releasing, Sending};
use crate::backend::redis::connection::sharing::UnderWay;
use crate::backend::redis::pubsub::messages::channel;
use crate::backend::redis::router::Router;
use crate::backend::redis::scripting::exclusive::{Acquire, HandOver, NextToken, Release};
use crate::backend::redis::scripting::grouped::{AcquireTerms, OneAcquire, OneRelease};
use crate::backend::redis::scripting::outcomes::{
    AcquireReply, Announced, Dated, ReleaseReply, TenureReply,
};
use crate::backend::{AcquireRequest, Fault, FurtherTurns, Granted, HandedOver, HoldRef, Spare};
use crate::values::{FencingToken, HolderId, Key, Kind, TokenRange, clock, rare};

/// The field of a hold in the lock's hash.
pub(crate) fn field(key: &Key, holder: HolderId) -> String {
    match key.kind() {
        Kind::Write => holder.text() + ":write",
        _ => holder.text(),
    }
}

/// Sends the request once.
pub(crate) async fn acquire(sending: &Sending<'_>) -> Result<AcquireReply, Fault> {
    if sending.request.hold_ref.listed {
        let (listed, alone) = (|| listed::acquire(sending), || acquire_alone(sending));
        let HoldRef { key, .. } = sending.request.hold_ref;
        return rare(by_list(sending.router, key, listed, alone)).await;
    }
    let under_way = UnderWay::enter(&sending.at.live);
    if sending.request.hold_ref.key.kind() == Kind::Mutex && !sending.request.others_wait {
        let one = || one_acquire(sending);
        let shared = under_way.share(one, sending.at.sent_at, sending.request.deadline());
        if let Some(answer) = shared.await {
            return answer;
        }
    }
    // Boxed, so that acquires that share a script do not have the size of a call.
    Box::pin(acquire_alone(sending)).await
}

fn one_acquire(sending: &Sending<'_>) -> (AcquireTerms, OneAcquire) {
    let request = sending.request;
    let left = request.deadline() - sending.at.sent_at;
    let terms = AcquireTerms::new(request.ttl.millis(), sending.fenced, left);
    let one = OneAcquire {
        key: request.hold_ref.key.clone(),
        holder: request.hold_ref.holder,
        not_after_us: sending.not_after,
    };
    (terms, one)
}

/// Acquires or releases by the waiting list. If the user has no rights to the list, does it without the list.
async fn by_list<T, L, A>(
    router: &Router,
    key: &Key,
    listed: impl FnOnce() -> L,
    alone: impl FnOnce() -> A,
) -> Result<T, Fault>
where
    L: Future<Output = Result<T, Fault>>,
    A: Future<Output = Result<T, Fault>>,
{
    if !router.keeps_list(key) {
        return alone().await;
    }
    match listed().await {
        Err(Fault::Denied(why)) => {
            let reply = alone().await;
            if !matches!(reply, Err(Fault::Denied(_))) {
                router.refuses_list(&why);
            }
            reply
        }
        reply => reply,
    }
}

async fn acquire_alone(sending: &Sending<'_>) -> Result<AcquireReply, Fault> {
    let HoldRef { key, holder, .. } = sending.request.hold_ref;
    let fence = sending.fence();
    let spare = sending.spare();
    let channel = spare.map(|_| channel(key));
    let script = Acquire {
        lock: key.raw(),
        fence: fence.as_deref(),
        holder: &holder.text(),
        lease_ms: sending.request.ttl.millis(),
        not_after_us: sending.not_after,
        counted: key.kind() == Kind::Fenced,
        channel: channel.as_deref(),
        spare,
    };
    sending.call(&script).await
}

/// Makes a token for a lock that was just granted to the request's holder without one. It is made before the request's
/// deadline, which comes before the end of the lease, so that the token of a later holder is larger.
///
/// If there is no answer, or the request was not executed, the outcome is reported as unknown, and the caller gives the
/// lock back.
pub(crate) async fn token(
    router: &Router,
    request: &AcquireRequest<'_>,
) -> Result<Option<FencingToken>, Fault> {
    let deadline = request.deadline();
    let key = request.hold_ref.key;
    let unfenced = |fault: Fault| match fault {
        Fault::NotDone(source) | Fault::Unknown(source) => {
            Fault::unknown(format!("no fencing token: {source}"))
        }
        fault => fault,
    };
    let fence = key.fence();
    let admitted = router.route_acquire(key, clock::now(), deadline).await;
    let mut at = admitted.map_err(unfenced)?;
    loop {
        let script = NextToken {
            fence: &fence,
            not_after_us: at.live.clock().not_after(at.sent_at, deadline),
            counted: key.kind() == Kind::Fenced,
        };
        let answer = at.live.call(&script, at.sent_at, deadline).await;
        if let Some(redirect) = router.redirect(&answer) {
            let admitted = router.follow_acquire(redirect, at, key, deadline).await;
            at = admitted.map_err(unfenced)?;
            continue;
        }
        let Dated { done: token, time } = answer.map_err(unfenced)?;
        at.live.clock().saw(time, at.sent_at);
        if token.is_some() {
            return Ok(token);
        }
        if deadline.has_passed() {
            return Err(Fault::unknown("no fencing token in time"));
        }
        at.sent_at = clock::now();
    }
}

/// Releases the lock, on the connection of `releasing`.
pub(crate) async fn release(releasing: &Releasing<'_>) -> Result<Announced<ReleaseReply>, Fault> {
    let HoldRef {
        key,
        holder,
        listed,
        ..
    } = releasing.hold_ref;
    // A compensation for an acquire that was not on the list joins the group, which alone knows whether that was sent.
    if listed || !releasing.undoes && listed::is_wanted(releasing.router, key, holder) {
        let (listed, alone) = (|| listed::release(releasing), || release_alone(releasing));
        return rare(by_list(releasing.router, key, listed, alone)).await;
    }
    if releasing.unused().is_some() {
        return rare(release_alone(releasing)).await;
    }
    let under_way = UnderWay::enter(releasing.live);
    let one = || {
        let key = key.clone();
        ((), OneRelease { key, holder })
    };
    let shared = under_way.share(one, releasing.sent_at, releasing.deadline);
    if let Some(answer) = shared.await {
        return answer;
    }
    // Boxed, as a lone acquire is.
    Box::pin(release_alone(releasing)).await
}

async fn release_alone(releasing: &Releasing<'_>) -> Result<Announced<ReleaseReply>, Fault> {
    let HoldRef { key, holder, .. } = releasing.hold_ref;
    let (holder, channel) = (holder.text(), channel(key));
    let mut script = Release::of(key.raw(), &holder, &channel);
    if let Some(unused) = releasing.unused() {
        script.fence = Some(key.fence());
        (script.last, script.used) = (Some(unused.last.get()), Some(unused.given.get()));
    }
    releasing.call(&script).await
}

/// `token`: that of the hold. `time`: the server's time, a moment ago.
pub(crate) fn tenure_terms(
    router: &Router,
    key: &Key,
    token: Option<FencingToken>,
    tenure: &TenureReply,
    time: u64,
) -> FurtherTurns {
    let subscribers = tenure.subscribers;
    let others = subscribers.map(|count| router.note_others(key, count));
    let clock = (key.kind() != Kind::Fenced).then(|| (time, clock::now()));
    FurtherTurns {
        others,
        spare: Option::zip(token, tenure.last).map_or(Spare::Untokened, |(token, last)| {
            Spare::Tokens(TokenRange::new(token, last, clock))
        }),
    }
}

pub(crate) async fn hand_over(
    router: &Router,
    from: HolderId,
    to: AcquireRequest<'_>,
    spare: u64,
) -> Result<HandedOver, Fault> {
    let deadline = to.deadline();
    let (mut live, mut sent_at) = router.route(to.hold_ref.key, to.asked_at, deadline).await?;
    let HoldRef { key, holder, .. } = to.hold_ref;
    let fence = to.fenced.then(|| key.fence());
    let channel = channel(key);
    let script = HandOver {
        lock: key.raw(),
        fence: fence.as_deref(),
        from: &field(key, from),
        to: &field(key, holder),
        lease_ms: to.ttl.millis(),
        channel: &channel,
        counted: key.kind() == Kind::Fenced,
        spare,
    };
    let reply = loop {
        live.may_carry(holder)?;
        let answer = live.call(&script, sent_at, deadline).await;
        let Some(redirect) = router.redirect(&answer) else {
            break answer?;
        };
        // Lock and fence are at two nodes. A release and another acquire need no script with both keys.
        if redirect.splits() {
            return Err(redirect.fault);
        }
        (live, sent_at) = router.follow(redirect, &live, key, deadline).await?;
    };
    match reply {
        Some((token, time, tenure)) => {
            live.clock().saw(time, sent_at);
            let granted = Granted::leased(token, sent_at);
            let terms = tenure_terms(router, key, token, &tenure, time);
            Ok(HandedOver::Done(granted, terms))
        }
        None => {
            rare(router.vouch(Some(live), deadline)).await?;
            Ok(HandedOver::NotHeld)
        }
    }
}

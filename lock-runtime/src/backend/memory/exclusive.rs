//! One holder at a time: mutex and fenced lock.

use tokio::time::Instant;

use super::{At, Entry, State, foreign};
use crate::backend::{
    Acquired, AcquiredAll, Claim, Fault, Granted, HandedOver, Released, Renewal, Renewed, Seen,
    Stake,
};
use crate::holder::HolderId;
use crate::key::Key;
use crate::kind::LockMode;
use crate::term::Term;

pub(super) struct Exclusive {
    pub(super) holder: HolderId,
    pub(super) expires: Instant,
}

impl Exclusive {
    fn entry(holder: HolderId, term: Term) -> Entry {
        Entry::Exclusive(Exclusive {
            holder,
            expires: Instant::now() + term.ttl(),
        })
    }

    pub(super) fn left(&self) -> std::time::Duration {
        self.expires.saturating_duration_since(Instant::now())
    }

    pub(super) fn seen(&self) -> Seen {
        Seen {
            mode: LockMode::Exclusive,
            holder: Some(self.holder.text()),
            count: 1,
            left: Some(self.left()),
            available: None,
            queued: 0,
            readers: 0,
        }
    }
}

/// Who holds the key, if it is held exclusively.
pub(super) fn hold<'a>(state: &'a mut State, key: &Key) -> Option<&'a mut Exclusive> {
    match state.live(key)? {
        Entry::Exclusive(hold) => Some(hold),
        _ => None,
    }
}

pub(super) fn acquire(state: &mut State, claim: &Claim<'_>, at: At) -> Result<Acquired, Fault> {
    match other_hold(state, claim.stake)? {
        Some(hold) => Ok(Acquired::Busy {
            left: Some(hold.left()),
        }),
        None => Ok(Acquired::Granted(grant(state, claim, at))),
    }
}

pub(super) fn acquire_all(
    state: &mut State,
    claims: &[Claim<'_>],
    at: At,
) -> Result<AcquiredAll, Fault> {
    for claim in claims {
        if other_hold(state, claim.stake)?.is_some() {
            return Ok(AcquiredAll::Busy);
        }
    }
    let granted = claims.iter().map(|claim| grant(state, claim, at));
    Ok(AcquiredAll::Granted(granted.collect()))
}

/// The hold that is in the way.
fn other_hold<'a>(
    state: &'a mut State,
    stake: Stake<'_>,
) -> Result<Option<&'a mut Exclusive>, Fault> {
    match state.live(stake.key) {
        None => Ok(None),
        Some(Entry::Exclusive(hold)) => Ok(Some(hold).filter(|hold| hold.holder != stake.holder)),
        Some(_) => Err(foreign(stake.key, "it holds a lock of another kind")),
    }
}

fn grant(state: &mut State, claim: &Claim<'_>, at: At) -> Granted {
    let Stake { key, holder, .. } = claim.stake;
    state.put(key, Exclusive::entry(holder, claim.term));
    Granted {
        token: state.token(claim, at.micros),
        sent_at: at.sent_at,
    }
}

pub(super) fn release(state: &mut State, stake: Stake<'_>) -> Released {
    if hold(state, stake.key).is_none_or(|hold| hold.holder != stake.holder) {
        return Released::NotHeld;
    }
    state.locks.remove(stake.key.raw());
    state.wake(stake.key);
    Released::Done
}

pub(super) fn hand_over(state: &mut State, from: HolderId, to: &Claim<'_>, at: At) -> HandedOver {
    let Stake { key, holder, .. } = to.stake;
    if hold(state, key).is_none_or(|hold| hold.holder != from && hold.holder != holder) {
        return HandedOver::NotHeld;
    }
    let granted = grant(state, to, at);
    HandedOver::Done {
        granted,
        // Nobody of this manager listens while it holds the key itself.
        strangers: state.strangers(key),
    }
}

pub(super) fn renew(state: &mut State, renewal: &Renewal) -> Renewed {
    let Some(hold) = hold(state, &renewal.key).filter(|hold| hold.holder == renewal.holder) else {
        return Renewed::NotHeld;
    };
    if let Some(term) = renewal.term {
        hold.expires = hold.expires.max(Instant::now() + term.ttl());
    }
    Renewed::Held
}

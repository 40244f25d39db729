//! A key that stays taken for a while after its hold has ended (`min_hold`).

use tokio::sync::oneshot;

use super::{Work, pauses};
use crate::backend::{Fault, Renewed};
use crate::observe;
use crate::values::ttl::LEAST_CALL;
use crate::values::{LockError, Moment, Ttl, clock, ttl};

/// Told whether the store keeps the key.
pub(super) type Covered = oneshot::Sender<Result<(), LockError>>;

impl Work {
    /// Waits until the key may be given back. False if the manager closes before: nobody is left to wait, so the
    /// lease ends the hold. `kept` is told once the store will keep the key for that long, whatever becomes of this
    /// process, or cannot.
    pub(super) async fn keep(&mut self, kept: Option<Covered>) -> bool {
        let Some(until) = self.covered_until() else {
            return true;
        };
        let covered = self.cover(until).await;
        let is_gone = matches!(covered, Err(LockError::Lost { .. }));
        match (kept, covered) {
            (Some(kept), covered) => drop(kept.send(covered)),
            (None, Err(error)) => observe::release_failed(self.turn.label.lock, &error),
            (None, Ok(())) => {}
        }
        if is_gone {
            // There is nothing to keep. The release clears what is left of it, and the turn goes on.
            return true;
        }
        tokio::select! {
            () = clock::sleep_until(until) => true,
            () = self.core.life.closing() => false,
        }
    }

    /// Makes the lease last until then, if it does not.
    ///
    /// # Errors
    /// [`LockError::Lost`] if the store no longer names this holder; else why it could not be asked within the lease.
    async fn cover(&mut self, until: Moment) -> Result<(), LockError> {
        let mut pauses = pauses();
        let timeout = self.turn.ttl().call_timeout(self.core.options.call_timeout);
        while self.tenure.deadline().remaining() < until.remaining() {
            // The margin on top: the store's clock may be the faster one.
            let rest = until.remaining();
            let rest = (rest + rest / 50).clamp(ttl::MIN, ttl::MAX);
            let Ok(ttl) = Ttl::new(rest, false) else {
                break;
            };
            let renewal = self.tenure.renewal(Some(ttl));
            // Whatever the answer is, the store may have done it.
            self.over_at = self.over_at.later(clock::now() + timeout + rest);
            let fault = match self.core.renew(renewal, timeout).await {
                Ok(Renewed::Held) => break,
                Ok(Renewed::NotHeld) => {
                    return Err(self.lost_error());
                }
                Ok(_) => Fault::unknown("the store failed at this key"),
                Err(fault) => fault,
            };
            observe::renewal_failed(1, &fault);
            let left = self.tenure.deadline().remaining();
            if !fault.is_passing() || left.is_zero() {
                return Err(fault.into_error(self.tenure.key().name()));
            }
            // A pause of the usual length could outlast the lease of a store that is back before its end.
            clock::sleep(pauses.pause().min((left / 4).max(LEAST_CALL))).await;
        }
        Ok(())
    }
}

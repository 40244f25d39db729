//! A key that stays taken for a while after its hold has ended (`min_hold`).

use tokio::sync::oneshot;

use super::{Work, pauses};
use crate::backend::{Fault, Renewed};
use crate::values::ttl::LEAST_CALL;
use crate::values::{LockError, Moment, Ttl, clock, ttl};

/// Tells the caller whether the store keeps the key.
pub(super) type Covered = oneshot::Sender<Result<(), LockError>>;

impl Work {
    /// Waits until the key may be given back. Returns `false` if the manager closes before: then the lease ends the hold.
    /// `told` gets a message once the store keeps the key for that long, whatever happens to this process, or once it is clear
    /// that the store does not.
    pub(super) async fn stay_covered(&mut self, told: Option<Covered>) -> bool {
        let Some(until) = self.covered_until() else {
            return true;
        };
        let covered = self.cover(until).await;
        self.is_covered = covered.is_ok();
        let is_gone = matches!(covered, Err(LockError::Lost { .. }));
        // A caller that has left, or was told that there was no answer in time, does not hear of it.
        let unheard = match told {
            Some(told) => told.send(covered).err(),
            None => Some(covered),
        };
        // The release finds a loss itself.
        if let Some(Err(error)) = unheard
            && !is_gone
        {
            let label = self.turn.label.lock;
            self.core.watch.release_failed(label, &error);
        }
        if is_gone {
            // There is nothing to cover. The release deletes the rest of the hold, and passes the front on.
            return true;
        }
        // From now on the store says how long the key stays taken: a forced release may free it, and a store that was away may
        // not have kept it. Neither is a loss: it counts as if an earlier release had freed the key.
        drop(self.turn.front.take());
        self.requests.unanswered = true;
        tokio::select! {
            () = clock::sleep_until(until) => true,
            () = self.core.life.closing() => false,
        }
    }

    /// Extends the lease until then, if it is shorter. In any case, asks whether the store still names this holder.
    ///
    /// # Errors
    /// [`LockError::Lost`] if it does not; else why it could not be asked within the lease.
    async fn cover(&mut self, until: Moment) -> Result<(), LockError> {
        let mut pauses = pauses();
        let timeout = self.turn.ttl.call_timeout(self.core.options.call_timeout);
        loop {
            let rest = ttl::covering(until.remaining());
            let is_short = self.tenure.deadline().remaining() < until.remaining();
            let longer = Ttl::new(rest, false).ok().filter(|_| is_short);
            let renewal = self.tenure.renewal(longer);
            let fault = match self.core.renew(renewal, timeout).await {
                Ok(Renewed::Held) => return Ok(()),
                Ok(Renewed::NotHeld) => {
                    return Err(self.lost_error());
                }
                Ok(_) => Fault::unknown("the store failed at this key"),
                Err(fault) => fault,
            };
            self.core.watch.renewal_failed(&fault);
            let left = self.tenure.deadline().remaining();
            if !fault.is_passing() || left.is_zero() {
                return Err(fault.into_error(self.tenure.key().name()));
            }
            // A store may come back shortly before the end of the lease. A pause of the usual length would be too long then.
            clock::sleep(pauses.pause().min((left / 4).max(LEAST_CALL))).await;
        }
    }
}

//! A write hold becomes a read hold when its caller asks for that, or when its last writer leaves while a nested read is
//! still held.
//!
//! The hold counts as a read before the request to the store. In the store it may still be a write. Renewals and releases of
//! a read handle both forms, so the order in which these requests arrive does not matter.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::backend::Released;
use crate::hold::{Core, Handles, Held, Hold, Left, current_runtime};
use crate::queue::Front;
use crate::release::{Ending, pauses, told_within};
use crate::values::{Kind, LockError, LostReason, clock, config};

impl Handles {
    /// Makes a write a read, from the call on, also if the future is dropped.
    pub(crate) fn downgrade(
        &mut self,
    ) -> impl Future<Output = Result<(), LockError>> + Send + 'static + use<> {
        let started = self.start_downgrade();
        async move {
            match started? {
                Some(answer) => answer.await,
                None => Ok(()),
            }
        }
    }

    /// Returns the answer of the store, if it is asked.
    fn start_downgrade(&mut self) -> Result<Option<Ending>, LockError> {
        let none = || config("only a guard of one read/write lock can be downgraded");
        let handle = self.only().ok_or_else(none)?;
        match handle.kind() {
            Kind::Write => {}
            Kind::Read => return Ok(None),
            _ => return Err(none()),
        }
        Ok(match handle.stop_writing()? {
            Left::Reading(front) => Some(start(handle.core(), handle.hold(), front)),
            _ => None,
        })
    }
}

/// Downgrades in a task of the manager, which continues when the caller leaves. Resolves with the outcome, within the call
/// timeout. `front`: that of the process's writers. The next writer asks the store after the store has admitted the readers.
pub(super) fn start(core: &Arc<Core>, hold: &Hold, front: Option<Front>) -> Ending {
    let (told, outcome) = oneshot::channel();
    let (label, of, held) = (hold.label(), core.clone(), hold.clone());
    core.life.spawn(async move {
        let outcome = until_answered(&of, held).await;
        drop(front);
        // A caller that has left, or was told that there was no answer in time, does not hear of it. A loss was logged by who
        // ended the hold.
        if let Err(Err(error)) = told.send(outcome)
            && !matches!(error, LockError::Lost { .. })
        {
            of.watch.release_failed(label, &error);
        }
    });
    let (timeout, key) = (core.options.call_timeout, hold.key().clone());
    Box::pin(async move {
        current_runtime()?;
        let late = || {
            format!(
                "the downgrade was not confirmed within {timeout:?} and is repeated in the background"
            )
        };
        told_within(timeout, outcome, &key, late).await
    })
}

/// Repeats the request until there is an answer. If the hold ends before, nothing is left to downgrade: the code that ended it
/// gives back what the store has.
async fn until_answered(core: &Core, hold: Hold) -> Result<(), LockError> {
    let mut pauses = pauses();
    let tenure = hold.tenure();
    while hold.is_held() {
        let timeout = core.options.call_timeout;
        let (read, ttl) = (tenure.hold_ref(), tenure.ttl());
        match core.backend.downgrade(read, ttl, timeout).await {
            Ok(Released::Done | Released::DoneAndListed) => {
                // A read with a long lease is renewed more often than the write was.
                if ttl > tenure.paced_by() {
                    core.watch.look_now(tenure);
                }
                return Ok(());
            }
            // The store has neither a write nor a read of this holder. If the lease ended before the answer came, the end of
            // the lease is the reason of the loss.
            Ok(Released::NotHeld) => {
                if hold.is_held() {
                    core.watch.lose(tenure, LostReason::Refused);
                }
                break;
            }
            Err(fault) if fault.is_passing() => core.watch.renewal_failed(&fault),
            Err(fault) => return Err(fault.into_error(hold.key().name())),
        }
        tokio::select! {
            () = clock::sleep(pauses.pause()) => {}
            () = Held::One(hold.clone()).over() => {}
        }
    }
    hold.check()
}

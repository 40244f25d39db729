//! A write hold becomes a read hold when its caller asks for that, or when its last writer leaves while a nested read is
//! still held.
//!
//! The hold counts as a read before the request to the store. In the store it may still be a write. Renewals and releases of
//! a read handle both forms, so the order in which these requests arrive does not matter.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::backend::Released;
use crate::hold::{Core, Handles, Hold, Left, current_runtime};
use crate::queue::Front;
use crate::release::{pauses, told_within};
use crate::values::{Counted, Kind, Label, LockError, LostReason, clock, config};

impl Handles {
    /// Makes a write a read, from the call on, also if the future is dropped.
    pub(crate) fn downgrade(
        &mut self,
    ) -> impl Future<Output = Result<(), LockError>> + Send + 'static + use<> {
        let started = self.start_downgrade();
        let answer = started.map(|downgrade| downgrade.map(Downgrade::explicit));
        async move {
            match answer? {
                Some(answer) => answer.await,
                None => Ok(()),
            }
        }
    }

    /// Returns the work that remains at the store, if any.
    fn start_downgrade(&mut self) -> Result<Option<Downgrade>, LockError> {
        let none = || config("only a guard of one read/write lock can be downgraded");
        let handle = self.only().ok_or_else(none)?;
        match handle.kind() {
            Kind::Write => {}
            Kind::Read => return Ok(None),
            _ => return Err(none()),
        }
        Ok(match handle.stop_writing()? {
            Left::Reading(front) => {
                let (core, hold) = (handle.core().clone(), handle.hold().clone());
                Some(Downgrade::new(core, hold, front))
            }
            _ => None,
        })
    }
}

/// A downgrade that is to be carried out.
pub(crate) struct Downgrade {
    core: Arc<Core>,
    hold: Hold,
    /// The front of the process's writers. The next writer asks the store after the store has admitted the readers.
    front: Option<Front>,
    _under_way: Counted,
}

impl Downgrade {
    pub(crate) fn new(core: Arc<Core>, hold: Hold, front: Option<Front>) -> Downgrade {
        Downgrade {
            _under_way: core.life.background.enter(),
            core,
            hold,
            front,
        }
    }

    /// Downgrades for a caller that waits for the outcome, within the call timeout. From the call on, not from the first poll,
    /// the manager owns the work, which continues when the caller leaves.
    pub(crate) fn explicit(self) -> impl Future<Output = Result<(), LockError>> + Send + 'static {
        let (core, key) = (self.core.clone(), self.hold.key().clone());
        let (done, outcome) = oneshot::channel();
        core.life.spawn(self.run(done));
        async move {
            current_runtime()?;
            let timeout = core.options.call_timeout;
            let late = || {
                format!(
                    "the downgrade was not confirmed within {timeout:?} and is repeated in the background"
                )
            };
            told_within(timeout, outcome, &key, late).await
        }
    }

    /// Downgrades for no caller.
    pub(crate) fn in_background(self) {
        let label = self.hold.with_turn(|turn| turn.label.lock);
        let (core, label) = (self.core.clone(), label.unwrap_or(Label::UNLABELLED));
        let life = core.life.clone();
        life.spawn(async move {
            let (done, outcome) = oneshot::channel();
            self.run(done).await;
            if let Ok(Err(error)) = outcome.await {
                core.watch.release_failed(label, &error);
            }
        });
    }

    /// Repeats the request until there is an answer. If the hold ends before, nothing is left to downgrade: the code that ended
    /// it gives back what the store has.
    async fn run(self, done: oneshot::Sender<Result<(), LockError>>) {
        let mut pauses = pauses();
        let outcome = loop {
            if self.hold.is_over() {
                break self.hold.check();
            }
            let timeout = self.core.options.call_timeout;
            let tenure = self.hold.tenure();
            let (read, ttl) = (tenure.hold_ref(), tenure.ttl());
            match self.core.backend.downgrade(read, ttl, timeout).await {
                Ok(Released::Done | Released::DoneAndListed) => {
                    // A read with a long lease is renewed more often than the write was.
                    if ttl > tenure.paced_by() {
                        self.core.watch.look_now(tenure);
                    }
                    break Ok(());
                }
                Ok(Released::NotHeld) => break self.is_gone(),
                Err(fault) if fault.is_passing() => {
                    self.core.watch.renewal_failed(&fault);
                }
                Err(fault) => break Err(fault.into_error(self.hold.key().name())),
            }
            tokio::select! {
                () = clock::sleep(pauses.pause()) => {}
                () = self.hold.clone().over() => {}
            }
        };
        drop(self.front);
        let _ = done.send(outcome);
    }

    /// Handles the answer that the store has neither a write nor a read of this holder. If the lease ended before the answer
    /// came, the end of the lease is the reason of the loss.
    fn is_gone(&self) -> Result<(), LockError> {
        if !self.hold.is_over() {
            let tenure = self.hold.tenure();
            self.core.watch.lose(tenure, LostReason::Refused);
        }
        self.hold.check()
    }
}

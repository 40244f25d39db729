//! A write hold whose last writer has left while a nested read lives on, or has asked for it, becomes a read hold, in
//! the store as well.
//!
//! The hold counts as a read before the store is asked. Renewals and releases of a read know both forms that it may
//! have there, so it does not matter which of the requests arrives first.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::backend::Released;
use crate::hold::{Core, Handles, Hold, Left, current_runtime};
use crate::observe;
use crate::queue::Head;
use crate::release::pauses;
use crate::values::{Counted, Kind, Label, LockError, LostReason, clock, config};

impl Handles {
    /// Makes a write a read: from the call on, whatever becomes of the future.
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

    /// The work that then remains at the store, if any.
    fn start_downgrade(&mut self) -> Result<Option<Downgrade>, LockError> {
        let none = || config("only a guard of one read/write lock can be downgraded");
        let handle = self.only().ok_or_else(none)?;
        match handle.kind() {
            Kind::Write => {}
            Kind::Read => return Ok(None),
            _ => return Err(none()),
        }
        Ok(match handle.stop_writing()? {
            Left::Reading(head) => {
                let (core, hold) = (handle.core().clone(), handle.hold().clone());
                Some(Downgrade::new(core, hold, head))
            }
            _ => None,
        })
    }
}

/// A downgrade that is to be carried out.
pub(crate) struct Downgrade {
    core: Arc<Core>,
    hold: Hold,
    /// This process's turn to write: the next writer queues at the store once the readers are let in there.
    head: Option<Head>,
    _under_way: Counted,
}

impl Downgrade {
    pub(crate) fn new(core: Arc<Core>, hold: Hold, head: Option<Head>) -> Downgrade {
        Downgrade {
            _under_way: core.life.background.enter(),
            core,
            hold,
            head,
        }
    }

    /// For a caller who wants to know how it went, within the call timeout. The manager owns it, from the call on and
    /// not from the first poll: it goes on when the caller leaves.
    pub(crate) fn explicit(self) -> impl Future<Output = Result<(), LockError>> + Send + 'static {
        let (core, name) = (self.core.clone(), self.hold.key().name().to_owned());
        let (done, outcome) = oneshot::channel();
        core.life.spawn(self.run(done));
        async move {
            current_runtime()?;
            let timeout = core.options.call_timeout;
            let why = match tokio::time::timeout(timeout, outcome).await {
                Ok(Ok(outcome)) => return outcome,
                Ok(Err(_)) => "the runtime of the lock manager is gone".to_owned(),
                Err(_) => format!(
                    "the downgrade was not confirmed within {timeout:?} and is repeated in the background"
                ),
            };
            Err(LockError::unavailable(&name, why))
        }
    }

    /// With nobody waiting for the outcome.
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

    /// Repeats it until there is an answer. When the hold is over before, there is nothing left to downgrade:
    /// what ended it gives back what the store has.
    async fn run(self, done: oneshot::Sender<Result<(), LockError>>) {
        let mut pauses = pauses();
        let outcome = loop {
            if self.hold.is_over() {
                break self.hold.check();
            }
            let timeout = self.core.options.call_timeout;
            let Some(store) = self.core.backend.shared() else {
                break self.hold.check();
            };
            let tenure = self.hold.tenure();
            let (read, ttl) = (tenure.hold_ref(), tenure.ttl());
            match store.downgrade(read, ttl, timeout).await {
                Ok(Released::Done) => break Ok(()),
                Ok(Released::NotHeld) => break self.is_gone(),
                Err(fault) if fault.is_passing() => {
                    observe::renewal_failed(1, &fault);
                }
                Err(fault) => break Err(fault.into_error(self.hold.key().name())),
            }
            tokio::select! {
                () = clock::sleep(pauses.pause()) => {}
                () = self.hold.clone().over() => {}
            }
        };
        drop(self.head);
        let _ = done.send(outcome);
    }

    /// The store knows neither a write nor a read of this holder. If the lease has run out before the answer came, that is
    /// what ended the hold.
    fn is_gone(&self) -> Result<(), LockError> {
        if !self.hold.is_over() {
            let tenure = self.hold.tenure();
            self.core.watch.lose(tenure, LostReason::Refused);
        }
        self.hold.check()
    }
}

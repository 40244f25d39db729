//! A memory store that a test can tell what to answer. All other questions go to the store as they are.

use std::time::Duration;

use super::script::{AnswerQueue, Verdict, no_answer_within};
use crate::backend::kit::standing::Standing;
use crate::backend::memory::MemoryBackend;
use crate::backend::{
    AcquireRequest, Acquired, AcquiredAll, Backend, Boxed, HoldRef, Released, Renewal, Renewed,
    Reply, Snapshot, Within,
};
use crate::values::{Checkup, Key, NodeHealth, StoreKind, clock};

pub(super) struct ScriptedBackend {
    store: MemoryBackend,
    /// The same store, which this reaches during an outage, too.
    pub(super) beside: MemoryBackend,
    pub(super) answers: AnswerQueue,
    standing: Standing,
}

impl ScriptedBackend {
    pub(super) fn new(store: MemoryBackend) -> ScriptedBackend {
        let standing = Standing::default();
        standing.note(true);
        ScriptedBackend {
            beside: store.beside(),
            store,
            answers: AnswerQueue::default(),
            standing,
        }
    }

    pub(super) fn is_away(&self) -> bool {
        self.store.check_here().is_err()
    }

    /// Begins or ends an outage.
    pub(super) fn set_away(&self, away: bool) {
        self.store.set_away(away);
        self.standing.note(!away);
    }
}

impl Backend for ScriptedBackend {
    fn acquire<'a>(&'a self, request: AcquireRequest<'a>) -> Reply<'a, Acquired> {
        Box::pin(async move {
            self.store.check_here()?;
            match self.answers.verdict(&[request]).await? {
                Verdict::Busy(left) => Ok(Acquired::busy(left)),
                Verdict::Ask => self.store.acquire(request).await,
            }
        })
    }

    fn acquire_all<'a>(&'a self, requests: &'a [AcquireRequest<'a>]) -> Reply<'a, AcquiredAll> {
        Box::pin(async move {
            self.store.check_here()?;
            match self.answers.verdict(requests).await? {
                Verdict::Busy(_) => Ok(AcquiredAll::Busy),
                Verdict::Ask => self.store.acquire_all(requests).await,
            }
        })
    }

    fn release<'a>(&'a self, hold_ref: HoldRef<'a>, timeout: Duration) -> Reply<'a, Released> {
        self.store.release(hold_ref, timeout)
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], within: Within) -> Reply<'a, Vec<Renewed>> {
        Box::pin(async move {
            if self.is_away() {
                // A store that is gone does not say so: the watchdog has to find out by itself.
                clock::sleep(within.useful).await;
                return Err(no_answer_within(within.useful));
            }
            self.store.renew(batch, within).await
        })
    }

    fn force_release<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, bool> {
        self.store.force_release(key, timeout)
    }

    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, Option<Snapshot>> {
        self.store.inspect(key, timeout)
    }

    fn store(&self) -> StoreKind {
        self.store.store()
    }

    fn around(&self) -> Option<&dyn Backend> {
        Some(&self.store)
    }

    fn health(&self, timeout: Duration) -> Boxed<'_, Checkup> {
        Box::pin(async move {
            let mut checkup = self.store.health(timeout).await;
            let here = self.store.check_here();
            let since = self.standing.note(here.is_ok()).wall();
            let answer = here.map(|()| Duration::ZERO);
            checkup.nodes.push(NodeHealth::new(
                self.store.store().name(),
                since,
                answer.map_err(|fault| fault.to_string()),
            ));
            checkup
        })
    }
}

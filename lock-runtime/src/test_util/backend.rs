//! A memory store that a test can tell what to answer. What it was told nothing about goes to the store as it is.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::script::{Script, Verdict, no_answer_within};
use crate::backend::kit::standing::Standing;
use crate::backend::memory::MemoryBackend;
use crate::backend::{
    AcquireRequest, Acquired, AcquiredAll, Backend, CounterRef, Counters, Directory, HandOff,
    HandedOver, HoldRef, Introduction, KnownClient, Listen, Released, Renewal, Renewed, Reply,
    Shared, Snapshot,
};
use crate::values::clock;
use crate::values::error::LockError;
use crate::values::health::{Checkup, NodeHealth};
use crate::values::holder::HolderId;
use crate::values::key::Key;
use crate::values::kind::Kind;
use crate::values::store::StoreKind;
use crate::values::ttl::Ttl;

#[derive(Debug)]
pub(super) struct ScriptedBackend {
    pub(super) store: MemoryBackend,
    pub(super) script: Script,
    standing: Standing,
}

impl ScriptedBackend {
    pub(super) fn new(store: MemoryBackend) -> ScriptedBackend {
        let standing = Standing::default();
        standing.note(true);
        ScriptedBackend {
            store,
            script: Script::default(),
            standing,
        }
    }

    /// Begins or ends an outage.
    pub(super) fn set_away(&self, away: bool) {
        self.script.set_away(away);
        self.standing.note(!away);
    }

    /// Asks the store unless it is away when the question is sent.
    fn unless_away<'a, T: Send + 'a>(&'a self, question: Reply<'a, T>) -> Reply<'a, T> {
        Box::pin(async move {
            self.script.check_here()?;
            question.await
        })
    }
}

impl Backend for ScriptedBackend {
    fn acquire<'a>(&'a self, request: AcquireRequest<'a>) -> Reply<'a, Acquired> {
        Box::pin(async move {
            match self.script.verdict(&[request]).await? {
                Verdict::Busy(left) => Ok(Acquired::Busy { left }),
                Verdict::Ask => self.store.acquire(request).await,
            }
        })
    }

    fn acquire_all<'a>(&'a self, requests: &'a [AcquireRequest<'a>]) -> Reply<'a, AcquiredAll> {
        Box::pin(async move {
            match self.script.verdict(requests).await? {
                Verdict::Busy(_) => Ok(AcquiredAll::Busy),
                Verdict::Ask => self.store.acquire_all(requests).await,
            }
        })
    }

    fn release<'a>(&'a self, hold_ref: HoldRef<'a>, timeout: Duration) -> Reply<'a, Released> {
        self.unless_away(self.store.release(hold_ref, timeout))
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        timeout: Duration,
        useful: Duration,
    ) -> Reply<'a, Vec<Renewed>> {
        Box::pin(async move {
            if self.script.is_away() {
                // A store that is gone does not say so: the watchdog has to find out by itself.
                clock::sleep(useful).await;
                return Err(no_answer_within(useful));
            }
            self.store.renew(batch, timeout, useful).await
        })
    }

    fn force_release<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, bool> {
        self.unless_away(self.store.force_release(key, timeout))
    }

    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, Option<Snapshot>> {
        self.unless_away(self.store.inspect(key, timeout))
    }

    fn lives_in_a_runtime(&self) -> bool {
        self.store.lives_in_a_runtime()
    }

    fn store(&self) -> StoreKind {
        self.store.store()
    }

    fn kinds(&self) -> &'static [Kind] {
        self.store.kinds()
    }

    fn check_key(&self, key: &Key) -> Result<(), LockError> {
        self.store.check_key(key)
    }

    fn hand_off(&self) -> Option<&dyn HandOff> {
        self.store.hand_off().map(|_| self as &dyn HandOff)
    }

    fn tells_keepers(&self) -> bool {
        self.store.tells_keepers()
    }

    fn shared(&self) -> Option<&dyn Shared> {
        self.store.shared().map(|_| self as &dyn Shared)
    }

    fn counters(&self) -> Option<&dyn Counters> {
        self.store.counters().map(|_| self as &dyn Counters)
    }

    fn directory(&self) -> Option<&dyn Directory> {
        self.store.directory().map(|_| self as &dyn Directory)
    }

    fn health(&self, timeout: Duration) -> Pin<Box<dyn Future<Output = Checkup> + Send + '_>> {
        Box::pin(async move {
            let mut checkup = self.store.health(timeout).await;
            let here = self.script.check_here();
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

    fn listen(&self, key: &Arc<Key>) -> Box<dyn Listen> {
        self.store.listen(key)
    }

    fn listen_alone(&self, key: &Arc<Key>, holder: HolderId) -> Box<dyn Listen> {
        self.store.listen_alone(key, holder)
    }

    fn renew_batch(&self) -> usize {
        self.store.renew_batch()
    }

    fn place(&self, key: &Key) -> usize {
        self.store.place(key)
    }

    fn is_divided(&self) -> bool {
        self.store.is_divided()
    }

    fn round_trip(&self, key: &Key) -> Duration {
        self.store.round_trip(key)
    }

    fn drained(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.store.drained()
    }

    fn close(&self) {
        self.store.close();
    }
}

impl HandOff for ScriptedBackend {
    fn hand_over<'a>(
        &'a self,
        from: HolderId,
        to: AcquireRequest<'a>,
        spare: u64,
    ) -> Reply<'a, HandedOver> {
        self.unless_away(self.store.hand_over(from, to, spare))
    }
}

impl Shared for ScriptedBackend {
    fn downgrade<'a>(
        &'a self,
        hold_ref: HoldRef<'a>,
        ttl: Ttl,
        timeout: Duration,
    ) -> Reply<'a, Released> {
        self.unless_away(self.store.downgrade(hold_ref, ttl, timeout))
    }
}

impl Directory for ScriptedBackend {
    fn introduce<'a>(
        &'a self,
        key: &'a Key,
        client: Introduction<'a>,
        ttl: Duration,
        timeout: Duration,
    ) -> Reply<'a, ()> {
        self.unless_away(self.store.introduce(key, client, ttl, timeout))
    }

    fn withdraw<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, ()> {
        self.unless_away(self.store.withdraw(key, timeout))
    }

    fn who<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, Option<KnownClient>> {
        self.unless_away(self.store.who(key, timeout))
    }
}

impl Counters for ScriptedBackend {
    fn set<'a>(
        &'a self,
        counter: CounterRef<'a>,
        value: u64,
        timeout: Duration,
    ) -> Reply<'a, bool> {
        self.unless_away(self.store.set(counter, value, timeout))
    }

    fn limit<'a>(&'a self, key: &'a Key, permits: u64, timeout: Duration) -> Reply<'a, ()> {
        self.unless_away(self.store.limit(key, permits, timeout))
    }

    fn read<'a>(&'a self, counter: CounterRef<'a>, timeout: Duration) -> Reply<'a, Option<i64>> {
        self.unless_away(self.store.read(counter, timeout))
    }

    fn add<'a>(&'a self, key: &'a Key, permits: i64, timeout: Duration) -> Reply<'a, ()> {
        self.unless_away(self.store.add(key, permits, timeout))
    }

    fn take<'a>(&'a self, key: &'a Key, permits: u32, timeout: Duration) -> Reply<'a, bool> {
        self.unless_away(self.store.take(key, permits, timeout))
    }

    fn count_down<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, u64> {
        self.unless_away(self.store.count_down(key, timeout))
    }

    fn delete<'a>(&'a self, counter: CounterRef<'a>, timeout: Duration) -> Reply<'a, bool> {
        self.unless_away(self.store.delete(counter, timeout))
    }

    fn listen_to(&self, counter: CounterRef<'_>) -> Box<dyn Listen> {
        self.store.listen_to(counter)
    }
}

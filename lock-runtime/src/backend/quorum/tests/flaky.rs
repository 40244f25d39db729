//! A memory store behind a switch: up, away, silent or slow.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::api::manager::LockManager;
use crate::backend::memory::{MemoryBackend, MemoryStore};
use crate::backend::{
    AcquireRequest, Acquired, AcquiredAll, Backend, Counters, EventSink, Fault, HandedOver,
    HoldRef, Listen, Released, Renewal, Renewed, Reply, SilentListener, Snapshot, StoreTraits,
    Within,
};
use crate::values::error::StoreError;
use crate::values::holder::HolderId;
use crate::values::key::Key;
use crate::values::options::Options;
use crate::values::store::StoreKind;
use crate::values::ttl::Ttl;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Mode {
    #[default]
    Up,
    /// Answers at once that it cannot.
    Away,
    /// Answers nothing, and does nothing.
    Silent,
    /// Up, but the way there and the way back take this time each.
    Slow(Duration),
    /// Up, but the way there and the way back take a random time each, up to this one.
    Jittery(Duration),
    /// Up, but it renews one hold after the other, and takes this time for each.
    Busy(Duration),
    /// Up, but another node is the nearest for each manager, and each step away takes this time.
    Crossed(Duration),
    /// Up, but others write the keys whose names begin with `hot`: their renewals are left out, or wait for this time.
    Hot(Duration),
    /// Up, but it takes no locks together.
    Apart,
    /// Up, but a hand-over is not answered, and is carried out after this time. Until then, its old holder is not released.
    Late(Duration),
    /// Up, but no acquire is answered. Each is undone after this time.
    Unanswered(Duration),
    /// Up, but who begins to listen hears nothing.
    Mute,
}

/// The call in which the store panics, once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bug {
    /// A renewal.
    InCall,
    /// A call of the watchdog between renewals.
    InLoop,
    /// The same, not once but until it is mended.
    Always,
}

#[derive(Debug, Default)]
pub(crate) struct Switch {
    mode: Mutex<Mode>,
    /// Held by the request that is being served, in [`Mode::Busy`].
    served: tokio::sync::Mutex<()>,
    born: Mutex<Option<Instant>>,
    /// The old holder of a hand-over that is late.
    late: Mutex<Option<HolderId>>,
    pub(crate) acquires: AtomicUsize,
    pub(crate) hand_overs: AtomicUsize,
    pub(crate) renewals: AtomicUsize,
    /// The number of renewals that waited for a key.
    pub(crate) waited: AtomicUsize,
    pub(crate) bug: Mutex<Option<Bug>>,
    /// The number of times that a bug has bitten.
    pub(crate) bites: AtomicUsize,
}

impl Switch {
    pub(crate) fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }

    fn mode(&self) -> Mode {
        *self.mode.lock().unwrap()
    }

    fn bite(&self, bug: Bug) {
        let bites = {
            let mut planted = self.bug.lock().unwrap();
            let stays = bug == Bug::InLoop && *planted == Some(Bug::Always);
            stays || planted.take_if(|planted| *planted == bug).is_some()
        };
        self.bites.fetch_add(usize::from(bites), Ordering::Relaxed);
        assert!(!bites, "a store of the test panics, as it should");
    }

    pub(crate) fn restarted(&self) {
        *self.born.lock().unwrap() = Some(Instant::now());
    }

    /// Returns the time since its restart. If there was none, it has been there forever.
    pub(crate) fn age(&self) -> Duration {
        let born = *self.born.lock().unwrap();
        born.map_or(Duration::MAX, |born| born.elapsed())
    }
}

/// A manager on a store behind a switch, and a manager that always reaches the store.
pub(crate) fn managers(options: Options) -> (LockManager, Arc<Switch>, LockManager, MemoryStore) {
    let (store, switch) = (MemoryStore::new(), Arc::new(Switch::default()));
    let locks = LockManager::build(options, |events| {
        Arc::new(Flaky::new(&store, &switch, events, 0))
    });
    let other = LockManager::builder().memory_store(&store).in_memory();
    (locks, switch, other.unwrap(), store)
}

pub(crate) struct Flaky {
    store: Arc<MemoryBackend>,
    switch: Arc<Switch>,
    steps: u32,
}

impl Flaky {
    /// Returns a store behind a switch. `steps` is the distance of the node from its manager.
    pub(crate) fn new(
        store: &MemoryStore,
        switch: &Arc<Switch>,
        events: EventSink,
        steps: usize,
    ) -> Flaky {
        Flaky {
            steps: u32::try_from(steps).unwrap(),
            store: Arc::new(MemoryBackend::new(store.clone(), events)),
            switch: switch.clone(),
        }
    }

    async fn way(&self, timeout: Duration) -> Result<(), Fault> {
        match self.switch.mode() {
            Mode::Up
            | Mode::Busy(_)
            | Mode::Hot(_)
            | Mode::Apart
            | Mode::Late(_)
            | Mode::Unanswered(_)
            | Mode::Mute => Ok(()),
            Mode::Away => Err(Fault::NotDone(StoreError::new("away"))),
            Mode::Silent => {
                tokio::time::sleep(timeout).await;
                Err(Fault::Unknown(StoreError::new("silent")))
            }
            Mode::Slow(way) => self.sleep(way, timeout).await,
            Mode::Crossed(step) => self.sleep(step * self.steps, timeout).await,
            Mode::Jittery(longest) => self.sleep(longest.mul_f64(fastrand::f64()), timeout).await,
        }
    }

    async fn sleep(&self, way: Duration, timeout: Duration) -> Result<(), Fault> {
        if way > timeout {
            tokio::time::sleep(timeout).await;
            return Err(Fault::Unknown(StoreError::new("slow")));
        }
        tokio::time::sleep(way).await;
        Ok(())
    }

    /// Renews what nobody else writes, and after a while what is waited for.
    async fn renew_some(
        &self,
        batch: &[Renewal],
        wait: Duration,
        within: Within,
    ) -> Result<Vec<Renewed>, Fault> {
        let is_hot = |item: &Renewal| item.key.name().starts_with("hot");
        let waits = batch.iter().any(|item| item.waits);
        if waits {
            self.switch.waited.fetch_add(1, Ordering::Relaxed);
            let alone = batch
                .iter()
                .all(|item| item.waits && item.key == batch[0].key);
            assert!(alone, "somebody else waits with it: {batch:?}");
            self.sleep(wait, within.useful).await?;
        }
        let mut answers = self.store.renew(batch, within).await?;
        for (item, answer) in batch.iter().zip(&mut answers) {
            if is_hot(item) && !waits {
                *answer = Renewed::LeftOut;
            }
        }
        Ok(answers)
    }

    fn passed<'a, T: Send + 'a>(&'a self, timeout: Duration, op: Reply<'a, T>) -> Reply<'a, T> {
        Box::pin(async move {
            self.way(timeout).await?;
            let answer = op.await?;
            self.way(timeout).await?;
            Ok(answer)
        })
    }
}

/// The contract of an acquire, which is undone when it is dropped or its outcome is unknown.
struct Undo<'a> {
    store: Arc<MemoryBackend>,
    hold_ref: HoldRef<'a>,
    armed: bool,
    after: Duration,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (store, key) = (self.store.clone(), self.hold_ref.key.clone());
        let (holder, permits) = (self.hold_ref.holder, self.hold_ref.permits);
        let after = self.after;
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let key = &key;
            let hold_ref = HoldRef {
                listed: false,
                key,
                holder,
                permits,
            };
            let _ = store.release(hold_ref, Duration::ZERO).await;
        });
    }
}

impl Backend for Flaky {
    fn store(&self) -> StoreKind {
        self.store.store()
    }

    fn acquire<'a>(&'a self, request: AcquireRequest<'a>) -> Reply<'a, Acquired> {
        self.switch.acquires.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let mut undo = Undo {
                store: self.store.clone(),
                hold_ref: request.hold_ref,
                armed: true,
                after: Duration::ZERO,
            };
            let mut answer = self
                .passed(request.timeout, self.store.acquire(request))
                .await;
            if let Mode::Unanswered(after) = self.switch.mode() {
                undo.after = after;
                answer = Err(Fault::unknown("unanswered"));
            }
            undo.armed = matches!(answer, Err(Fault::Unknown(_)));
            answer
        })
    }

    fn acquire_all<'a>(&'a self, requests: &'a [AcquireRequest<'a>]) -> Reply<'a, AcquiredAll> {
        if self.switch.mode() == Mode::Apart {
            return Box::pin(async { Ok(AcquiredAll::Apart) });
        }
        self.passed(requests[0].timeout, self.store.acquire_all(requests))
    }

    fn release<'a>(&'a self, hold_ref: HoldRef<'a>, timeout: Duration) -> Reply<'a, Released> {
        if *self.switch.late.lock().unwrap() == Some(hold_ref.holder) {
            return Box::pin(async { Err(Fault::not_done("its hand-over is late")) });
        }
        self.passed(timeout, self.store.release(hold_ref, timeout))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], within: Within) -> Reply<'a, Vec<Renewed>> {
        self.switch.renewals.fetch_add(1, Ordering::Relaxed);
        self.switch.bite(Bug::InCall);
        if let Mode::Hot(wait) = self.switch.mode() {
            return Box::pin(self.renew_some(batch, wait, within));
        }
        let renewed = self.store.renew(batch, within);
        let (Mode::Busy(each), Ok(holds)) = (self.switch.mode(), u32::try_from(batch.len())) else {
            return self.passed(within.useful, renewed);
        };
        Box::pin(async move {
            let _served = self.switch.served.lock().await;
            tokio::time::sleep(each * holds).await;
            renewed.await
        })
    }

    fn force_release<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, bool> {
        self.passed(timeout, self.store.force_release(key, timeout))
    }

    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, Option<Snapshot>> {
        self.passed(timeout, self.store.inspect(key, timeout))
    }

    fn traits(&self) -> StoreTraits {
        self.switch.bite(Bug::InLoop);
        self.store.traits()
    }

    fn hand_over<'a>(
        &'a self,
        from: HolderId,
        to: AcquireRequest<'a>,
        spare: u64,
    ) -> Reply<'a, HandedOver> {
        self.switch.hand_overs.fetch_add(1, Ordering::Relaxed);
        if let Mode::Late(after) = self.switch.mode() {
            *self.switch.late.lock().unwrap() = Some(from);
            let (store, switch) = (self.store.clone(), self.switch.clone());
            let (key, holder) = (to.hold_ref.key.clone(), to.hold_ref.holder);
            let (ttl, asked_at, timeout) = (to.ttl, to.asked_at, to.timeout);
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                let to = HoldRef::one(&key, holder);
                let to = AcquireRequest::of(to, ttl, asked_at, timeout);
                let _ = store.hand_over(from, to, spare).await;
                *switch.late.lock().unwrap() = None;
            });
            return Box::pin(async { Err(Fault::unknown("late")) });
        }
        self.passed(to.timeout, self.store.hand_over(from, to, spare))
    }

    fn downgrade<'a>(
        &'a self,
        hold_ref: HoldRef<'a>,
        ttl: Ttl,
        timeout: Duration,
    ) -> Reply<'a, Released> {
        self.store.downgrade(hold_ref, ttl, timeout)
    }

    fn counters(&self) -> Option<&dyn Counters> {
        self.store.counters()
    }

    fn listen(&self, key: &Arc<Key>) -> Box<dyn Listen> {
        match self.switch.mode() {
            Mode::Mute => Box::new(SilentListener),
            _ => self.store.listen(key),
        }
    }

    fn listen_alone(&self, key: &Arc<Key>, holder: HolderId) -> Box<dyn Listen> {
        self.store.listen_alone(key, holder)
    }

    fn drained(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.store.drained()
    }

    fn close(&self) {
        self.store.close();
    }
}

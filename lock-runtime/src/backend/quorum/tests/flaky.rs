//! A memory store behind a switch: up, away, silent or slow.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::backend::memory::{MemoryBackend, MemoryStore};
use crate::backend::{
    Acquired, AcquiredAll, Backend, Claim, Counters, EventSink, Fault, HandedOver, Listen,
    Released, Renewal, Renewed, Reply, Seen, Stake, Tally,
};
use crate::error::StoreError;
use crate::holder::HolderId;
use crate::key::Key;
use crate::term::Term;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Mode {
    #[default]
    Up,
    /// Answers at once that it cannot.
    Away,
    /// Answers nothing, and does nothing.
    Silent,
    /// Up, but the way there and the way back take so long each.
    Slow(Duration),
    /// As slow, but by chance, up to so long each.
    Jittery(Duration),
    /// Up, but every manager has another node nearest: so long for each step away.
    Crossed(Duration),
}

/// What it panics in, once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bug {
    /// A renewal.
    InCall,
    /// What the watchdog asks it between renewals.
    InLoop,
    /// The same, and not once but until it is mended.
    Always,
}

#[derive(Debug, Default)]
pub(crate) struct Switch {
    mode: Mutex<Mode>,
    born: Mutex<Option<Instant>>,
    pub(crate) acquires: AtomicUsize,
    pub(crate) renewals: AtomicUsize,
    pub(crate) bug: Mutex<Option<Bug>>,
    /// How often a bug has bitten.
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

    /// Unless it restarted, it has been there for ever.
    pub(crate) fn age(&self) -> Duration {
        let born = *self.born.lock().unwrap();
        born.map_or(Duration::MAX, |born| born.elapsed())
    }
}

#[derive(Debug)]
pub(crate) struct Flaky {
    store: Arc<MemoryBackend>,
    switch: Arc<Switch>,
    steps: u32,
}

impl Flaky {
    /// `steps`: how far the node is from its manager.
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
            Mode::Up => Ok(()),
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

    fn passed<'a, T: Send + 'a>(&'a self, timeout: Duration, op: Reply<'a, T>) -> Reply<'a, T> {
        Box::pin(async move {
            self.way(timeout).await?;
            let answer = op.await?;
            self.way(timeout).await?;
            Ok(answer)
        })
    }
}

/// The contract of an acquire: undone when it is dropped or unknown.
struct Undo<'a> {
    store: Arc<MemoryBackend>,
    stake: Stake<'a>,
    armed: bool,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (store, key) = (self.store.clone(), self.stake.key.clone());
        let (holder, permits) = (self.stake.holder, self.stake.permits);
        tokio::spawn(async move {
            let key = &key;
            let stake = Stake {
                key,
                holder,
                permits,
            };
            let _ = store.release(stake, Duration::ZERO).await;
        });
    }
}

impl Backend for Flaky {
    fn acquire<'a>(&'a self, claim: Claim<'a>) -> Reply<'a, Acquired> {
        self.switch.acquires.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let mut undo = Undo {
                store: self.store.clone(),
                stake: claim.stake,
                armed: true,
            };
            let answer = self.passed(claim.timeout, self.store.acquire(claim)).await;
            undo.armed = matches!(answer, Err(Fault::Unknown(_)));
            answer
        })
    }

    fn acquire_all<'a>(&'a self, claims: &'a [Claim<'a>]) -> Reply<'a, AcquiredAll> {
        self.passed(claims[0].timeout, self.store.acquire_all(claims))
    }

    fn release<'a>(&'a self, stake: Stake<'a>, timeout: Duration) -> Reply<'a, Released> {
        self.passed(timeout, self.store.release(stake, timeout))
    }

    fn hand_over<'a>(&'a self, from: HolderId, to: Claim<'a>) -> Reply<'a, HandedOver> {
        self.passed(to.timeout, self.store.hand_over(from, to))
    }

    fn downgrade<'a>(
        &'a self,
        stake: Stake<'a>,
        term: Term,
        timeout: Duration,
    ) -> Reply<'a, Released> {
        self.store.downgrade(stake, term, timeout)
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        timeout: Duration,
        useful: Duration,
    ) -> Reply<'a, Vec<Renewed>> {
        self.switch.renewals.fetch_add(1, Ordering::Relaxed);
        self.switch.bite(Bug::InCall);
        self.passed(useful, self.store.renew(batch, timeout, useful))
    }

    fn force_release<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, bool> {
        self.passed(timeout, self.store.force_release(key, timeout))
    }

    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, Option<Seen>> {
        self.passed(timeout, self.store.inspect(key, timeout))
    }

    fn listen(&self, key: &Arc<Key>) -> Box<dyn Listen> {
        self.store.listen(key)
    }

    fn listen_alone(&self, key: &Arc<Key>, holder: HolderId) -> Box<dyn Listen> {
        self.store.listen_alone(key, holder)
    }

    fn renew_batch(&self) -> usize {
        self.switch.bite(Bug::InLoop);
        self.store.renew_batch()
    }

    fn round_trip(&self, _: &Key) -> Duration {
        Duration::ZERO
    }

    fn drained(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.store.drained()
    }

    fn close(&self) {
        self.store.close();
    }
}

impl Counters for Flaky {
    fn set<'a>(&'a self, tally: Tally<'a>, value: u64, timeout: Duration) -> Reply<'a, bool> {
        self.store.set(tally, value, timeout)
    }

    fn limit<'a>(&'a self, key: &'a Key, permits: u64, timeout: Duration) -> Reply<'a, ()> {
        self.store.limit(key, permits, timeout)
    }

    fn read<'a>(&'a self, tally: Tally<'a>, timeout: Duration) -> Reply<'a, Option<i64>> {
        self.store.read(tally, timeout)
    }

    fn add<'a>(&'a self, key: &'a Key, permits: i64, timeout: Duration) -> Reply<'a, ()> {
        self.store.add(key, permits, timeout)
    }

    fn take<'a>(&'a self, key: &'a Key, permits: u32, timeout: Duration) -> Reply<'a, bool> {
        self.store.take(key, permits, timeout)
    }

    fn count_down<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, u64> {
        self.store.count_down(key, timeout)
    }

    fn delete<'a>(&'a self, tally: Tally<'a>, timeout: Duration) -> Reply<'a, bool> {
        self.store.delete(tally, timeout)
    }

    fn listen_to(&self, tally: Tally<'_>) -> Box<dyn Listen> {
        self.store.listen_to(tally)
    }
}

//! Tests of a kept lock that serves the callers of its process, and is renewed meanwhile. Time is paused.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{advance, timeout};

use crate::TryAcquire;
use crate::api::guard::LockGuard;
use crate::api::manager::LockManager;
use crate::api::request::LockRequest;
use crate::backend::Renewed;
use crate::backend::memory::MemoryStore;
use crate::backend::quorum::tests::flaky::{Mode, Switch, managers};
use crate::hold::Tenure;
use crate::queue::Entered;
use crate::values::clock;
use crate::values::error::{LockError, LostReason};
use crate::values::key::Key;
use crate::values::kind::Kind;
use crate::values::options::{HoldOptions, Options, Overrides};

mod given_back;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(3);
const KEEP: Duration = Duration::from_secs(10);

struct Scene {
    locks: LockManager,
    switch: Arc<Switch>,
    /// Always reaches the store.
    other: LockManager,
    store: MemoryStore,
}

impl Scene {
    fn new() -> Scene {
        let (locks, switch, other, store) = managers(Options::default());
        Scene {
            locks,
            switch,
            other,
            store,
        }
    }

    /// A lock that is kept: it was held, and its hold has ended.
    async fn kept() -> Scene {
        let scene = Scene::new();
        scene.keep().await;
        scene
    }

    async fn keep(&self) {
        let guard = self.keeper().acquire().await.unwrap();
        advance(10 * MS).await;
        guard.release().await.unwrap();
        advance(10 * MS).await;
        assert_eq!(self.store.held(), 1, "it is kept");
    }

    /// Returns the number of times that the store was asked for a lock.
    fn asked(&self) -> usize {
        self.switch.acquires.load(Ordering::Relaxed)
    }

    /// The tenure that is kept, while nothing renews it.
    fn idle(&self) -> Arc<Tenure> {
        self.switch.set(Mode::Away);
        let idle = self.locks.core().queues.idle_at(&key(self));
        idle.expect("it is kept")
    }

    fn keeper(&self) -> LockRequest {
        self.locks.mutex("k").lease(LEASE).keep_for(KEEP)
    }

    /// The lock again, while the store cannot be reached.
    async fn again(&self) -> LockGuard {
        self.switch.set(Mode::Away);
        let guard = self.keeper().try_acquire().await.unwrap().expect("kept");
        self.switch.set(Mode::Up);
        guard
    }

    async fn has_other(&self) -> Option<LockGuard> {
        match self.other.mutex("k").try_acquire().await.unwrap() {
            TryAcquire::Acquired(guard) => Some(guard),
            TryAcquire::Busy { .. } => None,
        }
    }

    async fn is_free(&self) {
        timeout(SECOND, async {
            while self.store.held() > 0 {
                tokio::time::sleep(MS).await;
            }
        })
        .await
        .expect("it is given back");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kept_lock_is_taken_without_the_store_with_a_larger_token() {
    let scene = Scene::kept().await;
    let mut last = None;
    for _ in 0..100 {
        scene.switch.set(Mode::Away);
        let guard = scene.keeper().acquire().await.unwrap();
        assert!(guard.is_held() && guard.fencing_token() > last);
        last = guard.fencing_token();
        assert!(last.is_some());
        advance(MS).await;
        guard.release().await.unwrap();
        scene.switch.set(Mode::Up);
        advance(MS).await;
    }
    let guard = scene.other.mutex("k").acquire().await.unwrap();
    assert!(guard.fencing_token() > last);
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_dropped_leaves_the_lock_kept_as_well() {
    let scene = Scene::kept().await;
    drop(scene.again().await);
    scene.again().await.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_kept_lock_is_renewed_and_given_back_when_its_time_is_over() {
    let scene = Scene::kept().await;
    for _ in 0..9 {
        tokio::time::sleep(SECOND).await;
        assert_eq!(scene.store.held(), 1);
    }
    tokio::time::sleep(SECOND).await;
    assert_eq!(scene.store.held(), 0);
    assert!(!scene.locks.core().queues.is_open(&key(&scene)));
    assert_eq!(scene.locks.core().watch.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_idle_again_is_given_back_after_keep_for() {
    let scene = Scene::kept().await;
    drop(scene.again().await);
    tokio::time::sleep(KEEP - SECOND).await;
    assert_eq!(scene.store.held(), 1, "it is kept");
    tokio::time::sleep(SECOND).await;
    scene.is_free().await;
}

fn key(scene: &Scene) -> Key {
    scene.locks.core().key(&"k".into(), Kind::Mutex).unwrap()
}

/// The options with which a keeper's hold begins.
fn options(keep_for: Duration) -> HoldOptions {
    let wanted = Overrides {
        lease: Some(LEASE),
        keep_for: Some(keep_for),
        ..Overrides::default()
    };
    let options = wanted.hold_options("k", &Options::default(), "test");
    options.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_kept_lock_serves_callers_until_too_little_lease_is_left() {
    for (late, serves) in [(Duration::ZERO, true), (MS, false)] {
        let scene = Scene::kept().await;
        let idle = scene.idle();
        let (options, now) = (options(KEEP), clock::now());
        let least = options.ttl.least_useful();
        let last = now + (idle.deadline() - now - least);
        let taken = idle.take(&options, last + late);
        assert_eq!(matches!(taken, Some(Entered::Held(..))), serves);
    }
}

#[tokio::test(start_paused = true)]
async fn a_kept_lock_serves_a_caller_in_its_time_and_is_idle_no_more() {
    const SHORT: Duration = Duration::from_millis(200);
    for (early, serves) in [(Duration::ZERO, false), (MS, true)] {
        let scene = Scene::new();
        let guard = scene.keeper().keep_for(SHORT).acquire().await.unwrap();
        advance(MS).await;
        guard.release().await.unwrap();
        let idle = scene.idle();
        let over = idle.end_if_live().unwrap();
        assert_eq!(over - clock::now(), SHORT, "it began just now");
        let taken = idle.take(&options(SHORT), clock::now() + (SHORT - early));
        assert_eq!(matches!(taken, Some(Entered::Held(..))), serves);
        let end = idle.end_if_live().map(|end| end.tick());
        let deadline = idle.deadline().tick();
        assert_eq!(end, serves.then_some(deadline), "a caller has the lock");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kept_lock_that_is_lost_serves_nobody() {
    let scene = Scene::kept().await;
    let idle = scene.idle();
    idle.lose(LostReason::Refused);
    let taken = idle.take(&options(KEEP), clock::now());
    assert!(taken.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_late_guard_that_ends_an_idle_time_gives_the_lock_back() {
    let scene = Scene::kept().await;
    let guard = scene.again().await;
    let late = guard.handles.held().holds()[0].clone();
    guard.release().await.unwrap();
    // Nobody wakes: the watchdog's timer stands still.
    clock::suspend(KEEP);
    let shared = late.share(options(KEEP), Kind::Mutex).unwrap();
    assert_eq!(shared, None, "its turn has ended");
    assert!(!scene.locks.core().queues.is_kept(&key(&scene)));
    scene.is_free().await;
}

#[tokio::test(start_paused = true)]
async fn a_fenced_lock_stays_kept_when_reserved_tokens_are_used_up() {
    let scene = Scene::new();
    let request = || scene.locks.fenced("f").lease(LEASE).keep_for(KEEP);
    let mut guard = request().acquire().await.unwrap();
    for _ in 0..350 {
        let last = guard.fencing_token();
        // The release asks for more tokens when there are none, so no caller has to.
        guard.release().await.unwrap();
        advance(MS).await;
        scene.switch.set(Mode::Away);
        guard = request().try_acquire().await.unwrap().expect("kept");
        scene.switch.set(Mode::Up);
        assert!(guard.fencing_token() > last);
    }
}

#[tokio::test(start_paused = true)]
async fn local_callers_wait_for_a_kept_lock_without_a_request() {
    let scene = Scene::kept().await;
    let guard = scene.again().await;
    let asked = scene.asked();
    let next = tokio::spawn(scene.keeper().acquire());
    tokio::time::sleep(SECOND).await;
    assert!(!next.is_finished());
    assert_eq!(scene.asked(), asked);
    guard.release().await.unwrap();
    next.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_idle_is_renewed_and_nothing_that_is_over() {
    let scene = Scene::kept().await;
    let idle = scene.idle();
    let renewal = idle.due_renewal(clock::now()).unwrap();
    assert_eq!(renewal.ttl, Some(options(KEEP).ttl));
    let end = idle.end_if_live().unwrap();
    assert!(idle.due_renewal(end).is_none());
    idle.lose(LostReason::Refused);
    assert!(idle.due_renewal(clock::now()).is_none());
}

#[tokio::test(start_paused = true)]
async fn only_a_confirmation_in_time_moves_the_end_of_a_kept_lock() {
    let scene = Scene::kept().await;
    let idle = scene.idle();
    let renewal = idle.due_renewal(clock::now()).unwrap();
    advance(LEASE / 2).await;
    let sent_at = clock::now();
    idle.answered(&renewal, Renewed::Held, sent_at);
    assert_eq!(idle.deadline() - sent_at, options(KEEP).ttl.trusted());
    advance(LEASE).await;
    idle.answered(&renewal, Renewed::Held, clock::now());
    assert!(idle.deadline().has_passed());
}

#[tokio::test(start_paused = true)]
async fn a_kept_lock_is_renewed_while_one_hold_follows_another() {
    let scene = Scene::kept().await;
    for _ in 0..4_000 {
        let guard = scene.keeper().acquire().await.unwrap();
        assert!(guard.is_held() && guard.remaining() > LEASE / 4);
        tokio::time::sleep(MS).await;
        guard.release().await.unwrap();
        tokio::time::sleep(MS).await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_its_time_a_lock_in_use_is_given_back_for_a_moment() {
    let scene = Scene::kept().await;
    for _ in 0..10 {
        assert_eq!(scene.store.held(), 1, "its time is not over");
        let guard = scene.keeper().acquire().await.unwrap();
        advance(SECOND).await;
        guard.release().await.unwrap();
    }
    let again = tokio::spawn(scene.keeper().acquire());
    tokio::time::sleep(8 * MS).await;
    // Nobody knows of somebody else who only looks now and then.
    assert_eq!(scene.store.held(), 0);
    let guard = timeout(8 * MS, again).await.expect("the moment is over");
    guard.unwrap().unwrap().release().await.unwrap();
    assert_eq!(scene.store.held(), 1, "it is kept again");
}

#[tokio::test(start_paused = true)]
async fn a_late_confirmation_counts_for_the_current_hold() {
    let scene = Scene::kept().await;
    // The way there and back takes longer than any hold.
    scene.switch.set(Mode::Slow(50 * MS));
    for _ in 0..1_000 {
        let guard = timeout(SECOND, scene.keeper().acquire())
            .await
            .unwrap()
            .unwrap();
        assert!(guard.remaining() > LEASE / 4, "{:?}", guard.remaining());
        tokio::time::sleep(4 * MS).await;
        drop(guard);
        tokio::time::sleep(4 * MS).await;
    }
}

//! Tests of who gets a kept lock, and of when it is given back. Time is paused.

use std::sync::atomic::Ordering;

use tokio::time::{advance, timeout};

use super::*;
use crate::TryAcquire;
use crate::api::guard::LockGuard;
use crate::api::manager::LockManager;
use crate::api::request::LockRequest;
use crate::backend::memory::MemoryStore;
use crate::backend::quorum::tests::flaky::{Mode, Switch, managers};
use crate::hold::handle::HoldHandle;
use crate::queue::Entered;
use crate::values::error::{LockError, LostReason};
use crate::values::kind::Kind;
use crate::values::options::{Options, Overrides};

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
        let guard = scene.keeper().acquire().await.unwrap();
        advance(10 * MS).await;
        guard.release().await.unwrap();
        advance(10 * MS).await;
        assert_eq!(scene.store.held(), 1, "it is kept");
        scene
    }

    /// Returns the number of times that the store was asked for a lock.
    fn asked(&self) -> usize {
        self.switch.acquires.load(Ordering::Relaxed)
    }

    /// Takes the kept lock out of the queue, while nothing renews it.
    fn taken(&self) -> (Head, Kept) {
        self.switch.set(Mode::Away);
        let key = Arc::new(key(self));
        match self.locks.core().queues.enter_at_once(&key) {
            Some(Entered::Kept(head, kept)) => (head, kept),
            _ => panic!("it is kept"),
        }
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
async fn a_kept_lock_is_had_again_without_the_store_and_with_a_larger_token() {
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
async fn a_lock_that_falls_idle_again_is_given_back_when_its_time_is_over() {
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
async fn a_kept_lock_serves_a_caller_until_too_little_of_its_lease_is_left() {
    let scene = Scene::kept().await;
    let (_head, mut kept) = scene.taken();
    let (options, now) = (options(KEEP), clock::now());
    let least = options.ttl.least_useful();
    let last = now + (kept.idle.deadline() - now - least);
    assert!(kept.grant(&options, last + MS).is_none());
    assert!(kept.grant(&options, last).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_kept_lock_serves_a_caller_until_its_time_is_over_and_is_then_awake() {
    const SHORT: Duration = Duration::from_millis(200);
    let scene = Scene::new();
    let guard = scene.keeper().keep_for(SHORT).acquire().await.unwrap();
    advance(MS).await;
    guard.release().await.unwrap();
    let (_head, mut kept) = scene.taken();
    let (options, idle) = (options(SHORT), kept.idle.clone());
    let over = idle.end_at();
    assert_eq!(over - clock::now(), SHORT, "it began just now");
    assert!(kept.grant(&options, over).is_none());
    assert_eq!(idle.end_at().tick(), over.tick(), "nobody has woken it");
    assert!(kept.grant(&options, clock::now() + (SHORT - MS)).is_some());
    let deadline = idle.deadline().tick();
    assert_eq!(idle.end_at().tick(), deadline, "a caller has the lock");
}

#[tokio::test(start_paused = true)]
async fn a_kept_lock_that_is_lost_serves_nobody() {
    let scene = Scene::kept().await;
    let (_head, mut kept) = scene.taken();
    kept.idle.lose(LostReason::Refused);
    assert!(kept.grant(&options(KEEP), clock::now()).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_fenced_lock_is_kept_on_with_further_tokens_when_those_set_aside_are_used_up() {
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
async fn callers_of_this_process_wait_for_the_hold_of_a_kept_lock_and_ask_nobody() {
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
async fn the_store_is_asked_to_renew_what_is_idle_or_on_its_way_and_nothing_that_is_over() {
    let scene = Scene::kept().await;
    let (head, kept) = scene.taken();
    let (core, now) = (scene.locks.core(), clock::now());
    let handle = HoldHandle::take_kept(core, head, kept, options(KEEP), now).unwrap();
    let left = handle.hold().clone();
    drop(handle);
    let (_head, kept) = scene.taken();
    let idle = &kept.idle;
    for hold in [idle, &left] {
        let renewal = hold.renewal_if_watched(clock::now()).unwrap();
        assert_eq!(renewal.ttl, Some(options(KEEP).ttl));
        assert!(hold.renewal_if_watched(hold.end_at()).is_none());
    }
    idle.lose(LostReason::Refused);
    assert!(idle.renewal_if_watched(clock::now()).is_none());
}

#[tokio::test(start_paused = true)]
async fn what_the_store_confirms_in_time_moves_the_end_and_what_comes_too_late_does_not() {
    let scene = Scene::kept().await;
    let (_head, kept) = scene.taken();
    let idle = &kept.idle;
    let renewal = idle.renewal_if_watched(clock::now()).unwrap();
    advance(LEASE / 2).await;
    let sent_at = clock::now();
    idle.is_confirmed(&renewal, sent_at);
    assert_eq!(idle.deadline() - sent_at, options(KEEP).ttl.trusted());
    advance(LEASE).await;
    idle.is_confirmed(&renewal, clock::now());
    assert!(idle.deadline().has_passed());
}

#[tokio::test(start_paused = true)]
async fn while_holds_follow_one_another_the_lock_is_renewed_whichever_of_them_has_it() {
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
async fn after_its_time_a_lock_in_use_is_given_back_and_left_alone_for_a_moment() {
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
async fn a_confirmation_counts_for_the_hold_that_has_the_lock_when_it_comes() {
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

#[tokio::test(start_paused = true)]
async fn somebody_else_who_only_tries_gets_a_lock_that_nobody_uses() {
    let scene = Scene::kept().await;
    let guard = scene.has_other().await.expect("it is given up");
    guard.release().await.unwrap();
    assert_eq!(scene.store.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_keeper_gives_up_the_lock_that_is_wanted_and_no_other() {
    let url = "memory://keepers-that-count-alike";
    let (one, two) = (
        LockManager::connect(url).await.unwrap(),
        LockManager::connect(url).await.unwrap(),
    );
    // Both managers give their holders the same numbers.
    for (locks, name) in [(&one, "a"), (&two, "b")] {
        let guard = locks.mutex(name).lease(LEASE).keep_for(KEEP);
        guard.acquire().await.unwrap().release().await.unwrap();
    }
    let other = LockManager::connect(url).await.unwrap();
    let wanted = other.mutex("a").try_acquire().await.unwrap();
    wanted.expect("it is given up").release().await.unwrap();
    advance(SECOND).await;
    assert!(other.inspect("b").await.unwrap().kept);
}

#[tokio::test(start_paused = true)]
async fn somebody_else_who_waits_without_a_time_gets_it_too() {
    let scene = Scene::kept().await;
    let request = scene.other.mutex("k").wait(Duration::ZERO);
    request.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_kept_lock_that_is_in_use_is_given_back_after_the_hold() {
    let scene = Scene::kept().await;
    let guard = scene.again().await;
    assert!(scene.has_other().await.is_none());
    assert!(guard.is_held());
    advance(MS).await;
    guard.release().await.unwrap();
    assert_eq!(scene.store.held(), 0, "it was asked for");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_somebody_waits_for_is_not_kept() {
    let scene = Scene::new();
    let guard = scene.keeper().acquire().await.unwrap();
    let waits = tokio::spawn(scene.other.mutex("k").acquire());
    tokio::time::sleep(MS).await;
    guard.release().await.unwrap();
    tokio::time::sleep(MS).await;
    let guard = timeout(Duration::ZERO, waits).await.unwrap();
    guard.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn requests_that_it_cannot_serve_go_through_the_store() {
    let scene = Scene::kept().await;
    let other = || scene.locks.mutex("k").lease(2 * LEASE);
    let fixed = || scene.locks.mutex("k").lease(LEASE).auto_renew(false);
    let (longer, fixed) = ((other(), 2 * LEASE), (fixed(), LEASE));
    for (request, lease) in [longer.clone(), fixed.clone(), longer, fixed] {
        // Some of the lease that the store knows is over.
        tokio::time::sleep(LEASE / 4).await;
        let guard = request.clone().try_acquire().await.unwrap();
        let guard = guard.expect("nobody uses it");
        assert!(guard.remaining() > lease * 9 / 10);
        guard.release().await.unwrap();
        assert_eq!(scene.store.held(), 0, "these keep nothing");
        scene
            .keeper()
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        advance(5 * MS).await;
        assert_eq!(scene.store.held(), 1);
        drop(request.wait(Duration::ZERO).acquire().await.unwrap());
        advance(5 * MS).await;
        scene.is_free().await;
        scene
            .keeper()
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        advance(5 * MS).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_want_to_keep_it_gives_it_back() {
    let scene = Scene::kept().await;
    scene.switch.set(Mode::Away);
    let plain = scene.locks.mutex("k").lease(LEASE);
    let guard = plain.acquire().await.unwrap();
    scene.switch.set(Mode::Up);
    guard.release().await.unwrap();
    assert_eq!(scene.store.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_kept_lock_that_is_released_by_force_is_kept_no_more() {
    let scene = Scene::kept().await;
    assert!(scene.other.force_release("k").await.unwrap());
    let theirs = scene.has_other().await.expect("free");
    assert!(matches!(
        scene.keeper().try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    assert!(theirs.is_held());
    theirs.release().await.unwrap();
    assert_eq!(scene.locks.core().watch.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_hold_of_a_kept_lock_that_is_released_by_force_is_told() {
    let scene = Scene::kept().await;
    let guard = scene.again().await;
    assert!(scene.other.force_release("k").await.unwrap());
    assert_eq!(guard.lost().wait().await, LostReason::ForceReleased);
    drop(guard);
    assert_eq!(scene.store.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_kept_lock_that_the_store_forgot_is_asked_for_again() {
    let scene = Scene::kept().await;
    scene.store.clear();
    // The next renewal finds out.
    tokio::time::sleep(LEASE / 2).await;
    assert_eq!(scene.locks.core().watch.count(), 0);
    let guard = scene.keeper().try_acquire().await.unwrap().expect("free");
    assert_eq!(scene.store.held(), 1);
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nobody_is_admitted_under_a_kept_lock_whose_lease_nobody_could_renew() {
    let scene = Scene::kept().await;
    scene.switch.set(Mode::Silent);
    tokio::time::sleep(LEASE).await;
    let asked = scene.keeper().wait(Duration::ZERO).acquire();
    let asked = timeout(SECOND, asked).await;
    assert!(!matches!(asked, Ok(Ok(_))), "{asked:?}");
    let theirs = scene.has_other().await.expect("its lease is over");
    assert!(theirs.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_hold_of_a_kept_lock_is_lost_when_its_lease_is_not_renewed() {
    let scene = Scene::kept().await;
    scene.switch.set(Mode::Silent);
    tokio::time::sleep(LEASE / 3).await;
    let guard = scene.keeper().acquire().await.unwrap();
    assert!(guard.remaining() < LEASE, "no time is granted");
    assert_eq!(guard.lost().wait().await, LostReason::Expired);
    // Its own end came before the store's, by the margin.
    assert!(scene.has_other().await.is_none());
    tokio::time::sleep(LEASE / 50).await;
    assert!(scene.has_other().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_gives_back_what_is_kept_and_nothing_is_kept_later() {
    let scene = Scene::kept().await;
    let held = scene.locks.mutex("held").keep_for(KEEP).acquire().await;
    let locks = scene.locks.clone();
    let shutdown = tokio::spawn(async move { locks.shutdown().await });
    tokio::time::sleep(MS).await;
    assert_eq!(scene.store.held(), 1, "the other one is in use");
    held.unwrap().release().await.unwrap();
    shutdown.await.unwrap();
    assert_eq!(scene.store.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_manager_gives_back_what_is_kept() {
    let Scene { locks, store, .. } = Scene::kept().await;
    drop(locks);
    tokio::task::yield_now().await;
    assert_eq!(store.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_comes_while_the_lock_is_left_to_nobody_gets_it() {
    let scene = Scene::new();
    let guard = scene.keeper().acquire().await.unwrap();
    scene.switch.set(Mode::Slow(5 * MS));
    let released = tokio::spawn(guard.release());
    tokio::time::sleep(6 * MS).await;
    let guard = scene.keeper().wait(SECOND).acquire().await.unwrap();
    assert!(guard.is_held());
    released.await.unwrap().unwrap();
    assert!(scene.has_other().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_set_of_locks_has_kept_ones_among_it() {
    let scene = Scene::kept().await;
    let set = || {
        let both = ["k", "l"].map(|name| scene.locks.mutex(name).lease(LEASE).keep_for(KEEP));
        scene.locks.multi(both)
    };
    let guard = set().acquire().await.unwrap();
    assert!(guard.is_held());
    advance(MS).await;
    guard.release().await.unwrap();
    advance(MS).await;
    assert_eq!(scene.store.held(), 2);
    scene.switch.set(Mode::Away);
    let guard = set().acquire().await.unwrap();
    scene.switch.set(Mode::Up);
    advance(MS).await;
    guard.release().await.unwrap();
    // Somebody else's set gets them as well.
    let theirs = scene
        .other
        .multi(["k", "l"].map(|name| scene.other.mutex(name)));
    let guard = theirs.clone().try_acquire().await.unwrap();
    guard.expect("given up").release().await.unwrap();
    assert_eq!(scene.store.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_hold_and_its_minimum_come_before_what_is_kept() {
    let scene = Scene::kept().await;
    let request = scene.keeper().max_hold(100 * MS);
    let guard = request.acquire().await.unwrap();
    assert_eq!(guard.lost().wait().await, LostReason::MaxHold);
    drop(guard);
    scene.is_free().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_is_no_hold_of_the_process_and_an_inspection_says_so() {
    let scene = Scene::kept().await;
    assert!(scene.locks.snapshot().holds.is_empty());
    let info = scene.other.inspect("k").await.unwrap();
    assert!(info.held && info.kept);
    let _guard = scene.other.mutex("l").acquire().await.unwrap();
    assert!(!scene.other.inspect("l").await.unwrap().kept);
}

#[tokio::test(start_paused = true)]
async fn it_is_refused_where_it_cannot_be_before_any_request() {
    let scene = Scene::new();
    scene.switch.set(Mode::Away);
    let locks = &scene.locks;
    for (request, why) in [
        (
            locks.mutex("k").keep_for(KEEP).auto_renew(false),
            "auto_renew",
        ),
        (locks.mutex("k").keep_for(MS), "50 ms to 24 h"),
        (locks.mutex("k").keep_for(Duration::MAX), "50 ms to 24 h"),
        (locks.fair("k").keep_for(KEEP), "fair locks"),
        (locks.read("k").keep_for(KEEP), "mutexes and fenced"),
    ] {
        let refused = request.acquire().await.unwrap_err();
        assert!(matches!(refused, LockError::InvalidConfig { .. }));
        assert!(refused.to_string().contains(why), "{refused}");
    }
}

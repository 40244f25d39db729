//! Tests of when a kept lock is given back: to others who ask, when it is lost, when it is shut down.

use super::*;

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
async fn a_kept_lock_goes_to_another_process_before_local_callers() {
    let scene = Scene::kept().await;
    let guard = scene.again().await;
    let local = tokio::spawn(scene.keeper().acquire());
    tokio::time::sleep(MS).await;
    let other = tokio::spawn(scene.other.mutex("k").acquire());
    tokio::time::sleep(MS).await;
    guard.release().await.unwrap();
    let guard = other.await.unwrap().unwrap();
    assert!(!local.is_finished());
    guard.release().await.unwrap();
    local.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn the_end_of_a_manager_during_a_renewal_blocks_no_thread() {
    for _ in 0..100 {
        let scene = Scene::new();
        let guard = scene.keeper().acquire().await.unwrap();
        guard.release().await.unwrap();
        let tenure = scene.idle();
        scene.switch.set(Mode::Up);
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            while tenure.due_renewal(clock::now()).is_some() {}
            done.send(())
        });
        drop(scene.locks);
        let done = is_done.recv_timeout(10 * SECOND);
        done.expect("the end of the manager ends the idle time");
    }
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
async fn a_try_that_is_handed_the_lock_has_it_renewed() {
    let scene = Scene::kept().await;
    let longer = scene.locks.mutex("k").lease(2 * LEASE).try_acquire();
    let guard = longer.await.unwrap().expect("nobody uses it");
    tokio::time::sleep(5 * LEASE).await;
    assert!(guard.is_held());
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
        scene.keep().await;
        drop(request.wait(Duration::ZERO).acquire().await.unwrap());
        advance(5 * MS).await;
        scene.is_free().await;
        scene.keep().await;
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
async fn a_kept_lock_that_could_not_be_renewed_serves_nobody() {
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
async fn a_kept_lock_is_no_hold_and_an_inspection_shows_it_kept() {
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

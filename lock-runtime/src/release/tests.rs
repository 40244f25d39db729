//! What a release does while the store is away, and whom it lets in. Time is paused.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::backend::memory::MemoryStore;
use crate::backend::quorum::tests::flaky::{Mode, managers};
use crate::backend::{Acquired, Event, Holders};
use crate::hold::HoldHandle;
use crate::hold::tests::core;
use crate::values::error::{LockError, LostReason};
use crate::values::options::{Options, Overrides};
use crate::values::{Kind, clock};
use crate::{LockManager, TryAcquire};

const SECOND: Duration = Duration::from_secs(1);
const LEAST: Duration = Duration::from_secs(100);

#[tokio::test(start_paused = true)]
async fn a_covered_key_is_freed_although_min_hold_ends_in_an_outage() {
    let (locks, switch, other, _store) = managers(Options::default());
    let since = Instant::now();
    let request = locks.mutex("k").lease(SECOND).min_hold(LEAST);
    let guard = request.acquire().await.unwrap();
    guard.release().await.unwrap();
    sleep(LEAST - SECOND / 2).await;
    switch.set(Mode::Away);
    sleep(SECOND).await;
    switch.set(Mode::Up);
    let guard = other.mutex("k").wait_forever().acquire().await.unwrap();
    let taken = since.elapsed();
    // The store's own lease is 2 % longer.
    assert!(
        taken >= LEAST && taken < LEAST + 3 * SECOND / 2,
        "{taken:?}"
    );
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_key_is_kept_once_the_store_is_back_within_the_lease() {
    let (locks, switch, other, _store) = managers(Options::default());
    let since = Instant::now();
    let request = locks.mutex("k").lease(SECOND).min_hold(LEAST);
    let guard = request.acquire().await.unwrap();
    switch.set(Mode::Away);
    let released = tokio::spawn(guard.release());
    sleep(SECOND * 9 / 10).await;
    switch.set(Mode::Up);
    released.await.unwrap().unwrap();
    let guard = other.mutex("k").wait_forever().acquire().await.unwrap();
    assert!(since.elapsed() >= LEAST, "{:?}", since.elapsed());
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_hold_is_released_after_an_outage_within_its_lease() {
    let (locks, switch, _other, store) = managers(Options::default());
    let request = locks.mutex("k").lease(SECOND).max_hold(2 * SECOND);
    let guard = request.acquire().await.unwrap();
    guard.renew(36 * LEAST).await.unwrap();
    switch.set(Mode::Away);
    assert_eq!(guard.lost().wait().await, LostReason::MaxHold);
    drop(guard);
    sleep(LEAST).await;
    switch.set(Mode::Up);
    sleep(2 * SECOND).await;
    assert_eq!(store.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_before_its_release_is_answered_is_no_loss() {
    let (locks, switch, _other, _store) = managers(Options::default());
    let guard = locks.mutex("k").lease(SECOND).acquire().await.unwrap();
    // The request arrives when the lease is over, and its answer comes within no other limit.
    switch.set(Mode::Slow(6 * SECOND / 5));
    let released = guard.release().await;
    let says = "the lease was over before the store answered the release";
    assert!(
        matches!(&released, Err(error @ LockError::Unavailable { .. }) if error.to_string().contains(says)),
        "{released:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_last_try_does_not_hide_the_earlier_error() {
    let (locks, switch, _other, _store) = managers(Options::default());
    let timeout = locks.core().options.call_timeout;
    for (first, says) in [(Mode::Away, "away"), (Mode::Silent, "silent")] {
        switch.set(Mode::Up);
        let guard = locks.mutex("k").wait_forever().acquire().await.unwrap();
        switch.set(first);
        let released = tokio::spawn(guard.release());
        sleep(timeout / 2).await;
        switch.set(Mode::Silent);
        let error = released.await.unwrap().unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_with_min_hold_fails_in_an_outage_of_a_whole_lease() {
    let (locks, switch, other, _store) = managers(Options::default());
    let request = locks.mutex("k").lease(SECOND).min_hold(LEAST);
    let guard = request.acquire().await.unwrap();
    switch.set(Mode::Away);
    let released = guard.release().await;
    let unavailable = matches!(released, Err(LockError::Unavailable { .. }));
    assert!(unavailable, "{released:?}");
    let guard = other.mutex("k").wait_forever().acquire().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_release_that_cannot_cover_its_key_in_time_is_an_error() {
    let (locks, switch, _other, _store) = managers(Options::default());
    for mode in [Mode::Away, Mode::Silent] {
        switch.set(Mode::Up);
        // A lease that is far longer than the call timeout.
        let request = locks.mutex("k").lease(60 * SECOND).min_hold(LEAST);
        let guard = request.wait_forever().acquire().await.unwrap();
        switch.set(mode);
        let error = guard.release().await.unwrap_err();
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().contains("min_hold"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_covered_key_freed_by_force_is_free_for_its_process_too() {
    let (locks, _switch, other, _store) = managers(Options::default());
    let request = locks.mutex("k").lease(SECOND).min_hold(LEAST);
    request.acquire().await.unwrap().release().await.unwrap();
    let busy = locks.mutex("k").try_acquire().await.unwrap();
    assert!(matches!(busy, TryAcquire::Busy { .. }));
    let since = Instant::now();
    let waiting = locks.mutex("k").wait(LEAST / 2).acquire();
    let forced = async {
        sleep(SECOND).await;
        other.force_release("k").await.unwrap()
    };
    let (waited, forced) = tokio::join!(waiting, forced);
    assert!(forced);
    waited.unwrap().release().await.unwrap();
    assert!(since.elapsed() < 3 * SECOND, "{:?}", since.elapsed());
    for locks in [&locks, &other] {
        let TryAcquire::Acquired(guard) = locks.mutex("k").try_acquire().await.unwrap() else {
            panic!("it is free");
        };
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_gone_is_not_said_to_be_kept_by_its_lease() {
    let (locks, _switch, _other, store) = managers(Options::default());
    let request = locks.mutex("k").lease(LEAST).min_hold(LEAST / 2);
    let guard = request.acquire().await.unwrap();
    store.clear();
    let released = guard.release().await;
    assert!(
        matches!(released, Err(LockError::Lost { .. })),
        "{released:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_gone_is_not_said_to_be_kept() {
    let (locks, _switch, other, store) = managers(Options::default());
    let request = locks.mutex("k").lease(SECOND).min_hold(LEAST);
    let guard = request.acquire().await.unwrap();
    store.clear();
    let since = Instant::now();
    let released = guard.release().await;
    let refused = matches!(
        released,
        Err(LockError::Lost {
            reason: LostReason::Refused,
            ..
        })
    );
    assert!(refused, "{released:?}");
    // Nothing is kept, so nobody waits for it, here or elsewhere.
    for locks in [&locks, &other] {
        let guard = locks.mutex("k").acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    assert!(since.elapsed() < SECOND, "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_hand_over_is_released_by_force_requests_again() {
    let (locks, switch, other, _store) = managers(Options::default());
    let guard = locks.mutex("k").acquire().await.unwrap();
    let request = locks.mutex("k").wait_forever();
    let waiter = tokio::spawn(async move { request.acquire().await });
    sleep(SECOND).await;
    switch.set(Mode::Slow(SECOND / 10));
    let released = tokio::spawn(guard.release());
    // The store has made the waiter the holder, and nobody here knows of it yet.
    sleep(SECOND * 3 / 20).await;
    assert!(other.force_release("k").await.unwrap());
    released.await.unwrap().unwrap();
    let guard = waiter.await.unwrap().unwrap();
    guard.release().await.unwrap();
}

/// A token needs a microsecond of the clock, which is paused.
fn without_tokens() -> Options {
    Options {
        fencing: false,
        ..Options::default()
    }
}

#[tokio::test(start_paused = true)]
async fn one_request_serves_many_turns_of_a_task_that_drops_guards() {
    let (locks, switch, other, _store) = managers(without_tokens());
    for _ in 0..10 {
        drop(locks.mutex("k").acquire().await.unwrap());
    }
    assert_eq!(switch.acquires.load(Ordering::Relaxed), 1);
    assert_eq!(switch.hand_overs.load(Ordering::Relaxed), 1);
    let guard = locks.mutex("k").acquire().await.unwrap();
    // The runtime comes to the release, and finds that the task has come back.
    sleep(SECOND / 1_000).await;
    assert!(guard.is_held());
    drop(guard);
    let since = Instant::now();
    let guard = other.mutex("k").acquire().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(since, Instant::now());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_lock_goes_to_another_process_that_waits() {
    let [locks, other] = processes();
    for turns in 1..4 {
        for _ in 1..turns {
            drop(locks.mutex("k").acquire().await.unwrap());
        }
        let guard = locks.mutex("k").acquire().await.unwrap();
        let waiter = tokio::spawn(other.mutex("k").wait_forever().acquire());
        sleep(SECOND / 1_000).await;
        drop(guard);
        let again = locks.mutex("k").wait_forever().acquire();
        tokio::select! {
            biased;
            theirs = waiter => drop(theirs.unwrap().unwrap()),
            _ours = again => panic!("after {turns} turns, the process keeps the lock to itself"),
        }
        sleep(SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_drops_its_guards_lets_clients_in_that_only_try() {
    let [locks, other] = processes();
    let until = Instant::now() + 20 * SECOND;
    let dropping = tokio::spawn(async move {
        while Instant::now() < until {
            let guard = locks.mutex("k").wait_forever().acquire().await.unwrap();
            sleep(SECOND / 10_000).await;
            drop(guard);
        }
    });
    let mut tries = 0;
    while Instant::now() < until {
        let tried = other.mutex("k").try_acquire().await.unwrap();
        tries += usize::from(matches!(tried, TryAcquire::Acquired(_)));
        drop(tried);
        sleep(SECOND / 4_000).await;
    }
    dropping.await.unwrap();
    assert!(tries >= 10, "{tries} of 80,000 tries in 20 s");
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_a_short_wait_finds_a_dropped_lock_busy() {
    let (locks, switch, _other, _store) = managers(without_tokens());
    for _ in 0..2 {
        drop(locks.mutex("k").acquire().await.unwrap());
    }
    switch.set(Mode::Slow(SECOND / 20));
    sleep(SECOND / 1_000).await;
    let impatient = locks.mutex("k").wait(SECOND / 100).acquire().await;
    assert!(
        matches!(impatient, Err(LockError::Busy { .. })),
        "{impatient:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_dropped_lock_that_is_released_by_force_is_asked_for_again() {
    let (locks, switch, other, _store) = managers(Options::default());
    for _ in 0..2 {
        drop(locks.mutex("k").acquire().await.unwrap());
    }
    assert!(other.force_release("k").await.unwrap());
    let guard = locks.mutex("k").acquire().await.unwrap();
    assert_eq!(switch.acquires.load(Ordering::Relaxed), 2);
    assert!(guard.is_held());
    let theirs = other.mutex("k").try_acquire().await.unwrap();
    assert!(matches!(theirs, TryAcquire::Busy { .. }));
}

/// Managers of one store, which are strangers to each other, as processes are.
fn processes<const N: usize>() -> [LockManager; N] {
    let store = MemoryStore::new();
    std::array::from_fn(|_| {
        let builder = LockManager::builder().memory_store(&store);
        builder.in_memory().unwrap()
    })
}

/// Returns how often each process had the lock in a minute, with this number of tasks in each.
async fn holds_in_a_minute<const N: usize>(kind: Kind, tasks: usize) -> [u32; N] {
    let until = Instant::now() + 60 * SECOND;
    let held = processes::<N>().map(|locks| {
        let all = (0..tasks).map(|_| {
            let request = match kind {
                Kind::Write => locks.write("k"),
                _ => locks.mutex("k"),
            };
            tokio::spawn(async move {
                let mut holds = 0;
                while Instant::now() < until {
                    let guard = request.clone().wait_forever().acquire().await.unwrap();
                    sleep(SECOND / 100).await;
                    guard.release().await.unwrap();
                    holds += 1;
                }
                holds
            })
        });
        all.collect::<Vec<_>>()
    });
    let mut holds = [0; N];
    for (tasks, holds) in held.into_iter().zip(&mut holds) {
        for task in tasks {
            *holds += task.await.unwrap();
        }
    }
    holds
}

#[tokio::test(start_paused = true)]
async fn processes_that_want_one_lock_have_it_alike() {
    for kind in [Kind::Mutex, Kind::Write] {
        for tasks in [1, 4] {
            let holds = holds_in_a_minute::<4>(kind, tasks).await;
            let fair = holds.iter().sum::<u32>() / 4;
            let is_alike = |holds: &u32| (fair * 3 / 4..=fair * 5 / 4).contains(holds);
            assert!(holds.iter().all(is_alike), "{kind:?}, {tasks}: {holds:?}");
            assert!(fair > 1_000, "the lock is not left unused: {holds:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_free_does_not_look_busy_during_a_rest() {
    for how in ["a try", "a set", "no wait", "a short wait"] {
        let [greedy, patient] = processes();
        let (core, request) = greedy.mutex("k").into_checked().unwrap();
        let guard = greedy.mutex("k").acquire().await.unwrap();
        let waiting = tokio::spawn(patient.mutex("k").wait(SECOND).acquire());
        sleep(SECOND / 2).await;
        let before = Instant::now();
        guard.release().await.unwrap();
        assert!(core.queues.is_open(&request.key), "the process rests");
        let guard = waiting.await.unwrap().unwrap();
        guard.release().await.unwrap();
        let again = greedy.mutex("k");
        let guard = match how {
            "a try" => again.try_acquire().await.unwrap().expect(how),
            "a set" => {
                let set = greedy.multi([again, greedy.mutex("other")]);
                set.try_acquire().await.unwrap().expect(how)
            }
            "no wait" => again.wait(Duration::ZERO).acquire().await.unwrap(),
            _ => again.wait(SECOND / 100_000).acquire().await.unwrap(),
        };
        guard.release().await.unwrap();
        assert_eq!(before, Instant::now(), "{how}: without a rest");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reservation_taken_after_a_forced_release_is_given_back() {
    let store = MemoryStore::new();
    let core = core(&store);
    core.start_here().unwrap();
    let key = Arc::new(core.key(&"k".into(), Kind::Mutex).unwrap());
    let options = Overrides::default().hold_options("k", &core.options, "test");
    let (holder, options) = (core.ids.fresh(), options.unwrap());
    // The store has freed the reservation before it grants the lock to the same holder.
    let forced = Event::ForceReleased(Holders::Id(holder));
    core.watch.hear(forced);
    let request = core.acquire_request(&key, holder, &options, clock::now());
    let Ok(Acquired::Granted(granted, _)) = core.backend.acquire(request).await else {
        panic!("it is free");
    };
    let handle = HoldHandle::admit(&core, &key, None, holder, options, granted, None);
    let told = handle.hold().known_loss();
    assert_eq!(told, Some(LostReason::ForceReleased));
    drop(handle);
    sleep(SECOND / 100).await;
    assert_eq!(store.held(), 0, "nobody has it");
}

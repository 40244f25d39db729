//! What a release does while the store is away. Time is paused.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::backend::quorum::tests::flaky::{Mode, managers};
use crate::values::error::{LockError, LostReason};
use crate::values::options::Options;

const SECOND: Duration = Duration::from_secs(1);
const LEAST: Duration = Duration::from_secs(100);

#[tokio::test(start_paused = true)]
async fn a_key_that_was_kept_is_given_back_although_the_store_is_away_when_the_time_is_over() {
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
async fn a_last_try_with_no_time_for_its_answer_does_not_hide_what_the_store_said_before() {
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
async fn a_key_is_not_said_to_be_kept_when_the_store_stays_away_for_the_whole_lease() {
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
async fn a_waiter_whose_lock_is_released_by_force_while_it_is_handed_over_asks_again() {
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

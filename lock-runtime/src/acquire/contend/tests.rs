//! Tests of what a caller is told whose time is over while the store is away. Time is paused.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::backend::Fault;
use crate::backend::quorum::tests::flaky::{Mode, managers};
use crate::values::StoreError;
use crate::values::options::Options;
use crate::{LockGuard, LockManager, TryAcquire};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// Takes the lock again that this manager keeps.
async fn held_by_its_keeper(locks: &LockManager) -> LockGuard {
    let keeper = || locks.mutex("k").keep_for(60 * SECOND).acquire();
    let guard = keeper().await.unwrap();
    // A token needs a microsecond of the clock.
    sleep(MS).await;
    guard.release().await.unwrap();
    sleep(MS).await;
    let guard = keeper().await.unwrap();
    assert!(locks.inspect("k").await.unwrap().kept);
    guard
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_last_request_does_not_hide_the_earlier_error() {
    for (first, says) in [(Mode::Away, "away"), (Mode::Silent, "silent")] {
        let (locks, switch, ..) = managers(Options::default());
        switch.set(first);
        let waiting = tokio::spawn(locks.mutex("k").wait(5 * SECOND).acquire());
        sleep(4 * SECOND).await;
        switch.set(Mode::Silent);
        let error = waiting.await.unwrap().unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn an_unsent_last_request_does_not_hide_an_earlier_refusal() {
    let refused = || Some(Fault::Refused(StoreError::new("missing rights: +hset")));
    let not_sent = || Fault::not_done("no time was left");
    let (unknown, away) = (Fault::unknown("silent"), Some(Fault::not_done("away")));
    for (last, before, said) in [
        (not_sent(), refused(), "missing rights: +hset"),
        (unknown, refused(), "missing rights: +hset"),
        (not_sent(), away, "no time was left"),
        (Fault::denied("wrong password"), refused(), "wrong password"),
    ] {
        assert_eq!(last.at_the_end(before).to_string(), said);
    }
}

/// Readers come all the time, and each stays for a shorter time than the writer sleeps.
#[tokio::test(start_paused = true)]
async fn without_messages_readers_do_not_keep_a_writer_out() {
    let (locks, switch, other, _store) = managers(Options::default());
    switch.set(Mode::Mute);
    let mut readers = tokio::task::JoinSet::new();
    for number in 0..6 {
        let other = other.clone();
        readers.spawn(async move {
            sleep(number * 20 * MS).await;
            loop {
                let guard = other.read("k").wait(60 * SECOND).acquire().await.unwrap();
                sleep(120 * MS).await;
                guard.release().await.unwrap();
            }
        });
    }
    // The short one gets it by its last question.
    for wait in [500 * MS, 60 * SECOND, 60 * SECOND] {
        sleep(SECOND).await;
        let began = Instant::now();
        let writer = locks.write("k").wait(wait).acquire().await.unwrap();
        assert!(began.elapsed() < 1_300 * MS, "{:?}", began.elapsed());
        writer.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_wait_ends_on_time_behind_a_kept_lock() {
    let (locks, _switch, other, _store) = managers(Options::default());
    let _held = held_by_its_keeper(&other).await;
    let began = Instant::now();
    let waits = locks.mutex("k").wait(MS);
    assert!(waits.acquire().await.is_err());
    assert!(began.elapsed() < 5 * MS, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_try_waits_for_a_second_answer_as_briefly_as_for_a_keeper() {
    let (locks, switch, other, _store) = managers(Options::default());
    let _held = held_by_its_keeper(&other).await;
    let began = Instant::now();
    switch.set(Mode::Slow(5 * MS));
    let tried = tokio::spawn(locks.mutex("k").try_acquire());
    sleep(7 * MS).await;
    switch.set(Mode::Silent);
    let tried = tried.await.unwrap().unwrap();
    assert!(matches!(tried, TryAcquire::Busy { .. }), "{tried:?}");
    assert!(began.elapsed() < 50 * MS, "{:?}", began.elapsed());
}

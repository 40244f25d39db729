//! Nodes that fail, and acquisitions that must leave nothing behind.

use crate::{HealthState, TryAcquire};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::Instant;

use super::flaky::Mode;
use super::{MS, Rig};
use crate::api::manager::LockManager;
use crate::values::error::LockError;

#[tokio::test(start_paused = true)]
async fn an_absent_or_silent_minority_delays_no_acquisition() {
    for mode in [Mode::Away, Mode::Silent, Mode::Slow(1_000 * MS)] {
        let rig = Rig::new(5);
        let locks = rig.manager();
        rig.switches[0].set(mode);
        rig.switches[4].set(mode);
        let since = Instant::now();
        let guard = locks.mutex("k").acquire().await.unwrap();
        guard.release().await.unwrap();
        assert!(since.elapsed() < 10 * MS, "{mode:?}: {:?}", since.elapsed());
        rig.switches[0].set(Mode::Up);
        rig.switches[4].set(Mode::Up);
        rig.becomes_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn acquisitions_do_not_wait_for_a_silent_node_again_and_again() {
    async fn rounds(locks: &LockManager) -> Duration {
        let since = Instant::now();
        for _ in 0..20 {
            let guard = locks.mutex("k").acquire().await.unwrap();
            guard.release().await.unwrap();
        }
        since.elapsed()
    }
    let rig = Rig::new(3);
    let locks = rig.manager();
    let slow = || rig.switches.iter().for_each(|s| s.set(Mode::Slow(5 * MS)));
    slow();
    let healthy = rounds(&locks).await;
    rig.switches[2].set(Mode::Silent);
    let noticed = rounds(&locks).await;
    let silent = rounds(&locks).await;
    assert!(noticed < healthy * 3 / 2, "{healthy:?}, then {noticed:?}");
    assert!(silent < healthy * 11 / 10, "{healthy:?}, then {silent:?}");
    slow();
    rounds(&locks).await;
    let guard = locks.mutex("k").acquire().await.unwrap();
    assert_eq!(rig.held(), [1, 1, 1], "it is waited for again");
    guard.release().await.unwrap();
    rig.becomes_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_vote_was_withdrawn_long_ago_is_waited_for_again() {
    let rig = Rig::new(3);
    let locks = rig.manager();
    rig.switches[2].set(Mode::Slow(5 * MS));
    // The release withdraws the slow node's vote.
    let guard = locks.mutex("k").acquire().await.unwrap();
    guard.release().await.unwrap();
    rig.becomes_clean().await;
    tokio::time::sleep(1_000 * MS).await;
    rig.switches[0].set(Mode::Slow(4 * MS));
    rig.switches[1].set(Mode::Slow(4 * MS));
    let since = Instant::now();
    let guard = locks.mutex("k").acquire().await.unwrap();
    assert!(since.elapsed() >= 10 * MS, "{:?}", since.elapsed());
    guard.release().await.unwrap();
    rig.becomes_clean().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_majority_there_is_no_answer_within_the_wait() {
    for mode in [Mode::Away, Mode::Silent] {
        let rig = Rig::new(3);
        let locks = rig.manager();
        rig.switches[0].set(mode);
        rig.switches[2].set(mode);
        let since = Instant::now();
        let refused = locks.mutex("k").wait(500 * MS).acquire().await;
        assert!(
            matches!(refused, Err(LockError::Unavailable { .. })),
            "{refused:?}"
        );
        let took = since.elapsed();
        assert!(took >= 500 * MS && took < 700 * MS, "{took:?}");
        rig.becomes_clean().await;
        let waiting = tokio::spawn(locks.mutex("k").acquire());
        tokio::time::sleep(1_000 * MS).await;
        rig.switches[0].set(Mode::Up);
        let guard = waiting.await.unwrap().unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_confirmation_of_a_node_before_its_undo_is_not_counted() {
    let rig = Rig::new(3);
    let locks = rig.manager();
    rig.switches[2].set(Mode::Unanswered(20_000 * MS));
    let lease = 30_000 * MS;
    let guard = locks.mutex("k").lease(lease).acquire().await.unwrap();
    assert_eq!(rig.held(), [1, 1, 1]);
    rig.switches[2].set(Mode::Up);
    rig.switches[1].set(Mode::Away);
    tokio::time::sleep(lease).await;
    // The second node's lease is over, and the third node has undone its vote: both are free for others.
    assert!(!guard.is_held());
    assert_eq!(rig.held(), [1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_vote_comes_late_counts_from_then_on() {
    let rig = Rig::new(3);
    let locks = rig.manager();
    rig.switches[2].set(Mode::Slow(200 * MS));
    let lease = 30_000 * MS;
    let guard = locks.mutex("k").lease(lease).acquire().await.unwrap();
    tokio::time::sleep(1_000 * MS).await;
    rig.switches[1].set(Mode::Away);
    tokio::time::sleep(2 * lease).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[test]
fn an_undriven_manager_fails_calls_of_other_runtimes_in_time() {
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let (rig, undriven) = (Rig::new(3), runtime());
    let (locks, guard) = undriven.block_on(async {
        let locks = rig.manager();
        let guard = locks.mutex("held").acquire().await.unwrap();
        (locks, guard)
    });
    let paused = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    paused.unwrap().block_on(async {
        let bounded = async {
            let wait = 500 * MS;
            let refused = locks.mutex("k").wait(wait).acquire().await.unwrap_err();
            assert!(refused.to_string().contains("is not driven"), "{refused}");
            locks.inspect("k").await.unwrap_err();
            locks.force_release("k").await.unwrap_err();
            assert_eq!(locks.health().await.state, HealthState::Down);
            guard.renew(10_000 * MS).await.unwrap_err();
            guard.release().await.unwrap_err();
        };
        let bounded = tokio::time::timeout(60_000 * MS, bounded).await;
        bounded.expect("each is answered in time");
    });
}

#[tokio::test(start_paused = true)]
async fn a_release_that_one_node_has_done_before_is_no_loss() {
    let rig = Rig::new(3);
    let locks = rig.manager();
    rig.switches[2].set(Mode::Away);
    let guard = locks.mutex("k").acquire().await.unwrap();
    rig.switches[1].set(Mode::Away);
    let released = tokio::spawn(guard.release());
    tokio::time::sleep(5 * MS).await;
    assert_eq!(rig.held(), [0, 1, 0]);
    // The next answers are those of two nodes where it is not held.
    rig.switches[2].set(Mode::Up);
    released.await.unwrap().unwrap();
    rig.switches[1].set(Mode::Up);
    rig.becomes_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_set_that_no_node_takes_together_is_taken_lock_by_lock() {
    let rig = Rig::new(3);
    let locks = rig.manager();
    rig.switches
        .iter()
        .for_each(|switch| switch.set(Mode::Apart));
    let set = || locks.multi(["a", "b"].map(|name| locks.mutex(name)));
    let guard = set().try_acquire().await.unwrap().expect("all are free");
    assert_eq!(rig.held(), [2, 2, 2]);
    guard.release().await.unwrap();
    set().acquire().await.unwrap().release().await.unwrap();
    rig.becomes_clean().await;
}

#[tokio::test(start_paused = true)]
async fn an_attempt_without_a_majority_leaves_no_vote_behind() {
    let rig = Rig::new(5);
    let (locks, other) = (rig.manager(), rig.manager());
    rig.switches[3].set(Mode::Away);
    rig.switches[4].set(Mode::Away);
    let guard = locks.mutex("k").acquire().await.unwrap();
    rig.switches[3].set(Mode::Up);
    rig.switches[4].set(Mode::Up);
    for _ in 0..20 {
        assert!(matches!(
            other.mutex("k").try_acquire().await.unwrap(),
            TryAcquire::Busy { .. }
        ));
        assert_eq!(rig.held(), [1, 1, 1, 0, 0]);
    }
    guard.release().await.unwrap();
    rig.becomes_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_behind_the_release_does_not_stay() {
    for way in [1, 5, 30, 90, 150] {
        let rig = Rig::new(3);
        let locks = rig.manager();
        for _ in 0..5 {
            rig.switches[1].set(Mode::Slow(way * MS));
            let guard = locks.mutex("k").acquire().await.unwrap();
            // The release overtakes the acquire.
            rig.switches[1].set(Mode::Up);
            guard.release().await.unwrap();
        }
        tokio::time::sleep(1_000 * MS).await;
        assert!(rig.is_clean(), "{way}: {:?}", rig.held());
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_node_is_counted_once_it_has_answered() {
    let rig = Rig::new(3);
    let locks = rig.manager();
    rig.switches[1].set(Mode::Slow(200 * MS));
    let guard = locks.mutex("k").acquire().await.unwrap();
    tokio::time::sleep(500 * MS).await;
    assert_eq!(rig.held(), [1, 1, 1], "so that another one may fail");
    guard.release().await.unwrap();
    rig.becomes_clean().await;
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_is_dropped_at_any_poll_leaves_nothing() {
    for polls in 1..40 {
        let rig = Rig::new(3);
        let locks = rig.manager();
        for (index, switch) in rig.switches.iter().enumerate() {
            switch.set(Mode::Slow(u32::try_from(index).unwrap() * MS));
        }
        {
            let mut acquire = pin!(locks.mutex("k").acquire());
            let mut polled = 0;
            let done = poll_fn(|cx| {
                polled += 1;
                if polled > polls {
                    return Poll::Ready(None);
                }
                // Time goes on, however seldom the future is woken.
                let waker = cx.waker().clone();
                tokio::spawn(async move {
                    tokio::time::sleep(MS / 2).await;
                    waker.wake();
                });
                acquire.as_mut().poll(cx).map(Some)
            });
            drop(done.await);
        }
        rig.becomes_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_is_sent_to_nodes_that_come_back() {
    let rig = Rig::new(3);
    let locks = rig.manager();
    let guard = locks.mutex("k").acquire().await.unwrap();
    rig.switches[1].set(Mode::Away);
    guard.release().await.unwrap();
    assert_eq!(rig.held(), [0, 1, 0]);
    tokio::time::sleep(3_000 * MS).await;
    rig.switches[1].set(Mode::Up);
    rig.becomes_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_release_without_a_majority_is_unconfirmed_and_goes_on() {
    let rig = Rig::new(3);
    let locks = rig.manager();
    let guard = locks.mutex("k").acquire().await.unwrap();
    rig.switches[0].set(Mode::Away);
    rig.switches[1].set(Mode::Away);
    let released = guard.release().await;
    assert!(
        matches!(released, Err(LockError::Unavailable { .. })),
        "{released:?}"
    );
    rig.switches[0].set(Mode::Up);
    rig.switches[1].set(Mode::Up);
    rig.becomes_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_what_is_given_back() {
    let rig = Rig::new(3);
    let locks = rig.manager();
    let guard = locks.mutex("k").acquire().await.unwrap();
    rig.switches[1].set(Mode::Away);
    guard.release().await.unwrap();
    let mut shutdown = pin!(locks.shutdown());
    let early = tokio::time::timeout(500 * MS, &mut shutdown).await;
    assert!(early.is_err(), "one node has the lock: {:?}", rig.held());
    rig.switches[1].set(Mode::Up);
    shutdown.await;
    assert!(rig.is_clean(), "{:?}", rig.held());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_the_node_that_is_behind() {
    let rig = Rig::new(3);
    let locks = rig.manager();
    let guard = locks.mutex("k").acquire().await.unwrap();
    rig.switches[1].set(Mode::Slow(200 * MS));
    guard.release().await.unwrap();
    assert_eq!(rig.held(), [0, 1, 0], "the majority has decided");
    locks.shutdown().await;
    assert!(rig.is_clean(), "{:?}", rig.held());
}

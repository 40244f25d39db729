//! What becomes of holds whose keys others write nearly without a pause. Time is paused.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::api::manager::LockManager;
use crate::backend::memory::MemoryStore;
use crate::backend::quorum::tests::flaky::{Flaky, Mode, Switch};
use crate::values::error::LostReason;
use crate::values::options::Options;

const SECOND: Duration = Duration::from_secs(1);

fn scene() -> (LockManager, Arc<Switch>) {
    let switch = Arc::new(Switch::default());
    let locks = LockManager::build(Options::default(), |events| {
        Arc::new(Flaky::new(&MemoryStore::new(), &switch, events, 0))
    });
    (locks, switch)
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_waits_keeps_a_hold_that_is_left_out() {
    for lease in [SECOND, 30 * SECOND] {
        let (locks, switch) = scene();
        let guard = locks.mutex("hot").lease(lease).acquire().await.unwrap();
        switch.set(Mode::Hot((lease / 5).min(SECOND)));
        for tenth in 0..200 {
            tokio::time::sleep(lease / 10).await;
            assert!(guard.is_held(), "lost after {tenth} tenths of {lease:?}");
        }
        // Twenty leases of about three renewals each, and no two of them at once.
        let waited = switch.waited.load(Ordering::Relaxed);
        assert!((20..=70).contains(&waited), "{waited} renewals waited");
    }
}

#[cfg(feature = "metrics")]
#[tokio::test(start_paused = true)]
async fn only_renewals_without_an_answer_count_as_unknown() {
    let sums = crate::observe::sums::Sums::default();
    let _recording = metrics::set_default_local_recorder(&sums);
    let (locks, switch) = scene();
    let guard = locks.mutex("hot").lease(SECOND).acquire().await.unwrap();
    switch.set(Mode::Hot(SECOND / 10));
    tokio::time::sleep(10 * SECOND).await;
    let renewals = |outcome| sums.of(&format!("lock_renewals_total memory {outcome}"));
    assert!(renewals("held") > 0 && renewals("left_out") > 0);
    assert_eq!(renewals("unknown"), 0);
    switch.set(Mode::Away);
    assert_eq!(guard.lost().wait().await, LostReason::Expired);
    assert!(renewals("unknown") > 0);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_waits_in_vain_keeps_no_other_one_waiting() {
    let (locks, switch) = scene();
    let hot = locks.mutex("hot").lease(SECOND).acquire().await.unwrap();
    let cold = locks.mutex("cold").lease(SECOND).acquire().await.unwrap();
    switch.set(Mode::Hot(60 * SECOND));
    for _ in 0..200 {
        tokio::time::sleep(SECOND / 100).await;
        assert!(cold.remaining() > SECOND / 2, "{:?}", cold.remaining());
    }
    assert_eq!(hot.lost().wait().await, LostReason::Expired);
}

#[tokio::test(start_paused = true)]
async fn holds_of_one_key_wait_for_it_together() {
    let (locks, switch) = scene();
    let mut guards = Vec::new();
    for _ in 0..20 {
        let request = locks
            .semaphore("hot")
            .in_all(20)
            .permits(1)
            .lease(3 * SECOND);
        guards.push(request.acquire().await.unwrap());
    }
    switch.set(Mode::Hot(SECOND / 10));
    for _ in 0..100 {
        tokio::time::sleep(SECOND / 10).await;
        assert!(guards.iter().all(|guard| guard.is_held()));
    }
    // Ten rounds of renewals. Without sharing, the holds would send two hundred.
    let waited = switch.waited.load(Ordering::Relaxed);
    assert!((5..=60).contains(&waited), "{waited} renewals waited");
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_was_left_out_once_does_not_wait() {
    let (locks, switch) = scene();
    let guard = locks
        .mutex("hot")
        .lease(30 * SECOND)
        .acquire()
        .await
        .unwrap();
    for _ in 0..10 {
        let asked = switch.renewals.load(Ordering::Relaxed);
        switch.set(Mode::Hot(SECOND));
        while switch.renewals.load(Ordering::Relaxed) == asked {
            tokio::time::sleep(SECOND / 100).await;
        }
        switch.set(Mode::Up);
        tokio::time::sleep(3 * SECOND).await;
        assert!(guard.remaining() > 26 * SECOND, "{:?}", guard.remaining());
    }
    assert_eq!(switch.waited.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_by_hand_that_is_left_out_waits_for_the_key() {
    let (locks, switch) = scene();
    let request = locks.mutex("hot").lease(30 * SECOND).auto_renew(false);
    let guard = request.acquire().await.unwrap();
    switch.set(Mode::Hot(SECOND));
    tokio::time::sleep(10 * SECOND).await;
    guard.renew(30 * SECOND).await.unwrap();
    assert!(guard.remaining() > 27 * SECOND, "{:?}", guard.remaining());
    // Others write it for longer than a call may take.
    switch.set(Mode::Hot(60 * SECOND));
    let refused = guard.renew(60 * SECOND).await.unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn few_renewals_wait_where_very_many_keys_are_locked() {
    const HOLDS: usize = 500;
    let (locks, switch) = scene();
    let mut guards = Vec::new();
    for i in 0..HOLDS {
        let request = locks.mutex(format!("hot{i}")).lease(5 * SECOND);
        guards.push(request.acquire().await.unwrap());
    }
    switch.set(Mode::Hot(SECOND));
    tokio::time::sleep(3 * SECOND).await;
    switch.set(Mode::Up);
    tokio::time::sleep(2 * SECOND).await;
    assert!(guards.iter().all(|guard| guard.is_held()));
    let waited = switch.waited.load(Ordering::Relaxed);
    assert!(waited < HOLDS / 5, "{waited} renewals waited");
}

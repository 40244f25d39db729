//! Tests of what a caller finds that comes a moment later than another one. Time is paused.

use std::time::Duration;

use super::*;
use crate::LockManager;
use crate::backend::quorum::tests::flaky::managers;
use crate::sync::taken;
use crate::values::options::Options;

const KEEP: Duration = Duration::from_secs(10);

/// The request of a caller who only tries, with that lease.
fn trying(locks: &LockManager, lease: Duration) -> Attempt {
    let request = locks.mutex("k").lease(lease).keep_for(KEEP);
    let (core, request) = request.wait(Duration::ZERO).into_checked().unwrap();
    Attempt::new(core, request)
}

#[tokio::test(start_paused = true)]
async fn a_try_has_what_a_quicker_caller_keeps_by_then() {
    let lease = Duration::from_secs(3);
    // The requests that the kept lock can serve, and those that it cannot.
    for lease_of_the_try in [lease, lease * 2] {
        let (locks, _switch, other, store) = managers(Options::default());
        let quicker = locks.mutex("k").lease(lease).keep_for(KEEP);
        quicker.acquire().await.unwrap().release().await.unwrap();
        assert_eq!(store.held(), 1, "it is kept");
        let attempt = trying(&locks, lease_of_the_try);
        let Ok(Asked::Granted(handle)) = try_acquire(&attempt).await else {
            panic!("nobody uses it");
        };
        drop(handle);
        // Given back after that hold, or given up.
        drop(other.mutex("k").acquire().await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn an_uncontended_cycle_takes_few_locks() {
    let (locks, ..) = managers(Options::default());
    let cycle = async || {
        let guard = locks.mutex("k").acquire().await.unwrap();
        guard.release().await.unwrap();
    };
    cycle().await;
    taken();
    cycle().await;
    let taken = taken();
    let of = |data: &str| {
        let all = taken.iter().filter(|(name, _)| name.ends_with(data));
        all.map(|(_, times)| times).sum::<usize>()
    };
    // The caller comes, has the lock, leaves, and is out of the way.
    assert_eq!(of("::Shard"), 4, "{taken:?}");
    // In at the grant, and out at the release.
    assert_eq!(of("::Schedule"), 2, "{taken:?}");
}

//! The majority decides who holds a lock, and for how long.

use crate::TryAcquire;
use std::time::Duration;

use tokio::time::Instant;

use super::flaky::Mode;
use super::{LONGEST, MS, Rig};
use crate::values::error::{LockError, LostReason};
use crate::values::kind::LockMode;

const LEASE: Duration = Duration::from_millis(3_000);
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_hold_is_at_every_node_and_excludes_others() {
    let rig = Rig::new(5);
    let (locks, other) = (rig.manager(), rig.manager());
    let guard = locks.mutex("k").acquire().await.unwrap();
    assert_eq!(rig.held(), [1; 5]);
    assert_eq!(guard.fencing_token(), None);
    assert!(matches!(
        other.mutex("k").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    guard.release().await.unwrap();
    rig.becomes_clean().await;
    drop(
        other
            .mutex("k")
            .try_acquire()
            .await
            .unwrap()
            .expect("it is free"),
    );
}

#[tokio::test(start_paused = true)]
async fn a_min_hold_is_kept_in_full_or_the_request_is_refused() {
    let rig = Rig::new(3);
    let (locks, other) = (rig.manager(), rig.manager());
    let most = LONGEST * 49 / 50;
    let held = locks.mutex("k").lease(LEASE).min_hold(most);
    held.run(async |_| ()).await.unwrap();
    tokio::time::sleep(most - SECOND).await;
    let tried = other.mutex("k").try_acquire().await.unwrap();
    assert!(matches!(tried, TryAcquire::Busy { .. }));
    // A renewal for the rest would be longer than the longest lease.
    let refused = locks.mutex("other").min_hold(LONGEST * 99 / 100);
    let refused = refused.acquire().await.unwrap_err();
    assert!(matches!(refused, LockError::InvalidConfig { .. }));
    assert!(refused.to_string().contains("`longest_lease`"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn what_a_copy_of_the_process_may_hold_is_not_given_back() {
    let rig = Rig::new(3);
    let (locks, other) = (rig.manager(), rig.manager());
    let guard = locks.mutex("k").lease(60 * SECOND).acquire().await.unwrap();
    locks.renew_identity();
    assert!(!guard.is_held());
    drop(guard);
    tokio::time::sleep(SECOND).await;
    assert_eq!(rig.held(), [1; 3]);
    let tried = other.mutex("k").try_acquire().await.unwrap();
    assert!(matches!(tried, TryAcquire::Busy { .. }));
    // What is acquired afterwards is given back as ever.
    let guard = locks.mutex("later").acquire().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(rig.held(), [1; 3]);
}

#[tokio::test(start_paused = true)]
async fn renewals_outlive_the_outage_of_a_minority() {
    for mode in [Mode::Away, Mode::Silent] {
        let rig = Rig::new(5);
        let locks = rig.manager();
        let guard = locks.mutex("k").lease(LEASE).acquire().await.unwrap();
        rig.switches[0].set(mode);
        rig.switches[3].set(mode);
        for _ in 0..200 {
            tokio::time::sleep(100 * MS).await;
            assert!(guard.is_held(), "{mode:?}");
        }
        assert_eq!(rig.held(), [0, 1, 1, 0, 1], "the others ran out");
        guard.release().await.unwrap();
        rig.becomes_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_outlives_a_silent_node_while_other_nodes_disagree() {
    for leases in [1, 3, 10] {
        let rig = Rig::new(3);
        let (locks, lease) = (rig.manager(), SECOND * leases);
        rig.switches[0].set(Mode::Away);
        let minor = locks.mutex("minor").lease(lease).acquire().await.unwrap();
        rig.switches[0].set(Mode::Up);
        let guard = locks.mutex("k").lease(lease).acquire().await.unwrap();
        rig.switches[2].set(Mode::Silent);
        assert_eq!(minor.lost().wait().await, LostReason::Expired);
        tokio::time::sleep(lease * 2).await;
        assert!(guard.is_held(), "{lease:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_does_not_create_what_a_node_has_lost() {
    let rig = Rig::new(3);
    let locks = rig.manager();
    let guard = locks.mutex("k").lease(LEASE).acquire().await.unwrap();
    rig.stores[1].clear();
    tokio::time::sleep(5 * LEASE).await;
    assert!(guard.is_held(), "one refusal of three is no loss");
    assert_eq!(rig.held(), [1, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_by_a_majority_is_a_loss() {
    let rig = Rig::new(3);
    let locks = rig.manager();
    let guard = locks.mutex("k").lease(LEASE).acquire().await.unwrap();
    rig.stores[0].clear();
    rig.stores[2].clear();
    let lost = tokio::time::timeout(LEASE / 2, guard.lost().wait()).await;
    assert_eq!(lost.expect("at the next renewal"), LostReason::Refused);
}

#[tokio::test(start_paused = true)]
async fn without_a_majority_a_hold_lasts_to_its_deadline() {
    let rig = Rig::new(3);
    let locks = rig.manager();
    let guard = locks.mutex("k").lease(LEASE).acquire().await.unwrap();
    let since = Instant::now();
    rig.stores[0].clear();
    rig.switches[1].set(Mode::Silent);
    assert_eq!(guard.lost().wait().await, LostReason::Expired);
    let lasted = since.elapsed();
    assert!(lasted > LEASE - 50 * MS && lasted <= LEASE, "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn the_lease_counts_from_before_the_first_node_was_asked() {
    let rig = Rig::new(3);
    let locks = rig.manager();
    for switch in &rig.switches {
        switch.set(Mode::Slow(120 * MS));
    }
    let request = locks.mutex("k").lease(LEASE).auto_renew(false);
    let guard = request.acquire().await.unwrap();
    let left = guard.remaining();
    assert!(left <= LEASE - 30 * MS - 240 * MS, "{left:?}");
    assert!(left > LEASE - 300 * MS, "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_restarted_empty_has_no_vote_for_the_longest_lease() {
    let rig = Rig::new(3);
    let (locks, other) = (rig.manager(), rig.manager());
    rig.switches[2].set(Mode::Away);
    let guard = locks.mutex("k").lease(LEASE).acquire().await.unwrap();
    assert_eq!(rig.held(), [1, 1, 0]);
    // With the vote that it has forgotten and the vote of the node that missed it, a second holder would have a
    // majority.
    rig.restarts_empty(1);
    rig.switches[2].set(Mode::Up);
    let refused = other.mutex("k").try_acquire().await.unwrap();
    assert!(matches!(refused, TryAcquire::Busy { .. }) && guard.is_held());
    let busy = other.mutex("k").wait(2 * LEASE).acquire().await;
    assert!(
        guard.remaining() == Duration::ZERO,
        "one node of three is left to it"
    );
    // The first holder's lease is over by now, and the other two nodes agree.
    busy.unwrap().release().await.unwrap();

    rig.switches[0].set(Mode::Away);
    let young = other.mutex("k").wait(100 * MS).acquire().await;
    assert!(
        matches!(&young, Err(LockError::Unavailable { source, .. })
        if source.to_string().contains("restarted")),
        "{young:?}"
    );
    tokio::time::sleep(LONGEST).await;
    drop(other.mutex("k").acquire().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_node_found_restarted_only_behind_its_grant_does_not_count() {
    let rig = Rig::new(3);
    let locks = rig.manager();
    rig.switches[0].set(Mode::Away);
    rig.switches[1].set(Mode::Slow(20 * MS));
    let asking = tokio::spawn(locks.mutex("k").wait(200 * MS).acquire());
    tokio::time::sleep(10 * MS).await;
    rig.restarts_empty(1);
    let refused = asking.await.unwrap();
    assert!(
        matches!(refused, Err(LockError::Unavailable { .. })),
        "{refused:?}"
    );
    rig.becomes_clean().await;
}

#[tokio::test(start_paused = true)]
async fn several_locks_are_taken_at_a_majority_or_nowhere() {
    let rig = Rig::new(3);
    let (locks, other) = (rig.manager(), rig.manager());
    let both = || [other.mutex("a"), other.mutex("b")];
    let guard = locks.mutex("b").acquire().await.unwrap();
    assert!(matches!(
        other.multi(both()).try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    guard.release().await.unwrap();
    rig.becomes_clean().await;
    let guard = other.multi(both()).acquire().await.unwrap();
    assert_eq!(rig.held(), [2; 3]);
    guard.release().await.unwrap();
    rig.becomes_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_majority_says_who_holds_and_takes_it_away() {
    let rig = Rig::new(3);
    let locks = rig.manager();
    let guard = locks.mutex("k").acquire().await.unwrap();
    rig.switches[0].set(Mode::Away);
    let info = locks.inspect("k").await.unwrap();
    assert!(info.held && info.mode == Some(LockMode::Exclusive) && info.ttl.is_some());
    rig.stores[1].clear();
    assert!(
        locks.inspect("k").await.unwrap().held,
        "who is silent may have it"
    );
    rig.switches[0].set(Mode::Up);
    rig.stores[0].clear();
    assert!(
        !locks.inspect("k").await.unwrap().held,
        "one of three is no holder"
    );
    drop(guard);
    rig.becomes_clean().await;

    let guard = locks.mutex("k").acquire().await.unwrap();
    rig.switches[2].set(Mode::Silent);
    assert!(locks.force_release("k").await.unwrap());
    assert_eq!(guard.lost().wait().await, LostReason::ForceReleased);
    assert!(!locks.force_release("k").await.unwrap());
    rig.switches[1].set(Mode::Away);
    for answer in [
        locks.force_release("k").await.map(drop),
        locks.inspect("k").await.map(drop),
    ] {
        assert!(
            matches!(answer, Err(LockError::Unavailable { .. })),
            "{answer:?}"
        );
    }
}

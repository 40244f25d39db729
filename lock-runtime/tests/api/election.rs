//! Leader election on a paused clock: pauses, losses, outages, shutdown; and who is told of a shutdown.

use std::cell::RefCell;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_runtime::{Lease, LockError, LockManager, LostReason, MemoryStore, test_util};
use tokio::time::{Instant, sleep, timeout};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// Long enough for every task that can go on to do so, and for no timer of the library.
async fn settle() {
    sleep(MS).await;
}

#[tokio::test(start_paused = true)]
async fn a_body_leads_again_after_each_loss_until_it_returns_a_value() {
    let (locks, control) = test_util::in_memory();
    let election = locks.elect("scheduler");
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let leading = tokio::spawn({
        let tokens = tokens.clone();
        async move {
            let body = async |lease: Lease| {
                let term = {
                    let mut tokens = tokens.lock().unwrap();
                    tokens.push(lease.fencing_token().unwrap());
                    tokens.len()
                };
                if term <= 3 {
                    pending().await
                }
                term
            };
            election.lead(body).await
        }
    });
    let reasons = [
        LostReason::ForceReleased,
        LostReason::Refused,
        LostReason::Expired,
    ];
    for (term, reason) in reasons.into_iter().enumerate() {
        while tokens.lock().unwrap().len() <= term {
            settle().await;
        }
        control.lose("scheduler", reason).await;
    }
    assert_eq!(leading.await.unwrap().unwrap(), 4);
    control.assert_free("scheduler").await;
    let tokens = tokens.lock().unwrap();
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later));
}

/// When each of so many terms began, if each is lost after `term`.
async fn beginnings(terms: usize, term: impl Fn(usize) -> Duration) -> Vec<Instant> {
    let (locks, control) = test_util::in_memory();
    let began = RefCell::new(Vec::new());
    let election = locks.elect("scheduler");
    let leading = election.lead(async |_| {
        let before = began.borrow().len();
        began.borrow_mut().push(Instant::now());
        if before + 1 < terms {
            sleep(term(before)).await;
            control.lose("scheduler", LostReason::Refused).await;
            pending().await
        }
    });
    leading.await.unwrap();
    began.into_inner()
}

#[tokio::test(start_paused = true)]
async fn the_pauses_after_short_terms_grow_up_to_ten_seconds() {
    let began = beginnings(12, |_| Duration::ZERO).await;
    for (n, terms) in began.windows(2).enumerate() {
        let pause = terms[1] - terms[0];
        let mean = (100 * MS * 2_u32.pow(n.try_into().unwrap())).min(10 * SECOND);
        assert!(pause >= mean / 2, "pause {n}: {pause:?}");
        assert!(pause <= mean * 3 / 2 + 10 * MS, "pause {n}: {pause:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_pause_after_a_long_term_is_short_again() {
    let long = 11 * SECOND;
    let term = |n| if n == 8 { long } else { Duration::ZERO };
    let began = beginnings(10, term).await;
    let pause = began[9] - began[8] - long;
    assert!(pause <= 160 * MS, "{pause:?}");
}

#[tokio::test(start_paused = true)]
async fn a_campaign_waits_through_an_outage_for_as_long_as_it_lasts() {
    let (locks, control) = test_util::in_memory();
    control.go_away();
    let campaign = tokio::spawn(locks.elect("scheduler").campaign());
    sleep(HOUR).await;
    assert!(!campaign.is_finished());
    control.come_back();
    let leader = timeout(2 * SECOND, campaign).await.unwrap();
    assert!(leader.unwrap().unwrap().is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_campaign_comes_back_when_too_many_wait() {
    // The manager's wait is not that of a campaign.
    let builder = LockManager::builder().max_waiters_per_key(1).wait(MS);
    let locks = builder.in_memory().unwrap();
    let election = locks.elect("scheduler");
    let first = election.campaign().await.unwrap();
    let second = tokio::spawn(election.campaign());
    settle().await;
    let refused = locks.mutex("scheduler").acquire().await;
    assert!(matches!(refused, Err(LockError::TooManyWaiters { .. })));
    let third = tokio::spawn(election.campaign());
    sleep(HOUR).await;
    assert!(!second.is_finished() && !third.is_finished());
    let resigned = Instant::now();
    first.resign().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert!(resigned.elapsed() < 10 * MS, "{:?}", resigned.elapsed());
    second.resign().await.unwrap();
    // Its longest pause, with the most that chance makes of it.
    let third = timeout(15 * SECOND, third).await.unwrap();
    third.unwrap().unwrap().resign().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_a_retry_cannot_help_ends_a_campaign_at_once() {
    let locks = LockManager::in_memory();
    let election = locks.elect("");
    let refused = election.campaign().await;
    assert!(matches!(refused, Err(LockError::InvalidName { .. })));
    let refused = election.lead(async |_| ()).await;
    assert!(matches!(refused, Err(LockError::InvalidName { .. })));
    let refused = locks.elect("a").lease(999 * MS).campaign().await;
    assert!(matches!(refused, Err(LockError::InvalidLease { .. })));
    locks.shutdown().await;
    let refused = locks.elect("a").campaign().await;
    assert!(matches!(refused, Err(LockError::ShuttingDown { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_campaign_inside_of_a_leaders_body_shares_its_leadership() {
    let locks = LockManager::in_memory();
    let election = locks.elect("scheduler");
    let body = async |lease: Lease| {
        let inner = election.campaign().await?;
        assert_eq!(inner.fencing_token(), lease.fencing_token());
        inner.resign().await?;
        Ok::<_, LockError>(lease.is_held())
    };
    assert!(election.lead(body).await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_campaign_under_a_leader_that_was_lost_is_told_so() {
    let (locks, control) = test_util::in_memory();
    let election = locks.elect("scheduler");
    let leader = election.campaign().await.unwrap();
    control.lose("scheduler", LostReason::Refused).await;
    let inner = leader.lease().scope(async { election.campaign().await });
    let refused = inner.await;
    assert!(
        matches!(refused, Err(LockError::Lost { .. })),
        "{refused:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_takes_no_time_if_the_body_ends_on_closing() {
    let locks = LockManager::in_memory();
    let election = locks.elect("scheduler");
    let leading = tokio::spawn(async move {
        let body = async |lease: Lease| {
            lease.closing().await;
            lease.is_held()
        };
        election.lead(body).await
    });
    settle().await;
    let began = Instant::now();
    locks.shutdown().await;
    assert!(began.elapsed() < 100 * MS, "{:?}", began.elapsed());
    assert!(leading.await.unwrap().unwrap(), "it led to its end");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_ignores_a_shutdown_is_dropped_after_the_grace() {
    let store = MemoryStore::new();
    let manager = || LockManager::builder().memory_store(&store).in_memory();
    let (locks, other) = (manager().unwrap(), manager().unwrap());
    let election = locks.elect("scheduler");
    let leading = tokio::spawn(async move { election.lead(async |_| pending::<()>().await).await });
    settle().await;
    let began = Instant::now();
    locks.shutdown().await;
    let took = began.elapsed();
    assert!(took >= 10 * SECOND && took < 11 * SECOND, "{took:?}");
    let ended = leading.await.unwrap();
    assert!(
        matches!(ended, Err(LockError::ShuttingDown { .. })),
        "{ended:?}"
    );
    let next = timeout(SECOND, other.elect("scheduler").campaign()).await;
    assert!(next.unwrap().unwrap().is_leader(), "it was given back");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_sends_waiting_and_pausing_candidates_away() {
    let (locks, control) = test_util::in_memory();
    let election = locks.elect("scheduler");
    // Its first term ends at once: it pauses.
    let pausing = tokio::spawn({
        let (election, control) = (election.clone(), control.clone());
        async move {
            let body = async |_| {
                control.lose("scheduler", LostReason::Refused).await;
                pending::<()>().await
            };
            election.lead(body).await
        }
    });
    settle().await;
    control.assert_free("scheduler").await;
    let other = election.campaign().await.unwrap();
    let waiting = tokio::spawn(election.campaign());
    settle().await;
    let began = Instant::now();
    let owner = async move {
        other.closing().await;
        other.resign().await
    };
    let ((), resigned) = tokio::join!(locks.shutdown(), owner);
    resigned.unwrap();
    let pausing = pausing.await.unwrap();
    assert!(matches!(pausing, Err(LockError::ShuttingDown { .. })));
    let waiting = waiting.await.unwrap();
    assert!(matches!(waiting, Err(LockError::ShuttingDown { .. })));
    assert!(began.elapsed() < 10 * MS, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn closing_resolves_at_a_shutdown_not_at_a_loss_or_a_release() {
    let (locks, control) = test_util::in_memory();
    let lost = locks.mutex("lost").acquire().await.unwrap();
    let released = locks.mutex("released").acquire().await.unwrap();
    let held = locks.mutex("held").acquire().await.unwrap();
    let mut closing = [
        tokio::spawn(lost.closing()),
        tokio::spawn(released.lease().closing()),
        tokio::spawn(held.closing()),
    ];
    control.lose("lost", LostReason::Refused).await;
    released.release().await.unwrap();
    sleep(HOUR).await;
    assert!(closing.iter().all(|closing| !closing.is_finished()));

    let lease = held.lease();
    let owner = async move {
        held.closing().await;
        held.release().await
    };
    let ((), released) = tokio::join!(locks.shutdown(), owner);
    released.unwrap();
    for closing in &mut closing {
        timeout(SECOND, closing).await.unwrap().unwrap();
    }
    // Also for those who ask afterwards.
    timeout(SECOND, lease.closing()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn several_locks_as_one_close_with_the_first_of_their_managers() {
    for first in [0, 1] {
        let managers = [LockManager::in_memory(), LockManager::in_memory()];
        let [a, b] = &managers;
        let set = a.multi([a.mutex("a"), b.mutex("b")]);
        let guard = set.acquire().await.unwrap();
        let closing = tokio::spawn(guard.closing());
        settle().await;
        assert!(!closing.is_finished());
        let owner = async move {
            timeout(SECOND, closing).await.unwrap().unwrap();
            assert!(guard.is_held());
            guard.release().await
        };
        let ((), released) = tokio::join!(managers[first].shutdown(), owner);
        released.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_tells_of_an_outage_and_goes_on_after_it() {
    let (locks, control) = test_util::in_memory();
    let election = locks.elect("scheduler");
    let leader = election.campaign().await.unwrap();
    let mut observer = election.observe();
    let seen = observer.changed().await.unwrap();
    assert_eq!(seen.as_ref().unwrap().manager_id(), locks.id());
    control.go_away();
    for _ in 0..5 {
        let told = observer.changed().await;
        assert!(matches!(told, Err(LockError::Unavailable { .. })));
    }
    control.come_back();
    assert_eq!(observer.changed().await.unwrap(), seen, "it leads still");
    let unchanged = timeout(HOUR / 2, observer.changed()).await;
    assert!(unchanged.is_err(), "{unchanged:?}");
    leader.resign().await.unwrap();
    assert_eq!(observer.changed().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_fails_pauses_before_it_asks_again() {
    let (locks, control) = test_util::in_memory();
    let mut observer = locks.elect("scheduler").observe();
    control.go_away();
    let began = Instant::now();
    for _ in 0..20 {
        observer.changed().await.unwrap_err();
    }
    assert!(began.elapsed() > 5 * SECOND, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_observer_reports_a_shutdown_at_once_and_then_with_pauses() {
    let store = MemoryStore::new();
    let manager = || LockManager::builder().memory_store(&store).in_memory();
    let (locks, other) = (manager().unwrap(), manager().unwrap());
    let leader = other.elect("scheduler").campaign().await.unwrap();
    let mut observer = locks.elect("scheduler").observe();
    observer.changed().await.unwrap();
    let told = tokio::spawn(async move {
        let told = observer.changed().await;
        (told, Instant::now(), observer)
    });
    // Not at one of its looks.
    sleep(HOUR + 100 * MS).await;
    let began = Instant::now();
    locks.shutdown().await;
    let (told, at, mut observer) = told.await.unwrap();
    assert!(matches!(told, Err(LockError::ShuttingDown { .. })));
    assert!(at - began < 10 * MS, "{:?}", at - began);
    for _ in 0..20 {
        let told = observer.changed().await;
        assert!(matches!(told, Err(LockError::ShuttingDown { .. })));
    }
    assert!(at.elapsed() > 5 * SECOND, "{:?}", at.elapsed());
    assert!(leader.is_leader());
}

#[tokio::test(start_paused = true)]
async fn an_observer_sees_a_leader_soon_who_follows_another_at_once() {
    let store = MemoryStore::new();
    let manager = || LockManager::builder().memory_store(&store).in_memory();
    let (locks, other, third) = (manager().unwrap(), manager().unwrap(), manager().unwrap());
    let mut observer = third.elect("scheduler").observe();
    for _ in 0..20 {
        let leader = locks.elect("scheduler").campaign().await.unwrap();
        while observer.changed().await.unwrap().is_none() {}
        leader.resign().await.unwrap();
        assert_eq!(observer.changed().await.unwrap(), None);
        // Nobody tells of this.
        let next = other.elect("scheduler").campaign().await.unwrap();
        let elected = Instant::now();
        let seen = observer.changed().await.unwrap();
        assert_eq!(seen.unwrap().manager_id(), other.id());
        assert!(elected.elapsed() < 100 * MS, "{:?}", elected.elapsed());
        next.resign().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_soon_sees_a_leader_expire_and_the_next_one_lead() {
    let store = MemoryStore::new();
    let locks = LockManager::builder().memory_store(&store).in_memory();
    let election = locks.unwrap().elect("scheduler");
    let (crashing, control) = test_util::of(LockManager::builder().memory_store(&store)).unwrap();
    let mut observer = election.observe();
    assert_eq!(observer.changed().await.unwrap(), None);
    // Its looks are a second apart by then.
    let unchanged = timeout(HOUR / 60, observer.changed()).await;
    assert!(unchanged.is_err(), "{unchanged:?}");
    let leader = crashing.elect("scheduler").campaign().await.unwrap();
    assert!(observer.changed().await.unwrap().is_some());
    control.go_away();
    let began = Instant::now();
    assert_eq!(observer.changed().await.unwrap(), None);
    let took = began.elapsed();
    assert!(took > 28 * SECOND && took < 31 * SECOND, "{took:?}");
    assert!(!leader.is_leader(), "it knew before");
    let next = election.campaign().await.unwrap();
    let elected = Instant::now();
    assert!(observer.changed().await.unwrap().is_some());
    assert!(elected.elapsed() < 100 * MS, "{:?}", elected.elapsed());
    next.resign().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_observer_whose_futures_are_dropped_misses_no_change() {
    let locks = LockManager::in_memory();
    let election = locks.elect("scheduler");
    let mut observer = election.observe();
    assert_eq!(observer.changed().await.unwrap(), None);
    for round in 0..50_u32 {
        let leader = election.campaign().await.unwrap();
        let mut seen = None;
        for turn in 0_u32.. {
            assert!(turn < 5_000, "round {round}: nobody is seen to lead");
            // As a `select!` in a loop does.
            if let Ok(told) = timeout(MS * (turn % 7), observer.changed()).await {
                seen = told.unwrap();
                break;
            }
        }
        assert!(seen.is_some(), "round {round}");
        leader.resign().await.unwrap();
        let told = timeout(100 * MS, observer.changed()).await;
        assert_eq!(told.unwrap().unwrap(), None, "a message tells");
    }
}

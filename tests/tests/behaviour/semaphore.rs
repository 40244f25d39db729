//! Tests of leased permits: there are never more than were set, a request gets all or none, the first to come is served
//! first, and permits are back when their holder is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lock_runtime::{
    LockError, LockGuard, LockManager, LockMode, LostReason, Semaphore, TryAcquire,
};
use tests::stops::{in_one_of_a_few_rounds, shut_down};
use tests::{Store, answered, eventually, left_of};
use tokio::time::{Instant, sleep};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

async fn semaphore(locks: &LockManager, permits: u64) -> Semaphore {
    let semaphore = locks.semaphore("s");
    semaphore.try_set_permits(permits).await.unwrap();
    semaphore
}

async fn waiting(locks: &LockManager, callers: usize) {
    eventually("they wait", async || {
        locks.inspect("s").await.unwrap().local_waiters == callers
    })
    .await;
}

fn is_not_set<T: std::fmt::Debug>(answer: Result<T, LockError>) -> bool {
    match answer {
        Err(LockError::NotSet { name, .. }) => name == "s",
        other => panic!("{other:?}"),
    }
}

fn is_config<T: std::fmt::Debug>(answer: Result<T, LockError>) -> bool {
    match answer {
        Err(LockError::InvalidConfig { .. }) => true,
        other => panic!("{other:?}"),
    }
}

async fn back(semaphore: &Semaphore, permits: i64) {
    eventually("the permits are back", async || {
        semaphore.available().await.unwrap() == permits
    })
    .await;
}

tests::suite! {
    async fn a_request_with_a_total_sets_the_permits_if_none_are_set(store: &mut Store) {
        let (a, b) = (store.manager().await, store.manager().await);
        let three = a.semaphore("s").in_all(3);
        let one = three.permits(1).acquire().await.unwrap();
        // Another number changes nothing, and keeps nobody out.
        let five = b.semaphore("s").in_all(5);
        let two = five.permits(2).try_acquire().await.unwrap().expect("there are free ones");
        assert_eq!(five.available().await.unwrap(), 0);
        let busy = five.permits(1).try_acquire().await.unwrap();
        assert!(matches!(busy, TryAcquire::Busy { .. }), "{busy:?}");
        two.release().await.unwrap();
        // A semaphore that the store has lost is set again, also by a request that asks only once.
        assert!(three.delete().await.unwrap());
        assert!(one.release().await.is_err(), "its permit went with the semaphore");
        assert!(is_not_set(b.semaphore("s").permits(1).acquire().await));
        let again = five.permits(1).try_acquire().await.unwrap().expect("there are free ones");
        assert_eq!(five.available().await.unwrap(), 4);
        again.release().await.unwrap();
        assert!(!five.delete().await.unwrap(), "it went with its last permit");
        let wanted = five.permits(6).acquire().await;
        assert!(is_config(wanted));
        assert!(!five.delete().await.unwrap(), "nothing was set");
    }

    async fn a_semaphore_that_requests_set_is_not_kept_while_it_is_full(store: &mut Store) {
        let (a, b) = (store.manager().await, store.manager().await);
        let (three, five) = (a.semaphore("s").in_all(3), b.semaphore("s").in_all(5));
        for _ in 0..2 {
            let first = three.permits(1).acquire().await.unwrap();
            let second = five.permits(2).acquire().await.unwrap();
            assert_eq!(five.available().await.unwrap(), 0);
            first.release().await.unwrap();
            assert_eq!(five.available().await.unwrap(), 1);
            second.release().await.unwrap();
            assert!(is_not_set(b.semaphore("s").permits(1).acquire().await));
            assert_eq!((three.available().await.unwrap(), five.available().await.unwrap()), (3, 5));
        }
        let held = three.permits(2).acquire().await.unwrap();
        assert!(a.force_release("s").await.unwrap());
        assert!(held.lost().is_lost() || held.release().await.is_err());
        assert!(!three.delete().await.unwrap(), "the forced release gave the last permit back");
    }

    async fn the_number_of_a_request_goes_with_the_last_lease_that_ends(store: &mut Store) {
        let locks = store.manager().await;
        let request = locks.semaphore("s").in_all(3).permits(1);
        let crashed = request.lease(Duration::from_secs(1)).auto_renew(false).acquire().await.unwrap();
        crashed.lost().wait().await;
        // Until its lease is over at the store, too, three are too few.
        let other = locks.semaphore("s").in_all(10);
        let mut held = None;
        eventually("the old number has gone", async || {
            let tried = other.permits(4).try_acquire().await;
            if let Ok(TryAcquire::Acquired(guard)) = tried {
                held = Some(guard);
            }
            held.is_some()
        })
        .await;
        assert_eq!(other.available().await.unwrap(), 6);
        drop(held);
        drop(crashed);
    }

    async fn a_semaphore_that_requests_set_stays_if_it_is_set_by_hand(store: &mut Store) {
        let locks = store.manager().await;
        let semaphore = locks.semaphore("s").in_all(3);
        for by_hand in ["try_set", "set", "add", "add and take away"] {
            let held = semaphore.permits(1).acquire().await.unwrap();
            match by_hand {
                "try_set" => assert!(!semaphore.try_set_permits(3).await.unwrap()),
                "set" => semaphore.set_permits(3).await.unwrap(),
                "add" => semaphore.add_permits(1).await.unwrap(),
                _ => {
                    semaphore.add_permits(2).await.unwrap();
                    semaphore.add_permits(-2).await.unwrap();
                }
            }
            held.release().await.unwrap();
            let free = locks.semaphore("s").available().await.unwrap();
            assert_eq!(free, if by_hand == "add" { 4 } else { 3 }, "{by_hand}");
            assert!(semaphore.delete().await.unwrap());
        }
        // A latch of that name is a mistake, and sets nothing.
        let held = semaphore.permits(1).acquire().await.unwrap();
        let _ = locks.latch("s").try_set_count(5).await;
        held.release().await.unwrap();
        assert!(!semaphore.delete().await.unwrap());
    }

    async fn waiters_of_a_semaphore_that_is_lost_set_it_again(store: &mut Store) {
        let (a, b) = (store.manager().await, store.manager().await);
        let semaphore = a.semaphore("s").in_all(1);
        let held = semaphore.permits(1).acquire().await.unwrap();
        let waiter = tokio::spawn(b.semaphore("s").in_all(1).permits(1).wait(LONG).acquire());
        waiting(&b, 1).await;
        assert!(semaphore.delete().await.unwrap());
        let next = waiter.await.unwrap().unwrap();
        assert_eq!(semaphore.available().await.unwrap(), 0);
        next.release().await.unwrap();
        assert!(held.release().await.is_err(), "its permit went with the semaphore");
        assert!(!semaphore.delete().await.unwrap(), "it went with its last permit");
    }

    async fn no_permits_in_all_are_refused_before_the_store_is_asked(store: &mut Store) {
        let locks = store.manager().await;
        for in_all in [0, u64::MAX] {
            let request = locks.semaphore("s").in_all(in_all).permits(1);
            assert!(is_config(request.clone().acquire().await));
            assert!(is_config(request.try_acquire().await));
        }
        assert!(!locks.semaphore("s").delete().await.unwrap(), "nothing was set");
    }

    async fn the_first_to_set_the_permits_wins_and_all_see_them(store: &mut Store) {
        let (a, b) = (store.manager().await, store.manager().await);
        let (one, other) = (a.semaphore("s"), b.semaphore("s"));
        assert_eq!(one.available().await.unwrap(), 0);
        assert!(one.try_set_permits(3).await.unwrap());
        assert!(!other.try_set_permits(5).await.unwrap());
        assert_eq!(other.available().await.unwrap(), 3);
        assert!(one.delete().await.unwrap());
        assert!(!one.delete().await.unwrap());
    }

    async fn a_guard_has_its_permits_and_gives_them_back(store: &mut Store) {
        let locks = store.manager().await;
        let semaphore = semaphore(&locks, 5).await;
        let three = semaphore.permits(3).acquire().await.unwrap();
        assert_eq!((three.permits(), three.fencing_token()), (3, None));
        assert!(three.is_held());
        assert_eq!(semaphore.available().await.unwrap(), 2);
        let two = semaphore.permits(2).try_acquire().await.unwrap().expect("it is free");
        assert!(matches!(semaphore.permits(1).try_acquire().await.unwrap(), TryAcquire::Busy { .. }));
        two.release().await.unwrap();
        assert_eq!(semaphore.available().await.unwrap(), 2);
        drop(three);
        back(&semaphore, 5).await;
        semaphore.delete().await.unwrap();
    }

    async fn permits_are_taken_all_or_none(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let semaphore = semaphore(&locks, 4).await;
        let two = semaphore.permits(2).acquire().await.unwrap();
        let three = tokio::spawn(other.semaphore("s").permits(3).wait(LONG).acquire());
        waiting(&other, 1).await;
        sleep(300 * MS).await;
        assert_eq!(semaphore.available().await.unwrap(), 2, "none were put aside");
        two.release().await.unwrap();
        let three = three.await.unwrap().unwrap();
        assert_eq!(semaphore.available().await.unwrap(), 1);
        three.release().await.unwrap();
        semaphore.delete().await.unwrap();
    }

    async fn never_more_permits_than_there_are(store: &mut Store) {
        let managers = [store.manager().await, store.manager().await, store.manager().await];
        let semaphore = semaphore(&managers[0], 5).await;
        let taken = Arc::new(AtomicU32::new(0));
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..24 {
            let (locks, taken) = (managers[task % 3].clone(), taken.clone());
            tasks.spawn(async move {
                for round in 0..10 {
                    let permits = u32::try_from((task + round) % 3 + 1).unwrap();
                    let guard = locks.semaphore("s").permits(permits).wait(LONG).acquire().await.unwrap();
                    let now = taken.fetch_add(permits, Ordering::SeqCst) + permits;
                    assert!(now <= 5, "{now} permits are out");
                    sleep(MS).await;
                    taken.fetch_sub(permits, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        assert_eq!(semaphore.available().await.unwrap(), 5);
        semaphore.delete().await.unwrap();
    }

    async fn callers_of_one_process_are_served_in_their_order(store: &mut Store) {
        let locks = store.manager().await;
        let semaphore = semaphore(&locks, 2).await;
        let both = semaphore.permits(2).acquire().await.unwrap();
        let (tell, mut served) = tokio::sync::mpsc::unbounded_channel();
        for caller in 0..6_u32 {
            // The second caller wants all permits, and those behind it do not overtake it.
            let request = semaphore.permits(if caller == 1 { 2 } else { 1 }).wait(LONG);
            let tell = tell.clone();
            tokio::spawn(async move {
                let guard = request.acquire().await.unwrap();
                tell.send(caller).unwrap();
                sleep(20 * MS).await;
                guard.release().await.unwrap();
            });
            waiting(&locks, caller as usize + 1).await;
        }
        both.release().await.unwrap();
        let mut order = Vec::new();
        for _ in 0..6 {
            order.push(served.recv().await.unwrap());
        }
        assert_eq!(order[..2], [0, 1], "{order:?}");
        back(&semaphore, 2).await;
        semaphore.delete().await.unwrap();
    }

    async fn a_waiter_is_woken_by_a_release_elsewhere(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.told().await);
        let semaphore = semaphore(&locks, 1).await;
        for _ in 0..5 {
            let guard = semaphore.permits(1).acquire().await.unwrap();
            let waiter = tokio::spawn(other.semaphore("s").permits(1).wait(LONG).acquire());
            sleep(200 * MS).await;
            let released = Instant::now();
            guard.release().await.unwrap();
            let guard = waiter.await.unwrap().unwrap();
            assert!(released.elapsed() < store.within(700 * MS), "{:?}", released.elapsed());
            guard.release().await.unwrap();
        }
        semaphore.delete().await.unwrap();
    }

    async fn added_permits_wake_waiters_and_permits_can_be_taken_away(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.told().await);
        let semaphore = semaphore(&locks, 1).await;
        let guard = semaphore.permits(1).acquire().await.unwrap();
        let waiter = tokio::spawn(other.semaphore("s").permits(1).wait(LONG).acquire());
        sleep(200 * MS).await;
        let added = Instant::now();
        semaphore.add_permits(1).await.unwrap();
        let second = waiter.await.unwrap().unwrap();
        assert!(added.elapsed() < store.within(700 * MS), "{:?}", added.elapsed());
        semaphore.add_permits(-1).await.unwrap();
        assert_eq!(semaphore.available().await.unwrap(), -1);
        guard.release().await.unwrap();
        assert!(matches!(semaphore.permits(1).try_acquire().await.unwrap(), TryAcquire::Busy { .. }));
        second.release().await.unwrap();
        assert_eq!(semaphore.available().await.unwrap(), 1);
        semaphore.delete().await.unwrap();
    }

    async fn what_cannot_be_served_is_refused_and_not_waited_for(store: &mut Store) {
        let locks = store.manager().await;
        let none = locks.semaphore("s");
        assert!(is_not_set(none.permits(1).wait(LONG).acquire().await), "never set");
        assert!(is_not_set(none.add_permits(1).await));
        let semaphore = semaphore(&locks, 3).await;
        for permits in [0, 1_001, u32::MAX, 4] {
            let started = Instant::now();
            assert!(is_config(semaphore.permits(permits).wait(LONG).acquire().await));
            assert!(is_config(semaphore.permits(permits).try_acquire().await));
            assert!(started.elapsed() < store.within(1_000 * MS));
        }
        assert!(is_config(semaphore.try_set_permits(u64::MAX).await));
        assert!(is_config(semaphore.add_permits(i64::MIN).await));
        assert_eq!(semaphore.available().await.unwrap(), 3);
        semaphore.delete().await.unwrap();
    }

    async fn leases_are_renewed_while_their_guard_lives(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let semaphore = semaphore(&locks, 2).await;
        let lease = store.renewing(1_000 * MS);
        let guard = semaphore.permits(2).lease(lease).acquire().await.unwrap();
        store.until_renewed(lease, async || left_of(&other, "s").await.min(guard.remaining())).await;
        assert!(guard.is_held());
        assert!(matches!(other.semaphore("s").permits(1).try_acquire().await.unwrap(), TryAcquire::Busy { .. }));
        guard.release().await.unwrap();
        semaphore.delete().await.unwrap();
    }

    async fn permits_of_a_fixed_lease_come_back_when_it_is_over(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let semaphore = semaphore(&locks, 2).await;
        let lease = 1_000 * MS;
        let request = semaphore.permits(2).lease(lease).wait(LONG).auto_renew(false);
        let started = Instant::now();
        let guard = request.acquire().await.unwrap();
        let next = other.semaphore("s").permits(2).wait(LONG).acquire().await.unwrap();
        let taken = started.elapsed();
        assert!(taken >= lease * 39 / 40 && taken < store.within(2_100 * MS), "{taken:?}");
        assert!(!guard.is_held());
        assert_eq!(guard.lost().wait().await, LostReason::Expired);
        drop(guard);
        sleep(100 * MS).await;
        assert!(next.is_held());
        assert_eq!(semaphore.available().await.unwrap(), 0, "the late one gave nothing back");
        next.release().await.unwrap();
        semaphore.delete().await.unwrap();
    }

    async fn lost_permits_are_told(store: &mut Store) {
        let locks = store.manager().await;
        let semaphore = semaphore(&locks, 2).await;
        let request = semaphore.permits(1).lease(store.renewing(3_000 * MS));
        let started = Instant::now();
        let (tell, running) = tokio::sync::oneshot::channel();
        let body = tokio::spawn(request.run(|_| async move {
            tell.send(()).unwrap();
            sleep(LONG).await;
        }));
        running.await.unwrap();
        store.flush();
        match body.await.unwrap() {
            Err(LockError::Lost { reason: LostReason::Refused, .. }) => {}
            other => panic!("{other:?}"),
        }
        assert!(started.elapsed() < store.within(2_900 * MS), "{:?}", started.elapsed());
        assert!(is_not_set(semaphore.permits(1).acquire().await), "the store forgot them");
    }

    async fn two_requests_of_one_chain_take_two_sets(store: &mut Store) {
        let locks = store.manager().await;
        let semaphore = semaphore(&locks, 3).await;
        let free = semaphore
            .permits(1)
            .run(async |_| {
                let nested = semaphore.permits(2).acquire().await.unwrap();
                let free = semaphore.available().await.unwrap();
                assert!(matches!(semaphore.permits(1).try_acquire().await.unwrap(), TryAcquire::Busy { .. }));
                nested.release().await.unwrap();
                free
            })
            .await
            .unwrap();
        assert_eq!(free, 0);
        assert_eq!(semaphore.available().await.unwrap(), 3);
        semaphore.delete().await.unwrap();
    }

    async fn tries_at_one_instant_get_all_the_permits_there_are(store: &mut Store) {
        let locks = store.manager().await;
        let semaphore = semaphore(&locks, 8).await;
        let tries: Vec<_> = (0..12).map(|_| tokio::spawn(semaphore.permits(1).try_acquire())).collect();
        let mut guards: Vec<LockGuard> = Vec::new();
        for tried in tries {
            if let TryAcquire::Acquired(guard) = tried.await.unwrap().unwrap() {
                guards.push(guard);
            }
        }
        assert_eq!(guards.len(), 8);
        drop(guards);
        back(&semaphore, 8).await;
        semaphore.delete().await.unwrap();
    }

    async fn a_waiter_that_leaves_takes_nothing_along(store: &mut Store) {
        let locks = store.manager().await;
        let semaphore = semaphore(&locks, 1).await;
        let guard = semaphore.permits(1).acquire().await.unwrap();
        let request = semaphore.permits(1).wait(1_000 * MS);
        match answered(async || request.clone().acquire().await).await {
            Err(LockError::Busy { retry_after, .. }) => {
                assert!(retry_after.is_some_and(|left| left <= store.lease()));
            }
            other => panic!("{other:?}"),
        }
        let dropped = tokio::spawn(semaphore.permits(1).wait(LONG).acquire());
        let next = tokio::spawn(semaphore.permits(1).wait(LONG).acquire());
        waiting(&locks, 2).await;
        dropped.abort();
        guard.release().await.unwrap();
        next.await.unwrap().unwrap().release().await.unwrap();
        back(&semaphore, 1).await;
        semaphore.delete().await.unwrap();
    }

    async fn a_forced_release_returns_all_permits_and_ends_their_holds(store: &mut Store) {
        let (a, b) = (store.manager().await, store.manager().await);
        let operator = store.manager().await;
        let semaphore = semaphore(&a, 10).await;
        let mut victims = Vec::new();
        for permits in 1..=3 {
            victims.push(a.semaphore("s").permits(permits).acquire().await.unwrap());
        }
        victims.push(b.semaphore("s").permits(1).acquire().await.unwrap());
        let lock = a.mutex("other").acquire().await.unwrap();
        let forced = Instant::now();
        assert!(operator.force_release("s").await.unwrap());
        assert!(!operator.force_release("s").await.unwrap());
        for victim in &victims {
            assert_eq!(victim.lost().wait().await, LostReason::ForceReleased);
        }
        assert!(forced.elapsed() < store.within(1_000 * MS), "{:?}", forced.elapsed());
        drop(victims);
        assert!(lock.is_held());
        lock.release().await.unwrap();
        sleep(100 * MS).await;
        assert_eq!(semaphore.available().await.unwrap(), 10, "given back once");
        let next = semaphore.permits(10).acquire().await.unwrap();
        assert!(next.is_held());
        next.release().await.unwrap();
        semaphore.delete().await.unwrap();
    }

    async fn an_operator_sees_what_is_free_and_what_is_leased(store: &mut Store) {
        let locks = store.manager().await;
        let semaphore = semaphore(&locks, 10).await;
        let info = locks.inspect("s").await.unwrap();
        assert_eq!((info.held, info.mode, info.count), (false, Some(LockMode::Counter), 0));
        assert_eq!((info.available, info.ttl), (Some(10), None));
        let guard = semaphore.permits(3).acquire().await.unwrap();
        let info = locks.inspect("s").await.unwrap();
        assert_eq!((info.held, info.mode, info.count), (true, Some(LockMode::Semaphore), 3));
        assert_eq!((info.available, info.holder), (Some(7), None));
        assert!(info.ttl.unwrap() <= store.lease() && info.ttl.unwrap() > store.lease() / 2);
        guard.release().await.unwrap();
        semaphore.delete().await.unwrap();
    }

    async fn a_lock_and_a_semaphore_of_one_name_refuse_each_other(store: &mut Store) {
        let locks = store.manager().await;
        let semaphore = semaphore(&locks, 1).await;
        let refused = locks.mutex("s").acquire().await.unwrap_err();
        assert!(matches!(refused, LockError::ForeignKey { .. }), "{refused:?}");
        semaphore.delete().await.unwrap();
        let lock = locks.mutex("s").acquire().await.unwrap();
        for refused in [
            semaphore.try_set_permits(1).await.unwrap_err(),
            semaphore.available().await.unwrap_err(),
            semaphore.add_permits(1).await.unwrap_err(),
            semaphore.delete().await.unwrap_err(),
            semaphore.permits(1).acquire().await.unwrap_err(),
        ] {
            assert!(matches!(refused, LockError::ForeignKey { .. }), "{refused:?}");
        }
        assert!(lock.is_held());
        lock.release().await.unwrap();
    }

    async fn a_shutdown_gives_permits_back(store: &mut Store) {
        let other = store.manager().await;
        let semaphore = semaphore(&other, 2).await;
        // A shutdown waits for two seconds at most, and a machine that stands still may need longer.
        in_one_of_a_few_rounds(Duration::ZERO, "they are given back", async || {
            let locks = store.connect(tests::builder().shutdown_grace(100 * MS)).await;
            let guard = locks.semaphore("s").permits(2).acquire().await.unwrap();
            let (guarded, late) = (guard.lease(), tokio::spawn(guard.protect(sleep(LONG))));
            let in_time = shut_down(&locks).await;
            assert!(guarded.lost().is_lost());
            drop(late.await.unwrap());
            if !in_time {
                other.force_release("s").await.unwrap();
            }
            back(&semaphore, 2).await;
            assert!(matches!(locks.semaphore("s").available().await, Err(LockError::ShuttingDown { .. })));
            in_time
        }).await;
        semaphore.delete().await.unwrap();
    }

    async fn the_caller_who_asks_for_the_others_counts_towards_the_cap(store: &mut Store) {
        let builder = tests::builder().max_waiters_per_key(4);
        let (locks, other) = (store.connect(builder).await, store.manager().await);
        let semaphore = semaphore(&other, 1).await;
        let guard = semaphore.permits(1).acquire().await.unwrap();
        tests::only_so_many_wait(&locks, "s", 4, &locks.semaphore("s").permits(1)).await;
        guard.release().await.unwrap();
        semaphore.delete().await.unwrap();
    }

    async fn the_number_of_permits_can_be_changed_while_they_are_in_use(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.told().await);
        let (semaphore, others) = (locks.semaphore("s"), other.semaphore("s"));
        semaphore.set_permits(2).await.unwrap();
        assert_eq!(others.available().await.unwrap(), 2, "it need not be set before");
        let both = semaphore.permits(2).acquire().await.unwrap();
        let waiter = tokio::spawn(others.permits(1).wait(LONG).acquire());
        waiting(&other, 1).await;
        let raised = Instant::now();
        semaphore.set_permits(3).await.unwrap();
        let third = waiter.await.unwrap().unwrap();
        assert!(raised.elapsed() < store.within(700 * MS), "woken: {:?}", raised.elapsed());
        // The new number is less than the leased permits: nobody loses permits, and nobody gets any before enough are
        // back.
        semaphore.set_permits(1).await.unwrap();
        semaphore.set_permits(1).await.unwrap();
        assert_eq!(semaphore.available().await.unwrap(), -2);
        assert!(both.is_held() && third.is_held());
        third.release().await.unwrap();
        assert!(matches!(others.permits(1).try_acquire().await.unwrap(), TryAcquire::Busy { .. }));
        both.release().await.unwrap();
        back(&semaphore, 1).await;
        others.permits(1).acquire().await.unwrap().release().await.unwrap();
        semaphore.delete().await.unwrap();
    }
}

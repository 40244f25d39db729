//! Tests of several locks as one: all of them or none are taken, there is no deadlock, and the set is lost when one of
//! them is lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use lock_runtime::{LockError, LockManager, LockRequest, LostReason, MemoryStore, TryAcquire};
use tests::faults::given_back;
use tests::{History, Store, answered, eventually};
use tokio::time::Instant;

const MS: Duration = Duration::from_millis(1);

fn set(locks: &LockManager, names: &[&str]) -> Vec<LockRequest> {
    names.iter().map(|name| locks.mutex(*name)).collect()
}

async fn is_held(locks: &LockManager, name: &str) -> bool {
    locks.inspect(name).await.unwrap().held
}

tests::suite! {
    also on a quorum:
    async fn a_guard_holds_every_lock_of_its_set_with_a_token_for_each(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let guard = locks.multi(set(&locks, &["c", "a", "b"])).acquire().await.unwrap();
        assert!(guard.is_held());
        assert_eq!(guard.name(), "a, b, c");
        assert_eq!(guard.fencing_token(), None, "there are several");
        let tokens: Vec<_> = guard.members().map(|member| member.fencing_token).collect();
        assert_eq!(tokens.len(), 3);
        for name in ["a", "b", "c"] {
            let tried = answered(async || other.mutex(name).try_acquire().await).await;
            assert!(matches!(tried.unwrap(), TryAcquire::Busy { .. }), "{name}");
        }
        guard.release().await.unwrap();
        for (name, before) in ["a", "b", "c"].into_iter().zip(tokens) {
            let guard = other.mutex(name).acquire().await.unwrap();
            assert!(guard.fencing_token() > before || store.is_quorum(), "{name}");
            guard.release().await.unwrap();
        }
    }

    async fn where_one_lock_is_busy_none_is_taken(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let busy = other.mutex("b").acquire().await.unwrap();
        let names = ["a", "b", "c"];
        let tried = answered(async || locks.multi(set(&locks, &names)).try_acquire().await).await;
        assert!(matches!(tried.unwrap(), TryAcquire::Busy { .. }));
        let request = || locks.multi(set(&locks, &names)).wait(1_000 * MS);
        let refused = answered(async || request().acquire().await).await.unwrap_err();
        assert!(matches!(&refused, LockError::Busy { name, .. } if name == "b"), "{refused}");
        for free in ["a", "c"] {
            eventually("it is free", async || !is_held(&other, free).await).await;
        }
        busy.release().await.unwrap();
        locks.multi(set(&locks, &names)).acquire().await.unwrap().release().await.unwrap();
    }

    async fn a_set_is_had_once_its_last_lock_is_given_back(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let busy = other.mutex("b").acquire().await.unwrap();
        let waiting = tokio::spawn(locks.multi(set(&locks, &["b", "a"])).wait(60_000 * MS).acquire());
        eventually("the first one is taken", async || is_held(&other, "a").await).await;
        busy.release().await.unwrap();
        let guard = waiting.await.unwrap().unwrap();
        assert!(guard.is_held());
        guard.release().await.unwrap();
    }

    async fn sets_that_overlap_in_any_order_never_deadlock(store: &mut Store) {
        let names: [&'static str; 4] = ["a", "b", "c", "d"];
        let managers = [store.manager().await, store.manager().await];
        let history = Arc::new(History::new());
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..12_usize {
            let (locks, history) = (managers[task % 2].clone(), history.clone());
            tasks.spawn(async move {
                let mut lost = 0;
                for round in 0..20 {
                    // Pick three times from the four names, in an order that differs between the tasks.
                    let names: Vec<_> = (0..3).map(|i| names[(task * 3 + round + i * (1 + task % 3)) % 4]).collect();
                    let request = locks.multi(set(&locks, &names)).wait(120_000 * MS);
                    let guard = request.acquire().await.unwrap();
                    let mut holds: Vec<_> = guard
                        .members()
                        .map(|member| {
                            let token = member.fencing_token.map(|token| token.get());
                            history.begin(member.name, format_args!("{task}"), token)
                        })
                        .collect();
                    tokio::task::yield_now().await;
                    for hold in &mut holds {
                        hold.seen(|| guard.is_held());
                    }
                    holds.into_iter().for_each(|hold| hold.end_as_seen());
                    lost += usize::from(!given_back(guard).await);
                }
                lost
            });
        }
        let lost: usize = tasks.join_all().await.into_iter().sum();
        assert!(lost <= 12, "{lost} of 240 sets");
        history.assert_exclusive();
    }

    async fn the_set_is_lost_when_one_of_its_locks_is_lost(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let guard = locks.multi(set(&locks, &["a", "b", "c"])).acquire().await.unwrap();
        let lost = guard.lost();
        assert!(!lost.is_lost());
        assert!(other.force_release("b").await.unwrap());
        assert_eq!(lost.wait().await, LostReason::ForceReleased);
        assert!(!guard.is_held());
        assert_eq!(guard.remaining(), Duration::ZERO);
        let error = guard.release().await.unwrap_err();
        assert!(matches!(&error, LockError::Lost { name, .. } if name == "b"), "{error}");
        for name in ["a", "b", "c"] {
            assert!(!is_held(&other, name).await, "{name}: a release gives back the others");
        }
    }

    async fn a_body_under_a_set_is_dropped_when_one_lock_is_lost(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let outcome = locks
            .multi(set(&locks, &["a", "b"]))
            .run(async |lease| {
                assert_eq!(lease.members().count(), 2);
                assert!(other.force_release("a").await.unwrap());
                std::future::pending::<()>().await;
            })
            .await;
        let error = outcome.unwrap_err();
        assert!(
            matches!(&error, LockError::Lost { name, reason: LostReason::ForceReleased, .. } if name == "a"),
            "{error}"
        );
        eventually("the other one is given back", async || !is_held(&other, "b").await).await;
    }

    async fn whatever_runs_under_a_set_re_enters_each_of_its_locks(store: &mut Store) {
        let locks = store.manager().await;
        locks
            .multi(set(&locks, &["b", "a"]))
            .run(async |lease| {
                for member in lease.members() {
                    let nested = locks.mutex(member.name.to_owned()).try_acquire().await.unwrap().expect("it is nested");
                    assert_eq!(nested.fencing_token(), member.fencing_token);
                    nested.release().await.unwrap();
                }
                assert!(lease.is_held());
            })
            .await
            .unwrap();
        assert!(!is_held(&locks, "a").await && !is_held(&locks, "b").await);
    }

    async fn a_set_under_a_hold_re_enters_it_and_leaves_it_to_its_owner(store: &mut Store) {
        let locks = store.manager().await;
        locks
            .mutex("b")
            .run(async |outer| {
                let request = locks.multi(set(&locks, &["a", "b"])).wait(60_000 * MS);
                let guard = request.acquire().await.unwrap();
                let tokens: Vec<_> = guard.members().map(|member| member.fencing_token).collect();
                assert_eq!(tokens[1], outer.fencing_token());
                guard.release().await.unwrap();
                assert!(outer.is_held());
                assert!(!is_held(&locks, "a").await);
            })
            .await
            .unwrap();
    }

    async fn a_lock_that_is_named_twice_is_taken_once(store: &mut Store) {
        let locks = store.manager().await;
        let guard = locks.multi(set(&locks, &["a", "b", "a"])).acquire().await.unwrap();
        let names: BTreeSet<_> = guard.members().map(|member| member.name.to_owned()).collect();
        assert_eq!(guard.members().count(), 2);
        assert_eq!(names.len(), 2);
        guard.release().await.unwrap();
        let single = locks.multi(set(&locks, &["a", "a"])).acquire().await.unwrap();
        assert_eq!(single.name(), "a");
        assert!(single.fencing_token().is_some() || store.is_quorum(), "a set of one is that one");
        single.release().await.unwrap();
    }

    async fn a_set_that_makes_no_sense_is_refused(store: &mut Store) {
        let locks = store.manager().await;
        let refused = async |members: Vec<LockRequest>| {
            locks.multi(members).acquire().await.unwrap_err().to_string()
        };
        assert!(refused(vec![]).await.contains("1 to 128"));
        let many = (0..129).map(|i| locks.mutex(format!("{i}"))).collect();
        assert!(refused(many).await.contains("129"));
        let twice = vec![locks.mutex("a"), locks.fenced("a")];
        let why = refused(twice).await;
        // A quorum has only mutexes.
        assert!(why.contains("two kinds") || why.contains("keeps no fenced locks"), "{why}");
        assert!(refused(set(&locks, &["a", ""])).await.contains("name"));
    }

    async fn the_locks_of_a_set_may_be_in_different_stores(store: &mut Store) {
        let here = store.manager().await;
        let elsewhere = MemoryStore::new();
        let there = tests::builder().memory_store(&elsewhere).in_memory().unwrap();
        let guard = here.multi([here.mutex("a"), there.mutex("a"), here.mutex("b")]).acquire().await.unwrap();
        assert_eq!(guard.members().count(), 3);
        assert!(is_held(&here, "a").await && is_held(&there, "a").await);
        guard.release().await.unwrap();
        assert!(!is_held(&here, "a").await && !is_held(&there, "a").await);
    }

    async fn a_set_that_is_given_up_gives_back_what_it_had(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let busy = other.mutex("b").acquire().await.unwrap();
        let waiting = tokio::spawn(locks.multi(set(&locks, &["a", "b"])).wait_forever().acquire());
        eventually("the first one is taken", async || is_held(&other, "a").await).await;
        waiting.abort();
        eventually("the first one is given back", async || !is_held(&other, "a").await).await;
        busy.release().await.unwrap();
    }

    async fn a_dropped_guard_gives_back_the_whole_set(store: &mut Store) {
        let locks = store.manager().await;
        drop(locks.multi(set(&locks, &["a", "b"])).acquire().await.unwrap());
        let wait = locks.multi(set(&locks, &["a", "b"])).wait(60_000 * MS);
        wait.acquire().await.unwrap().release().await.unwrap();
    }

    async fn fixed_leases_start_anew_when_the_set_is_complete(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let lease = 10_000 * MS;
        let busy = other.mutex("b").acquire().await.unwrap();
        let members = ["a", "b"].map(|name| locks.mutex(name).lease(lease).auto_renew(false));
        let waiting = tokio::spawn(locks.multi(members).wait(60_000 * MS).acquire());
        // The first one is renewed when a third of its lease is over.
        eventually("a good part of the first lease is over", async || {
            let seen = other.inspect("a").await;
            seen.is_ok_and(|info| info.ttl.is_some_and(|left| left < 8_000 * MS))
        })
        .await;
        let complete = Instant::now();
        busy.release().await.unwrap();
        let guard = waiting.await.unwrap().unwrap();
        let took = complete.elapsed();
        let left = guard.remaining() + took;
        // Well more than was left of the first one. A renewal without an answer may take a sixth of the lease.
        assert!(left > lease * 9 / 10 || took >= lease / 6, "{left:?}, {took:?}");
        guard.release().await.unwrap();
    }
}

/// Compares the server's own counts of commands before and after.
#[tokio::test]
async fn a_free_set_is_taken_by_one_script_call() {
    let server = tests::RedisServer::start();
    let locks = tests::builder().connect(&server.url()).await.unwrap();
    let before = tests::CommandStats::of(&server);
    let guard = locks
        .multi(set(&locks, &["a", "b", "c", "d"]))
        .acquire()
        .await
        .unwrap();
    let sent = tests::CommandStats::of(&server).since(&before);
    assert_eq!(
        sent.calls("evalsha"),
        2,
        "not known yet, loaded, and called: {sent:?}"
    );
    guard.release().await.unwrap();
    // The manager sends its record beside the first hold. It must not be among the commands counted below.
    eventually("the manager has said who it is", async || {
        server.records().len() == 1
    })
    .await;
    let before = tests::CommandStats::of(&server);
    let guard = locks
        .multi(set(&locks, &["a", "b", "c", "d"]))
        .acquire()
        .await
        .unwrap();
    let sent = tests::CommandStats::of(&server).since(&before);
    assert_eq!(sent.calls("evalsha"), 1, "{sent:?}");
    guard.release().await.unwrap();
}

//! Tests of sets of locks, while futures are dropped and the store is away.

use std::time::Duration;

use lock_runtime::test_util::{self, Answer};
use lock_runtime::{LockError, LockManager, LockRequest, TryAcquire};
use tests::faults::{at_each_poll, behind_a_proxy, connected, free_within, poll_times, took};
use tests::{Direction, RedisServer, Store, eventually, eventually_within};
use tokio::time::Instant;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);
/// The time of a call, unless a builder says otherwise.
const CALL: Duration = Duration::from_secs(2);
/// The least time of a call, however little of a wait is left.
const LEAST_CALL: Duration = Duration::from_millis(10);
/// The time within which nothing of a dropped future is left. That takes some round trips. What waits for the end of a
/// lease of [`HOUR`] or of a call of [`LONGEST_CALL`] takes longer than this, and nothing else does.
const ORPHAN: Duration = Duration::from_secs(45);
const LONGEST_CALL: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

fn set(locks: &LockManager, names: &[&str]) -> Vec<LockRequest> {
    names.iter().map(|name| locks.mutex(*name)).collect()
}

#[tokio::test]
async fn a_set_dropped_at_any_poll_leaves_each_of_its_locks_free() {
    let server = RedisServer::start();
    let builder = tests::builder().call_timeout(LONGEST_CALL).lease(HOUR);
    let (proxy, slow) = behind_a_proxy(&server, builder.clone()).await;
    let other = connected(builder, &server.url()).await;
    free_within(&slow, "warm", LONG).await;
    proxy.delay(Direction::Requests, 2 * MS);
    proxy.delay(Direction::Replies, 2 * MS);
    // The first set is taken by one script. The locks of the mixed one are taken one by one, because a read lock is no
    // mutex.
    for mixed in [false, true] {
        at_each_poll(async |polls, leave| {
            let mut members = set(&slow, &["a", "b"]);
            if mixed {
                members.push(slow.read("c"));
            }
            let guard = poll_times(slow.multi(members).acquire(), polls, leave).await;
            let completed = guard.is_some();
            drop(guard.map(Result::unwrap));
            for name in ["a", "b"] {
                free_within(&other, name, ORPHAN).await;
            }
            eventually_within(ORPHAN, "nothing stays behind", async || {
                server.stray_keys().is_empty()
            })
            .await;
            completed
        })
        .await;
    }
    drop((slow, other));
    server.assert_deserted().await;
}

#[tokio::test(start_paused = true)]
async fn a_set_without_answers_ends_within_its_wait_or_one_call() {
    let (locks, control) = test_util::in_memory();
    let names = ["a", "b", "c", "d"];
    let answers_after = |time| {
        control.forget_answers();
        (0..10).for_each(|_| control.next_acquire(Answer::Slow(time)));
    };
    let unavailable = |refused: Result<_, LockError>| {
        assert!(
            matches!(refused, Err(LockError::Unavailable { .. })),
            "{refused:?}"
        );
    };
    answers_after(LONG);
    let (refused, waited) = took(locks.multi(set(&locks, &names)).wait(50 * MS).acquire()).await;
    unavailable(refused.map(drop));
    // The end of the wait follows two clocks, and only one of them is paused. On a busy machine, the other one has come
    // further, so a call is cut short, and there is time for another one.
    assert!(waited <= 50 * MS + LEAST_CALL, "{waited:?}");
    answers_after(LONG);
    let (refused, waited) = took(locks.multi(set(&locks, &names)).try_acquire()).await;
    unavailable(refused.map(drop));
    assert!(waited <= CALL + MS, "one call and no more: {waited:?}");
    // The locks of this set are taken one by one.
    answers_after(CALL * 3 / 4);
    let mut mixed = set(&locks, &names);
    mixed.extend(["e", "f"].map(|name| locks.read(name)));
    let (refused, waited) = took(locks.multi(mixed).try_acquire()).await;
    unavailable(refused.map(drop));
    assert!(waited <= CALL + MS, "one time for all of them: {waited:?}");
}

#[tokio::test]
async fn a_set_keeps_its_wait_while_the_server_does_not_answer() {
    let server = RedisServer::start();
    let builder = tests::builder().call_timeout(LONGEST_CALL).lease(HOUR);
    let (proxy, locks) = behind_a_proxy(&server, builder).await;
    free_within(&locks, "warm", LONG).await;
    proxy.black_hole(Direction::Replies, true);
    let request = locks.multi(set(&locks, &["a", "b"])).wait(50 * MS);
    let (refused, waited) = took(request.acquire()).await;
    assert!(
        matches!(refused, Err(LockError::Unavailable { .. })),
        "{refused:?}"
    );
    assert!(waited < ORPHAN, "{waited:?}");
    proxy.black_hole(Direction::Replies, false);
    proxy.cut();
    free_within(&locks, "a", LONG).await;
}

#[tokio::test]
async fn a_set_is_had_once_the_store_is_back() {
    let server = RedisServer::start();
    let (proxy, locks) = behind_a_proxy(&server, tests::builder()).await;
    free_within(&locks, "warm", LONG).await;
    proxy.go_down();
    let waiting = tokio::spawn(locks.multi(set(&locks, &["a", "b"])).wait(LONG).acquire());
    tokio::time::sleep(100 * MS).await;
    proxy.refuse(false);
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

tests::suite! {
    async fn a_try_touches_no_lock_of_a_set_that_is_busy(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        // The locks are in one slot, because a cluster takes those of several slots one by one.
        let busy = other.fenced("{s}b").acquire().await.unwrap();
        let names = ["{s}a", "{s}b", "{s}c"].map(|name| locks.fenced(name));
        assert!(matches!(locks.multi(names.clone()).try_acquire().await.unwrap(), TryAcquire::Busy { .. }));
        let refused = locks.multi(names).wait(Duration::ZERO).acquire().await.unwrap_err();
        assert!(matches!(&refused, LockError::Busy { name, .. } if name == "{s}a, {s}b, {s}c"), "{refused}");
        busy.release().await.unwrap();
        let untouched = locks.fenced("{s}a").acquire().await.unwrap();
        assert_eq!(untouched.fencing_token().map(|token| token.get()), Some(1));
        untouched.release().await.unwrap();
    }

    async fn fixed_leases_outlast_a_wait_that_is_longer_than_they_are(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        // On a paused clock, nothing is late. A busy machine may take seconds.
        let lease = store.within(2_000 * MS).min(12_000 * MS);
        let busy = other.mutex("b").acquire().await.unwrap();
        let members = ["a", "b"].map(|name| locks.mutex(name).lease(lease).auto_renew(false));
        let waiting = tokio::spawn(locks.multi(members).wait(4 * LONG).acquire());
        eventually("the first one is taken", async || other.inspect("a").await.unwrap().held).await;
        tokio::time::sleep(lease * 3 / 2).await;
        assert!(other.inspect("a").await.unwrap().held, "it is kept");
        let released = Instant::now();
        busy.release().await.unwrap();
        let guard = waiting.await.unwrap().unwrap();
        let took = released.elapsed();
        let from_then_on = guard.remaining() + took;
        // A renewal without an answer may take a sixth of the lease. Then the set has what the one before has left.
        assert!(from_then_on > lease / 10 * 9 || took >= lease / 6, "{from_then_on:?}, {took:?}");
        guard.release().await.unwrap();
    }

    async fn a_set_under_a_hold_that_ends_soon_is_taken_once(store: &mut Store) {
        let locks = store.manager().await;
        for round in 0.. {
            assert!(round < 10, "the hold always ends too soon");
            let outer = locks.mutex("a").lease(4_000 * MS).auto_renew(false).acquire().await.unwrap();
            eventually("little of the lease is left", async || outer.remaining() < 900 * MS).await;
            let fenced = locks.fenced(format!("b{round}"));
            let request = || locks.multi([locks.mutex("a"), fenced.clone()]).wait(LONG);
            let set = outer.scope(async { request().acquire().await }).await;
            // On a busy machine, it may have ended meanwhile, and says nothing.
            if !outer.is_held() {
                continue;
            }
            let set = set.unwrap();
            let tokens: Vec<_> = set.members().map(|member| member.fencing_token.unwrap().get()).collect();
            assert_eq!(tokens[1], 1, "`b` was taken once");
            drop((set, outer));
            break;
        }
    }
}

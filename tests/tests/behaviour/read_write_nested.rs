//! Tests of nested reads and writes: reads under reads, reads under writes, writes under writes; a read that outlives
//! its write; a write under a read.

use std::time::Duration;

use lock_runtime::{LockError, LockGuard, LockManager, LockMode, LostReason, TryAcquire};
use tests::{Store, answered, eventually, left_of};
use tokio::time::{Instant, sleep};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

async fn may_read(locks: &LockManager) -> bool {
    match locks.read("k").try_acquire().await.unwrap() {
        TryAcquire::Acquired(guard) => guard.release().await.is_ok(),
        TryAcquire::Busy { .. } => false,
    }
}

async fn may_write(locks: &LockManager) -> bool {
    match locks.write("k").try_acquire().await.unwrap() {
        TryAcquire::Acquired(guard) => guard.release().await.is_ok(),
        TryAcquire::Busy { .. } => false,
    }
}

/// Acquires a write and a read nested in it, both by hand.
async fn write_and_read(locks: &LockManager, lease: Duration) -> (LockGuard, LockGuard) {
    let write = locks.write("k").lease(lease).acquire().await.unwrap();
    let read = write.scope(async { locks.read("k").lease(lease).acquire().await });
    let read = read.await.unwrap();
    (write, read)
}

fn assert_upgrade<T: std::fmt::Debug>(result: Result<T, LockError>) {
    match result {
        Err(error @ LockError::Upgrade { .. }) => {
            assert!(!error.is_retryable());
            assert!(error.to_string().contains("`k`"), "{error}");
        }
        other => panic!("expected Upgrade, got {other:?}"),
    }
}

tests::suite! {
    async fn reads_and_writes_re_enter_under_their_like(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let body = locks.write("k").run(async |outer| {
            let inner = locks.write("k").wait(Duration::ZERO).acquire().await.unwrap();
            assert_eq!(inner.fencing_token(), outer.fencing_token());
            inner.release().await.unwrap();
            assert!(outer.is_held() && !may_read(&other).await);
        });
        body.await.unwrap();
        let body = locks.read("k").run(async |outer| {
            let inner = locks.read("k").wait(Duration::ZERO).acquire().await.unwrap();
            assert_eq!(other.inspect("k").await.unwrap().readers, 1, "one hold in the store");
            inner.release().await.unwrap();
            assert!(outer.is_held() && !may_write(&other).await);
        });
        body.await.unwrap();
        assert!(may_write(&other).await);
    }

    async fn a_read_under_a_write_shares_its_hold(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let body = locks.write("k").run(async |outer| {
            let read = locks.read("k").wait(Duration::ZERO).acquire().await.unwrap();
            assert_eq!(other.inspect("k").await.unwrap().mode, Some(LockMode::Write));
            assert!(!may_read(&other).await);
            read.release().await.unwrap();
            let tried = locks.read("k").try_acquire().await.unwrap().expect("it is nested");
            tried.release().await.unwrap();
            assert!(outer.is_held() && !may_read(&other).await);
        });
        body.await.unwrap();
        assert!(may_write(&other).await);
    }

    async fn reads_under_one_hold_go_together(store: &mut Store) {
        let locks = store.manager().await;
        for outer in [locks.read("k"), locks.write("k")] {
            let body = outer.run(async |_| {
                let together = tokio::sync::Barrier::new(3);
                let read = async || {
                    let guard = locks.read("k").wait(LONG).acquire().await.unwrap();
                    together.wait().await;
                    guard.release().await.unwrap();
                };
                tokio::join!(read(), read(), read());
            });
            tokio::time::timeout(LONG, body).await.expect("none waits for another").unwrap();
        }
    }

    async fn a_nested_write_and_a_nested_read_take_turns(store: &mut Store) {
        let locks = store.manager().await;
        let body = locks.write("k").run(async |_| {
            let read = locks.read("k").acquire().await.unwrap();
            assert!(matches!(locks.write("k").try_acquire().await.unwrap(), TryAcquire::Busy { .. }));
            let asked = Instant::now();
            let busy = locks.write("k").wait(100 * MS).acquire().await;
            assert!(matches!(busy, Err(LockError::Busy { .. })), "{busy:?}");
            assert!(asked.elapsed() >= 100 * MS);
            read.release().await.unwrap();
            let write = locks.write("k").wait(Duration::ZERO).acquire().await.unwrap();
            assert!(matches!(locks.read("k").try_acquire().await.unwrap(), TryAcquire::Busy { .. }));
            write.release().await.unwrap();
        });
        body.await.unwrap();
    }

    async fn a_write_under_a_read_is_an_error_at_once(store: &mut Store) {
        let locks = store.manager().await;
        let body = locks.read("k").run(async |outer| {
            let asked = Instant::now();
            assert_upgrade(locks.write("k").wait(LONG).acquire().await);
            assert_upgrade(locks.write("k").try_acquire().await);
            assert_upgrade(locks.write("k").run(async |_| panic!("it must not run")).await);
            assert!(asked.elapsed() < store.within(1_000 * MS));
            assert!(outer.is_held());
            let other = locks.write("other").acquire().await.unwrap();
            other.release().await.unwrap();
        });
        body.await.unwrap();
        let body = locks.write("k").run(async |_| {
            let read = locks.read("k").acquire().await.unwrap();
            let nested = read.scope(async { locks.write("k").try_acquire().await });
            assert_upgrade(nested.await);
            read.release().await.unwrap();
        });
        body.await.unwrap();
        assert!(may_write(&locks).await);
    }

    async fn a_read_that_outlives_its_write_lets_other_readers_in(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.told().await);
        let (write, read) = write_and_read(&locks, LONG).await;
        assert!(write.fencing_token().is_some());
        let waiting = tokio::spawn(other.read("k").wait(LONG).acquire());
        sleep(100 * MS).await;
        assert!(!waiting.is_finished());
        let left = Instant::now();
        write.release().await.unwrap();
        let beside = waiting.await.unwrap().unwrap();
        assert!(left.elapsed() < store.within(600 * MS), "woken: {:?}", left.elapsed());
        assert!(read.is_held() && read.fencing_token().is_none());
        assert!(!may_write(&locks).await && !may_write(&other).await);
        assert_eq!(other.inspect("k").await.unwrap().readers, 2);
        beside.release().await.unwrap();
        assert!(!may_write(&other).await);
        read.release().await.unwrap();
        assert!(may_write(&other).await && may_write(&locks).await);
    }

    async fn a_downgrade_by_drop_happens_in_the_background(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let (write, read) = write_and_read(&locks, LONG).await;
        drop(write);
        eventually("others may read", async || may_read(&other).await).await;
        assert!(read.is_held() && !may_write(&other).await);
        drop(read);
        eventually("others may write", async || may_write(&other).await).await;
    }

    async fn a_downgraded_hold_is_renewed_as_a_read(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let lease = store.renewing(1_000 * MS);
        let (write, read) = write_and_read(&locks, lease).await;
        write.release().await.unwrap();
        store.until_renewed(lease, async || left_of(&other, "k").await.min(read.remaining())).await;
        assert!(read.is_held() && !may_write(&other).await && may_read(&other).await);
        read.release().await.unwrap();
        assert!(may_write(&other).await);
    }

    async fn a_downgraded_hold_is_lost_like_any_other(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let lease = store.renewing(1_000 * MS);
        // No renewal finds the loss before the message. One would follow the downgrade at once if the lease were longer.
        let (write, read) = write_and_read(&locks, LONG / 2).await;
        write.release().await.unwrap();
        assert!(other.force_release("k").await.unwrap());
        assert_eq!(read.lost().wait().await, LostReason::ForceReleased);
        drop(read);
        let (write, read) = write_and_read(&locks, lease).await;
        write.release().await.unwrap();
        store.flush();
        assert_eq!(read.lost().wait().await, LostReason::Refused);
        drop(read);
        let (write, read) = write_and_read(&locks, lease).await;
        store.flush();
        assert!(matches!(write.release().await, Err(LockError::Lost { .. })));
        assert!(!read.is_held());
        drop(read);
    }

    async fn the_next_writer_of_this_process_waits_for_the_reader(store: &mut Store) {
        let locks = store.told().await;
        let (write, read) = write_and_read(&locks, LONG).await;
        let next = tokio::spawn(locks.write("k").wait(LONG).acquire());
        eventually("it queues", async || locks.inspect("k").await.unwrap().local_waiters == 1).await;
        write.release().await.unwrap();
        sleep(100 * MS).await;
        assert!(!next.is_finished(), "somebody reads");
        let left = Instant::now();
        read.release().await.unwrap();
        next.await.unwrap().unwrap().release().await.unwrap();
        assert!(left.elapsed() < store.within(600 * MS), "woken: {:?}", left.elapsed());
    }

    async fn several_reads_share_a_downgraded_hold_until_the_last_ends(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let (write, first) = write_and_read(&locks, LONG).await;
        let second = write.scope(async { locks.read("k").acquire().await }).await.unwrap();
        write.release().await.unwrap();
        let third = first.scope(async { locks.read("k").acquire().await }).await.unwrap();
        for guard in [first, second] {
            guard.release().await.unwrap();
            assert!(!may_write(&other).await && may_read(&other).await);
        }
        assert!(third.is_held());
        third.release().await.unwrap();
        assert!(may_write(&other).await);
    }

    async fn a_write_under_an_ended_write_contends_like_a_stranger(store: &mut Store) {
        let locks = store.manager().await;
        let (write, read) = write_and_read(&locks, LONG).await;
        let lease = write.lease();
        write.release().await.unwrap();
        let write = async || locks.write("k").wait(1_000 * MS).acquire().await;
        let stale = answered(async || lease.scope(write()).await).await;
        assert!(matches!(stale, Err(LockError::Busy { .. })), "{stale:?}");
        let late = lease.scope(async { locks.read("k").acquire().await }).await.unwrap();
        late.release().await.unwrap();
        read.release().await.unwrap();
        let free = lease.scope(async { locks.write("k").acquire().await }).await.unwrap();
        free.release().await.unwrap();
    }

    async fn reads_by_strangers_contend_and_do_not_share(store: &mut Store) {
        let locks = store.manager().await;
        let write = locks.write("k").acquire().await.unwrap();
        let request = locks.read("k").wait(100 * MS);
        let stranger = async || tokio::spawn(request.clone().acquire()).await.unwrap();
        let stranger = answered(stranger).await;
        assert!(matches!(stranger, Err(LockError::Busy { .. })), "{stranger:?}");
        let request = locks.read("k").wait(LONG);
        let nested = tokio::spawn(write.scope(async move { request.acquire().await }));
        nested.await.unwrap().unwrap().release().await.unwrap();
        write.release().await.unwrap();
    }

    async fn a_set_of_locks_may_hold_reads_and_writes(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let set = locks.multi([locks.read("k"), locks.write("w"), locks.mutex("m")]);
        let guard = set.acquire().await.unwrap();
        assert!(may_read(&other).await && !may_write(&other).await);
        assert!(matches!(other.read("w").try_acquire().await.unwrap(), TryAcquire::Busy { .. }));
        let tokens: Vec<_> = guard.members().map(|member| member.fencing_token.is_some()).collect();
        assert_eq!(tokens, [false, true, true]);
        guard.release().await.unwrap();
        assert!(may_write(&other).await);
    }

    async fn a_write_becomes_a_read_without_letting_another_writer_in(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let lease = store.renewing(1_000 * MS);
        let mut guard = locks.write("k").lease(lease).acquire().await.unwrap();
        assert!(guard.fencing_token().is_some());
        let reader = tokio::spawn(other.read("k").wait(LONG).acquire());
        eventually("it waits", async || other.inspect("k").await.unwrap().local_waiters == 1).await;
        guard.downgrade().await.unwrap();
        assert!(guard.is_held());
        assert_eq!(guard.fencing_token(), None, "others may read beside it");
        reader.await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(other.inspect("k").await.unwrap().mode, Some(LockMode::Read));
        assert!(!may_write(&other).await && !may_write(&locks).await);
        assert!(may_read(&other).await && may_read(&locks).await);
        // The hold is renewed as a read.
        store.until_renewed(lease, async || left_of(&other, "k").await.min(guard.remaining())).await;
        assert!(guard.is_held() && !may_write(&other).await);
        // A second downgrade has nothing to do.
        guard.downgrade().await.unwrap();
        guard.release().await.unwrap();
        assert!(may_write(&other).await);
    }

    async fn a_downgrade_goes_on_when_its_future_is_dropped(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let mut guard = locks.write("k").acquire().await.unwrap();
        drop(guard.downgrade());
        assert_eq!(guard.fencing_token(), None);
        eventually("another may read", async || may_read(&other).await).await;
        assert!(!may_write(&other).await);
        guard.release().await.unwrap();
        assert!(may_write(&other).await);
    }

    async fn a_write_lasts_until_its_whole_call_chain_became_a_read(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let mut outer = locks.write("k").acquire().await.unwrap();
        let nested = outer.scope(async { locks.write("k").acquire().await });
        let mut inner = nested.await.unwrap();
        outer.downgrade().await.unwrap();
        assert!(!may_read(&other).await, "the inner one writes");
        assert!(outer.fencing_token().is_some(), "the inner one writes");
        assert_upgrade(outer.scope(async { locks.write("k").try_acquire().await }).await);
        inner.downgrade().await.unwrap();
        assert_eq!(outer.fencing_token(), None);
        assert!(may_read(&other).await && !may_write(&other).await);
        inner.release().await.unwrap();
        assert!(outer.is_held() && !may_write(&other).await);
        outer.release().await.unwrap();
        assert!(may_write(&other).await);
    }

    async fn under_a_nested_write_that_became_a_read_writes_are_refused(store: &mut Store) {
        let locks = store.manager().await;
        let outer = locks.write("k").acquire().await.unwrap();
        let nested = outer.scope(async { locks.write("k").acquire().await });
        let mut inner = nested.await.unwrap();
        let within = inner.scope(async { locks.write("k").acquire().await });
        within.await.unwrap().release().await.unwrap();
        inner.downgrade().await.unwrap();
        assert_upgrade(inner.scope(async { locks.write("k").acquire().await }).await);
        inner.release().await.unwrap();
        outer.release().await.unwrap();
    }

    async fn a_downgraded_write_re_enters_reads_and_refuses_writes(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let mut guard = locks.write("k").acquire().await.unwrap();
        let go = tokio::sync::Notify::new();
        let before = guard.scope(async {
            go.notified().await;
            locks.write("k").acquire().await
        });
        guard.downgrade().await.unwrap();
        assert_upgrade(guard.scope(async { locks.write("k").acquire().await }).await);
        go.notify_one();
        assert_upgrade(before.await);
        let nested = guard.scope(async { locks.read("k").acquire().await });
        let nested = nested.await.unwrap();
        assert_eq!(other.inspect("k").await.unwrap().readers, 1, "one hold in the store");
        guard.release().await.unwrap();
        assert!(nested.is_held() && !may_write(&other).await);
        nested.release().await.unwrap();
        assert!(may_write(&other).await);
    }

    async fn the_next_writer_waits_for_a_write_that_became_a_read(store: &mut Store) {
        let locks = store.manager().await;
        let mut guard = locks.write("k").acquire().await.unwrap();
        let next = tokio::spawn(locks.write("k").wait(LONG).acquire());
        eventually("it queues", async || locks.inspect("k").await.unwrap().local_waiters == 1).await;
        guard.downgrade().await.unwrap();
        sleep(100 * MS).await;
        assert!(!next.is_finished(), "somebody reads");
        guard.release().await.unwrap();
        next.await.unwrap().unwrap().release().await.unwrap();
    }

    async fn only_a_guard_of_one_good_write_can_be_downgraded(store: &mut Store) {
        let (locks, operator) = (store.manager().await, store.manager().await);
        let mut mutex = locks.mutex("m").acquire().await.unwrap();
        let refused = mutex.downgrade().await;
        assert!(matches!(refused, Err(LockError::InvalidConfig { .. })), "{refused:?}");
        let mut several = locks.multi([locks.write("a"), locks.write("b")]).acquire().await.unwrap();
        let refused = several.downgrade().await;
        assert!(matches!(refused, Err(LockError::InvalidConfig { .. })), "{refused:?}");
        assert!(mutex.is_held() && several.is_held(), "left as they are");
        mutex.release().await.unwrap();
        several.release().await.unwrap();
        let mut read = locks.read("k").acquire().await.unwrap();
        read.downgrade().await.unwrap();
        read.release().await.unwrap();
        let mut lost = locks.write("k").acquire().await.unwrap();
        assert!(operator.force_release("k").await.unwrap());
        lost.lost().wait().await;
        let refused = lost.downgrade().await;
        assert!(matches!(refused, Err(LockError::Lost { .. })), "{refused:?}");
        drop(lost);
        assert!(may_write(&operator).await);
    }
}

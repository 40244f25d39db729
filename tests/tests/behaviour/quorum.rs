//! Tests of what only a quorum does: a majority decides, and some requests are refused. The other suites test what it
//! has in common with one store, on three memory stores and on three Redis servers.

use std::time::Duration;

use lock_runtime::{LockError, LockManagerBuilder, LostReason, MemoryStore, TryAcquire};
use tests::{Quorum, Store, answered, eventually, left_of};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

tests::suite! {
    only on a quorum:
    async fn a_held_lock_is_refused_to_others_until_it_is_released(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let guard = locks.mutex("k").acquire().await.unwrap();
        assert_eq!(guard.fencing_token(), None, "a quorum has no tokens");
        let tried = answered(async || other.mutex("k").try_acquire().await).await;
        assert!(matches!(tried.unwrap(), TryAcquire::Busy { .. }));
        let busy = answered(async || other.mutex("k").wait(1_000 * MS).acquire().await).await;
        assert!(matches!(busy, Err(LockError::Busy { .. })), "{busy:?}");
        assert!(other.inspect("k").await.unwrap().held);
        guard.release().await.unwrap();
        other.mutex("k").acquire().await.unwrap().release().await.unwrap();
        assert!(!other.inspect("k").await.unwrap().held);
    }

    async fn a_hold_is_renewed_and_lost_when_a_majority_forgets_it(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let lease = store.lasting(2_000 * MS);
        let guard = locks.mutex("k").lease(lease).acquire().await.unwrap();
        store.forget(0);
        store.until_renewed(lease, async || left_of(&other, "k").await.min(guard.remaining())).await;
        assert!(guard.is_held(), "one of three");
        store.forget(1);
        assert_eq!(guard.lost().wait().await, LostReason::Refused);
        drop(guard);
        store.forget(2);
    }

    async fn other_kinds_are_refused(store: &mut Store) {
        let locks = store.manager().await;
        let requests = [locks.fair("k"), locks.fenced("k"), locks.read("k"), locks.write("k")];
        for request in requests {
            let refused = request.try_acquire().await.map(drop);
            assert!(matches!(refused, Err(LockError::InvalidConfig { .. })), "{refused:?}");
        }
        let semaphore = locks.semaphore("s").try_set_permits(1).await;
        assert!(matches!(semaphore, Err(LockError::InvalidConfig { .. })), "{semaphore:?}");
        let permits = locks.semaphore("s").permits(1).acquire().await.map(drop);
        assert!(matches!(permits, Err(LockError::InvalidConfig { .. })), "{permits:?}");
        let latch = locks.latch("l").opened().wait(LONG).await;
        assert!(matches!(latch, Err(LockError::InvalidConfig { .. })), "{latch:?}");
    }
}

fn builder() -> LockManagerBuilder {
    // Not longer than the longest lease of a quorum.
    tests::builder().lease(Duration::from_secs(30))
}

fn is_config<T: std::fmt::Debug>(result: &Result<T, LockError>) -> bool {
    matches!(result, Err(LockError::InvalidConfig { .. }))
}

#[tokio::test]
async fn an_empty_even_or_duplicate_quorum_is_refused_before_any_io() {
    let [a, b, c] = std::array::from_fn(|_| MemoryStore::new());
    assert!(is_config(&builder().quorum([] as [&str; 0]).await));
    assert!(is_config(&builder().quorum([&a, &b]).await));
    assert!(is_config(&builder().quorum([&a, &b, &a]).await));
    // Nobody listens there, so I/O would cause another error.
    for urls in [
        [
            "redis://127.0.0.1:1/",
            "redis://127.0.0.1:2/",
            "redis://127.0.0.1:1/3",
        ],
        ["redis://h:1/", "redis://x:y@H:1/", "redis://h:2/"],
        ["unix:///s", "redis+unix:///s?db=2", "redis://h/"],
        ["redis://h/", "redis-cluster://h/", "redis://i/"],
        ["redis://h/", "redis-sentinel://h/s", "redis://i/"],
        ["redis://h/", "http://h/", "redis://i/"],
        ["redis://h/", "postgres://u@h/db", "redis://i/"],
        ["mysql://u@h/db", "mysql://u@i/db", "mysql://u@j/db"],
    ] {
        assert!(is_config(&builder().quorum(urls).await), "{urls:?}");
    }
    assert!(builder().quorum([&a, &b, &c]).await.is_ok());
    assert!(
        builder().quorum(["memory://"; 3]).await.is_ok(),
        "a new store each"
    );
    assert!(is_config(
        &builder()
            .quorum(["memory://same", "memory://same", "memory://"])
            .await
    ));
}

#[tokio::test(start_paused = true)]
async fn a_lease_beyond_the_longest_is_refused_before_any_io() {
    let nodes: [MemoryStore; 3] = std::array::from_fn(|_| MemoryStore::new());
    let too_long = |result: Result<(), LockError>| {
        assert!(
            matches!(result, Err(LockError::InvalidLease { .. })),
            "{result:?}"
        );
    };
    let locks = builder().quorum(&nodes).await.unwrap();
    too_long(
        locks
            .mutex("k")
            .lease(61_000 * MS)
            .acquire()
            .await
            .map(drop),
    );
    let guard = locks.mutex("k").acquire().await.unwrap();
    too_long(guard.renew(61_000 * MS).await);
    guard.renew(LONG).await.unwrap();
    guard.release().await.unwrap();
    too_long(builder().lease(2 * LONG).quorum(&nodes).await.map(drop));
    too_long(
        builder()
            .longest_lease(LONG / 4)
            .quorum(&nodes)
            .await
            .map(drop),
    );
    let longer = builder().lease(2 * LONG).longest_lease(3 * LONG);
    let locks = longer.quorum(&nodes).await.unwrap();
    locks
        .mutex("k")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let refused = builder()
        .lease(MS * 1_000)
        .longest_lease(25 * 60 * LONG)
        .quorum(&nodes)
        .await;
    assert!(is_config(&refused), "{refused:?}");
}

#[tokio::test]
async fn one_server_under_two_names_is_refused() {
    let quorum = Quorum::redis(2).await;
    let [one, other] = [quorum.url(0), quorum.url(1)];
    let alias = one.replace("127.0.0.1", "localhost");
    let refused = builder().quorum([one, alias, other]).await;
    assert!(is_config(&refused), "{refused:?}");
    eventually("its connections are closed", async || quorum.is_deserted()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_under_two_names_has_one_vote_even_if_met_later() {
    let mut quorum = Quorum::redis(2).await;
    let [one, other] = [quorum.url(0), quorum.url(1)];
    let alias = one.replace("127.0.0.1", "localhost");
    quorum.kill9(1);
    let lazy = quorum.builder().lazy(true);
    let locks = lazy.quorum([one, alias, other]).await.unwrap();
    let refused = locks
        .mutex("k")
        .wait(Duration::from_millis(500))
        .acquire()
        .await;
    let error = refused.unwrap_err();
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    quorum.restart_empty(1);
    eventually("two servers are a majority of three", async || {
        locks
            .mutex("k")
            .try_acquire()
            .await
            .is_ok_and(|tried| matches!(tried, TryAcquire::Acquired(_)))
    })
    .await;
}

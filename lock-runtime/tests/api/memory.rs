//! A first walk through the API on the memory store.

use std::time::Duration;

use lock_runtime::{LockError, LockManager, LostReason, MemoryStore, TryAcquire};

#[tokio::test(start_paused = true)]
async fn a_lock_is_taken_renewed_and_given_back() {
    let locks = LockManager::in_memory();
    let guard = locks.mutex("a").acquire().await.unwrap();
    assert!(guard.is_held());
    assert!(matches!(
        locks.mutex("a").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(guard.is_held());
    assert!(locks.inspect("a").await.unwrap().held);
    guard.release().await.unwrap();
    assert!(!locks.inspect("a").await.unwrap().held);
}

#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_order() {
    let locks = LockManager::in_memory();
    let (sender, mut served) = tokio::sync::mpsc::unbounded_channel();
    let guard = locks.mutex("a").acquire().await.unwrap();
    for number in 0..20 {
        let request = locks.mutex("a").acquire();
        let sender = sender.clone();
        tokio::spawn(async move {
            let guard = request.await.unwrap();
            sender
                .send((number, guard.fencing_token().unwrap()))
                .unwrap();
            guard.release().await.unwrap();
        });
        tokio::task::yield_now().await;
    }
    guard.release().await.unwrap();
    let mut last = None;
    for number in 0..20 {
        let (who, token) = served.recv().await.unwrap();
        assert_eq!(who, number);
        assert!(Some(token) > last);
        last = Some(token);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_is_dropped_when_its_lock_is_forced_away() {
    let locks = LockManager::in_memory();
    let other = locks.clone();
    let outcome = locks
        .mutex("a")
        .run(async move |lease| {
            assert!(lease.is_held());
            assert!(
                other.mutex("a").run(async |_| 7).await.unwrap() == 7,
                "re-entry"
            );
            assert!(other.force_release("a").await.unwrap());
            std::future::pending::<()>().await;
        })
        .await;
    match outcome {
        Err(LockError::Lost {
            reason, completed, ..
        }) => {
            assert_eq!(reason, LostReason::ForceReleased);
            assert!(!completed);
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_lock_is_an_error_after_the_wait() {
    let locks = LockManager::in_memory();
    let guard = locks.mutex("a").acquire().await.unwrap();
    let error = locks
        .mutex("a")
        .wait(Duration::from_secs(3))
        .acquire()
        .await
        .unwrap_err();
    assert!(matches!(error, LockError::Busy { waited, .. } if waited >= Duration::from_secs(3)));
    drop(guard);
    locks
        .mutex("a")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    locks.shutdown().await;
    assert!(matches!(
        locks.mutex("a").acquire().await,
        Err(LockError::ShuttingDown { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn what_a_bodys_closure_asks_for_itself_is_nested() {
    let locks = LockManager::in_memory();
    let nested = locks
        .mutex("a")
        .run(|_| locks.mutex("a").run(async |_| 7))
        .await;
    assert_eq!(nested.unwrap().unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_a_shutdown_lets_finish_may_re_enter() {
    let locks = LockManager::in_memory();
    let body = locks.mutex("a").run({
        let locks = locks.clone();
        async move |_| {
            tokio::time::sleep(Duration::from_secs(1)).await;
            locks.mutex("a").run(async |_| 7).await
        }
    });
    let body = tokio::spawn(body);
    tokio::task::yield_now().await;
    locks.shutdown().await;
    assert_eq!(body.await.unwrap().unwrap().unwrap(), 7);
}

#[tokio::test]
async fn bodies_within_bodies_do_not_double_in_size() {
    let locks = LockManager::in_memory();
    let lock = || locks.mutex("a");
    let one = lock().run(async |_| 1);
    let three = lock().run(async |_| lock().run(async |_| lock().run(async |_| 3).await).await);
    let (size, nested) = (size_of_val(&one), size_of_val(&three));
    assert!(
        nested < size * 2,
        "one level {size} bytes, three levels {nested}"
    );
    assert_eq!(one.await.unwrap(), 1);
    assert_eq!(three.await.unwrap().unwrap().unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn min_hold_keeps_the_key_of_every_way_to_hold_it() {
    const LEAST: Duration = Duration::from_secs(5);
    let locks = LockManager::in_memory();
    let request = |name: &str| locks.mutex(name).wait(Duration::ZERO).min_hold(LEAST);
    request("acquire")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    match request("try").try_acquire().await.unwrap() {
        TryAcquire::Acquired(guard) => guard.release().await.unwrap(),
        TryAcquire::Busy { .. } => panic!("nobody holds it"),
    }
    request("run").run(async |_| ()).await.unwrap();
    let both = locks.multi([request("multi"), locks.mutex("member without")]);
    both.acquire().await.unwrap().release().await.unwrap();
    for name in ["acquire", "try", "run", "multi"] {
        assert!(locks.inspect(name).await.unwrap().held, "{name}");
    }
    assert!(!locks.inspect("member without").await.unwrap().held);
    tokio::time::sleep(LEAST + Duration::from_secs(1)).await;
    for name in ["acquire", "try", "run", "multi"] {
        assert!(!locks.inspect(name).await.unwrap().held, "{name}");
    }
    let error = locks.mutex("a").min_hold(Duration::ZERO).acquire().await;
    assert!(matches!(error, Err(LockError::InvalidConfig { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_set_that_is_not_complete_keeps_no_key_by_min_hold() {
    let locks = LockManager::in_memory();
    let guard = locks.fair("b").acquire().await.unwrap();
    let free = locks.fair("a").min_hold(Duration::from_secs(60));
    let both = locks.multi([free, locks.fair("b")]);
    assert!(both.wait(Duration::from_secs(1)).acquire().await.is_err());
    let free = locks.fair("a").wait(Duration::from_secs(5)).acquire().await;
    free.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_set_is_renewed_during_many_short_waits() {
    let locks = LockManager::in_memory();
    let lease = Duration::from_secs(3);
    let names = ["0", "1", "2", "3", "4", "5"];
    let mut others = Vec::new();
    for name in &names[1..] {
        others.push(locks.mutex(*name).acquire().await.unwrap());
    }
    let set = names.map(|name| locks.mutex(name).lease(lease).wait_forever());
    let set = tokio::spawn(locks.multi(set).acquire());
    for other in others {
        // Shorter than the time between two renewals. All of them are longer than a lease.
        tokio::time::sleep(lease * 3 / 10).await;
        assert!(locks.inspect("0").await.unwrap().held);
        other.release().await.unwrap();
    }
    let begun_again = Duration::from_millis(20);
    let set = tokio::time::timeout(begun_again, set).await;
    let set = set.expect("it is complete at once").unwrap().unwrap();
    set.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_longest_hold_of_a_set_counts_from_when_it_is_complete() {
    let locks = LockManager::in_memory();
    let longest = Duration::from_secs(5);
    let other = locks.mutex("b").acquire().await.unwrap();
    let set = ["a", "b"].map(|name| locks.mutex(name).max_hold(longest).wait_forever());
    let set = tokio::spawn(locks.multi(set).acquire());
    tokio::time::sleep(2 * longest).await;
    other.release().await.unwrap();
    let begun_again = Duration::from_millis(20);
    let set = tokio::time::timeout(begun_again, set).await;
    let set = set.expect("it is complete at once").unwrap().unwrap();
    tokio::time::sleep(longest - Duration::from_millis(100)).await;
    assert!(set.is_held());
    assert_eq!(set.lost().wait().await, LostReason::MaxHold);
}

#[tokio::test]
async fn a_memory_store_beside_a_url_is_refused() {
    let store = MemoryStore::new();
    let builder = || LockManager::builder().memory_store(&store);
    let nodes = ["memory://a", "memory://b", "memory://c"];
    for refused in [
        builder().connect("memory://").await,
        builder().connect("redis://localhost").await,
        builder().quorum(nodes).await,
    ] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("`memory_store`"), "{refused}");
    }
}

#[tokio::test]
async fn a_far_too_large_set_is_refused_before_locks_are_compared() {
    let locks = LockManager::in_memory();
    // If each were compared with all before it, this would take minutes.
    let many = (0..100_000).map(|key| locks.mutex(key.to_string()));
    let refused = locks.multi(many).acquire().await.unwrap_err();
    assert!(refused.to_string().contains("not 100000"), "{refused}");
}

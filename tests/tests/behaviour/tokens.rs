//! Fencing tokens rise with every acquisition, whatever happens to the store in between.

use std::time::Duration;

use lock_runtime::LockManager;
use tests::{Store, eventually};

const MS: Duration = Duration::from_millis(1);

async fn next(locks: &LockManager) -> u64 {
    let guard = locks
        .mutex("k")
        .wait(Duration::from_secs(30))
        .acquire()
        .await
        .unwrap();
    let token = guard.fencing_token().unwrap().get();
    guard.release().await.unwrap();
    token
}

/// Takes the lock as soon as the manager is able to again, after a server has come back.
async fn next_after_restart(locks: &LockManager) -> u64 {
    let mut guard = None;
    eventually("the manager works again", async || {
        guard = locks.mutex("k").wait(1_000 * MS).acquire().await.ok();
        guard.is_some()
    })
    .await;
    let guard = guard.unwrap();
    let token = guard.fencing_token().unwrap().get();
    guard.release().await.unwrap();
    token
}

tests::suite! {
    async fn every_acquisition_has_a_higher_token(store: &mut Store) {
        let (a, b) = (store.manager().await, store.manager().await);
        let mut last = 0;
        for _ in 0..200 {
            for locks in [&a, &b] {
                let token = next(locks).await;
                assert!(token > last, "{token} after {last}");
                assert!(token < 1 << 53);
                last = token;
            }
        }
    }

    async fn tokens_rise_across_an_expiry(store: &mut Store) {
        let (a, b) = (store.manager().await, store.manager().await);
        let request = a.mutex("k").lease(1_000 * MS).wait(60_000 * MS).auto_renew(false);
        let expired = request.acquire().await.unwrap();
        assert!(next(&b).await > expired.fencing_token().unwrap().get());
    }

    async fn tokens_rise_across_a_forced_release(store: &mut Store) {
        let (a, b) = (store.manager().await, store.manager().await);
        let guard = a.mutex("k").acquire().await.unwrap();
        assert!(b.force_release("k").await.unwrap());
        assert!(next(&b).await > guard.fencing_token().unwrap().get());
    }

    async fn tokens_rise_across_a_flush(store: &mut Store) {
        let locks = store.manager().await;
        let mut last = 0;
        for _ in 0..5 {
            let token = next(&locks).await;
            assert!(token > last, "{token} after {last}");
            last = token;
            store.flush();
        }
    }

    async fn a_hand_over_raises_the_token(store: &mut Store) {
        let locks = store.manager().await;
        let mut tokens = Vec::new();
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let locks = locks.clone();
            running.spawn(async move { next(&locks).await });
        }
        while let Some(token) = running.join_next().await {
            tokens.push(token.unwrap());
        }
        tokens.sort_unstable();
        assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{tokens:?}");
    }

    async fn the_views_of_a_hold_share_its_token(store: &mut Store) {
        let locks = store.manager().await;
        let guard = locks.mutex("k").acquire().await.unwrap();
        assert_eq!(guard.lease().fencing_token(), guard.fencing_token());
        let text = guard.fencing_token().unwrap().to_string();
        assert_eq!(text.parse(), Ok(guard.fencing_token().unwrap().get()));
        guard.release().await.unwrap();
    }
}

tests::suite! {
    alone:
    async fn tokens_rise_across_a_restart_that_lost_all_data(store: &mut Store) {
        let locks = store.manager().await;
        let before = next(&locks).await;
        store.restart();
        let after = next_after_restart(&locks).await;
        assert!(after > before, "{after} after {before}");
    }
}

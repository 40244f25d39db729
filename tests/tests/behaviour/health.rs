//! Tests of `LockManager::health` while nothing is wrong, and after a shutdown.

use std::time::{Duration, SystemTime};

use lock_runtime::HealthState;
use tests::Store;
use tests::faults::took;

tests::suite! {
    also on a quorum:
    async fn a_store_that_answers_is_healthy_since_it_has_been_used(store: &mut Store) {
        let began = SystemTime::now();
        // A busy machine answers late.
        let patient = tests::builder().call_timeout(Duration::from_secs(60));
        let locks = store.connect(patient).await;
        let (health, first) = took(locks.health()).await;
        assert!(health.is_ok(), "{health:?}");
        assert_eq!((health.state, &health.error), (HealthState::Ok, &None));
        assert_eq!(health.store, locks.snapshot().store);
        assert!(health.latency.unwrap() <= first, "{health:?}");
        assert!(health.since >= began - Duration::from_secs(2) && health.since <= SystemTime::now(), "{health:?}");
        for node in &health.nodes {
            assert!(node.is_ok() && node.latency.is_some(), "{node:?}");
        }
        let is_paused = store.is_paused();
        if !is_paused {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let (later, second) = took(locks.health()).await;
        assert!(later.is_ok(), "{later:?}");
        // `since` is computed from two clocks, one of which may be read later than the other, and be paused.
        let slack = if is_paused { began.elapsed().unwrap() } else { first + second };
        let moved = later.since.max(health.since).duration_since(later.since.min(health.since));
        assert!(moved.unwrap() <= slack, "{health:?} {later:?}");
    }

    async fn a_manager_that_was_shut_down_is_not_healthy(store: &mut Store) {
        let locks = store.manager().await;
        locks.shutdown().await;
        for _ in 0..2 {
            let health = locks.health().await;
            assert_eq!(health.state, HealthState::Down);
            assert!(!health.is_ok() && health.latency.is_none());
            assert!(health.error.as_ref().unwrap().contains("shutting down"), "{health:?}");
        }
    }
}

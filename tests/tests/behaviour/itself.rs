//! Tests of a task that waits for a lock which it has itself: the error says so.

use std::time::Duration;

use lock_runtime::LockError;
use tests::{Store, answered};

const MS: Duration = Duration::from_millis(1);

tests::suite! {
    async fn a_task_that_waits_for_itself_is_told_so(store: &mut Store) {
        let locks = store.manager().await;
        let pairs = [
            (locks.mutex("mutex"), locks.mutex("mutex")),
            (locks.fair("fair"), locks.fair("fair")),
            (locks.write("write"), locks.write("write")),
            (locks.read("read"), locks.write("read")),
        ];
        for (first, second) in pairs {
            let guard = first.label("the outer one").acquire().await.unwrap();
            // Without `run`, nothing tells that this is the same task.
            let second = second.wait(300 * MS);
            let refused = answered(async || second.clone().acquire().await).await.unwrap_err();
            let LockError::Busy { held_here: Some(own), .. } = &refused else {
                panic!("{refused:?}");
            };
            assert_eq!(own.label(), "the outer one");
            assert!(own.held_for() >= 300 * MS, "{own:?}");
            let said = refused.to_string();
            assert!(said.contains("this very process has held it for"), "{said}");
            assert!(said.contains("`run`"), "{said}");
            guard.release().await.unwrap();
        }
        let other = store.manager().await;
        let guard = other.mutex("elsewhere").acquire().await.unwrap();
        let elsewhere = locks.mutex("elsewhere").wait(300 * MS);
        let refused = answered(async || elsewhere.clone().acquire().await).await;
        assert!(matches!(refused, Err(LockError::Busy { held_here: None, .. })), "{refused:?}");
        guard.release().await.unwrap();
    }
}

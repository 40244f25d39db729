//! Tests of sets while this process lets others come first. Time is paused.

use super::*;
use crate::LockManager;
use crate::values::{Kind, LockName};

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn a_set_that_may_wait_leaves_a_rest_to_other_processes() {
    let locks = LockManager::in_memory();
    let core = locks.core();
    let key = Arc::new(core.key(&LockName::from("a"), Kind::Mutex).unwrap());
    let set = || locks.multi([locks.mutex("a"), locks.mutex("b")]);
    for (wait, rests) in [(1_000 * MS, true), (MS, false)] {
        let front = core.queues.try_enter(&key, |_| false).unwrap();
        front.rests(clock::now() + 50 * MS);
        let resting = tokio::spawn(async move {
            clock::sleep(50 * MS).await;
            drop(front);
        });
        let began = clock::now();
        let guard = set().wait(wait).acquire().await.unwrap();
        let waited = began.elapsed();
        assert_eq!(waited >= 50 * MS, rests, "{waited:?}");
        guard.release().await.unwrap();
        resting.await.unwrap();
    }
}

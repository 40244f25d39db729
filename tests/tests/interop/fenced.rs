//! Tests of `fenced` and `getFencedLock`: they are one lock, with one counter of tokens.

use lock_runtime::TryAcquire;
use tests::JavaPeer;

use crate::pair::{LONG, Pair};

/// Calls Java's `tryLockAndGetToken` with a long wait, and returns the token.
async fn java_token(java: &JavaPeer, thread: &str) -> u64 {
    let answer = java
        .ask(format!("lock-token k {} -1 @{thread}", LONG.as_millis()))
        .await;
    answer.parse().expect("a token")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_by_one_in_java_and_in_rust() {
    let pair = Pair::start().await;
    let java = pair.java.lock_of("fenced", "k");
    for round in 0..10 {
        assert_eq!(java_token(&pair.java, "a").await, 2 * round + 1);
        assert!(matches!(
            pair.rust.fenced("k").try_acquire().await.unwrap(),
            TryAcquire::Busy { .. }
        ));
        java.unlock("a").await;
        let guard = pair.rust.fenced("k").acquire().await.unwrap();
        assert_eq!(guard.fencing_token().unwrap().get(), 2 * round + 2);
        assert!(!java.try_lock("a").await);
        assert_eq!(pair.java.ask("token k").await, (2 * round + 2).to_string());
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn javas_re_entries_raise_the_counter_and_ours_do_not() {
    let pair = Pair::start().await;
    let java = pair.java.lock_of("fenced", "k");
    assert_eq!(java_token(&pair.java, "a").await, 1);
    assert_eq!(java_token(&pair.java, "a").await, 2);
    java.unlock("a").await;
    java.unlock("a").await;
    let guard = pair.rust.fenced("k").acquire().await.unwrap();
    let nested = guard.scope(async { pair.rust.fenced("k").acquire().await });
    let nested = nested.await.unwrap();
    assert_eq!(nested.fencing_token(), guard.fencing_token());
    nested.release().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(java_token(&pair.java, "a").await, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_both_are_unique_and_rise_in_each() {
    let pair = Pair::start().await;
    let mut in_rust = Vec::new();
    for _ in 0..4 {
        let locks = pair.rust.clone();
        in_rust.push(tokio::spawn(async move {
            let mut tokens = Vec::new();
            for _ in 0..50 {
                let guard = locks.fenced("k").wait(LONG).acquire().await.unwrap();
                tokens.push(guard.fencing_token().unwrap().get());
                guard.release().await.unwrap();
            }
            tokens
        }));
    }
    let in_java = async |thread| {
        let mut tokens = Vec::new();
        for _ in 0..50 {
            tokens.push(java_token(&pair.java, thread).await);
            pair.java.lock_of("fenced", "k").unlock(thread).await;
        }
        tokens
    };
    let (a, b) = tokio::join!(in_java("a"), in_java("b"));
    let mut all = vec![a, b];
    for task in in_rust {
        all.push(task.await.unwrap());
    }
    for tokens in &all {
        assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    }
    let mut all = all.concat();
    all.sort_unstable();
    // There may be gaps: a hand-over sets aside as many tokens as there are waiters, and waiters whose turn comes too
    // late get others.
    assert!(all.is_sorted_by(|one, next| one < next), "{all:?}");
    assert!(all.len() == 300 && all[299] < 600, "{all:?}");
}

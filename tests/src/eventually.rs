//! Waiting for a condition instead of sleeping for a guessed time.

use std::time::Duration;

use lock_runtime::{LockError, LockGuard, TryAcquire};
use tokio::time::Instant;

/// The time that [`eventually`] waits. Only a hang exceeds it, however long a busy machine stands still, and it is shorter
/// than the lease of [`builder`](crate::builder): what is put right by the end of one is not right.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until `condition` holds. Panics with `what` in the message if that takes longer than [`PATIENCE`].
///
/// It follows tokio's clock: if that is paused, the polling itself moves the time forward.
pub async fn eventually(what: &str, condition: impl AsyncFnMut() -> bool) {
    eventually_within(PATIENCE, what, condition).await;
}

/// Does the same as [`eventually`] with another bound, and returns how long it took.
pub async fn eventually_within(
    bound: Duration,
    what: &str,
    mut condition: impl AsyncFnMut() -> bool,
) -> Duration {
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if condition().await {
            return started.elapsed();
        }
        assert!(started.elapsed() < bound, "not within {bound:?}: {what}");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Asks until the store answers, for [`PATIENCE`] at most, and returns the last answer. On a busy machine, the answer to
/// a short wait may come too late, which says nothing of the lock.
pub async fn answered<T>(
    mut ask: impl AsyncFnMut() -> Result<T, LockError>,
) -> Result<T, LockError> {
    let started = Instant::now();
    loop {
        match ask().await {
            Err(LockError::Unavailable { .. }) if started.elapsed() < PATIENCE => {}
            answer => return answer,
        }
    }
}

/// Has a lock that is free by asking once, and returns its guard. Panics if it is busy. On a busy machine, the answer may come
/// too late; then what the request took is given back, and until that is done the next one finds the lock busy.
pub async fn had_at_once(mut ask: impl AsyncFnMut() -> Result<TryAcquire, LockError>) -> LockGuard {
    let (started, mut late) = (Instant::now(), false);
    loop {
        let in_time = started.elapsed() < PATIENCE;
        match ask().await {
            Ok(TryAcquire::Acquired(guard)) => return guard,
            Err(LockError::Unavailable { .. }) if in_time => late = true,
            Ok(TryAcquire::Busy { .. }) | Err(LockError::Busy { .. }) if late && in_time => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            other => panic!("a free lock is not had at once: {other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_returns_as_soon_as_the_condition_holds() {
        let mut calls = 0;
        let took = eventually_within(Duration::from_secs(1), "three calls", async || {
            calls += 1;
            calls == 3
        })
        .await;
        assert_eq!(took, Duration::from_millis(3));
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "not within 1s: pigs fly")]
    async fn it_names_what_never_happened() {
        eventually_within(Duration::from_secs(1), "pigs fly", async || false).await;
    }
}

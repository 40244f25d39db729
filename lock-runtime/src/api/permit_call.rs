//! `mode = semaphore(n)`: a permit for each call, of a semaphore that has `n` from the first call on.

use std::time::Duration;

use crate::api::guard::LockGuard;
use crate::api::manager::LockManager;
use crate::api::multi::MultiRequest;
use crate::values::clock;
use crate::values::error::LockError;

/// Acquires the permits of `names` semaphores within `wait`; `None`: as long as it takes. Where the store says that
/// nobody has set a semaphore, it is set to `in_all`: by whoever comes first, so that later calls cost no more than those
/// of any other kind.
pub(crate) async fn acquire(
    locks: LockManager,
    request: MultiRequest,
    names: usize,
    in_all: u64,
    wait: Option<Duration>,
) -> Result<LockGuard, LockError> {
    let since = clock::now();
    let mut tries = 0;
    loop {
        let request = request.clone();
        let request = match wait {
            Some(wait) => request.wait(wait.saturating_sub(since.elapsed())),
            None => request.wait_forever(),
        };
        match request.acquire().await {
            // Once for each name: a store that goes on losing them is not asked for ever.
            Err(LockError::NotSet { name }) if tries < names => {
                tries += 1;
                // False if somebody else was faster: it is set all the same.
                let _ = locks.semaphore(name).try_set_permits(in_all).await?;
            }
            acquired => return acquired,
        }
    }
}

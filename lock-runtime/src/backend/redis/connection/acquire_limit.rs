//! A limit on the acquires that are under way at once on one connection. More acquires would only queue in front of
//! renewals and releases, which need no permit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

use crate::backend::Fault;
use crate::sync::Mutex;
use crate::values::{Moment, clock, rare};

pub(crate) const MAX_ACQUIRES: usize = 1024;

/// The permits of one connection. A new connection has all of them, even while requests on the previous one are under
/// way.
///
/// A permit goes back when its caller is polled after the answer. A caller that is no longer polled keeps its permit.
/// So if no waiting caller got a permit during the whole wait of another caller, the calls count as over, and a new set
/// of permits replaces the old one.
#[derive(Debug)]
pub(crate) struct AcquireLimit {
    set: Mutex<Arc<Semaphore>>,
    /// The number of permits given to callers that had to wait.
    given: AtomicU64,
}

impl AcquireLimit {
    pub(crate) fn new() -> AcquireLimit {
        AcquireLimit {
            set: Mutex::new(fresh()),
            given: AtomicU64::new(0),
        }
    }

    /// Closes the set of permits: no more are given, and all waits end.
    pub(crate) fn close(&self) {
        self.set.lock().close();
    }

    /// Returns one permit and the current time, which is `now` if a permit was free at once. Returns `None` if the
    /// permits were closed or replaced.
    ///
    /// # Errors
    /// [`Fault::NotDone`] if there was none until `deadline`.
    pub(crate) async fn get(
        &self,
        now: Moment,
        deadline: Moment,
    ) -> Result<Option<(OwnedSemaphorePermit, Moment)>, Fault> {
        let set = self.set.lock().clone();
        // This overtakes no waiting caller: a permit that is given back while callers wait goes to them.
        match set.clone().try_acquire_owned() {
            Ok(permit) => return Ok(Some((permit, now))),
            Err(TryAcquireError::Closed) => return Ok(None),
            Err(TryAcquireError::NoPermits) => {}
        }
        let before = self.given.load(Ordering::Relaxed);
        let waited = tokio::time::timeout_at(deadline.tick(), set.clone().acquire_owned());
        match rare(waited).await {
            Ok(permit) => {
                self.given.fetch_add(1, Ordering::Relaxed);
                Ok(permit.ok().map(|permit| (permit, clock::now())))
            }
            Err(_) => {
                if self.given.load(Ordering::Relaxed) == before {
                    self.replace(&set);
                }
                Err(Fault::not_done("too many acquires are under way"))
            }
        }
    }

    /// Replaces `old` by a new set, if `old` is still the current one.
    fn replace(&self, old: &Arc<Semaphore>) {
        let mut set = self.set.lock();
        if Arc::ptr_eq(&set, old) && !old.is_closed() {
            *set = fresh();
            // Callers that wait for the old permits then ask for new ones.
            old.close();
        }
    }
}

fn fresh() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MAX_ACQUIRES))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const CALL: Duration = Duration::from_secs(2);

    async fn get(limit: &AcquireLimit) -> Result<Option<OwnedSemaphorePermit>, Fault> {
        let now = clock::now();
        let got = limit.get(now, now + CALL).await?;
        Ok(got.map(|(permit, _)| permit))
    }

    #[tokio::test(start_paused = true)]
    async fn permits_that_are_not_given_back_are_replaced() {
        let limit = AcquireLimit::new();
        let mut parked = Vec::new();
        for _ in 0..MAX_ACQUIRES {
            parked.push(get(&limit).await.unwrap().unwrap());
        }
        let second = async {
            tokio::time::sleep(CALL / 2).await;
            get(&limit).await
        };
        let (first, second) = tokio::join!(get(&limit), second);
        assert!(matches!(first, Err(Fault::NotDone(_))), "{first:?}");
        assert!(second.unwrap().is_none(), "it has to ask again");
        let mut fresh = Vec::new();
        for _ in 0..MAX_ACQUIRES {
            fresh.push(get(&limit).await.unwrap().unwrap());
        }
        // Old permits that come back late are not added to the new ones.
        drop(parked);
        let one_more = get(&limit).await;
        assert!(matches!(one_more, Err(Fault::NotDone(_))), "{one_more:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn permits_that_come_back_one_by_one_stay_the_same() {
        let limit = AcquireLimit::new();
        let mut under_way = Vec::new();
        for _ in 0..MAX_ACQUIRES {
            under_way.push(get(&limit).await.unwrap().unwrap());
        }
        let slow = async {
            tokio::time::sleep(CALL / 2).await;
            drop(under_way.pop());
        };
        let (first, second, ()) = tokio::join!(get(&limit), get(&limit), slow);
        assert!(first.unwrap().is_some(), "it was there first");
        assert!(matches!(second, Err(Fault::NotDone(_))), "{second:?}");
        let third = get(&limit).await;
        assert!(
            third.unwrap().is_some(),
            "the first has given its permit back"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn closed_permits_are_not_replaced() {
        let limit = AcquireLimit::new();
        let _one = get(&limit).await.unwrap().unwrap();
        limit.close();
        assert!(get(&limit).await.unwrap().is_none());
        let current = limit.set.lock().clone();
        limit.replace(&current);
        assert!(get(&limit).await.unwrap().is_none());
    }
}

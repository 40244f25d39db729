//! Writes the client record of this manager into the store, for as long as it holds locks or waits for fair ones. The
//! record is for operators, and is written beside everything else: no lock waits for it, fails by it, or costs another
//! request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use super::Background;
use crate::backend::{Directory, Fault, Introduction, KnownClient};
use crate::observe::metrics::logged;
use crate::values::client::RECORD_BEAT;
use crate::values::{ClientRecord, Count, Key, Moment, clock};

/// The information about a manager that others may see.
#[derive(Debug)]
pub(crate) struct Presence {
    pub(crate) record: ClientRecord,
    pub(crate) began: Moment,
    short_id: String,
    /// The key of the record.
    key: Key,
    /// There was a hold, or a place in a queue, since the record was last written. Its caller sets this; the task that
    /// writes clears it.
    wanted: AtomicBool,
    /// Raised after `wanted` was set.
    wake: Notify,
    /// The store may have the record.
    was_written: AtomicBool,
    /// Raised when the record is to be deleted for good.
    leave: Notify,
    /// The task that writes, until the record is deleted.
    at_work: Arc<Count>,
}

impl Presence {
    pub(crate) fn new(record: ClientRecord, short_id: String, key: Key) -> Presence {
        Presence {
            record,
            began: clock::now(),
            short_id,
            key,
            wanted: AtomicBool::new(false),
            wake: Notify::new(),
            was_written: AtomicBool::new(false),
            leave: Notify::new(),
            at_work: Arc::default(),
        }
    }

    /// The store has a hold or a place of this manager, by which others may meet it.
    pub(crate) fn note_wanted(&self) {
        // Nearly always it is set already.
        if !self.wanted.load(Ordering::Relaxed) {
            self.wanted.store(true, Ordering::Relaxed);
            self.wake.notify_one();
        }
    }

    /// Deletes the record, and writes no other. Resolves when that is done, or has failed.
    pub(crate) async fn leave(&self) {
        self.leave.notify_one();
        self.at_work.zero().await;
    }

    /// Returns the record as the store would return it.
    pub(crate) fn known(&self) -> KnownClient {
        KnownClient {
            record: self.record.clone(),
            since: self.began.wall(),
        }
    }
}

/// Keeps the record until the manager ends, and deletes it then.
pub(super) async fn keep(of: Background) {
    let Some(directory) = of.backend.directory() else {
        return;
    };
    let presence = &of.presence;
    let _at_work = presence.at_work.enter();
    tokio::select! {
        () = of.life.stopped() => {}
        () = presence.leave.notified() => {}
        () = write(&of, directory) => return,
    }
    if presence.was_written.load(Ordering::Relaxed)
        && let Err(fault) = directory.withdraw(&presence.key, of.timeout).await
    {
        logged!(debug, reason = %fault, "the record of this lock manager stays in the store until its TTL is over");
    }
}

/// Writes the record again and again. Ends if the store refuses it for good.
async fn write(of: &Background, directory: &dyn Directory) {
    let presence = &of.presence;
    let (mut was_taken, mut was_told) = (false, false);
    loop {
        // Without a reason to write it, the record ends by its TTL.
        while !presence.wanted.load(Ordering::Relaxed) && of.watch.count() == 0 {
            presence.wake.notified().await;
        }
        presence.wanted.store(false, Ordering::Relaxed);
        let client = Introduction {
            key: &presence.key,
            record: &presence.record,
            short_id: &presence.short_id,
            began: presence.began,
        };
        // This comes before the request: a request that is dropped may arrive.
        presence.was_written.store(true, Ordering::Relaxed);
        let written = directory.introduce(client, of.timeout);
        match written.await {
            Ok(()) => (was_taken, was_told) = (true, false),
            Err(Fault::Closed(_)) => return,
            Err(fault) if was_told || fault.is_passing() => {
                logged!(debug, reason = %fault, "the store did not take the record of this lock manager");
            }
            Err(fault) => {
                logged!(
                    info,
                    reason = %fault,
                    "the store refuses the record of this lock manager: who inspects its locks sees an id, and neither \
                     app nor host"
                );
                // What the store took before, it may take again: somebody changes users or rights.
                if !was_taken {
                    return;
                }
                was_told = true;
            }
        }
        clock::sleep(RECORD_BEAT.mul_f64(0.8 + fastrand::f64() * 0.2)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;
    use crate::api::manager::LockManager;
    use crate::backend::Reply;
    use crate::backend::memory::MemoryStore;
    use crate::values::client::RECORD_TTL;
    use crate::values::error::StoreError;

    const SECOND: Duration = Duration::from_secs(1);

    /// A manager, and another one that looks at its record in the store that both share.
    fn pair() -> (LockManager, LockManager) {
        let store = MemoryStore::new();
        let manager = || LockManager::builder().memory_store(&store).in_memory();
        (manager().unwrap(), manager().unwrap())
    }

    /// Whether a record of `locks` is there, some moments later.
    async fn is_known(locks: &LockManager, other: &LockManager) -> bool {
        clock::sleep(Duration::from_millis(10)).await;
        let directory = other.core().backend.directory().unwrap();
        let key = &locks.core().presence.key;
        directory.who(key, SECOND).await.unwrap().is_some()
    }

    async fn cycle(locks: &LockManager) {
        let guard = locks.mutex("cycle").acquire().await.unwrap();
        guard.release().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_record_is_there_from_the_first_hold_to_the_last() {
        let (locks, other) = pair();
        locks.inspect("k").await.unwrap();
        assert!(!is_known(&locks, &other).await);
        let guard = locks.mutex("k").acquire().await.unwrap();
        for _ in 0..600 {
            assert!(is_known(&locks, &other).await);
            clock::sleep(SECOND).await;
        }
        guard.release().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_record_of_an_idle_manager_ends_until_its_next_hold() {
        let (locks, other) = pair();
        for _ in 0..3 {
            cycle(&locks).await;
            assert!(is_known(&locks, &other).await);
            clock::sleep(RECORD_TTL - RECORD_BEAT).await;
            assert!(is_known(&locks, &other).await);
            clock::sleep(RECORD_TTL + RECORD_BEAT).await;
            assert!(!is_known(&locks, &other).await);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_manager_that_only_waits_has_a_record_while_it_waits() {
        let (locks, other) = pair();
        let guard = other.fair("k").acquire().await.unwrap();
        let waiting = tokio::spawn(locks.fair("k").wait(600 * SECOND).acquire());
        for _ in 0..300 {
            assert!(is_known(&locks, &other).await);
            clock::sleep(SECOND).await;
        }
        waiting.abort();
        guard.release().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn overlapping_short_holds_keep_the_record() {
        let (locks, other) = pair();
        for _ in 0..600 {
            cycle(&locks).await;
            assert!(is_known(&locks, &other).await);
            clock::sleep(SECOND).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_or_the_end_of_the_last_clone_deletes_the_record() {
        let (locks, other) = pair();
        let guard = locks.mutex("k").acquire().await.unwrap();
        assert!(is_known(&locks, &other).await);
        guard.release().await.unwrap();
        locks.shutdown().await;
        assert!(!is_known(&locks, &other).await);

        let (locks, other) = pair();
        cycle(&locks).await;
        assert!(is_known(&locks, &other).await);
        let key = locks.core().presence.key.clone();
        drop(locks);
        clock::sleep(Duration::from_millis(10)).await;
        let directory = other.core().backend.directory().unwrap();
        assert!(directory.who(&key, SECOND).await.unwrap().is_none());
    }

    /// Refuses all records after the first ones, and counts them all.
    struct Refusing {
        fault: Fault,
        takes: usize,
        asked: AtomicUsize,
    }

    impl Directory for Refusing {
        fn introduce<'a>(&'a self, _: Introduction<'a>, _: Duration) -> Reply<'a, ()> {
            let before = self.asked.fetch_add(1, Ordering::Relaxed);
            let is_taken = before < self.takes;
            let answer = is_taken.then_some(()).ok_or_else(|| self.fault.clone());
            Box::pin(std::future::ready(answer))
        }

        fn withdraw<'a>(&'a self, _: &'a Key, _: Duration) -> Reply<'a, ()> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn who<'a>(&'a self, _: &'a Key, _: Duration) -> Reply<'a, Option<KnownClient>> {
            Box::pin(std::future::ready(Ok(None)))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_refuses_the_record_for_good_is_not_asked_again() {
        let (locks, _other) = pair();
        let guard = locks.mutex("k").acquire().await.unwrap();
        let of = locks.core().background();
        let why = || StoreError::new("no");
        for (fault, takes, expected) in [
            (Fault::Denied(why()), 0, 1..=1),
            (Fault::Denied(why()), 1, 10..=15),
            (Fault::NotDone(why()), 0, 10..=15),
            (Fault::Unknown(why()), 0, 10..=15),
        ] {
            let directory = Refusing {
                fault,
                takes,
                asked: AtomicUsize::new(0),
            };
            let _ = tokio::time::timeout(300 * SECOND, write(&of, &directory)).await;
            let times = directory.asked.load(Ordering::Relaxed);
            let fault = &directory.fault;
            assert!(
                expected.contains(&times),
                "{fault:?} after {takes}: {times}"
            );
        }
        guard.release().await.unwrap();
    }

    #[test]
    fn the_record_of_a_memory_manager_outlives_its_runtime() {
        let runtime = || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_all().start_paused(true).build().unwrap()
        };
        let (first, second) = (runtime(), runtime());
        let (locks, other) = first.block_on(async { pair() });
        let guard = first.block_on(async {
            let guard = locks.mutex("k").acquire().await.unwrap();
            assert!(is_known(&locks, &other).await);
            guard
        });
        second.block_on(async { locks.inspect("k").await.unwrap() });
        drop(first);
        second.block_on(async {
            for _ in 0..300 {
                assert!(is_known(&locks, &other).await);
                clock::sleep(SECOND).await;
            }
            guard.release().await.unwrap();
        });
    }
}

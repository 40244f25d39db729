//! What every store has to do, whatever it is: the suite of stores of mutexes, under everything above the trait
//! (`mutexes.rs`) and at the trait itself (`contract.rs`).
//!
//! Another store joins it by an `impl Store` and a line `suite!` below. The clock is paused: a store with a server, or with
//! a clock of its own, cannot be tried here, only by the behaviours of `tests/`.

mod contract;
mod mutex_store;
mod mutexes;

use std::sync::Arc;
use std::time::Duration;

use self::mutex_store::{MutexStore, Table};
use crate::api::manager::LockManager;
use crate::backend::memory::{MemoryBackend, MemoryStore};
use crate::backend::{Backend, EventSink};
use crate::values::Options;

const SECOND: Duration = Duration::from_secs(1);

/// A store that several managers can use.
trait Store: Default {
    /// One manager's access to it.
    fn open(&self, events: EventSink) -> Arc<dyn Backend>;
}

impl Store for Arc<Table> {
    fn open(&self, events: EventSink) -> Arc<dyn Backend> {
        Arc::new(MutexStore::new(self, events))
    }
}

impl Store for MemoryStore {
    fn open(&self, events: EventSink) -> Arc<dyn Backend> {
        Arc::new(MemoryBackend::new(self.clone(), events))
    }
}

macro_rules! suite {
    ($name:ident: $store:ty) => {
        mod $name {
            use super::*;

            suite! { mutexes, $store =>
                a_mutex_admits_one_at_a_time_and_serves_everybody
                tokens_rise_and_busy_locks_are_refused_or_waited_for
                a_hold_is_renewed_while_it_lives_and_a_fixed_lease_ends
                a_forced_release_is_told_and_a_lock_can_be_inspected
                a_request_that_is_dropped_unpolled_has_done_nothing
                nested_requests_and_sets_of_locks_need_nothing_of_the_store
            }
            suite! { contract, $store =>
                a_request_that_is_sent_twice_has_the_effect_of_once
                what_a_former_holder_sends_late_spares_the_next_one
                renewals_of_a_batch_are_answered_singly_and_shorten_no_lease
                an_acquire_that_is_dropped_half_way_leaves_no_lock
            }
        }
    };
    ($file:ident, $store:ty => $($test:ident)*) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $test() {
                $file::$test::<$store>().await;
            }
        )*
    };
}

suite!(on_the_smallest_store: Arc<Table>);
suite!(on_the_memory_store: MemoryStore);

fn manager(store: &impl Store) -> LockManager {
    LockManager::build(Options::default(), |events| store.open(events))
}

#[tokio::test]
async fn kinds_that_a_store_lacks_are_refused_by_its_name_and_theirs() {
    let locks = manager(&Arc::<Table>::default());
    let semaphore = locks.semaphore("s");
    let latch = locks.latch("l");
    let refused = [
        (locks.fair("k").acquire().await.map(drop), "fair locks"),
        (
            locks.read("k").acquire().await.map(drop),
            "read/write locks",
        ),
        (
            locks.write("k").try_acquire().await.map(drop),
            "read/write locks",
        ),
        (locks.fenced("k").acquire().await.map(drop), "fenced locks"),
        (semaphore.permits(1).acquire().await.map(drop), "semaphores"),
        (semaphore.try_set_permits(1).await.map(drop), "semaphores"),
        (latch.try_set_count(1).await.map(drop), "latches"),
    ];
    for (answer, what) in refused {
        let error = answer.unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        assert!(error.contains("the memory store"), "{error}");
    }
}

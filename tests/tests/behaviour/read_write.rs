//! Tests of many readers or one writer: who is admitted beside whom, who waits for whom, and for how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use lock_runtime::{
    LockError, LockGuard, LockManager, LockMode, LockRequest, LostReason, TryAcquire,
};
use tests::stops::{STOP, in_one_of_a_few_rounds};
use tests::{History, Store, answered, eventually, left_of};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

/// Starts the request in a task and waits until the manager counts that many waiters.
async fn waiting(
    locks: &LockManager,
    number: usize,
    acquire: impl Future<Output = Result<LockGuard, LockError>> + Send + 'static,
) -> JoinHandle<LockGuard> {
    let task = tokio::spawn(async move { acquire.await.expect("it is admitted in the end") });
    let locks = locks.clone();
    eventually("it queues", async move || {
        locks.inspect("k").await.unwrap().local_waiters >= number
    })
    .await;
    assert!(!task.is_finished(), "it has to wait");
    task
}

async fn had(request: LockRequest) -> Option<LockGuard> {
    match request.try_acquire().await.unwrap() {
        TryAcquire::Acquired(guard) => Some(guard),
        TryAcquire::Busy { .. } => None,
    }
}

async fn reads(locks: &LockManager) -> Option<LockGuard> {
    had(locks.read("k")).await
}

async fn writes(locks: &LockManager) -> Option<LockGuard> {
    had(locks.write("k")).await
}

async fn release_all(guards: impl IntoIterator<Item = LockGuard>) {
    for guard in guards {
        guard.release().await.unwrap();
    }
}

tests::suite! {
    async fn after_the_last_reader_readers_enter_unless_a_writer_waits(store: &mut Store) {
        let (a, b) = (store.manager().await, store.manager().await);
        for _ in 0..2 {
            // The first time, nobody has written yet.
            for locks in [&a, &b, &a] {
                reads(locks).await.expect("nobody waits").release().await.unwrap();
            }
            writes(&b).await.expect("it is free").release().await.unwrap();
        }
    }

    async fn readers_hold_together_and_a_writer_alone(store: &mut Store) {
        let (a, b) = (store.manager().await, store.manager().await);
        let mut readers = Vec::new();
        for locks in [&a, &b, &a] {
            let reader = locks.read("k").acquire().await.unwrap();
            assert!(reader.is_held());
            readers.push(reader);
            assert!(writes(&a).await.is_none() && writes(&b).await.is_none());
        }
        assert!(readers.iter().all(LockGuard::is_held));
        release_all(readers).await;
        let writer = writes(&a).await.expect("the readers are gone");
        for locks in [&a, &b] {
            assert!(writes(locks).await.is_none() && reads(locks).await.is_none());
        }
        writer.release().await.unwrap();
        reads(&b).await.expect("the writer is gone").release().await.unwrap();
    }

    async fn writers_have_rising_tokens_and_readers_none(store: &mut Store) {
        let (a, b) = (store.manager().await, store.manager().await);
        let mut last = 0;
        for locks in [&a, &b, &a, &a] {
            let reader = locks.read("k").acquire().await.unwrap();
            assert_eq!((reader.fencing_token(), reader.lease().fencing_token()), (None, None));
            reader.release().await.unwrap();
            let writer = locks.write("k").acquire().await.unwrap();
            let token = writer.fencing_token().unwrap().get();
            assert!(token > last);
            last = token;
            writer.release().await.unwrap();
        }
        let mutex = a.mutex("m").acquire().await.unwrap();
        assert!(mutex.fencing_token().unwrap().get() > 0);
        mutex.release().await.unwrap();
    }

    async fn a_try_to_read_is_not_refused_because_others_are_just_asking(store: &mut Store) {
        // On one connection to a busy database, the last of them is asked long after the first.
        let locks = store.connect(tests::builder().call_timeout(LONG).lease(6 * LONG)).await;
        let asked: Vec<_> = (0..50).map(|_| tokio::spawn(locks.read("k").try_acquire())).collect();
        let mut readers = Vec::new();
        for task in asked {
            readers.push(task.await.unwrap().unwrap().expect("nobody writes"));
        }
        assert_eq!(locks.inspect("k").await.unwrap().readers, 50);
        release_all(readers).await;
    }

    async fn all_readers_go_when_the_writer_leaves(store: &mut Store) {
        let (locks, other) = (store.told().await, store.manager().await);
        for writer in [&locks, &other] {
            let writer = writer.write("k").acquire().await.unwrap();
            let mut tasks = Vec::new();
            for queued in 0..20 {
                tasks.push(waiting(&locks, queued + 1, locks.read("k").wait(LONG).acquire()).await);
            }
            let left = Instant::now();
            writer.release().await.unwrap();
            let mut readers = Vec::new();
            for task in tasks {
                readers.push(task.await.unwrap());
            }
            assert!(left.elapsed() < store.within(700 * MS), "one message wakes them all: {:?}", left.elapsed());
            assert!(readers.iter().all(LockGuard::is_held), "all at the same time");
            release_all(readers).await;
        }
    }

    async fn a_writer_is_woken_by_the_last_reader(store: &mut Store) {
        let (locks, other) = (store.told().await, store.manager().await);
        let (first, second) = (reads(&locks).await.unwrap(), reads(&other).await.unwrap());
        let writer = waiting(&locks, 1, locks.write("k").wait(LONG).acquire()).await;
        first.release().await.unwrap();
        sleep(50 * MS).await;
        assert!(!writer.is_finished(), "one still reads");
        let left = Instant::now();
        second.release().await.unwrap();
        let writer = writer.await.unwrap();
        assert!(left.elapsed() < store.within(700 * MS), "by a message: {:?}", left.elapsed());
        writer.release().await.unwrap();
    }

    async fn writers_of_one_process_are_served_in_the_order_they_came(store: &mut Store) {
        let locks = store.manager().await;
        let first = locks.write("k").acquire().await.unwrap();
        let order = Arc::new(AtomicUsize::new(0));
        let mut tasks = Vec::new();
        let mut last_token = first.fencing_token();
        for number in 0..10 {
            let order = order.clone();
            let request = locks.write("k").wait(LONG).acquire();
            tasks.push(waiting(&locks, number + 1, async move {
                let guard = request.await?;
                assert_eq!(order.fetch_add(1, SeqCst), number);
                Ok(guard)
            }).await);
        }
        first.release().await.unwrap();
        for task in tasks {
            let guard = task.await.unwrap();
            assert!(guard.fencing_token() > last_token);
            last_token = guard.fencing_token();
            guard.release().await.unwrap();
        }
    }

    async fn readers_get_their_turn_between_local_writers(store: &mut Store) {
        let locks = store.manager().await;
        let stop = Arc::new(AtomicBool::new(false));
        let mut writers = JoinSet::new();
        for _ in 0..4 {
            let (locks, stop) = (locks.clone(), stop.clone());
            writers.spawn(async move {
                while !stop.load(SeqCst) {
                    let guard = locks.write("k").wait(LONG).acquire().await.unwrap();
                    sleep(MS).await;
                    guard.release().await.unwrap();
                }
            });
        }
        sleep(20 * MS).await;
        for _ in 0..5 {
            let reader = locks.read("k").wait(store.within(3_000 * MS)).acquire().await;
            reader.expect("the writers rest").release().await.unwrap();
        }
        stop.store(true, SeqCst);
        while let Some(writer) = writers.join_next().await {
            writer.unwrap();
        }
    }

    async fn waits_end_in_time_on_either_side(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let writer = writes(&other).await.unwrap();
        for request in [locks.read("k"), locks.write("k")] {
            let mut asked = Instant::now();
            let refused = answered(async || {
                asked = Instant::now();
                request.clone().wait(400 * MS).acquire().await
            });
            let refused = refused.await;
            assert!(matches!(refused, Err(LockError::Busy { .. })), "{refused:?}");
            assert!(asked.elapsed() >= 400 * MS && asked.elapsed() < store.within(1_500 * MS));
        }
        for request in [locks.read("k"), locks.write("k")] {
            let refused = request.wait(Duration::ZERO).acquire().await;
            assert!(matches!(refused, Err(LockError::Busy { .. })), "{refused:?}");
        }
        writer.release().await.unwrap();
    }

    async fn leases_of_readers_and_writers_are_renewed(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let lease = store.renewing(1_000 * MS);
        let readers = [
            locks.read("k").lease(lease).acquire().await.unwrap(),
            locks.read("k").lease(lease).acquire().await.unwrap(),
        ];
        let writer = locks.write("w").lease(lease).acquire().await.unwrap();
        let mutex = locks.mutex("m").lease(lease).acquire().await.unwrap();
        let left = async || {
            let mut least = lease;
            for name in ["k", "w", "m"] {
                least = least.min(left_of(&other, name).await);
            }
            let guards = readers.iter().chain([&writer, &mutex]);
            guards.map(LockGuard::remaining).fold(least, Duration::min)
        };
        store.until_renewed(lease, left).await;
        assert!(readers.iter().chain([&writer, &mutex]).all(LockGuard::is_held));
        assert!(writes(&other).await.is_none());
        assert!(matches!(other.read("w").try_acquire().await.unwrap(), TryAcquire::Busy { .. }));
        release_all(readers).await;
        release_all([writer, mutex]).await;
    }

    async fn a_fixed_read_ends_with_its_lease_and_others_go_on(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let long = reads(&locks).await.unwrap();
        let request = locks.read("k").lease(1_000 * MS).wait(LONG).auto_renew(false);
        let short = request.acquire().await.unwrap();
        assert_eq!(short.lost().wait().await, LostReason::Expired);
        assert!(long.is_held() && writes(&other).await.is_none());
        drop(short);
        long.release().await.unwrap();
        eventually("nobody reads", async || match writes(&other).await {
            Some(writer) => writer.release().await.is_ok(),
            None => false,
        }).await;
    }

    async fn a_read_can_be_lengthened_by_hand(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let lease = store.lease() / 2;
        let request = locks.read("k").lease(lease).auto_renew(false);
        let reader = request.acquire().await.unwrap();
        reader.renew(store.lease()).await.unwrap();
        assert!(left_of(&other, "k").await.min(reader.remaining()) > lease);
        assert!(reader.is_held() && writes(&other).await.is_none());
        reader.release().await.unwrap();
    }

    async fn holds_that_the_store_forgot_are_lost(store: &mut Store) {
        let locks = store.manager().await;
        let lease = store.renewing(3_000 * MS);
        let reader = locks.read("k").lease(lease).acquire().await.unwrap();
        let writer = locks.write("w").lease(lease).acquire().await.unwrap();
        store.flush();
        for guard in [reader, writer] {
            assert_eq!(guard.lost().wait().await, LostReason::Refused);
            assert!(!guard.is_held());
            assert!(matches!(guard.release().await, Err(LockError::Lost { .. })));
        }
    }

    async fn a_stream_of_readers_does_not_keep_a_writer_out(store: &mut Store) {
        let (a, b, other) = (store.manager().await, store.manager().await, store.manager().await);
        let stop = Arc::new(AtomicBool::new(false));
        let read = Arc::new(AtomicUsize::new(0));
        let mut readers = JoinSet::new();
        for number in 0..6 {
            let (locks, stop, read) = ([&a, &b][number % 2].clone(), stop.clone(), read.clone());
            readers.spawn(async move {
                // The readers start out of step, so that somebody reads at every moment.
                sleep(MS * 20 * u32::try_from(number).unwrap()).await;
                while !stop.load(SeqCst) {
                    let guard = locks.read("k").wait(LONG).acquire().await.unwrap();
                    read.fetch_add(1, SeqCst);
                    sleep(120 * MS).await;
                    guard.release().await.unwrap();
                }
            });
        }
        eventually("they read", async || read.load(SeqCst) > 12).await;
        for _ in 0..3 {
            let asked = Instant::now();
            let writer = other.write("k").wait(LONG).acquire().await.unwrap();
            // The writer waits for the readers that were there: 120 ms each, all at once.
            assert!(asked.elapsed() < store.within(1_000 * MS), "{:?}", asked.elapsed());
            let before = read.load(SeqCst);
            writer.release().await.unwrap();
            eventually("they read again", async || read.load(SeqCst) > before + 6).await;
        }
        stop.store(true, SeqCst);
        while let Some(reader) = readers.join_next().await {
            reader.unwrap();
        }
    }

    async fn readers_get_in_again_when_a_waiting_writer_gives_up(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let reader = reads(&locks).await.unwrap();
        // The writer's request counts for no longer than the writer would wait: in no case for another second. If this takes
        // a second all the same, the machine may have been busy, though not again and again.
        let mut tries = 0;
        let second = loop {
            let request = other.write("k").wait(400 * MS);
            let refused = answered(async || request.clone().acquire().await).await;
            assert!(matches!(refused, Err(LockError::Busy { .. })), "{refused:?}");
            let gave_up = Instant::now();
            let mut second = None;
            eventually("another may read", async || {
                second = reads(&locks).await;
                second.is_some()
            })
            .await;
            let second = second.unwrap();
            if gave_up.elapsed() < 900 * MS {
                break second;
            }
            tries += 1;
            assert!(tries < 10, "{:?}", gave_up.elapsed());
            second.release().await.unwrap();
        };
        let asked = Instant::now();
        let writer = waiting(&other, 1, other.write("k").wait(LONG).acquire()).await;
        let early = reads(&locks).await;
        // What the writer said may be older than it counts.
        assert!(early.is_none() || asked.elapsed() > 1_000 * MS, "the writer comes first");
        writer.abort();
        let asked = Instant::now();
        let third = locks.read("k").wait(LONG).acquire().await.unwrap();
        assert!(asked.elapsed() < store.within(2_500 * MS), "its last word counts for 1.5 s: {:?}", asked.elapsed());
        release_all([reader, second, third].into_iter().chain(early)).await;
    }

    async fn a_try_to_write_keeps_no_reader_out(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let reader = reads(&locks).await.unwrap();
        assert!(writes(&other).await.is_none());
        let second = reads(&locks).await.expect("nobody waits to write");
        release_all([reader, second]).await;
    }

    async fn inspection_tells_the_mode_and_how_many_read(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let readers = [reads(&locks).await.unwrap(), reads(&other).await.unwrap()];
        let info = other.inspect("k").await.unwrap();
        assert_eq!((info.held, info.mode, info.readers), (true, Some(LockMode::Read), 2), "{info:?}");
        assert!(info.ttl.is_some_and(|left| left > 20_000 * MS), "{info:?}");
        release_all(readers).await;
        let writer = writes(&locks).await.unwrap();
        let info = other.inspect("k").await.unwrap();
        assert_eq!((info.held, info.mode, info.readers, info.count), (true, Some(LockMode::Write), 0, 1));
        assert!(info.holder.unwrap().to_string().contains("…:"));
        writer.release().await.unwrap();
        let info = other.inspect("k").await.unwrap();
        assert_eq!((info.held, info.mode, info.readers), (false, None, 0));
    }

    async fn a_forced_release_ends_every_reader_and_the_writer(store: &mut Store) {
        let (a, b, operator) = (store.manager().await, store.manager().await, store.manager().await);
        // A read is renewed, or checked, after nine seconds. On a busy machine, that may find the loss before the message comes.
        in_one_of_a_few_rounds(STOP, "a message tells all readers", async || {
            let read = async |locks: &LockManager| locks.read("k").auto_renew(false).acquire().await.unwrap();
            let readers = [read(&a).await, read(&b).await, read(&a).await];
            let writer = waiting(&b, 1, b.write("k").wait(LONG).acquire()).await;
            assert!(operator.force_release("k").await.unwrap());
            let mut are_told = true;
            for reader in readers {
                are_told &= reader.lost().wait().await == LostReason::ForceReleased;
            }
            let writer = writer.await.unwrap();
            let reader = waiting(&a, 1, a.read("k").wait(LONG).acquire()).await;
            assert!(operator.force_release("k").await.unwrap());
            assert_eq!(writer.lost().wait().await, LostReason::ForceReleased);
            let reader = reader.await.unwrap();
            reader.release().await.unwrap();
            drop(writer);
            are_told
        }).await;
    }

    async fn a_mutex_and_a_read_write_lock_do_not_share_a_name(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let foreign = |result: Result<TryAcquire, LockError>| match result {
            Err(LockError::ForeignKey { key, .. }) => assert!(key.ends_with(":k"), "{key}"),
            other => panic!("expected ForeignKey, got {other:?}"),
        };
        let mutex = locks.mutex("k").acquire().await.unwrap();
        foreign(other.read("k").try_acquire().await);
        foreign(other.write("k").try_acquire().await);
        assert!(mutex.is_held());
        mutex.release().await.unwrap();
        let reader = reads(&locks).await.unwrap();
        foreign(other.mutex("k").try_acquire().await);
        reader.release().await.unwrap();
        let writer = writes(&locks).await.unwrap();
        foreign(other.mutex("k").try_acquire().await);
        writer.release().await.unwrap();
    }

    async fn readers_and_writers_of_several_managers_never_overlap(store: &mut Store) {
        let mut managers = Vec::new();
        for _ in 0..3 {
            managers.push(store.manager().await);
        }
        let history = Arc::new(History::new());
        let (reading, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        for number in 0..18 {
            let (locks, history) = (managers[number % 3].clone(), history.clone());
            let (reading, most) = (reading.clone(), most.clone());
            tasks.spawn(async move {
                for round in 0..60 {
                    if (number + round) % 6 == 0 {
                        let guard = locks.write("k").wait(LONG).acquire().await.unwrap();
                        let token = guard.fencing_token().map(|token| token.get());
                        let hold = history.begin("k", format_args!("w{number}"), token);
                        assert_eq!(reading.load(SeqCst), 0, "a reader beside a writer");
                        tokio::task::yield_now().await;
                        assert_eq!(reading.load(SeqCst), 0, "a reader beside a writer");
                        hold.end();
                        guard.release().await.unwrap();
                    } else {
                        let guard = locks.read("k").wait(LONG).acquire().await.unwrap();
                        most.fetch_max(reading.fetch_add(1, SeqCst) + 1, SeqCst);
                        tokio::task::yield_now().await;
                        reading.fetch_sub(1, SeqCst);
                        guard.release().await.unwrap();
                    }
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        assert_eq!(history.len(), 180);
        history.assert_exclusive();
        assert!(most.load(SeqCst) > 1, "readers were together");
    }

    async fn the_caller_who_asks_for_the_others_counts_towards_the_cap(store: &mut Store) {
        let builder = tests::builder().max_waiters_per_key(4);
        let (locks, other) = (store.connect(builder).await, store.manager().await);
        let writer = other.write("k").acquire().await.unwrap();
        for request in [locks.read("k"), locks.write("k")] {
            tests::only_so_many_wait(&locks, "k", 4, &request).await;
        }
        writer.release().await.unwrap();
    }
}

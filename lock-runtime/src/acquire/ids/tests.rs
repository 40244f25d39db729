//! Tests of what callers of ids get from a slow or failing store. Time is paused.

use std::collections::VecDeque;
use std::time::Duration;

use super::*;
use crate::backend::memory::{MemoryBackend, MemoryStore};
use crate::backend::{
    AcquireRequest, Acquired, Backend, CounterRef, Counters, HoldRef, Listen, Released, Renewal,
    Renewed, Reply, Snapshot, Within,
};
use crate::sync::Mutex;
use crate::values::{IdSecret, Key, Options, ShutdownCause, StoreKind};
use crate::{Ids, LockManager};

const MS: Duration = Duration::from_millis(1);

/// A memory store that takes a millisecond for a draw, and does what the test says before it draws.
struct Slow {
    store: MemoryBackend,
    /// The faults of the next draws.
    faults: Mutex<VecDeque<Fault>>,
    drawn: Mutex<Vec<u32>>,
}

impl Slow {
    fn new() -> Arc<Slow> {
        Arc::new(Slow {
            store: MemoryBackend::new(MemoryStore::new(), Arc::new(|_| ())),
            faults: Mutex::default(),
            drawn: Mutex::default(),
        })
    }

    fn manager(self: &Arc<Slow>) -> LockManager {
        let store = self.clone();
        LockManager::build(Options::default(), |_| store)
    }

    fn fails(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.lock().extend(faults);
    }

    fn draws(&self) -> usize {
        self.drawn.lock().len()
    }
}

impl Backend for Slow {
    fn acquire<'a>(&'a self, request: AcquireRequest<'a>) -> Reply<'a, Acquired> {
        self.store.acquire(request)
    }

    fn release<'a>(&'a self, hold_ref: HoldRef<'a>, timeout: Duration) -> Reply<'a, Released> {
        self.store.release(hold_ref, timeout)
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], within: Within) -> Reply<'a, Vec<Renewed>> {
        self.store.renew(batch, within)
    }

    fn force_release<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, bool> {
        self.store.force_release(key, timeout)
    }

    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, Option<Snapshot>> {
        self.store.inspect(key, timeout)
    }

    fn store(&self) -> StoreKind {
        self.store.store()
    }

    fn counters(&self) -> Option<&dyn Counters> {
        Some(self)
    }
}

impl Counters for Slow {
    fn draw_ids<'a>(
        &'a self,
        key: &'a Key,
        count: u32,
        secret: Option<IdSecret>,
        timeout: Duration,
    ) -> Reply<'a, Option<IdRange>> {
        Box::pin(async move {
            self.drawn.lock().push(count);
            clock::sleep(MS).await;
            let fault = self.faults.lock().pop_front();
            let drawn = self.store.draw_ids(key, count, secret, timeout).await;
            fault.map_or(drawn, Err)
        })
    }

    fn set<'a>(&'a self, counter: CounterRef<'a>, value: u64, t: Duration) -> Reply<'a, bool> {
        self.store.set(counter, value, t)
    }

    fn limit<'a>(&'a self, key: &'a Key, permits: u64, timeout: Duration) -> Reply<'a, ()> {
        self.store.limit(key, permits, timeout)
    }

    fn read<'a>(&'a self, counter: CounterRef<'a>, timeout: Duration) -> Reply<'a, Option<i64>> {
        self.store.read(counter, timeout)
    }

    fn add<'a>(&'a self, key: &'a Key, permits: i64, timeout: Duration) -> Reply<'a, ()> {
        self.store.add(key, permits, timeout)
    }

    fn take<'a>(&'a self, key: &'a Key, permits: u32, timeout: Duration) -> Reply<'a, bool> {
        self.store.take(key, permits, timeout)
    }

    fn count_down<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, u64> {
        self.store.count_down(key, timeout)
    }

    fn delete<'a>(&'a self, counter: CounterRef<'a>, timeout: Duration) -> Reply<'a, bool> {
        self.store.delete(counter, timeout)
    }

    fn listen_to(&self, counter: CounterRef<'_>) -> Box<dyn Listen> {
        self.store.listen_to(counter)
    }
}

/// The answers to so many calls that are made together, in order.
async fn together(ids: &Ids, calls: usize) -> Vec<Result<i64, LockError>> {
    let call = |ids: Ids| async move { ids.next().await };
    let calls: Vec<_> = (0..calls)
        .map(|_| tokio::spawn(call(ids.clone())))
        .collect();
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.unwrap());
    }
    answers
}

fn silent() -> Fault {
    Fault::unknown("it is silent")
}

#[tokio::test(start_paused = true)]
async fn a_thousand_callers_get_rising_ids_by_two_draws() {
    let store = Slow::new();
    let ids = store.manager().ids("order");
    let got: Result<Vec<_>, _> = together(&ids, 1_000).await.into_iter().collect();
    let got = got.unwrap();
    assert!(got.is_sorted_by(|one, next| one < next), "{got:?}");
    assert!(store.draws() <= 2, "{:?}", store.drawn.lock());
}

#[tokio::test(start_paused = true)]
async fn a_draw_without_an_answer_is_repeated_and_its_ids_are_lost() {
    let store = Slow::new();
    let ids = store.manager().ids("order");
    let before = ids.next().await.unwrap();
    store.fails([silent(), Fault::not_done("it is away")]);
    let after = ids.next().await.unwrap();
    assert!(after > before);
    assert_eq!(*store.drawn.lock(), [1; 4]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_pass_is_told_at_once_to_all_who_wait() {
    let store = Slow::new();
    let ids = store.manager().ids("order");
    store.fails([Fault::denied("no right")]);
    for answer in together(&ids, 3).await {
        let error = answer.unwrap_err();
        assert!(matches!(error, LockError::Denied { .. }), "{error:?}");
        assert!(error.to_string().contains("order"), "{error}");
    }
    assert_eq!(*store.drawn.lock(), [3]);
    ids.next().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stays_away_is_told_after_the_call_timeout() {
    let store = Slow::new();
    let ids = store.manager().ids("order");
    store.fails((0..1_000).map(|_| silent()));
    let began = clock::now();
    let error = ids.next().await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    // The last draw may begin just before the timeout. It takes a millisecond, and timers round up to the next one.
    let took = began.elapsed();
    assert!(took > 1_000 * MS && took <= 2_002 * MS, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn callers_wait_for_as_many_ranges_as_are_drawn_before_theirs() {
    let store = Slow::new();
    let locks = store.manager();
    let ids = locks.ids("order");
    let patience = locks.core().options.call_timeout + RUNTIME_SLACK;
    let ranges = patience.as_millis() as usize + 1;
    let calls: Vec<_> = (0..ranges)
        .map(|_| {
            let ids = ids.clone();
            tokio::spawn(async move { ids.take(10_000).await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    // Ids that waited for a busy machine are drawn anew.
    assert!(store.draws() >= ranges);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_leaves_takes_nothing_from_the_others() {
    let store = Slow::new();
    let ids = store.manager().ids("order");
    for patience in 0..4 {
        let leaving = tokio::time::timeout(MS * patience / 2, ids.next());
        let (left, stayed) = tokio::join!(leaving, ids.next());
        let stayed = stayed.unwrap();
        assert!(left.is_err() || left.unwrap().unwrap() < stayed);
    }
    assert!(store.draws() <= 8);
}

#[tokio::test(start_paused = true)]
async fn ids_that_were_under_way_at_a_new_connection_are_thrown_away() {
    let store = Slow::new();
    let locks = store.manager();
    let ids = locks.ids("order");
    let renewed = async {
        clock::sleep(MS / 2).await;
        locks.renew_identity();
    };
    let (id, ()) = tokio::join!(ids.next(), renewed);
    id.unwrap();
    assert_eq!(
        *store.drawn.lock(),
        [1, 1],
        "a copy may have read the first answer"
    );
}

#[tokio::test(start_paused = true)]
async fn bodies_that_a_shutdown_lets_finish_get_ids() {
    let store = Slow::new();
    let locks = store.manager();
    let ids = locks.ids("order");
    let body = locks.mutex("settle").run(async |lease| {
        lease.closing().await;
        ids.next().await
    });
    let shutdown = async {
        clock::sleep(MS).await;
        locks.shutdown().await;
    };
    let (id, ()) = tokio::join!(body, shutdown);
    id.unwrap().unwrap();
    let error = ids.next().await.unwrap_err();
    let LockError::ShuttingDown { why, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(why, ShutdownCause::Shutdown);
}

#[test]
fn callers_learn_that_the_runtime_of_the_manager_has_ended() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let store = Slow::new();
    let first = runtime();
    let locks = first.block_on(async { store.manager() });
    let ids = locks.ids("order");
    let second = runtime();
    let asking = second.spawn(async move { ids.next().await });
    // The first runtime has the draw, and never runs it.
    second.block_on(tokio::task::yield_now());
    drop(first);
    let error = second.block_on(asking).unwrap().unwrap_err();
    let LockError::ShuttingDown { why, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(why, ShutdownCause::RuntimeEnded);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_count_of_ids_is_refused_before_any_draw() {
    let store = Slow::new();
    let ids = store.manager().ids("order");
    for count in [0, 10_001] {
        let refused = ids.take(count).await;
        assert!(matches!(refused, Err(LockError::InvalidConfig { .. })));
    }
    let unnamed = store.manager().ids("");
    assert!(matches!(
        unnamed.next().await,
        Err(LockError::InvalidName { .. })
    ));
    assert_eq!(store.draws(), 0);
    assert_eq!(ids.take(10_000).await.unwrap().len(), 10_000);
}

#[test]
fn a_runtime_that_nobody_drives_keeps_no_caller_for_ever() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().start_paused(true).build().unwrap()
    };
    let (undriven, driven) = (runtime(), runtime());
    let ids = LockManager::in_memory().ids("order");
    undriven.block_on(async {
        let mut next = std::pin::pin!(ids.next());
        let waker = std::task::Waker::noop();
        let polled = next
            .as_mut()
            .poll(&mut std::task::Context::from_waker(waker));
        assert!(polled.is_pending());
    });
    driven.block_on(async {
        let error = ids.next().await.unwrap_err();
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
        ids.next().await.unwrap();
    });
}

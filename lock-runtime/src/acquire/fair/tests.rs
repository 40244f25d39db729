//! Tests of what becomes of a place in the queue, and of the lock, when answers are lost and questions come late. Time
//! is paused.

use std::collections::VecDeque;

use tokio::time::{Instant, sleep, sleep_until};

use super::*;
use crate::api::manager::LockManager;
use crate::backend::memory::{MemoryBackend, MemoryStore};
use crate::backend::{
    AcquireRequest, Backend, HoldRef, Released, Renewal, Renewed, Reply, SilentListener, Snapshot,
    Within,
};
use crate::sync::Mutex;
use crate::values::options::Options;
use crate::values::store::StoreKind;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

/// The fate of a question.
enum Fate {
    /// It has no answer, and arrives so long after it was asked.
    Late(Duration),
    /// The lock was granted and given back.
    TooFew,
    /// Its caller is the first in the queue, and nothing is left of the lease.
    First,
}

#[derive(Debug)]
struct Question {
    holder: HolderId,
    at: Instant,
    timeout: Duration,
}

/// A memory store behind a bad line.
struct Line {
    store: Arc<MemoryBackend>,
    fates: Mutex<VecDeque<Fate>>,
    asked: Mutex<Vec<Question>>,
    releases: Mutex<usize>,
    /// Until when no release comes through.
    cut_until: Mutex<Option<Instant>>,
    /// Whether no message comes through.
    is_mute: Mutex<bool>,
}

impl Backend for Line {
    fn acquire<'a>(&'a self, request: AcquireRequest<'a>) -> Reply<'a, Acquired> {
        self.asked.lock().push(Question {
            holder: request.hold_ref.holder,
            at: Instant::now(),
            timeout: request.timeout,
        });
        let fate = self.fates.lock().pop_front();
        Box::pin(async move {
            match fate {
                None => self.store.acquire(request).await,
                Some(Fate::First) => Ok(Acquired::Busy {
                    left: Some(Duration::ZERO),
                    kept: false,
                    first: Some(true),
                }),
                Some(Fate::TooFew) => Err(Fault::too_few("too few replicas")),
                Some(Fate::Late(after)) => {
                    let (store, key) = (self.store.clone(), request.hold_ref.key.clone());
                    let HoldRef { holder, .. } = request.hold_ref;
                    let (ttl, fenced, waits) = (request.ttl, request.fenced, request.waits);
                    let (asked_at, timeout) = (request.asked_at, request.timeout);
                    tokio::spawn(async move {
                        sleep(after).await;
                        let request = AcquireRequest {
                            fenced,
                            waits,
                            ..AcquireRequest::of(HoldRef::one(&key, holder), ttl, asked_at, timeout)
                        };
                        store.acquire(request).await.unwrap();
                    });
                    sleep(timeout).await;
                    Err(Fault::unknown("the line is bad"))
                }
            }
        })
    }

    fn release<'a>(&'a self, hold_ref: HoldRef<'a>, timeout: Duration) -> Reply<'a, Released> {
        let cut_until = *self.cut_until.lock();
        if cut_until.is_some_and(|until| Instant::now() < until) {
            return Box::pin(std::future::ready(Err(Fault::not_done("the line is cut"))));
        }
        *self.releases.lock() += 1;
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

    fn listen_alone(&self, key: &Arc<Key>, holder: HolderId) -> Box<dyn Listen> {
        if *self.is_mute.lock() {
            return Box::new(SilentListener);
        }
        self.store.listen_alone(key, holder)
    }

    fn store(&self) -> StoreKind {
        self.store.store()
    }

    fn around(&self) -> Option<&dyn Backend> {
        Some(&*self.store)
    }
}

struct Scene {
    locks: LockManager,
    line: Arc<Line>,
    /// Its line is good.
    other: LockManager,
    store: MemoryStore,
}

impl Scene {
    fn new(fates: impl IntoIterator<Item = Fate>) -> Scene {
        let store = MemoryStore::new();
        let mut line = None;
        let locks = LockManager::build(Options::default(), |events| {
            line.insert(Arc::new(Line {
                store: Arc::new(MemoryBackend::new(store.clone(), events)),
                fates: Mutex::new(fates.into_iter().collect()),
                asked: Mutex::default(),
                releases: Mutex::default(),
                cut_until: Mutex::default(),
                is_mute: Mutex::default(),
            }))
            .clone()
        });
        Scene {
            locks,
            line: line.unwrap(),
            other: LockManager::builder()
                .memory_store(&store)
                .in_memory()
                .unwrap(),
            store,
        }
    }

    fn request(&self) -> impl Future<Output = Result<crate::LockGuard, LockError>> + Send + use<> {
        self.locks.fair("k").lease(LONG).wait(LONG).acquire()
    }

    /// Until when the server may take a question that was asked just now, at the latest.
    fn latest(&self) -> Duration {
        // The caller stops waiting for the answer; then its estimate of the server's time may be late.
        let call = self.locks.core().options.call_timeout;
        call + (SLACK + call)
    }

    async fn waiters(&self) -> u64 {
        self.other.inspect("k").await.unwrap().waiters
    }

    /// The next question arrives shortly before the last moment at which it still counts, which this gives.
    fn asks_just_in_time(&self) -> Duration {
        let latest = self.latest();
        let fate = Fate::Late(latest - 100 * MS);
        self.line.fates.lock().push_back(fate);
        latest
    }

    /// The times at which questions were asked.
    fn asked(&self) -> Vec<Instant> {
        self.line
            .asked
            .lock()
            .iter()
            .map(|asked| asked.at)
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_arrives_after_the_release_is_undone() {
    let began = Instant::now();
    let scene = Scene::new([]);
    let latest = scene.asks_just_in_time();
    let guard = scene.request().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(scene.store.held(), 0);
    sleep_until(began + latest - 50 * MS).await;
    assert_eq!(scene.store.held(), 1, "nobody has it under that id");
    // The request that takes it away is repeated until it is answered.
    *scene.line.cut_until.lock() = Some(began + latest + 1_000 * MS);
    sleep_until(began + latest + 4_000 * MS).await;
    assert_eq!(scene.store.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_arrives_during_its_hold_changes_nothing() {
    let scene = Scene::new([Fate::Late(3_000 * MS)]);
    let guard = scene.request().await.unwrap();
    sleep(scene.latest() * 2).await;
    assert!(guard.is_held());
    assert_eq!((scene.store.held(), *scene.line.releases.lock()), (1, 0));
    guard.release().await.unwrap();
    assert_eq!((scene.store.held(), *scene.line.releases.lock()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_fair_lock_whose_answers_all_came_is_given_back_once() {
    let scene = Scene::new([]);
    scene.request().await.unwrap().release().await.unwrap();
    sleep(scene.latest() * 2).await;
    assert_eq!(*scene.line.releases.lock(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_arrives_after_its_caller_left_is_undone() {
    let began = Instant::now();
    let scene = Scene::new([]);
    let latest = scene.asks_just_in_time();
    let leaves = tokio::spawn(scene.request());
    sleep(scene.locks.core().options.call_timeout + 5 * MS).await;
    assert_eq!(scene.asked().len(), 1, "it has not asked again yet");
    leaves.abort();
    sleep_until(began + latest - 50 * MS).await;
    assert_eq!(scene.store.held(), 1, "nobody has it under that id");
    *scene.line.cut_until.lock() = Some(began + latest + 1_000 * MS);
    sleep_until(began + latest + 4_000 * MS).await;
    assert_eq!(scene.store.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_an_unanswered_request() {
    // The caller leaves, or has the lock after a second request.
    for leaves in [true, false] {
        let scene = Scene::new([]);
        scene.asks_just_in_time();
        let asks = tokio::spawn(scene.request());
        sleep(scene.locks.core().options.call_timeout + 5 * MS).await;
        if leaves {
            asks.abort();
        } else {
            asks.await.unwrap().unwrap().release().await.unwrap();
        }
        sleep(MS).await;
        let began = Instant::now();
        scene.locks.shutdown().await;
        assert!(began.elapsed() < 100 * MS, "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_in_an_outage_leaves_the_queue_after_it() {
    let scene = Scene::new([]);
    let _held = scene.other.fair("k").acquire().await.unwrap();
    let leaves = tokio::spawn(scene.request());
    sleep(10 * MS).await;
    assert_eq!(scene.waiters().await, 1);
    *scene.line.cut_until.lock() = Some(Instant::now() + 1_000 * MS);
    leaves.abort();
    sleep(500 * MS).await;
    assert_eq!(scene.waiters().await, 1, "nobody could say so");
    sleep(2_500 * MS).await;
    assert_eq!(scene.waiters().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_try_asks_the_store_unless_others_of_its_process_queue() {
    let scene = Scene::new([]);
    let guard = scene.locks.fair("k").try_acquire().await.unwrap();
    guard.expect("it is free").release().await.unwrap();
    let _held = scene.other.fair("k").acquire().await.unwrap();
    let _queues = tokio::spawn(scene.request());
    sleep(10 * MS).await;
    let asked = scene.asked().len();
    let tried = scene.locks.fair("k").try_acquire().await.unwrap();
    assert!(matches!(tried, crate::TryAcquire::Busy { .. }));
    assert_eq!(scene.asked().len(), asked);
}

#[tokio::test(start_paused = true)]
async fn a_queued_waiter_requests_exactly_as_often_as_its_place_needs() {
    let scene = Scene::new([]);
    let _held = scene.other.fair("k").acquire().await.unwrap();
    let _first = tokio::spawn(scene.other.fair("k").wait(2 * LONG).acquire());
    sleep(MS).await;
    let behind = tokio::spawn(scene.request());
    sleep(40_000 * MS).await;
    assert_eq!(scene.waiters().await, 2);
    behind.abort();
    // The second question follows the subscription at once.
    let asked = scene.asked();
    assert!(asked.len() > 20, "{} questions", asked.len());
    for pair in asked[1..].windows(2) {
        let pause = pair[1] - pair[0];
        assert!((1_280 * MS..=1_601 * MS).contains(&pause), "{pause:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_without_messages_requests_once_more_at_its_end() {
    let scene = Scene::new([]);
    *scene.line.is_mute.lock() = true;
    let held = scene.other.fair("k").acquire().await.unwrap();
    let waiters: Vec<_> = (0..10)
        .map(|number| {
            let waits = scene.locks.fair("k").wait(2_000 * MS);
            tokio::spawn(async move {
                sleep(number * 40 * MS).await;
                waits.acquire().await?.release().await
            })
        })
        .collect();
    // All of them have asked a second ago at most, and nobody tells the first one. Those behind it become first one after the
    // other.
    sleep(1_700 * MS).await;
    held.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_waiter_pauses_between_requests_at_an_ended_lease() {
    let scene = Scene::new((0..20).map(|_| Fate::First));
    let guard = scene.request().await.unwrap();
    let asked = scene.asked();
    assert_eq!(asked.len(), 21);
    for pair in asked[1..].windows(2) {
        let pause = pair[1] - pair[0];
        assert!((50 * MS..=52 * MS).contains(&pause), "{pause:?}");
    }
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_repeated_request_keeps_its_id_unless_the_id_is_undone() {
    for (fate, same) in [(Fate::Late(MS), true), (Fate::TooFew, false)] {
        let scene = Scene::new([fate]);
        let guard = scene.request().await.unwrap();
        {
            let asked = scene.line.asked.lock();
            assert_eq!(asked[0].holder == asked[1].holder, same, "{asked:?}");
            assert!(asked.iter().all(|asked| asked.timeout <= LONG / 6));
        }
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_after_an_undone_request_reports_no_loss() {
    let scene = Scene::new([]);
    let latest = scene.asks_just_in_time();
    let guard = scene.request().await.unwrap();
    // The turn has ended, and the release is sent when it is polled.
    let release = guard.release();
    sleep(latest + 100 * MS).await;
    assert_eq!(scene.store.held(), 0, "the question was undone");
    release.await.unwrap();
}

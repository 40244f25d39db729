//! Tests of the locks of threads: `lock_runtime::blocking` on a server, inside and outside of async runtimes.

use std::cell::{Cell, RefCell};
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use lock_runtime::blocking::{LockGuard, LockManager, LockRequest};
use lock_runtime::{LockError, LostReason, Outcome, TryAcquire};
use tests::eventually::PATIENCE;
use tests::{Events, RedisServer, eventually};
use tokio::runtime::Builder;
use tracing::Level;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);

/// Connects a manager that waits for the answers of a busy machine, and whose locks do not become free by the end of a lease.
fn connect(server: &RedisServer) -> LockManager {
    connect_to(&server.url())
}

fn connect_to(url: &str) -> LockManager {
    let builder = tests::builder().lease(120 * LONG);
    answered(|| LockManager::new(builder.clone().connect(url))).expect("a manager")
}

/// Blocks the thread until the condition is true.
fn until(what: &str, condition: impl Fn() -> bool) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(eventually(what, async || condition()));
}

fn deserted(server: &RedisServer) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(server.assert_deserted());
}

/// Asks until the store answers: on a busy machine, an answer may be late.
fn answered<T>(ask: impl FnMut() -> Result<T, LockError>) -> Result<T, LockError> {
    let began = Instant::now();
    iter::repeat_with(ask)
        .take_while(|_| began.elapsed() < PATIENCE)
        .find(|tried| !matches!(tried, Err(LockError::Unavailable { .. })))
        .expect("an answer")
}

fn is_refused<T>(result: Result<T, LockError>) -> bool {
    match result {
        Err(LockError::InvalidConfig { why, .. }) => why.contains("async runtime"),
        _ => false,
    }
}

#[test]
fn threads_hold_a_lock_one_after_the_other() {
    let server = RedisServer::start();
    let locks = connect(&server);
    let other = connect(&server);
    let (inside, total) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for locks in [&locks, &locks, &other, &other] {
            let (inside, total) = (&inside, &total);
            scope.spawn(move || {
                for _ in 0..25 {
                    let request = locks.mutex("k").wait(LONG);
                    let guard = request.acquire().unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    total.fetch_add(1, Ordering::SeqCst);
                    guard.release().unwrap();
                }
            });
        }
    });
    assert_eq!(total.into_inner(), 100);
    drop((locks, other));
    deserted(&server);
}

#[test]
fn every_kind_of_request_blocks_until_it_is_served() {
    let server = RedisServer::start();
    let (locks, stranger) = (connect(&server), connect(&server));
    let kinds: [fn(&LockManager) -> LockRequest; 5] = [
        |locks| locks.mutex("mutex"),
        |locks| locks.fair("fair"),
        |locks| locks.fenced("fenced"),
        |locks| locks.write("read-write"),
        |locks| locks.semaphore("permits").permits(2),
    ];
    assert!(locks.semaphore("permits").try_set_permits(3).unwrap());
    for request in kinds {
        let guard = request(&locks).acquire().unwrap();
        assert!(guard.is_held() && guard.remaining() > Duration::ZERO);
        assert!(matches!(
            request(&stranger).try_acquire().unwrap(),
            TryAcquire::Busy { .. }
        ));
        let busy = answered(|| request(&stranger).wait(20 * MS).acquire());
        assert!(matches!(busy, Err(LockError::Busy { .. })), "{busy:?}");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| request(&stranger).wait(LONG).acquire());
            until("the thread waits", || {
                !stranger.as_async().snapshot().waited_for.is_empty()
            });
            guard.release().unwrap();
            waiting.join().unwrap().unwrap().release().unwrap();
        });
    }
    let readers = [&locks, &stranger].map(|locks| locks.read("read-write").acquire().unwrap());
    assert_eq!(readers[0].fencing_token(), None);
    drop(readers);

    let both = locks.multi([locks.mutex("a"), locks.mutex("b")]);
    let guard = both.clone().wait(LONG).acquire().unwrap();
    assert_eq!(guard.members().count(), 2);
    assert!(matches!(
        stranger.mutex("b").try_acquire().unwrap(),
        TryAcquire::Busy { .. }
    ));
    drop(guard);
    assert_eq!(both.run(|lease| lease.members().count()).unwrap(), 2);

    assert_eq!(locks.semaphore("permits").available().unwrap(), 3);
    assert!(locks.semaphore("permits").delete().unwrap());
    drop((locks, stranger));
    deserted(&server);
}

#[test]
fn a_lock_is_free_when_the_drop_of_its_guard_returns() {
    let server = RedisServer::start();
    let locks = connect(&server);
    for _ in 0..20 {
        let guard = locks.mutex("k").try_acquire().unwrap();
        assert!(matches!(guard, TryAcquire::Acquired(_)) && server.exists("lock:k"));
        drop(guard);
        assert!(!server.exists("lock:k"));
    }
}

#[test]
fn a_guard_outlives_its_manager_and_then_ends_the_connections() {
    let server = RedisServer::start();
    let locks = connect(&server);
    let guard = locks.mutex("k").lease(18_000 * MS).acquire().unwrap();
    drop(locks);
    let left = Cell::new(guard.remaining());
    until("it is renewed", || {
        assert!(guard.is_held());
        let now = guard.remaining();
        left.replace(now) < now
    });
    drop(guard);
    assert!(!server.exists("lock:k"));
    deserted(&server);
}

#[test]
fn the_end_of_a_manager_waits_for_releases_in_the_background() {
    /// It waits for this long at most.
    const DRAIN: Duration = Duration::from_secs(2);
    for _ in 0..10 {
        let server = RedisServer::start();
        let locks = connect(&server);
        let guards: Vec<_> = (0..50)
            .map(|key| locks.mutex(format!("k:{key}")).acquire().unwrap())
            .collect();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let began = Instant::now();
        runtime.block_on(async { drop(guards) });
        drop(locks);
        let took = began.elapsed();
        let left = server.stray_keys();
        if left.is_empty() {
            return;
        }
        // A busy machine may need longer for them.
        assert!(took >= DRAIN, "after {took:?}, these were left: {left:?}");
    }
    panic!("the releases always came too late");
}

#[test]
fn a_request_is_nested_in_a_closure_and_not_beside_a_guard() {
    let server = RedisServer::start();
    let locks = connect(&server);
    let request = || locks.mutex("k").wait(LONG);
    let is_busy = || {
        matches!(
            answered(|| request().wait(20 * MS).acquire()),
            Err(LockError::Busy { .. })
        )
    };
    let token = request()
        .run(|lease| {
            let inner = request().acquire().unwrap();
            assert_eq!(inner.fencing_token(), lease.fencing_token());
            drop(inner);
            let deeper = request().run(|_| request().run(|lease| lease.fencing_token()));
            assert_eq!(deeper.unwrap().unwrap(), lease.fencing_token());
            let elsewhere = thread::scope(|scope| scope.spawn(is_busy).join());
            assert!(elsewhere.unwrap(), "another thread is a stranger");
            lease.fencing_token()
        })
        .unwrap();
    assert!(token.is_some());

    let guard = request().acquire().unwrap();
    assert!(is_busy(), "beside the guard");
    assert!(matches!(
        request().try_acquire().unwrap(),
        TryAcquire::Busy { .. }
    ));
    guard.scope(|| {
        let inner = request().acquire().unwrap();
        assert_eq!(inner.fencing_token(), guard.fencing_token());
    });
    assert!(is_busy(), "beside it again");
    drop(guard);
    request().acquire().unwrap().release().unwrap();
}

#[test]
fn a_closure_runs_to_its_end_after_a_loss_and_reports_the_loss() {
    let server = RedisServer::start();
    let locks = connect(&server);
    let outcome = locks.mutex("k").run_outcome(|lease| {
        assert!(locks.force_release("k").unwrap());
        until("the lease says so", || !lease.is_held());
        assert!(lease.lost().is_lost());
        7
    });
    match outcome.unwrap() {
        Outcome::Completed {
            value,
            loss: Some(LockError::Lost {
                reason, completed, ..
            }),
        } => assert_eq!(
            (value, reason, completed),
            (7, LostReason::ForceReleased, true)
        ),
        other => panic!("{other:?}"),
    }
    let value = locks.mutex("k").run(|lease| {
        assert!(locks.force_release("k").unwrap());
        until("the lease says so", || !lease.is_held());
        8
    });
    assert_eq!(value.unwrap(), 8, "what was completed counts");
}

#[test]
fn a_thread_waits_for_the_loss_of_its_lock() {
    let server = RedisServer::start();
    let locks = connect(&server);
    let guard = locks.mutex("k").acquire().unwrap();
    assert_eq!(guard.wait_lost(20 * MS).unwrap(), None);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| guard.wait_lost(LONG).unwrap());
        assert!(locks.force_release("k").unwrap());
        assert_eq!(waiting.join().unwrap(), Some(LostReason::ForceReleased));
    });
    assert!(matches!(guard.release(), Err(LockError::Lost { .. })));
}

#[test]
fn a_closure_that_panics_gives_its_lock_back() {
    let server = RedisServer::start();
    let locks = connect(&server);
    let request = locks.mutex("k");
    let run = AssertUnwindSafe(|| request.run(|_| -> () { panic!("planned") }));
    assert!(catch_unwind(run).is_err());
    assert!(!server.exists("lock:k"));
    assert!(matches!(
        locks.mutex("k").try_acquire().unwrap(),
        TryAcquire::Acquired(_)
    ));
}

#[test]
fn a_write_that_becomes_a_read_lets_other_readers_in() {
    let server = RedisServer::start();
    let (locks, stranger) = (connect(&server), connect(&server));
    let mut guard = locks.write("k").acquire().unwrap();
    assert!(matches!(
        stranger.read("k").try_acquire().unwrap(),
        TryAcquire::Busy { .. }
    ));
    guard.downgrade().unwrap();
    assert_eq!(guard.fencing_token(), None);
    assert!(matches!(
        stranger.read("k").try_acquire().unwrap(),
        TryAcquire::Acquired(_)
    ));
    guard.renew(LONG).unwrap();
    assert!(guard.is_held());
}

#[tokio::test]
async fn blocking_calls_in_a_runtime_are_refused_and_guards_released() {
    let server = RedisServer::start();
    let url = server.url();
    assert!(is_refused(LockManager::connect(&url)));
    assert!(is_refused(LockManager::in_memory()));
    let (locks, guard, other) = thread::spawn(move || {
        // A caller that waited for an answer, or for the end of the manager, would wait for a minute.
        let builder = lock_runtime::LockManager::builder()
            .call_timeout(2 * LONG)
            .shutdown_grace(2 * LONG)
            .lease(60 * LONG);
        let locks = LockManager::new(builder.connect(&url)).unwrap();
        let guard = locks.mutex("a").acquire().unwrap();
        let other = locks.mutex("b").acquire().unwrap();
        (locks, guard, other)
    })
    .join()
    .unwrap();
    assert!(is_refused(locks.mutex("c").acquire()));
    assert!(is_refused(locks.mutex("c").try_acquire()));
    assert!(is_refused(locks.mutex("c").run(|_| ())));
    assert!(is_refused(locks.inspect("c")));
    assert!(is_refused(locks.shutdown()));
    assert!(is_refused(guard.wait_lost(LONG)));
    let in_the_pool = locks.clone();
    let pooled = tokio::task::spawn_blocking(move || is_refused(in_the_pool.mutex("c").acquire()));
    assert!(pooled.await.unwrap());
    assert!(guard.is_held(), "what needs no I/O answers");
    let began = Instant::now();
    server.sigstop();
    drop(guard);
    assert!(is_refused(other.release()));
    drop(locks);
    assert!(began.elapsed() < LONG, "nothing was waited for");
    server.sigcont();
    eventually("both are released", async || server.stray_keys().is_empty()).await;
    server.assert_deserted().await;
}

#[tokio::test]
async fn a_guard_dropped_in_a_runtime_is_released_without_a_warning() {
    let server = RedisServer::start();
    let url = server.url();
    let (locks, guard) = thread::spawn(move || {
        let locks = connect_to(&url);
        let guard = locks.mutex("k").acquire().unwrap();
        (locks, guard)
    })
    .join()
    .unwrap();
    let events = Events::default();
    let logging = tracing::subscriber::set_default(events.clone());
    drop(guard);
    drop(logging);
    eventually("it is released", async || !server.exists("lock:k")).await;
    assert_eq!(events.of(Level::WARN), Vec::<String>::new());
    drop(locks);
}

#[test]
fn threads_share_an_async_manager_while_its_runtime_lives() {
    let server = RedisServer::start();
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let url = server.url();
    let (locks, shared) = runtime.block_on(async {
        let locks = tests::connected(&url).await;
        let shared = LockManager::from_async(locks.clone()).unwrap();
        (locks, shared)
    });
    let outside = LockManager::from_async(locks.clone());
    assert!(matches!(outside, Err(LockError::InvalidConfig { .. })));
    let guard = shared.mutex("k").acquire().unwrap();
    let held = runtime.block_on(locks.mutex("k").try_acquire()).unwrap();
    assert!(matches!(held, TryAcquire::Busy { .. }));
    guard.release().unwrap();
    let left: Vec<LockGuard> = ["a", "b"]
        .map(|key| shared.mutex(key).acquire().unwrap())
        .into();

    // Threads that are blocked meanwhile: most of them by a timer, which panics without its runtime.
    let waiting: Vec<_> = iter::repeat_with(|| {
        let request = shared.mutex("a").wait(LONG);
        thread::spawn(move || request.acquire().map(drop))
    })
    .take(8)
    .collect();
    until("they wait", || {
        shared
            .as_async()
            .snapshot()
            .waited_for
            .iter()
            .any(|lock| lock.callers == 8)
    });

    drop(runtime);
    let [first, second] = <[_; 2]>::try_from(left).unwrap();
    assert!(!first.is_held());
    let ended = waiting
        .into_iter()
        .map(|thread| thread.join().expect("no panic"));
    let refused = [
        first.release(),
        shared.mutex("k").acquire().map(drop),
        shared.mutex("k").run(|_| ()),
        shared.inspect("k").map(drop),
    ];
    for refused in ended.chain(refused) {
        assert!(
            matches!(refused, Err(LockError::ShuttingDown { .. })),
            "{refused:?}"
        );
    }
    drop(second);
    drop(shared);
}

thread_local! {
    static KEPT: RefCell<Option<LockGuard>> = const { RefCell::new(None) };
}

#[test]
fn a_guard_that_ends_with_its_thread_is_released() {
    let server = RedisServer::start();
    let locks = connect(&server);
    let (told, hears) = mpsc::channel();
    let of_the_thread = locks.clone();
    let thread = thread::spawn(move || {
        // The thread's slot is made before what the runtime keeps for the thread, so it is dropped after that.
        KEPT.with(|kept| {
            let guard = of_the_thread.mutex("k").acquire().unwrap();
            *kept.borrow_mut() = Some(guard);
        });
        told.send(()).unwrap();
    });
    hears.recv().unwrap();
    thread.join().unwrap();
    until("it is released", || !server.exists("lock:k"));
}

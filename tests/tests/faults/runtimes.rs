//! Tests of runtimes that end before their guards, and of shutdowns in the middle of things.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lock_runtime::{LockError, LockGuard, LockManager, LostReason, Outcome, distributed_lock};
use tests::eventually::PATIENCE;
use tests::faults::{LEAVES, behind_a_proxy, connected, free_within, poll_times, took};
use tests::{Direction, Events, PostgresTable, RedisServer, eventually};
use tokio::runtime::{Builder, Runtime};
use tracing::Level;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);
/// This is longer than a test waits for a release.
const LEASE: Duration = Duration::from_secs(60 * 60);
/// A shutdown waits for releases for this long at most.
const DRAIN: Duration = Duration::from_secs(2);

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

/// Makes a manager with two guards in the given runtime.
fn made_in(runtime: &Runtime, url: &str, lease: Duration) -> (LockManager, LockGuard, LockGuard) {
    runtime.block_on(async {
        let builder = tests::builder().ensure_schema(true);
        let locks = connected(builder, url).await;
        let request = |key| locks.mutex(key).lease(lease);
        let first = request("a").acquire().await.unwrap();
        let second = request("b").acquire().await.unwrap();
        (locks, first, second)
    })
}

fn is_gone(error: &LockError) -> bool {
    matches!(error, LockError::ShuttingDown { .. }) && error.to_string().contains("runtime")
}

#[test]
fn callers_that_wait_elsewhere_learn_that_the_runtime_has_ended() {
    let server = RedisServer::start();
    let (home, away) = (runtime(), runtime());
    let (locks, _a, _b) = made_in(&home, &server.url(), LEASE);
    let other = away.block_on(async { tests::connected(&server.url()).await });
    let taken = away.block_on(async {
        let fair = other.fair("fair").lease(LEASE).acquire().await.unwrap();
        (other.mutex("k").lease(LEASE).acquire().await.unwrap(), fair)
    });
    let requests = [locks.mutex("k"), locks.mutex("k"), locks.fair("fair")];
    let waiting = requests.map(|request| away.spawn(request.wait(LONG).acquire()));
    away.block_on(eventually("all of them wait", async || {
        let callers = locks.snapshot().waited_for;
        callers.iter().map(|lock| lock.callers).sum::<usize>() == 3
    }));
    drop(home);
    for waiting in waiting {
        let error = away.block_on(waiting).unwrap().unwrap_err();
        assert!(is_gone(&error), "{error}");
    }
    away.block_on(async { drop(taken) });
}

#[test]
fn a_guard_whose_runtime_ends_before_its_release_is_told_of() {
    let server = RedisServer::start();
    let events = Events::default();
    let _logging = tracing::subscriber::set_default(events.clone());
    // As `#[tokio::main(flavor = "current_thread")]`: the guard is dropped as the main function returns.
    let main = Builder::new_current_thread().enable_all().build().unwrap();
    main.block_on(async {
        let locks = tests::connected(&server.url()).await;
        let _guard = locks.mutex("a").lease(LEASE).acquire().await.unwrap();
        let second = locks.mutex("b").lease(LEASE).acquire().await.unwrap();
        second.release().await.unwrap();
    });
    drop(main);
    let logged = events.of(Level::WARN);
    let cut_off = logged
        .iter()
        .filter(|said| said.contains("the runtime ended before a lock was given back"));
    let cut_off: Vec<_> = cut_off.collect();
    assert_eq!(cut_off.len(), 1, "{logged:#?}");
    assert!(cut_off[0].contains("lock=\"a\""), "{cut_off:?}");
    assert!(server.exists("lock:a"), "its lease ends it");
    assert!(!server.exists("lock:b"));
}

#[test]
fn a_guard_dropped_outside_a_runtime_is_released() {
    let server = RedisServer::start();
    let home = runtime();
    let (locks, first, second) = made_in(&home, &server.url(), LEASE);
    // This thread has never seen a runtime.
    std::thread::spawn(move || drop(first)).join().unwrap();
    drop(second);
    home.block_on(async {
        eventually("both are released", async || {
            server.query::<i64>(&["EXISTS", "lock:a", "lock:b"]) == 0
        })
        .await;
        drop(locks);
        server.assert_deserted().await;
    });
}

#[test]
fn guards_on_postgresql_are_released_outside_their_runtime() {
    let table = PostgresTable::new();
    let (home, away) = (runtime(), runtime());
    let (locks, first, second) = made_in(&home, &table.url(), LEASE);
    // One guard ends on a thread that has never seen a runtime, the other in another runtime.
    std::thread::spawn(move || drop(first)).join().unwrap();
    away.block_on(async {
        second.release().await.unwrap();
        free_within(&locks, "c", LONG).await;
        table.assert_clean().await;
    });
    home.block_on(async {
        drop(locks);
        table.assert_deserted().await;
    });
}

#[test]
fn a_guard_dropped_in_another_runtime_is_released() {
    let server = RedisServer::start();
    let (home, away) = (runtime(), runtime());
    let (locks, first, second) = made_in(&home, &server.url(), LEASE);
    away.block_on(async {
        drop(first);
        second.release().await.unwrap();
        // A foreign runtime may also acquire: the manager's own does the work.
        free_within(&locks, "c", LONG).await;
        eventually("all is released", async || server.stray_keys().is_empty()).await;
    });
    home.block_on(async {
        drop(locks);
        server.assert_deserted().await;
    });
}

#[test]
fn guards_and_managers_outlive_a_runtime_without_hang_or_panic() {
    // A memory manager goes on: see `tests/api/runtimes.rs` of lock-runtime.
    let (server, table) = (RedisServer::start(), PostgresTable::new());
    for url in [server.url(), table.url()] {
        outlive_their_runtime(&url);
    }
    runtime().block_on(table.assert_deserted());
}

fn outlive_their_runtime(url: &str) {
    let home = runtime();
    // Only the end of the lease frees the locks.
    let (locks, first, second) = made_in(&home, url, 15_000 * MS);
    let lease = second.lease();
    home.shutdown_timeout(LONG);
    let started = std::time::Instant::now();
    std::thread::spawn(move || drop(first)).join().unwrap();
    let elsewhere = runtime();
    elsewhere.block_on(async {
        let (error, waited) = took(locks.mutex("c").wait(LONG).acquire()).await;
        assert!(is_gone(error.as_ref().unwrap_err()), "{url}: {error:?}");
        assert!(waited < PATIENCE, "{url}: {waited:?}");
        assert!(!error.unwrap_err().is_retryable());
        let tried = locks.mutex("c").try_acquire().await.unwrap_err();
        assert!(is_gone(&tried), "{tried:?}");
        let ran = locks.mutex("c").run(async |_| panic!("the body ran")).await;
        let ran: Result<(), LockError> = ran;
        assert!(is_gone(&ran.unwrap_err()));
        let seen = locks.inspect("c").await.unwrap_err();
        assert!(is_gone(&seen), "{seen:?}");
        let forced = locks.force_release("c").await.unwrap_err();
        assert!(is_gone(&forced), "{forced:?}");
        let released = tokio::time::timeout(LONG, second.release()).await.unwrap();
        // Nobody has looked after the hold since its runtime ended.
        let shutdown = LostReason::Shutdown;
        assert!(
            matches!(&released, Err(LockError::Lost { reason, .. }) if *reason == shutdown),
            "{released:?}"
        );
        assert!(!lease.is_held());
        tokio::time::timeout(LONG, locks.shutdown()).await.unwrap();
    });
    drop(locks);
    assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
}

#[distributed_lock(key = "free", manager = locks)]
async fn annotated(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

/// Timers need a runtime. Without one they panic, and name neither this library nor the remedy.
#[test]
fn every_call_outside_a_runtime_says_what_it_needs() {
    fn refused<T>(call: &str, future: impl IntoFuture<Output = Result<T, LockError>>) {
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Err(error)) = pin!(future.into_future()).poll(&mut context) else {
            panic!("{call} was not refused");
        };
        let says = error.to_string();
        let is_config = matches!(error, LockError::InvalidConfig { .. });
        assert!(
            is_config && says.contains("tokio runtime"),
            "{call}: {error:?}"
        );
        assert!(says.contains("block_on"), "{call} names no remedy: {says}");
    }

    let (server, table) = (RedisServer::start(), PostgresTable::new());
    for url in [server.url(), table.url(), "memory://".to_owned()] {
        refused("connect", LockManager::connect("redis://127.0.0.1/"));
        let home = runtime();
        let (locks, first, second) = made_in(&home, &url, LEASE);
        refused("acquire", locks.mutex("free").acquire());
        refused("acquire of a held lock", locks.mutex("a").acquire());
        refused("try_acquire", locks.mutex("free").try_acquire());
        refused("run", locks.mutex("free").run(async |_| ()));
        refused("fair", locks.fair("fair").acquire());
        refused("read", locks.read("read").acquire());
        let set = || locks.multi(["free", "c"].map(|name| locks.mutex(name)));
        refused("multi", set().acquire());
        refused("multi, tried", set().try_acquire());
        refused(
            "one of several",
            locks.multi([locks.mutex("free")]).try_acquire(),
        );
        refused("an annotated function", annotated(&locks));
        refused("inspect", locks.inspect("a"));
        refused("force_release", locks.force_release("a"));
        let semaphore = locks.semaphore("permits");
        refused("try_set_permits", semaphore.try_set_permits(1));
        refused("available", semaphore.available());
        refused("permits", semaphore.permits(1).acquire());
        let plain = locks.plain_semaphore("plain");
        refused("plain permits", plain.permits(1).wait_forever().acquire());
        refused("plain permits, tried", plain.permits(1).try_acquire());
        refused("plain permits back", plain.release(1));
        let latch = locks.latch("latch");
        refused("a latch's count", latch.try_set_count(1));
        refused("a latch", latch.opened().wait_forever());
        refused("count_down", latch.count_down());
        refused("renew", first.renew(2 * LEASE));
        // The release is refused, and done all the same, in the background.
        refused("release", first.release());
        let mut protected = pin!(second.protect(async { 7 }));
        let mut context = Context::from_waker(Waker::noop());
        let ended = protected.as_mut().poll(&mut context);
        assert!(
            matches!(ended, Poll::Ready(Outcome::Completed { value: 7, .. })),
            "{ended:?}"
        );
        home.block_on(async {
            free_within(&locks, "a", LONG).await;
            free_within(&locks, "b", LONG).await;
            locks.shutdown().await;
        });
    }
}

#[test]
#[should_panic(expected = "needs a tokio runtime")]
fn a_shutdown_outside_a_runtime_says_what_it_needs() {
    let home = runtime();
    let (locks, _first, _second) = made_in(&home, "memory://", LEASE);
    let mut context = Context::from_waker(Waker::noop());
    let _ = pin!(locks.shutdown()).poll(&mut context);
}

/// The end of the runtime drops the tasks that own guards, so this is a drop inside of a drop.
#[test]
fn a_runtime_with_guards_and_waiters_in_its_tasks_ends() {
    let server = RedisServer::start();
    for _ in 0..5 {
        let home = runtime();
        let locks = home.block_on(tests::connected(&server.url()));
        for key in 0..3 {
            for _ in 0..10 {
                let request = locks.mutex(format!("{key}")).lease(1_000 * MS).wait(LONG);
                home.spawn(async move {
                    let _guard = request.acquire().await.unwrap();
                    std::future::pending::<()>().await;
                });
            }
        }
        home.block_on(eventually("each key is held", async || {
            server.query::<i64>(&["EXISTS", "lock:0", "lock:1", "lock:2"]) == 3
        }));
        home.shutdown_timeout(LONG);
        drop(locks);
        server.flushall();
    }
    runtime().block_on(server.assert_deserted());
}

#[test]
fn a_guard_dropped_by_the_end_of_its_thread_is_released() {
    thread_local! {
        static KEPT: std::cell::RefCell<Option<LockGuard>> = const { std::cell::RefCell::new(None) };
    }
    let server = RedisServer::start();
    let home = runtime();
    let (locks, first, second) = made_in(&home, &server.url(), LEASE);
    let thread = std::thread::spawn(move || KEPT.with(|kept| *kept.borrow_mut() = Some(first)));
    thread.join().unwrap();
    drop(second);
    home.block_on(async {
        eventually("it is released", async || !server.exists("lock:a")).await;
        drop(locks);
        server.assert_deserted().await;
    });
}

#[tokio::test]
async fn a_shutdown_while_an_acquire_is_under_way_leaves_no_lock() {
    for leave in LEAVES {
        for polls in 1.. {
            let server = RedisServer::start();
            let (proxy, locks) = behind_a_proxy(&server, tests::builder()).await;
            proxy.delay(Direction::Requests, 3 * MS);
            proxy.delay(Direction::Replies, 3 * MS);
            let mut acquiring = Box::pin(locks.mutex("k").acquire());
            let acquired = poll_times(acquiring.as_mut(), polls, leave).await;
            let completed = acquired.is_some();
            let (acquired, ((), waited)) = tokio::join!(
                async {
                    match acquired {
                        Some(guard) => guard.unwrap().release().await,
                        None => acquiring.await.map(drop),
                    }
                },
                took(locks.shutdown())
            );
            // What a machine that stands still keeps back for longer is left to its lease.
            if waited < DRAIN {
                let ended = matches!(acquired, Ok(()) | Err(LockError::ShuttingDown { .. }));
                assert!(ended, "{polls} polls: {acquired:?}");
                drop((locks, proxy));
                server.assert_deserted().await;
            }
            if completed {
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_under_load_ends_every_caller_and_leaves_nothing() {
    for _ in 0..3 {
        let server = RedisServer::start();
        let builder = tests::builder().shutdown_grace(100 * MS).lease(LEASE);
        let locks = connected(builder, &server.url()).await;
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..64 {
            let locks = locks.clone();
            tasks.spawn(async move {
                let key = (task % 4).to_string();
                loop {
                    let body = |_| tokio::time::sleep(MS * (task % 3));
                    match locks.mutex(key.as_str()).wait(LONG).run(body).await {
                        Ok(()) => {}
                        Err(error) => return error,
                    }
                }
            });
        }
        let stuck = tokio::spawn(
            locks
                .mutex("stuck")
                .run(async |_| std::future::pending::<()>().await),
        );
        eventually("it works", async || server.exists("lock:stuck")).await;
        tokio::time::sleep(30 * MS).await;
        let (_, waited) = took(locks.shutdown()).await;
        let left = server.stray_keys();
        assert!(waited < PATIENCE, "{waited:?}");
        while let Some(error) = tasks.join_next().await {
            let error = error.unwrap();
            let expected = match error {
                LockError::ShuttingDown { .. } => true,
                LockError::Lost { reason, .. } => reason == LostReason::Shutdown,
                _ => false,
            };
            assert!(expected, "{error:?}");
        }
        let stuck = tokio::time::timeout(LONG, stuck)
            .await
            .expect("the body is dropped");
        assert!(stuck.unwrap().is_err());
        // All of it is gone before the manager is dropped, because `shutdown` has returned. A busy machine may need longer
        // for the releases than it waits, and what it keeps back is left to its lease.
        if !left.is_empty() {
            assert!(waited >= DRAIN, "{left:?}: {waited:?}");
            server.flushall();
        }
        eventually("the connections are gone", async || {
            server.clients().is_empty()
        })
        .await;
        let after = locks.mutex("k").acquire().await.unwrap_err();
        assert!(matches!(after, LockError::ShuttingDown { .. }), "{after:?}");
        drop(locks);
        server.assert_deserted().await;
    }
}

#[tokio::test]
async fn after_a_shutdown_the_last_guard_or_lease_ends_connections() {
    for dropped in [true, false] {
        let server = RedisServer::start();
        let builder = tests::builder().shutdown_grace(Duration::ZERO);
        let locks = connected(builder, &server.url()).await;
        let lease = if dropped { LEASE } else { 5_000 * MS };
        let guard = locks.mutex("k").lease(lease).acquire().await.unwrap();
        locks.shutdown().await;
        assert!(!guard.is_held());
        assert!(!server.clients().is_empty(), "needed for the release");
        let kept = if dropped {
            drop(guard);
            None
        } else {
            Some(guard)
        };
        eventually("the connections are gone", async || {
            server.clients().is_empty()
        })
        .await;
        eventually("the key is gone", async || server.stray_keys().is_empty()).await;
        drop(kept);
    }
}

//! Tests with several operating-system processes on one Redis server.

use lock_runtime::TryAcquire;
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use tests::{History, RedisServer, Store, Worker, left_of};

const WORKER: &str = env!("CARGO_BIN_EXE_worker");

fn start(server: &RedisServer, mode: &str, processes: usize, amount: &str) -> Vec<Worker> {
    start_at(&server.url(), mode, processes, amount)
}

fn start_at(url: &str, mode: &str, processes: usize, amount: &str) -> Vec<Worker> {
    let mut workers: Vec<Worker> = (0..processes)
        .map(|_| Worker::start(WORKER, &[mode, url, "hot", "16", amount]))
        .collect();
    for worker in &workers {
        worker.expect_line("ready");
    }
    for worker in &mut workers {
        worker.tell("go");
    }
    workers
}

/// Checks the holds of all workers and returns how many each process had.
fn collect(workers: Vec<Worker>) -> BTreeMap<u32, usize> {
    let history = History::new();
    let mut per_process = BTreeMap::new();
    for worker in workers {
        let pid = worker.pid();
        for hold in worker.holds() {
            history.add(hold);
            *per_process.entry(pid).or_default() += 1;
        }
    }
    history.assert_exclusive();
    per_process
}

#[tokio::test]
async fn processes_never_hold_at_once() {
    let server = RedisServer::start();
    let each = if std::env::var_os("LOCK_TESTS_LONG").is_some() {
        "25000"
    } else {
        "1000"
    };
    let per_process = collect(start(&server, "contend", 4, each));
    assert_eq!(
        per_process.values().sum::<usize>(),
        4 * each.parse::<usize>().unwrap()
    );
    server.assert_deserted().await;
}

#[tokio::test]
async fn no_process_is_starved_by_the_others() {
    let server = RedisServer::start();
    let per_process = collect(start(&server, "race", 4, "8000"));
    let fair = per_process.values().sum::<usize>() / 4;
    // One that is starved has less than a hundredth of a fair share. A busy machine that runs others meanwhile leaves one
    // twenty-fifth. The benchmark asks for half of one over a longer time on a quiet machine.
    assert!(
        per_process.values().all(|holds| *holds >= fair / 50),
        "{per_process:?}"
    );
    assert_eq!(per_process.len(), 4);
    server.assert_deserted().await;
}

#[tokio::test]
async fn a_killed_holder_blocks_until_its_lease_is_over_and_no_longer() {
    let store = Store::redis();
    let Store::Redis(server) = &store else {
        unreachable!()
    };
    let lease = Duration::from_secs(15);
    let mut worker = Worker::start(WORKER, &["hang", &server.url(), "hot", "15000"]);
    let line = worker.line().unwrap();
    let token: u64 = line.strip_prefix("held ").unwrap().parse().unwrap();

    let locks = store.manager().await;
    assert!(matches!(
        locks.mutex("hot").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    worker.kill9();
    let killed = Instant::now();
    let left = Duration::from_millis(server.pttl("lock:hot").try_into().unwrap());
    assert!(left <= lease, "{left:?}");
    assert!(
        matches!(
            locks.mutex("hot").try_acquire().await.unwrap(),
            TryAcquire::Busy { .. }
        ),
        "the lease still runs"
    );

    let guard = locks.mutex("hot").wait(lease * 10).acquire().await.unwrap();
    let blocked = killed.elapsed();
    assert!(blocked >= left, "{blocked:?} {left:?}");
    let no_longer = left + Duration::from_secs(60);
    assert!(blocked < no_longer, "{blocked:?} {left:?}");
    assert!(guard.fencing_token().unwrap().get() > token);
    guard.release().await.unwrap();
    drop(locks);
    // The store keeps the record of the killed process for a while.
    server.assert_deserted().await;
}

#[tokio::test]
async fn a_renewing_process_keeps_its_lock_past_the_lease() {
    let store = Store::redis();
    let Store::Redis(server) = &store else {
        unreachable!()
    };
    let worker = Worker::start(WORKER, &["hang", &server.url(), "hot", "10000"]);
    assert!(worker.line().unwrap().starts_with("held "));
    let locks = store.manager().await;
    let waiter = tokio::spawn(locks.mutex("hot").wait_forever().acquire());
    tokio::time::sleep(Duration::from_millis(12_500)).await;
    assert!(!waiter.is_finished());
    assert!(left_of(&locks, "hot").await > Duration::ZERO);
    drop(worker);
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

/// Starts four processes of 16 tasks, each of which draws 2,000 ids.
fn start_to_draw(url: &str, mode: &str) -> Vec<Worker> {
    start_at(url, mode, 4, "2000")
}

/// Checks the ids of these processes.
fn no_id_was_drawn_twice(workers: Vec<Worker>, mode: &str) {
    let mut unique = HashSet::new();
    for worker in workers {
        for _ in 0..16 {
            let line = worker.line().expect("the ids of a task");
            let ids: Vec<i64> = line.split(' ').map(|id| id.parse().unwrap()).collect();
            assert_eq!(ids.len(), 2_000);
            match mode {
                "ids" => assert!(ids.is_sorted_by(|one, next| one < next)),
                // Within a millisecond they have no order.
                _ => assert!(ids.is_sorted_by_key(|id| id >> 22)),
            }
            unique.extend(ids);
        }
    }
    assert_eq!(unique.len(), 4 * 16 * 2_000);
}

#[test]
fn processes_never_draw_an_id_twice() {
    let server = RedisServer::start();
    no_id_was_drawn_twice(start_to_draw(&server.url(), "ids"), "ids");
}

#[test]
fn processes_draw_no_id_twice_while_the_store_is_flushed() {
    let server = RedisServer::start();
    for mode in ["ids", "shuffled-ids"] {
        // Ids of the other mode may be left, which a process of this mode refuses.
        server.flushall();
        let workers = start_to_draw(&server.url(), mode);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Not for ever: on a busy machine, a process may find a new source whenever it asks.
                for _ in 0..100 {
                    server.flushall();
                    std::thread::sleep(Duration::from_millis(3));
                }
            });
            no_id_was_drawn_twice(workers, mode);
        });
    }
}

#[tokio::test]
async fn processes_never_draw_an_id_twice_from_one_row() {
    let store = Store::postgres();
    // The first manager makes the table.
    drop(store.manager().await);
    if let Store::Postgres(table) = &store {
        no_id_was_drawn_twice(start_to_draw(&table.url(), "ids"), "ids");
    }
    let store = Store::mysql();
    drop(store.manager().await);
    if let Store::Mysql(table) = &store {
        no_id_was_drawn_twice(start_to_draw(&table.url(), "ids"), "ids");
    }
}

//! Tests of mutual exclusion, checked from recorded intervals, while everything goes wrong at once.
//!
//! `LOCK_TEST_ACQUISITIONS` is the number of acquisitions: 10,000 by default, 100,000 if `LOCK_TESTS_LONG` is set.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use lock_runtime::{LockError, LockManager};
use redis::Value;
use tests::faults::{LEAVES, poll_times};
use tests::{Data, History, RedisServer, Worker};
use tokio::task::JoinSet;

const WORKER: &str = env!("CARGO_BIN_EXE_worker");
const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

fn acquisitions() -> i64 {
    let long = std::env::var_os("LOCK_TESTS_LONG").map_or(10_000, |_| 100_000);
    std::env::var("LOCK_TEST_ACQUISITIONS").map_or(long, |number| number.parse().expect("a number"))
}

/// Takes the key, watches the hold for some polls, and gives it back in one of several ways. Returns whether it had the
/// key.
async fn one_hold(locks: &LockManager, history: &History, holder: &str) -> bool {
    let request = locks.mutex("hot").lease(1_000 * MS).wait(LONG);
    let guard = if fastrand::u8(..10) == 0 {
        // This future may be dropped anywhere on its way.
        let leave = LEAVES[fastrand::usize(..2)];
        match poll_times(request.acquire(), fastrand::usize(..6), leave).await {
            Some(guard) => guard,
            None => return false,
        }
    } else {
        request.acquire().await
    };
    let guard = match guard {
        Ok(guard) => guard,
        Err(LockError::Unavailable { .. } | LockError::Busy { .. }) => return false,
        Err(error) => panic!("{holder}: {error}"),
    };
    let token = guard.fencing_token().map(|token| token.get());
    let mut hold = history.begin("hot", holder, token);
    for _ in 0..fastrand::u8(..4) {
        tokio::task::yield_now().await;
        if !hold.seen(|| guard.is_held()) {
            break;
        }
    }
    hold.seen(|| guard.is_held());
    hold.end_as_seen();
    match fastrand::u8(..3) {
        0 => drop(guard),
        1 => drop(poll_times(guard.release(), 1, LEAVES[fastrand::usize(..2)]).await),
        _ => {
            // The hold may be lost, or its release not confirmed. Nothing was recorded beyond what was certain.
            let _ = guard.release().await;
        }
    }
    true
}

/// Starts tasks that contend until the budget is spent.
fn contend(
    managers: &[LockManager],
    history: &Arc<History>,
    budget: &Arc<AtomicI64>,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for (m, manager) in managers.iter().enumerate() {
        for task in 0..8 {
            let (locks, history, budget) = (manager.clone(), history.clone(), budget.clone());
            tasks.spawn(async move {
                let holder = format!("{m}-{task}");
                while budget.load(SeqCst) > 0 {
                    if one_hold(&locks, &history, &holder).await {
                        budget.fetch_sub(1, SeqCst);
                    }
                }
            });
        }
    }
    tasks
}

async fn managers(server: &RedisServer, number: usize) -> Vec<LockManager> {
    let mut managers = Vec::new();
    for _ in 0..number {
        managers.push(tests::connected(&server.url()).await);
    }
    managers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_scripts_and_connections_let_no_two_processes_overlap() {
    let server = RedisServer::start();
    let history = Arc::new(History::new());
    let all = acquisitions();
    let each = (all / 4).to_string();
    let mut workers: Vec<Worker> = (0..2)
        .map(|_| Worker::start(WORKER, &["contend", &server.url(), "hot", "8", &each]))
        .collect();
    for worker in &workers {
        worker.expect_line("ready");
    }
    let budget = Arc::new(AtomicI64::new(all - all / 4 * 2));
    let managers = managers(&server, 3).await;
    for worker in &mut workers {
        worker.tell("go");
    }
    let mut tasks = contend(&managers, &history, &budget);
    let server = Arc::new(server);
    let done = Arc::new(AtomicBool::new(false));
    let trouble = tokio::spawn({
        let (server, done) = (server.clone(), done.clone());
        async move {
            let mut round = 0;
            while !done.load(SeqCst) {
                tokio::time::sleep(MS * fastrand::u32(20..60)).await;
                let _: Value = server.query(&["SCRIPT", "FLUSH"]);
                round += 1;
                // A connection that is cut again within a second is not rebuilt without a pause.
                if round % 40 == 0 {
                    server.cut_clients();
                }
            }
        }
    });
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    let holds = tokio::task::spawn_blocking(move || {
        workers
            .into_iter()
            .flat_map(Worker::holds)
            .collect::<Vec<_>>()
    });
    for hold in holds.await.unwrap() {
        history.add(hold);
    }
    done.store(true, SeqCst);
    trouble.await.unwrap();
    assert!(history.len() as i64 >= all, "{} of {all}", history.len());
    history.assert_exclusive();
    drop(managers);
    server.assert_deserted().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn managers_never_overlap_while_the_server_freezes_and_restarts() {
    let mut server = RedisServer::builder().appendonly().start();
    let history = Arc::new(History::new());
    let budget = Arc::new(AtomicI64::new(i64::MAX));
    let managers = managers(&server, 3).await;
    let mut tasks = contend(&managers, &history, &budget);
    for round in 0..6 {
        let before = history.len();
        tests::eventually_within(LONG, "it goes on", async || history.len() > before + 50).await;
        if round % 2 == 0 {
            server.sigstop();
            // The freeze lasts about as long as the lease of 1 s: some holds survive it and some do not.
            tokio::time::sleep(MS * fastrand::u32(300..1_300)).await;
            server.sigcont();
        } else {
            server.restart(Data::Kept);
        }
    }
    budget.store(0, SeqCst);
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    history.assert_exclusive();
    drop(managers);
    server.assert_deserted().await;
}

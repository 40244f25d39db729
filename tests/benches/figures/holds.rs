//! The cost of many holds to their process, and to the others who lock in it.

use std::time::{Duration, Instant};

use lock_runtime::{LockGuard, LockManager};
use tests::RedisServer;

use crate::stats::{micros, process_cpu};

const LEASE: Duration = Duration::from_secs(30);
/// The measured time: one lease, in which each hold is renewed three times.
const MEASURED: Duration = Duration::from_secs(30);
const TASKS: usize = 256;

pub(crate) fn run() {
    println!(
        "holds of one process, {LEASE:?} each, for {MEASURED:?}: CPU, and acquire + release of other keys beside"
    );
    for count in [0, 1_000, 10_000, 100_000, 1_000_000] {
        let server = RedisServer::start();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        let guards = runtime.block_on(measure(&server, count));
        runtime.shutdown_background();
        drop(guards);
    }
}

async fn measure(server: &RedisServer, count: usize) -> Vec<LockGuard> {
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let began = Instant::now();
    let guards = hold(&locks, count).await;
    let taken = began.elapsed();
    // A cadence passes first: locks that were taken in one go are also renewed in one go the first time.
    tokio::time::sleep(LEASE / 3).await;
    let cpu = process_cpu();
    let began = Instant::now();
    let mut cycles = Vec::new();
    while began.elapsed() < MEASURED {
        let cycle = Instant::now();
        let guard = locks.mutex("other").acquire().await.unwrap();
        guard.release().await.unwrap();
        cycles.push(cycle.elapsed());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let cpu = (process_cpu() - cpu).as_secs_f64() / began.elapsed().as_secs_f64();
    cycles.sort();
    let at = |part: f64| micros(cycles[((cycles.len() - 1) as f64 * part) as usize]);
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    println!(
        "  {count:9} holds: {:6.2} % of a core; p50 {:6.0} µs, p99 {:6.0} µs, longest {:6.0} µs; taken in {taken:.1?}; lost {lost}",
        cpu * 100.0,
        at(0.5),
        at(0.99),
        at(1.0),
    );
    guards
}

/// Takes `count` locks, many at a time.
async fn hold(locks: &LockManager, count: usize) -> Vec<LockGuard> {
    let tasks = (0..TASKS).map(|task| {
        let locks = locks.clone();
        tokio::spawn(async move {
            let mut guards = Vec::new();
            for number in (task..count).step_by(TASKS) {
                let request = locks.mutex(format!("held:{number}")).lease(LEASE);
                guards.push(request.acquire().await.unwrap());
            }
            guards
        })
    });
    let mut guards = Vec::with_capacity(count);
    for task in tasks.collect::<Vec<_>>() {
        guards.extend(task.await.unwrap());
    }
    guards
}

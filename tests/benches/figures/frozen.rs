//! The cost of a frozen master of a cluster to keys of the other masters, while thousands of callers wait for keys of
//! the frozen one.

use std::time::{Duration, Instant};

use lock_runtime::LockManager;
use tests::RedisCluster;

use crate::stats::micros;

const WINDOW: Duration = Duration::from_secs(8);
const WAITERS: usize = 4_000;
const LONG: Duration = Duration::from_secs(120);

pub(crate) fn run() {
    println!("4 tasks on keys of two healthy masters, {WINDOW:?} each: acquire + release");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(measure());
    runtime.shutdown_background();
}

async fn measure() {
    let conf = RedisCluster::builder()
        .node_timeout(LONG)
        .line("cluster-require-full-coverage no");
    let cluster = conf.start().await;
    let locks = LockManager::connect(&cluster.url()).await.unwrap();
    let keys: Vec<_> = (0..4)
        .map(|task| {
            let tag = cluster.key_at(task % 2 * 2, &format!("healthy{task}-"));
            format!("{{{tag}}}")
        })
        .collect();
    cycles(&locks, &keys, "all masters answer").await;
    let stem = cluster.key_at(1, "frozen");
    cluster.pause(1);
    for number in 0..WAITERS {
        let lock = locks.mutex(format!("{{{stem}}}{number}")).wait_forever();
        tokio::spawn(lock.acquire());
    }
    // Only callers that have asked the server find out that it does not answer, so they are given time to ask.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let what = format!("one is frozen, and {WAITERS} callers wait for it");
    cycles(&locks, &keys, &what).await;
    cluster.resume(1);
}

async fn cycles(locks: &LockManager, keys: &[String], what: &str) {
    let tasks = keys.iter().map(|key| {
        let lock = locks.mutex(key);
        tokio::spawn(async move {
            let (began, mut cycles) = (Instant::now(), Vec::new());
            while began.elapsed() < WINDOW {
                let cycle = Instant::now();
                let guard = lock.clone().acquire().await.unwrap();
                guard.release().await.unwrap();
                cycles.push(cycle.elapsed());
            }
            cycles
        })
    });
    let mut all = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        all.extend(task.await.unwrap());
    }
    all.sort();
    let at = |part: f64| micros(all[((all.len() - 1) as f64 * part) as usize]);
    println!(
        "  {what}: {:.0} /s, p50 {:.0} µs, p99 {:.0} µs, longest {:.0} µs",
        all.len() as f64 / WINDOW.as_secs_f64(),
        at(0.5),
        at(0.99),
        at(1.0),
    );
}

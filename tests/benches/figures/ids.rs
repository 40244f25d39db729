//! Ids of one process: how many a second, and how many requests they cost, for 1, 64 and 1,000 tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use lock_runtime::LockManager;
use tests::{CommandStats, RedisServer};

use crate::stats::mean_95;

const RUNS: usize = 10;

pub(crate) fn run() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        println!("ids of one process with one thread, on Redis");
        let locks = LockManager::connect(&server.url()).await.unwrap();
        for (tasks, ids) in [(1, 20_000), (64, 1_000_000), (1_000, 1_000_000)] {
            for shuffled in [false, true] {
                let (mut rates, mut requests) = (Vec::new(), Vec::new());
                for _ in 0..RUNS {
                    let before = CommandStats::of(&server);
                    let began = Instant::now();
                    draw(&locks, shuffled, tasks, ids).await;
                    rates.push(ids as f64 / began.elapsed().as_secs_f64());
                    let scripts = CommandStats::of(&server).since(&before).scripts();
                    requests.push(scripts as f64 * 1_000.0 / ids as f64);
                }
                let (rate, spread) = mean_95(&rates);
                let (cost, about) = mean_95(&requests);
                let kind = if shuffled { "shuffled" } else { "plain" };
                println!(
                    "  {tasks:5} tasks, {kind:8} {rate:10.0} ± {spread:.0} /s, {cost:.2} ± {about:.2} requests for 1,000 ids"
                );
            }
        }
    });
}

async fn draw(locks: &LockManager, shuffled: bool, tasks: usize, ids: i64) {
    let left = Arc::new(AtomicI64::new(ids));
    let drawing: Vec<_> = (0..tasks)
        .map(|_| {
            let (source, left) = match shuffled {
                true => (locks.ids("invoice").shuffled(), left.clone()),
                false => (locks.ids("order"), left.clone()),
            };
            tokio::spawn(async move {
                while left.fetch_sub(1, Ordering::Relaxed) > 0 {
                    source.next().await.unwrap();
                }
            })
        })
        .collect();
    for task in drawing {
        task.await.unwrap();
    }
}

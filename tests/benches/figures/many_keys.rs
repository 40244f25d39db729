//! 512 tasks on keys of their own over one manager, beside the bare pipelined rate.

use std::time::Duration;

use lock_runtime::LockManager;
use tests::RedisServer;

use crate::bare::{Bare, BareKey};
use crate::stats::{Tally, mean_95, storm};

const TASKS: usize = 512;
const RUNS: usize = 10;
const RUN: Duration = Duration::from_secs(1);

pub(crate) fn run() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let locks = LockManager::connect(&server.url()).await.unwrap();
        let bare = Bare::connect(&server.url()).await;
        let mut ratios = Vec::new();
        let (mut best_ours, mut best_bare) = (0.0_f64, 0.0_f64);
        for run in 0..=RUNS {
            let (mut ours, mut base) = (0.0, 0.0);
            for turn in 0..2 {
                if (run + turn) % 2 == 0 {
                    ours = rate(|task, tally| {
                        let (locks, name) = (locks.clone(), format!("key:{task}"));
                        async move {
                            while tally.goes_on() {
                                let guard = locks.mutex(&name).acquire().await.unwrap();
                                guard.release().await.unwrap();
                                tally.one();
                            }
                        }
                    })
                    .await;
                } else {
                    base = rate(|task, tally| {
                        let (mut bare, key) = (bare.clone(), BareKey::new(&task.to_string()));
                        async move {
                            while tally.goes_on() {
                                bare.cycle(&key).await;
                                tally.one();
                            }
                        }
                    })
                    .await;
                }
            }
            if run > 0 {
                ratios.push(ours / base);
                best_ours = best_ours.max(ours);
                best_bare = best_bare.max(base);
            }
        }
        let (ratio, half) = mean_95(&ratios);
        println!("{TASKS} tasks on keys of their own, {RUNS} interleaved runs of {RUN:?}");
        println!("  best rate        {best_ours:7.0} /s   bare {best_bare:7.0} /s");
        println!("  ratio            {ratio:7.3} ± {half:.3} (95 %)");
    });
}

async fn rate<F: Future<Output = ()> + Send + 'static>(task: impl Fn(usize, Tally) -> F) -> f64 {
    let (count, took) = storm(TASKS, RUN, task).await;
    count as f64 / took.as_secs_f64()
}

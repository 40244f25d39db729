//! One key that all tasks of a process want: hand-overs inside the process.

use std::sync::Arc;
use std::time::Duration;

use lock_runtime::LockManager;
use tests::{CommandStats, RedisServer};

use crate::stats::{mean_95, storm};

const TASKS: usize = 64;
/// The number of runs of each kind, which take turns.
const RUNS: usize = 30;
const RUN: Duration = Duration::from_millis(200);

/// Takes and gives back one key in `tasks` tasks for `length`.
async fn hot(locks: &LockManager, tasks: usize, length: Duration) -> (u64, Duration) {
    storm(tasks, length, |_, tally| {
        let locks = locks.clone();
        async move {
            while tally.goes_on() {
                let guard = locks.mutex("hot").wait_forever().acquire().await.unwrap();
                tally.one();
                guard.release().await.unwrap();
            }
        }
    })
    .await
}

/// Does the same with tokio's mutex, which no other process can see.
async fn hot_mutex(mutex: &Arc<tokio::sync::Mutex<()>>) -> (u64, Duration) {
    storm(TASKS, RUN, |_, tally| {
        let mutex = mutex.clone();
        async move {
            while tally.goes_on() {
                let guard = mutex.lock().await;
                tally.one();
                drop(guard);
            }
        }
    })
    .await
}

pub(crate) fn one_process() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let rate = |(count, took): (u64, Duration)| count as f64 / took.as_secs_f64();
    runtime.block_on(async {
        let locks = LockManager::connect(&server.url()).await.unwrap();
        let mutex = Arc::default();
        hot(&locks, TASKS, RUN).await;
        hot_mutex(&mutex).await;
        let before = CommandStats::of(&server);
        let (mut count, mut rates, mut mutexes, mut ratios) = (0, vec![], vec![], vec![]);
        for _ in 0..RUNS {
            let run = hot(&locks, TASKS, RUN).await;
            count += run.0;
            let [ours, tokios] = [rate(run), rate(hot_mutex(&mutex).await)];
            rates.push(ours);
            mutexes.push(tokios);
            ratios.push(ours / tokios);
        }
        let scripts = CommandStats::of(&server).since(&before).scripts();
        println!("one hot key, {TASKS} tasks of one process");
        for (what, rates) in [("acquisitions", &rates), ("tokio's Mutex", &mutexes)] {
            let (mean, about) = mean_95(rates);
            println!("  {what:16} {mean:7.0} ± {about:.0} /s");
        }
        let (ratio, about) = mean_95(&ratios);
        println!("  ratio            {ratio:7.3} ± {about:.3}");
        println!(
            "  script calls     {:7.3} per acquisition",
            scripts as f64 / count as f64
        );
    });
}

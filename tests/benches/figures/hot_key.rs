//! One key that everybody wants: hand-overs inside a process, fairness between processes.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lock_runtime::LockManager;
use tests::{CommandStats, RedisServer};

use crate::stats::{mean_95, storm};

pub(crate) const CHILD: &str = "hot-key-child";

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

pub(crate) fn processes() {
    const PROCESSES: usize = 4;
    let server = RedisServer::start();
    let children: Vec<_> = (0..PROCESSES)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args([CHILD, &server.url(), "16", "10"])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let counts: Vec<u64> = children
        .into_iter()
        .map(|child| {
            let output = child.wait_with_output().unwrap();
            String::from_utf8(output.stdout)
                .unwrap()
                .trim()
                .parse()
                .unwrap()
        })
        .collect();
    let total: u64 = counts.iter().sum();
    let fair = total as f64 / PROCESSES as f64;
    println!("one hot key, {PROCESSES} processes of 16 tasks, 10 s");
    println!("  acquisitions     {:7.0} /s", total as f64 / 10.0);
    let shares: Vec<String> = counts
        .iter()
        .map(|&count| format!("{:.2}", count as f64 / fair))
        .collect();
    println!("  of its fair share each process had {}", shares.join(", "));
}

/// Runs as one of the processes. The arguments are the URL, the number of tasks and the seconds.
pub(crate) fn child(args: &[String]) {
    let [url, tasks, seconds] = args else {
        panic!("{CHILD} URL TASKS SECONDS")
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let count = runtime.block_on(async {
        let locks = LockManager::connect(url).await.unwrap();
        hot(
            &locks,
            tasks.parse().unwrap(),
            Duration::from_secs(seconds.parse().unwrap()),
        )
        .await
        .0
    });
    println!("{count}");
}

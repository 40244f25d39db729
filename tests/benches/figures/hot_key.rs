//! One key that everybody wants: hand-overs inside a process, fairness between processes.

use std::process::{Command, Stdio};
use std::time::Duration;

use lock_runtime::LockManager;
use tests::{CommandStats, RedisServer};

use crate::stats::storm;

pub(crate) const CHILD: &str = "hot-key-child";

/// Takes and gives back one key with so many tasks for so long.
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

pub(crate) fn one_process() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let locks = LockManager::connect(&server.url()).await.unwrap();
        let before = CommandStats::of(&server);
        let (count, took) = hot(&locks, 64, Duration::from_secs(3)).await;
        let scripts = CommandStats::of(&server).since(&before).scripts();
        println!("one hot key, 64 tasks of one process");
        println!(
            "  acquisitions     {:7.0} /s",
            count as f64 / took.as_secs_f64()
        );
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

/// One of the processes: URL, tasks, seconds.
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

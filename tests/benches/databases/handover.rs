//! How long a lock that somebody else waits for is nobody's, from the release in one process to the hold in the other.

use std::sync::Arc;
use std::time::Duration;

use lock_runtime::LockManager;
use tests::{PostgresServer, RedisServer};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::peers::client;
use crate::server;

const CHANGES: usize = 300;
/// Long enough for the other one to be waiting again.
const HOLD: Duration = Duration::from_millis(5);

pub(crate) async fn run() {
    let (server, redis) = (server(), RedisServer::start());
    println!(
        "from the release by one manager to the hold of the other, {CHANGES} changes of hands"
    );
    let (url, redis) = (server.url(), redis.url());
    print("lock-runtime", managers(&url).await);
    print(
        "lock-runtime, lock_notify=off",
        managers(&format!("{url}?lock_notify=off")).await,
    );
    print("advisory lock, which waits", advisory(&server).await);
    print("lock-runtime on Redis", managers(&redis).await);
}

fn print(name: &str, mut gaps: Vec<Duration>) {
    gaps.sort();
    let at = |share: usize| gaps[gaps.len() * share / 100].as_secs_f64() * 1e3;
    println!("  {name:30} p50 {:8.2} ms  p99 {:8.2} ms", at(50), at(99));
}

/// Long enough for whoever asks now and then.
const PATIENCE: Duration = Duration::from_secs(300);

/// When it was given back the last time, and by whom.
type Last = Arc<Mutex<(Option<(usize, Instant)>, Vec<Duration>)>>;

async fn taken(last: &Last, by: usize) -> bool {
    let mut last = last.lock().await;
    if let (Some((from, at)), gaps) = &mut *last
        && *from != by
    {
        gaps.push(at.elapsed());
    }
    last.1.len() < CHANGES
}

async fn managers(url: &str) -> Vec<Duration> {
    let last = Last::default();
    let mut tasks = Vec::new();
    for number in 0..2 {
        let builder = LockManager::builder();
        let builder = match url.starts_with("postgres") {
            true => builder.ensure_schema(true),
            false => builder,
        };
        let (locks, last) = (builder.connect(url).await.unwrap(), last.clone());
        tasks.push(tokio::spawn(async move {
            loop {
                let guard = locks.mutex("hot").wait(PATIENCE).acquire().await.unwrap();
                let goes_on = taken(&last, number).await;
                tokio::time::sleep(HOLD).await;
                last.lock().await.0 = Some((number, Instant::now()));
                guard.release().await.unwrap();
                if !goes_on {
                    return;
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    std::mem::take(&mut last.lock().await.1)
}

async fn advisory(server: &PostgresServer) -> Vec<Duration> {
    let last = Last::default();
    let mut tasks = Vec::new();
    for number in 0..2 {
        let (client, last) = (client(server).await, last.clone());
        tasks.push(tokio::spawn(async move {
            loop {
                client
                    .query("SELECT pg_advisory_lock(1)", &[])
                    .await
                    .unwrap();
                let goes_on = taken(&last, number).await;
                tokio::time::sleep(HOLD).await;
                last.lock().await.0 = Some((number, Instant::now()));
                client
                    .query("SELECT pg_advisory_unlock(1)", &[])
                    .await
                    .unwrap();
                if !goes_on {
                    return;
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    std::mem::take(&mut last.lock().await.1)
}

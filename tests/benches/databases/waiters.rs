//! What those who wait for one key cost the database.

use std::time::Duration;

use lock_runtime::LockManager;

use crate::{number, server};

const WAITERS: usize = 10_000;
const WATCHED: Duration = Duration::from_secs(10);

pub(crate) async fn run() {
    let server = server();
    let builder = || {
        LockManager::builder()
            .ensure_schema(true)
            .max_waiters(WAITERS)
    };
    let holder = builder().connect(&server.url()).await.unwrap();
    let waiting = builder().connect(&server.url()).await.unwrap();
    let guard = holder.mutex("hot").acquire().await.unwrap();
    let tasks: Vec<_> = (0..WAITERS)
        .map(|_| {
            let request = waiting.mutex("hot").wait(Duration::from_secs(120));
            tokio::spawn(async move {
                let guard = request.acquire().await.unwrap();
                guard.release().await.unwrap();
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    // Sessions tell what they did about once a second.
    let done = || {
        number(
            &server,
            "SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database WHERE datname = 'postgres'",
        )
    };
    let before = done();
    tokio::time::sleep(WATCHED).await;
    let statements = (done() - before) as f64 / WATCHED.as_secs_f64();
    println!(
        "{WAITERS} waiters of one process for one key, which another process holds and renews"
    );
    println!("  {statements:.1} statements per second, of all: renewals and these counts included");
    let began = tokio::time::Instant::now();
    guard.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    println!(
        "  all had it {:.2} s after it was given back",
        began.elapsed().as_secs_f64()
    );
}

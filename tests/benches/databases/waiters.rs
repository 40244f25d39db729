//! The cost of the waiters of one key to the database.

use std::time::Duration;

use lock_runtime::LockManager;

use crate::database::Database;
use crate::{number, quick_or, server};

const WAITERS: usize = 10_000;

pub(crate) async fn run<D: Database>() {
    let (server, watched) = (server::<D>(), Duration::from_secs(quick_or(3, 20)));
    let builder = || {
        LockManager::builder()
            .ensure_schema(true)
            .max_waiters(WAITERS)
    };
    let holder = builder().connect(&server.url()).await.unwrap();
    let waiting = builder().connect(&server.url()).await.unwrap();
    // The lease is long enough to need no renewal.
    let held = holder.mutex("hot").lease(Duration::from_secs(600));
    let guard = held.auto_renew(false).acquire().await.unwrap();
    // Sessions of PostgreSQL report what they did about once a second.
    let settled = Duration::from_secs(2);
    let per_second = async || {
        tokio::time::sleep(settled).await;
        let before = number(&server, D::STATEMENTS);
        tokio::time::sleep(watched).await;
        let statements = number(&server, D::STATEMENTS) - before;
        statements as f64 / watched.as_secs_f64()
    };
    let without = per_second().await;
    let tasks: Vec<_> = (0..WAITERS)
        .map(|_| {
            let request = waiting.mutex("hot").wait(Duration::from_secs(600));
            tokio::spawn(async move {
                let guard = request.acquire().await.unwrap();
                guard.release().await.unwrap();
            })
        })
        .collect();
    let with = per_second().await;
    println!(
        "{WAITERS} waiters of one process for one key, which another process holds without renewals"
    );
    println!(
        "  {with:.1} statements per second, and {without:.1} without them: these counts included"
    );
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

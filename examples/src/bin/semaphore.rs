//! An API that allows its customer three connections at a time, over all processes that the customer runs.
//!
//! `cargo run --bin semaphore`, or with `LOCK_URL=redis://127.0.0.1/` in front to count in Redis.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use examples::{Failure, Store, prove};
use lock_runtime::{LockError, LockManager, distributed_lock};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The number of connections that the API allows at a time.
const AT_ONCE: u64 = 3;

/// Makes one call under the attribute.
#[distributed_lock(key = "weather-api", mode = semaphore(AT_ONCE), wait = "60s", manager = locks)]
async fn forecast(locks: &LockManager) -> Result<(), LockError> {
    API.serve(1).await;
    Ok(())
}

/// Runs a batch without the attribute. It opens two connections, so it takes two permits, both or none.
async fn batch(locks: &LockManager) -> Result<(), LockError> {
    let api = locks.semaphore("weather-api").in_all(AT_ONCE);
    let two = api.permits(2).wait(Duration::from_secs(60));
    two.run(async |_| API.serve(2).await).await
}

#[tokio::main]
async fn main() -> ExitCode {
    examples::run("semaphore", show).await
}

async fn show(locks: &LockManager) -> Result<(), Failure> {
    println!("\nTwo processes make 20 calls and 4 batches, all at the same time.");
    let mut calls = JoinSet::new();
    for _process in 0..2 {
        let locks = Store::from_env().connect().await?;
        for _ in 0..10 {
            let locks = locks.clone();
            calls.spawn(async move { forecast(&locks).await });
        }
        for _ in 0..2 {
            let locks = locks.clone();
            calls.spawn(async move { batch(&locks).await });
        }
    }
    while let Some(done) = calls.join_next().await {
        done??;
    }
    let most = API.most.load(Ordering::SeqCst);
    prove(most == AT_ONCE, "3 connections at a time, never more")?;
    let free = locks
        .semaphore("weather-api")
        .in_all(AT_ONCE)
        .available()
        .await?;
    prove(free == 3, "every permit came back")
}

/// A stand-in for the API, which counts the connections that are open.
struct Api {
    open: AtomicU64,
    most: AtomicU64,
}

static API: Api = Api {
    open: AtomicU64::new(0),
    most: AtomicU64::new(0),
};

impl Api {
    async fn serve(&self, connections: u64) {
        let open = self.open.fetch_add(connections, Ordering::SeqCst) + connections;
        self.most.fetch_max(open, Ordering::SeqCst);
        // The first calls last until all connections have been open, so that a slow machine shows it, too. Not for ever: two
        // calls may be under way while batches of two are next.
        for _ in 0..1_000 {
            if self.most.load(Ordering::SeqCst) == AT_ONCE {
                break;
            }
            sleep(Duration::from_millis(1)).await;
        }
        sleep(Duration::from_millis(20)).await;
        self.open.fetch_sub(connections, Ordering::SeqCst);
    }
}

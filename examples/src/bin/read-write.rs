//! A configuration in two files that must fit each other: many tasks read it, one rewrites it.
//!
//! `cargo run --bin read-write`, or with `LOCK_URL=redis://127.0.0.1/` in front to keep the lock in Redis.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use examples::{Failure, prove};
use lock_runtime::{LockError, LockManager, distributed_lock};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The version of each file; the two stand in for the files.
static MAIN: AtomicU64 = AtomicU64::new(1);
static ROUTES: AtomicU64 = AtomicU64::new(1);

/// Reads the configuration. Reads run side by side, and never while somebody writes.
#[distributed_lock(key = "config", mode = read, manager = locks)]
async fn read(locks: &LockManager, meet: &Barrier) -> Result<(u64, u64), LockError> {
    let main = MAIN.load(SeqCst);
    meet.wait().await; // until all readers are here: if they took turns, this would never end
    Ok((main, ROUTES.load(SeqCst)))
}

/// Writes alone, then goes on as a reader: others read the new version, too, but nobody writes until it is checked.
async fn rewrite(locks: &LockManager, meet: &Barrier) -> Result<bool, LockError> {
    let mut guard = locks.write("config").acquire().await?;
    let version = MAIN.fetch_add(1, SeqCst) + 1;
    sleep(Duration::from_millis(20)).await; // the files do not fit now; nobody sees them
    if let Some(lost) = guard.loss() {
        return Err(lost); // another writer may be at work, and writes both
    }
    ROUTES.fetch_add(1, SeqCst);

    guard.downgrade().await?;
    meet.wait().await;
    sleep(Duration::from_millis(20)).await; // the check
    let is_mine = (MAIN.load(SeqCst), ROUTES.load(SeqCst)) == (version, version);
    guard.release().await?;
    Ok(is_mine)
}

#[tokio::main]
async fn main() -> ExitCode {
    examples::run("read-write", show).await
}

async fn show(locks: &LockManager) -> Result<(), Failure> {
    println!("\n1. Ten read.");
    let read = read_by_ten(locks, &Arc::new(Barrier::new(10))).await?;
    prove(
        read == [(1, 1); 10],
        "all of them read version 1, at the same time",
    )?;

    println!(
        "\n2. One rewrites the configuration; ten read it, and a second one wants to rewrite it."
    );
    // Ten readers meet, the first writer once it only reads, and the second writer before it asks for the lock.
    let meet = Arc::new(Barrier::new(12));
    let (locks_of_first, meet_first) = (locks.clone(), meet.clone());
    let first = tokio::spawn(async move { rewrite(&locks_of_first, &meet_first).await });
    while MAIN.load(SeqCst) == 1 {
        sleep(Duration::from_millis(1)).await; // until the first one writes
    }
    let second = async {
        meet.wait().await;
        rewrite(locks, &Barrier::new(1)).await
    };
    let (read, second) = tokio::join!(read_by_ten(locks, &meet), second);
    prove(
        read? == [(2, 2); 10],
        "ten read version 2 while the first one checks it; none saw half of it",
    )?;
    prove(
        first.await?? && second?,
        "nobody wrote before it was checked; then the second one did",
    )
}

async fn read_by_ten(locks: &LockManager, meet: &Arc<Barrier>) -> Result<Vec<(u64, u64)>, Failure> {
    let mut readers = JoinSet::new();
    for _ in 0..10 {
        let (locks, meet) = (locks.clone(), meet.clone());
        readers.spawn(async move { read(&locks, &meet).await });
    }
    let mut versions = Vec::new();
    while let Some(read) = readers.join_next().await {
        versions.push(read??);
    }
    Ok(versions)
}

//! Tests of waiters whom no message tells of a release.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use lock_runtime::{LockGuard, LockManager};
use tests::{Mariadb, Postgres, Sql, Table};

use super::{LONG, MS, end, manager};

trait Quiet: Sql {
    /// What a URL ends with if releases are to notify nobody.
    const QUIETLY: &'static str;
}

impl Quiet for Postgres {
    const QUIETLY: &'static str = "&lock_notify=off";
}

impl Quiet for Mariadb {
    const QUIETLY: &'static str = "";
}

tests::on_each_database!(a_process_that_retakes_a_lock_lets_other_processes_go_first);

async fn acquire(locks: &LockManager, kind: &str) -> LockGuard {
    let request = match kind {
        "mutex" => locks.mutex("k"),
        "fenced" => locks.fenced("f"),
        "read" => locks.read("w"),
        _ => locks.write("w"),
    };
    request.wait(LONG).acquire().await.unwrap()
}

/// A hold is longer than a slice, so each is followed by a rest, which is longer than the pauses of a waiter. Without a rest, or
/// with a short one, the other process has a turn once in ten.
async fn a_process_that_retakes_a_lock_lets_other_processes_go_first<D: Quiet>() {
    const HOLD: Duration = Duration::from_millis(400);
    const TURNS: u32 = 4;
    let table = Table::<D>::new();
    let url = format!("{}{}", table.url(), D::QUIETLY);
    let (locks, other) = (manager(&url).await, manager(&url).await);
    let alike = ["mutex", "fenced", "write"].map(|kind| (kind, kind));
    for (kind, others) in alike.into_iter().chain([("write", "read")]) {
        let (over, greedy) = (AtomicBool::new(false), AtomicU32::new(0));
        let takes = async {
            while !over.load(Ordering::Relaxed) {
                let guard = acquire(&locks, kind).await;
                greedy.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(HOLD).await;
                guard.release().await.unwrap();
            }
        };
        let comes_now_and_then = async {
            for _ in 0..TURNS {
                acquire(&other, others).await.release().await.unwrap();
                tokio::time::sleep(10 * MS).await;
            }
            over.store(true, Ordering::Relaxed);
        };
        tokio::join!(takes, comes_now_and_then);
        let greedy = greedy.into_inner();
        assert!(
            greedy <= 3 * TURNS,
            "{kind}: {greedy} turns beside {TURNS} of a {others}"
        );
    }
    end(table, locks, other).await;
}

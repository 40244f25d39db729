//! Tests of processes that are far from their database, beside one that is near.

use std::sync::atomic::{AtomicBool, Ordering};

use lock_runtime::LockManager;
use tests::{Direction, FaultProxy, Sql, Table};

use super::{LONG, MS, end, manager};

tests::on_each_database!(a_process_of_one_task_leaves_turns_to_one_that_is_far_away);

async fn take(locks: &LockManager) {
    let guard = locks.mutex("k").wait(LONG).acquire().await.unwrap();
    guard.release().await.unwrap();
}

/// The near process takes the lock again before a message has reached the far one, and its request the server. Without rests,
/// the far one waits in vain.
async fn a_process_of_one_task_leaves_turns_to_one_that_is_far_away<D: Sql>() {
    let table = Table::<D>::new();
    let proxy = FaultProxy::of(D::PROTOCOL, table.server().addr()).await;
    let near = manager(&table.url()).await;
    let far = manager(&table.url_through(proxy.addr())).await;
    proxy.delay(Direction::Requests, 40 * MS);
    proxy.delay(Direction::Replies, 40 * MS);
    let over = AtomicBool::new(false);
    let takes = async {
        while !over.load(Ordering::Relaxed) {
            take(&near).await;
        }
    };
    let comes = async {
        for _ in 0..3 {
            take(&far).await;
        }
        over.store(true, Ordering::Relaxed);
    };
    tokio::join!(takes, comes);
    end(table, near, far).await;
}

//! Tests of databases that fail: what was granted stays granted or is lost on time, and what nobody waits for is
//! undone.
//!
//! Each of these tests runs on PostgreSQL and on MariaDB. What only one of them does is in `postgres.rs` and
//! `mysql.rs`.

use std::time::Duration;

use lock_runtime::LockManager;
use tests::faults::connected;
use tests::store::CALL_TIMEOUT;
use tests::{Blocker, Pipe, Sql, Table};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);
/// What is given back is free long before, and what is not, is not for an [`HOUR`].
const SOON: Duration = Duration::from_secs(60);
pub(crate) const CALL: Duration = Duration::from_secs(4);
/// That of holds which are to be renewed.
const LEASE: Duration = Duration::from_secs(18);
/// That of other holds: nothing becomes free by its end.
const HOUR: Duration = Duration::from_secs(60 * 60);

mod by_hand;
mod credentials;
mod far;
mod hot_rows;
mod names;
mod outages;
mod polled;
mod renewals;
mod rows;
mod silent;
mod slow;
mod tables;
mod undone;

pub(crate) async fn manager(url: &str) -> LockManager {
    manager_with(CALL_TIMEOUT, url).await
}

async fn manager_with(call_timeout: Duration, url: &str) -> LockManager {
    let builder = tests::builder().call_timeout(call_timeout).lease(HOUR);
    connected(builder.ensure_schema(true), url).await
}

/// Starts two managers on one table, the first one through a proxy.
pub(crate) async fn scene<D: Sql>() -> (Table<D>, Pipe, LockManager, LockManager) {
    scene_with(CALL).await
}

/// Does the same with another timeout for the calls of the first manager.
pub(crate) async fn scene_with<D: Sql>(
    call_timeout: Duration,
) -> (Table<D>, Pipe, LockManager, LockManager) {
    let table = Table::<D>::new();
    let pipe = Pipe::start(table.server().addr()).await;
    let locks = manager_with(call_timeout, &table.url_through(pipe.addr())).await;
    let other = manager(&table.url()).await;
    (table, pipe, locks, other)
}

pub(crate) async fn end<D: Sql>(table: Table<D>, locks: LockManager, other: LockManager) {
    table.assert_clean().await;
    drop((locks, other));
    table.assert_deserted().await;
}

/// Begins a stranger's transaction that has locked a row.
pub(crate) fn block<D: Sql>(table: &Table<D>, name: &str) -> Blocker {
    Blocker::of(&mut table.server().client(), table.name(), name)
}

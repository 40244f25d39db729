//! Tests of the table: of its creation, and of its absence for a while.

use std::collections::HashSet;

use lock_runtime::LockError;
use tests::faults::free_within;
use tests::{Server, Sql, Table, eventually};
use tokio::task::JoinSet;

use super::{LEASE, LONG, end, manager, manager_with};

tests::on_each_database!(
    managers_that_start_at_once_create_the_tables_together
    a_lazy_manager_creates_the_tables_when_the_server_is_there
    a_table_that_is_renamed_for_a_moment_ends_no_hold
    a_statement_that_finds_no_table_keeps_its_connection
);

async fn managers_that_start_at_once_create_the_tables_together<D: Sql>() {
    let table = Table::<D>::new();
    let mut starting = JoinSet::new();
    for _ in 0..16 {
        let builder = tests::builder().ensure_schema(true);
        let (builder, url) = (builder.call_timeout(LONG), table.url());
        starting.spawn(async move { builder.connect(&url).await });
    }
    while let Some(started) = starting.join_next().await {
        let locks = started.unwrap().unwrap();
        free_within(&locks, "k", LONG).await;
    }
    table.assert_deserted().await;
}

async fn a_lazy_manager_creates_the_tables_when_the_server_is_there<D: Sql>() {
    let mut server = Server::<D>::start();
    server.kill9();
    let builder = tests::builder().ensure_schema(true).lazy(true);
    let locks = builder.connect(&server.url()).await.unwrap();
    let refused = locks.mutex("k").try_acquire().await.unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    server.restart();
    free_within(&locks, "k", LONG).await;
}

async fn a_table_that_is_renamed_for_a_moment_ends_no_hold<D: Sql>() {
    let table = Table::<D>::new();
    let (locks, other) = (manager(&table.url()).await, manager(&table.url()).await);
    let guard = locks.mutex("k").lease(4 * LEASE).acquire().await.unwrap();
    let rename = async |from: &str, to: &str| {
        let renaming = format!("ALTER TABLE {from} RENAME TO {to}");
        table.server().ask(&renaming).await;
    };
    let away = format!("{}_away", table.name());
    rename(table.name(), &away).await;
    let refused = other.mutex("l").try_acquire().await.unwrap_err();
    assert!(
        matches!(refused, LockError::Unavailable { .. }),
        "{refused:?}"
    );
    // Who creates the table now forgets every hold.
    let refused = other.force_release("l").await.unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    rename(&away, table.name()).await;
    eventually("locks can be acquired again", async || {
        let acquired = other.mutex("l").acquire().await;
        match acquired {
            Ok(guard) => guard.release().await.is_ok(),
            Err(_) => false,
        }
    })
    .await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    end(table, locks, other).await;
}

async fn a_statement_that_finds_no_table_keeps_its_connection<D: Sql>() {
    let table = Table::<D>::new();
    let locks = manager_with(LONG, &table.url()).await;
    free_within(&locks, "k", LONG).await;
    let renaming = |from: &str, to: &str| format!("ALTER TABLE {from} RENAME TO {to}");
    let away = format!("{}_away", table.name());
    let mut seen = HashSet::new();
    table.server().ask(&renaming(table.name(), &away)).await;
    for _ in 0..20 {
        let refused = locks.mutex("k").try_acquire().await.unwrap_err();
        assert!(
            refused.to_string().contains("was there before"),
            "{refused}"
        );
        seen.extend(table.connections());
    }
    // The server may still list the one that created the tables, and what looks for forced releases opens its own.
    assert!(seen.len() < 10, "{seen:?}");
    table.server().ask(&renaming(&away, table.name())).await;
    free_within(&locks, "k", LONG).await;
    drop(locks);
    table.assert_deserted().await;
}

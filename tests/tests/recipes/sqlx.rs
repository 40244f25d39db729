//! Tests of the lines for sqlx, which docs/postgres.md shows.

use std::time::Duration;

use lock_runtime::{LockError, TransactionError, raise_fence};
use sqlx::{Connection, PgConnection};
use tests::PostgresServer;
use tests::faults::connected;

use self::adapter::Tx;

#[path = "sqlx_adapter.rs"]
mod adapter;

#[test]
fn the_page_shows_the_lines_that_are_tested() {
    let page = include_str!("../../../docs/postgres.md");
    let lines = include_str!("sqlx_adapter.rs");
    let (_, lines) = lines.split_once("\n\n").unwrap();
    let lines = lines.replace("pub(super) ", "");
    assert!(
        page.contains(lines.trim()),
        "docs/postgres.md has not:\n{lines}"
    );
}

#[tokio::test]
async fn a_transaction_of_sqlx_takes_a_lock_and_raises_a_fence() {
    let server = PostgresServer::start();
    let builder = tests::builder().ensure_schema(true);
    let locks = connected(builder, &server.url()).await;
    server.query("CREATE TABLE fences (lock_name text PRIMARY KEY, token bigint NOT NULL)");
    let url = format!("{}?sslmode=disable", server.url());
    let mut one = PgConnection::connect(&url).await.unwrap();
    let mut two = PgConnection::connect(&url).await.unwrap();
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let mut mine = one.begin().await.unwrap();
        let taken = locks.mutex("k").in_transaction(&mut Tx(&mut mine)).await;
        let token = taken.unwrap().unwrap();
        raise_fence(&mut Tx(&mut mine), "fences", "k", token)
            .await
            .unwrap();
        let mut theirs = two.begin().await.unwrap();
        let lock = locks.mutex("k").wait(Duration::ZERO);
        let refused = lock.in_transaction(&mut Tx(&mut theirs)).await;
        assert!(
            matches!(refused, Err(TransactionError::Lock(LockError::Busy { .. }))),
            "{refused:?}"
        );
        theirs.rollback().await.unwrap();
        mine.commit().await.unwrap();
        tokens.push(token);
    }
    let mut late = two.begin().await.unwrap();
    let refused = raise_fence(&mut Tx(&mut late), "fences", "k", tokens[0]).await;
    assert!(
        matches!(refused, Err(TransactionError::Fenced { .. })),
        "{refused:?}"
    );
}

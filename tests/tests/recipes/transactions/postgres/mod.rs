//! Tests of what locks inside transactions do on PostgreSQL alone.

mod ends;
mod refusals;

use std::time::Duration;

use lock_runtime::SqlTransaction;
use tests::{Postgres, PostgresServer, eventually};
use tokio::task::JoinSet;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, NoTls, Transaction};

use super::{
    Driver, HOUR, KEPT, LONG, MS, Open, assert_refused_at_once, connect, free_within, manager,
    others_go_on, scene, take, take_within, the_lease_is_over, waits,
};

/// A transaction of `tokio-postgres`.
pub(super) struct Tx<'c>(Transaction<'c>);

impl SqlTransaction for Tx<'_> {
    type Error = Error;

    async fn ask(&mut self, sql: &str, params: &[&str]) -> Result<String, Error> {
        let typed = |param| (param as &(dyn ToSql + Sync), Type::TEXT);
        let params: Vec<_> = params.iter().map(typed).collect();
        self.0.query_typed(sql, &params).await?[0].try_get(0)
    }
}

impl Open for Tx<'_> {
    async fn number(&mut self, query: &str) -> i64 {
        self.0.query_one(query, &[]).await.unwrap().get(0)
    }

    async fn execute(&mut self, statement: &str) {
        self.0.batch_execute(statement).await.unwrap();
    }

    async fn commit(self) {
        self.0.commit().await.unwrap();
    }

    async fn rollback(self) {
        self.0.rollback().await.unwrap();
    }
}

impl Driver for Postgres {
    const SCHEME: &'static str = "postgres://";
    const FREE_AFTER_COMMIT: Duration = Duration::ZERO;
    const NAME_TYPE: &'static str = "TEXT";
    const UPDATES: (i64, i64) = (8, 100);
    const NOW: &'static str = "now()";

    type Client = Client;
    type Transaction<'c> = Tx<'c>;

    async fn open(url: &str) -> Client {
        let url = url.split('?').next().unwrap();
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    async fn begin(client: &mut Client) -> Tx<'_> {
        Tx(client.transaction().await.unwrap())
    }

    async fn begin_for_several(client: &mut Client) -> Tx<'_> {
        Self::begin(client).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_wakes_waiters_and_a_release_wakes_a_transaction() {
    let (table, locks, mut one, mut two) = scene::<Postgres>().await;
    // Only a message wakes those who wait on this manager, or the end of a lease.
    let told = connect(&table, tests::builder().longest_nap(HOUR)).await;
    for long in [false, true, true] {
        free_within(&locks, "k", LONG).await;
        // Somebody waits when the transaction takes the lock: a waiter that comes later cannot say so in the row.
        let waits_for_long = "SET waited_until = now() + interval '1 hour'";
        let update = format!("UPDATE {} {waits_for_long}", table.name());
        table.server().ask(&update).await;
        let mut mine = Postgres::begin(&mut one).await;
        take(&locks, &mut mine, "k").await.unwrap();
        let waiter = tokio::spawn(told.mutex("k").wait(LONG).acquire());
        waits(&told, "k").await;
        if long {
            // The waiter finds out that the lease has ended, and the lock is not free.
            the_lease_is_over(&table).await;
        }
        // After this sleep, the waiter has asked, and asked again once it listened.
        tokio::time::sleep(200 * MS).await;
        mine.commit().await;
        let guard = waiter.await.unwrap().unwrap();

        let mut theirs = Postgres::begin(&mut two).await;
        let (taken, ()) = tokio::join!(take_within(&told, &mut theirs, "k", LONG), async {
            let waited = format!("SELECT 1 FROM {} WHERE waited_until > now()", table.name());
            eventually("the transaction waits", async || {
                !table.server().ask(&waited).await.is_empty()
            })
            .await;
            tokio::time::sleep(200 * MS).await;
            guard.release().await.unwrap();
        });
        taken.unwrap();
        theirs.commit().await;
    }
    table.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_with_a_lock_can_be_prepared_if_nobody_waits() {
    let server = PostgresServer::with(&["max_prepared_transactions=2"]);
    let builder = tests::builder().ensure_schema(true);
    let locks = builder.call_timeout(LONG).connect(&server.url()).await;
    let locks = locks.unwrap();
    let mut client = Postgres::open(&server.url()).await;
    let mut mine = Postgres::begin(&mut client).await;
    take(&locks, &mut mine, "k").await.unwrap();
    mine.execute("PREPARE TRANSACTION 'prepared'").await;
    drop(mine);
    assert_refused_at_once(locks.mutex("k").try_acquire()).await;
    server.query("COMMIT PREPARED 'prepared'");
    free_within(&locks, "k", LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_locks_are_renewed_and_released_beside_a_transaction() {
    let (table, locks, mut one, _) = scene::<Postgres>().await;
    let kept = locks.mutex("kept").lease(KEPT).acquire().await.unwrap();
    let mut mine = Postgres::begin(&mut one).await;
    take(&locks, &mut mine, "k").await.unwrap();
    let mut waiters = JoinSet::new();
    for _ in 0..16 {
        waiters.spawn(manager(&table).await.mutex("k").wait(HOUR).acquire());
    }
    others_go_on(&table, &locks, &kept).await;
    kept.release().await.unwrap();
    mine.commit().await;
    while let Some(guard) = waiters.join_next().await {
        guard.unwrap().unwrap().release().await.unwrap();
    }
    table.assert_clean().await;
}

//! Tests of what locks inside transactions do on PostgreSQL alone.

mod ends;
mod refusals;

use std::time::{Duration, Instant};

use lock_runtime::SqlTransaction;
use tests::{Postgres, eventually};
use tokio::task::JoinSet;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, NoTls, Transaction};

use super::{
    Driver, LONG, MS, Open, free_within, manager, scene, take, take_within, the_lease_is_over,
    waits,
};

/// The limit for a waiter that is told: one that is not told asks again after 0.8 s at the earliest.
const TOLD: Duration = Duration::from_millis(700);

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
    const CALL: Duration = Duration::from_secs(2);
    const REFUSED_WITHIN: Duration = TOLD;
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
async fn a_commit_wakes_those_who_wait_and_a_release_wakes_a_transaction() {
    let (table, locks, mut one, mut two) = scene::<Postgres>().await;
    let other = manager(&table).await;
    for long in [false, true, false] {
        let mut mine = Postgres::begin(&mut one).await;
        take(&locks, &mut mine, "k").await.unwrap();
        let waiter = tokio::spawn(other.mutex("k").wait(LONG).acquire());
        waits(&other, "k").await;
        if long {
            the_lease_is_over(&table).await;
        }
        // After this sleep, the waiter has asked, and asked again once it listened.
        tokio::time::sleep(200 * MS).await;
        let since = Instant::now();
        mine.commit().await;
        let guard = waiter.await.unwrap().unwrap();
        assert!(since.elapsed() < TOLD, "{:?}", since.elapsed());

        let mut theirs = Postgres::begin(&mut two).await;
        let (taken, since) = tokio::join!(take_within(&locks, &mut theirs, "k", LONG), async {
            let waited = format!("SELECT 1 FROM {} WHERE waited_until > now()", table.name());
            eventually("the transaction waits", async || {
                !table.server().query(&waited).is_empty()
            })
            .await;
            tokio::time::sleep(200 * MS).await;
            let since = Instant::now();
            guard.release().await.unwrap();
            since
        });
        taken.unwrap();
        assert!(since.elapsed() < TOLD, "{:?}", since.elapsed());
        theirs.commit().await;
    }
    table.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_transaction_has_a_lock_others_are_renewed_and_released() {
    let (table, locks, mut one, _) = scene::<Postgres>().await;
    let kept = locks.mutex("kept").lease(1_500 * MS);
    let kept = kept.acquire().await.unwrap();
    let mut mine = Postgres::begin(&mut one).await;
    take(&locks, &mut mine, "k").await.unwrap();
    let mut waiters = JoinSet::new();
    for _ in 0..16 {
        waiters.spawn(manager(&table).await.mutex("k").wait(LONG).acquire());
    }
    let until = Instant::now() + 3_000 * MS;
    while Instant::now() < until {
        assert!(kept.is_held());
        let since = Instant::now();
        free_within(&locks, "another", LONG).await;
        assert!(since.elapsed() < 1_000 * MS, "{:?}", since.elapsed());
        tokio::time::sleep(50 * MS).await;
    }
    kept.release().await.unwrap();
    mine.commit().await;
    while let Some(guard) = waiters.join_next().await {
        guard.unwrap().unwrap().release().await.unwrap();
    }
    table.assert_clean().await;
}

//! Tests of rows that others write nearly without a pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use tests::faults::connected;
use tests::{Mariadb, Postgres, Sql, Table, eventually};
use tokio::task::JoinSet;
use tokio_postgres::NoTls;

use super::MS;

/// A stranger's connection, which sends one statement after the other.
trait Stranger: Sql {
    type Session: Send;
    /// A transaction that changes a row and keeps it locked for a while.
    const CHANGE: &'static str;

    fn open(url: &str) -> impl Future<Output = Self::Session> + Send;

    /// Sends the statements and returns the number of rows that they answer with.
    fn ask(session: &mut Self::Session, statements: &str) -> impl Future<Output = usize> + Send;
}

impl Stranger for Postgres {
    type Session = tokio_postgres::Client;
    // Statements that are sent together are one transaction.
    const CHANGE: &'static str = "UPDATE {table} SET last_token = last_token + 1 WHERE name = '{name}'; SELECT pg_sleep(0.02)";

    async fn open(url: &str) -> Self::Session {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    async fn ask(session: &mut Self::Session, statements: &str) -> usize {
        let said = session.simple_query(statements).await.unwrap();
        let rows = said
            .iter()
            .filter(|message| matches!(message, tokio_postgres::SimpleQueryMessage::Row(_)));
        rows.count()
    }
}

impl Stranger for Mariadb {
    type Session = Conn;
    const CHANGE: &'static str = "BEGIN; UPDATE {table} SET last_token = last_token + 1 \
        WHERE name = '{name}'; DO SLEEP(0.02); COMMIT";

    async fn open(url: &str) -> Self::Session {
        Conn::new(Opts::from_url(url).unwrap()).await.unwrap()
    }

    async fn ask(session: &mut Self::Session, statements: &str) -> usize {
        let rows: Vec<mysql_async::Row> = session.query(statements).await.unwrap();
        rows.len()
    }
}

/// Strangers who change rows of a table, until this is dropped.
struct Changes(Arc<AtomicBool>, JoinSet<()>);

impl Changes {
    /// Starts two strangers for each row: while one of them has it locked, the other one waits for it.
    async fn begin<D: Stranger>(table: &Table<D>, names: &[&str]) -> Changes {
        let mut changes = Changes(Arc::default(), JoinSet::new());
        for name in names.iter().flat_map(|name| [name; 2]) {
            let mut session = D::open(&table.server().url()).await;
            let change = D::CHANGE.replace("{table}", table.name());
            let (change, over) = (change.replace("{name}", name), changes.0.clone());
            changes.1.spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    D::ask(&mut session, &change).await;
                }
            });
        }
        changes
    }

    async fn end(self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.join_all().await;
    }
}

/// Returns how many of a hundred looks find the row unlocked.
async fn unlocked<D: Stranger>(table: &Table<D>, name: &str) -> usize {
    let mut session = D::open(&table.server().url()).await;
    let look = format!(
        "SELECT 1 FROM {} WHERE name = '{name}' FOR UPDATE SKIP LOCKED",
        table.name()
    );
    let mut found = 0;
    for _ in 0..100 {
        found += D::ask(&mut session, &look).await;
        tokio::time::sleep(MS).await;
    }
    found
}

tests::on_each_database!(
    holds_of_rows_in_constant_use_last_and_delay_no_other_hold
    a_renewal_by_hand_succeeds_on_a_row_in_constant_use
);

async fn holds_of_rows_in_constant_use_last_and_delay_no_other_hold<D: Stranger>() {
    const LEASE: Duration = Duration::from_secs(24);
    let table = Table::<D>::new();
    let builder = tests::builder().lease(LEASE).ensure_schema(true);
    let locks = connected(builder, &table.url()).await;
    let write = locks.write("written").acquire().await.unwrap();
    let permit = locks.semaphore("leased").in_all(3).permits(1);
    let permit = permit.acquire().await.unwrap();
    let cold = locks.mutex("cold").acquire().await.unwrap();
    let changes = Changes::begin(&table, &["lock:written", "lock:leased"]).await;
    let began = Instant::now();
    let mut least = LEASE;
    while began.elapsed() < 2 * LEASE {
        let after = began.elapsed();
        assert!(write.is_held(), "the write was lost after {after:?}");
        assert!(permit.is_held(), "the permit was lost after {after:?}");
        least = least.min(cold.remaining());
        tokio::time::sleep(10 * MS).await;
    }
    assert!(least > LEASE / 6, "another hold had only {least:?} left");
    for name in ["lock:written", "lock:leased"] {
        // On a busy machine, the strangers themselves may stand still.
        eventually("the row is locked nearly always", async || {
            unlocked(&table, name).await <= 20
        })
        .await;
    }
    changes.end().await;
    for guard in [write, permit, cold] {
        guard.release().await.unwrap();
    }
    drop(locks);
    table.assert_deserted().await;
}

async fn a_renewal_by_hand_succeeds_on_a_row_in_constant_use<D: Stranger>() {
    let table = Table::<D>::new();
    // A call may last for a sixth of its lease.
    let builder = tests::builder().call_timeout(Duration::from_secs(30));
    let locks = connected(builder.ensure_schema(true), &table.url()).await;
    let request = locks.mutex("k").lease(Duration::from_secs(60));
    let request = request.auto_renew(false);
    let guard = request.acquire().await.unwrap();
    let changes = Changes::begin(&table, &["lock:k"]).await;
    for minutes in 2..20 {
        let lease = minutes * Duration::from_secs(60);
        guard.renew(lease).await.unwrap();
        let left = guard.remaining();
        assert!(
            left > lease - Duration::from_secs(30),
            "{left:?} of {lease:?}"
        );
    }
    changes.end().await;
    guard.release().await.unwrap();
    drop(locks);
    table.assert_deserted().await;
}

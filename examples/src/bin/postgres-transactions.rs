//! Ada spends 30 of 100, and bob 50. If the lock is given back before the commit, ada's spending is lost. If the lock
//! belongs to the transaction, it is not.
//!
//! `DATABASE_URL=postgres://… cargo run --features postgres --bin postgres-transactions`. The locks are in the same
//! database. It works in a schema of its own, which it drops at the end.

use std::process::ExitCode;
use std::time::Duration;

use examples::{Failure, prove};
use lock_runtime::{LockManager, SqlTransaction};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, GenericClient, NoTls, Transaction};

const LOCK: &str = "account:7";
const WAIT: Duration = Duration::from_secs(60);

/// The adapter by which the library runs its statements in a transaction of this driver.
struct Tx<'t, 'c>(&'t Transaction<'c>);

impl SqlTransaction for Tx<'_, '_> {
    type Error = Error;

    async fn ask(&mut self, sql: &str, params: &[&str]) -> Result<String, Error> {
        let typed = |param| (param as &(dyn ToSql + Sync), Type::TEXT);
        let params: Vec<_> = params.iter().map(typed).collect();
        self.0.query_typed(sql, &params).await?[0].try_get(0)
    }
}

async fn client(url: &str, schema: &str) -> Result<Client, Failure> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // This task ends with the client.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            eprintln!("the connection to the database has ended: {error}");
        }
    });
    // A transaction that stands still, in a process that is frozen, has its locks no longer than this.
    let settings =
        format!("SET search_path = {schema}; SET idle_in_transaction_session_timeout = '30s'");
    client.batch_execute(&settings).await?;
    Ok(client)
}

async fn balance(client: &impl GenericClient) -> Result<i64, Failure> {
    let balance = client.query_one("SELECT balance FROM account", &[]);
    Ok(balance.await?.get(0))
}

/// Writes what is left of the balance that the holder of the lock has seen.
async fn spend(
    transaction: &Transaction<'_>,
    who: &str,
    seen: i64,
    amount: i64,
) -> Result<(), Failure> {
    let left = seen - amount;
    println!("   {who} has the lock, sees {seen} and writes {left}");
    let update = "UPDATE account SET balance = $1";
    transaction.execute(update, &[&left]).await?;
    Ok(())
}

/// Makes the usual mistake: the guard is released, or dropped, before the transaction commits.
async fn released_too_early(
    locks: &LockManager,
    clients: &mut [Client; 2],
) -> Result<i64, Failure> {
    let [ada, bob] = clients;
    let guard = locks.mutex(LOCK).acquire().await?;
    let adas = ada.transaction().await?;
    let seen = balance(&adas).await?;
    spend(&adas, "ada", seen, 30).await?;
    guard.release().await?;
    println!("   ada has released the lock, and has not committed");

    let guard = locks.mutex(LOCK).wait(WAIT).acquire().await?;
    let bobs = bob.transaction().await?;
    let seen = balance(&bobs).await?;
    // Bob's write waits for ada's commit, but it is computed from the balance that he has read before.
    let (spent, committed) = tokio::join!(spend(&bobs, "bob", seen, 50), adas.commit());
    committed?;
    spent?;
    bobs.commit().await?;
    guard.release().await?;
    Ok(seen)
}

/// Takes the lock in the transaction, so that it ends with the transaction and not before.
async fn in_the_transaction(
    locks: &LockManager,
    clients: &mut [Client; 2],
) -> Result<i64, Failure> {
    let [ada, bob] = clients;
    let adas = ada.transaction().await?;
    let lock = locks.mutex(LOCK).wait(WAIT);
    lock.in_transaction(&mut Tx(&adas)).await?;
    let seen = balance(&adas).await?;
    spend(&adas, "ada", seen, 30).await?;

    let bobs = bob.transaction().await?;
    let lock = locks.mutex(LOCK).wait(WAIT);
    let (seen, committed) = tokio::join!(
        async {
            lock.in_transaction(&mut Tx(&bobs)).await?;
            let seen = balance(&bobs).await?;
            spend(&bobs, "bob", seen, 50).await?;
            Ok::<_, Failure>(seen)
        },
        async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            println!("   ada commits");
            adas.commit().await
        }
    );
    committed?;
    // Without the lock, nothing is committed: `bobs` is rolled back when it is dropped.
    let seen: i64 = seen?;
    bobs.commit().await?;
    Ok(seen)
}

async fn tour(locks: &LockManager, clients: &mut [Client; 2]) -> Result<(), Failure> {
    let table = "CREATE TABLE account AS SELECT 100::bigint AS balance";
    clients[0].batch_execute(table).await?;

    println!("\n1. The lock is released before the commit.");
    let seen = released_too_early(locks, clients).await?;
    prove(
        seen == 100,
        "bob saw what was there before ada's transaction",
    )?;
    let after = balance(&clients[0]).await?;
    prove(
        after == 50,
        format!("{after} are left: what ada has spent is back"),
    )?;

    println!("\n2. The transactions have the lock.");
    let reset = "UPDATE account SET balance = 100";
    clients[0].batch_execute(reset).await?;
    let seen = in_the_transaction(locks, clients).await?;
    prove(seen == 70, "bob saw what ada has committed")?;
    let after = balance(&clients[0]).await?;
    prove(after == 20, format!("{after} are left"))
}

/// Runs the tour in a schema of its own, with the locks in it.
async fn with_schema(url: &str) -> Result<(), Failure> {
    let schema = format!("postgres_transactions_{}", std::process::id());
    let owner = client(url, "public").await?;
    owner
        .batch_execute(&format!("CREATE SCHEMA {schema}"))
        .await?;
    let outcome = async {
        let mark = if url.contains('?') { '&' } else { '?' };
        let locks = LockManager::builder()
            .ensure_schema(true)
            .connect(&format!("{url}{mark}lock_table={schema}.leases"))
            .await?;
        let mut clients = [client(url, &schema).await?, client(url, &schema).await?];
        let outcome = tour(&locks, &mut clients).await;
        locks.shutdown().await;
        outcome
    };
    let outcome = outcome.await;
    let drop = format!("DROP SCHEMA {schema} CASCADE");
    owner.batch_execute(&drop).await?;
    outcome
}

#[tokio::main]
async fn main() -> ExitCode {
    let Ok(url) = std::env::var("DATABASE_URL") else {
        eprintln!(
            "postgres-transactions: set DATABASE_URL, for example to postgres://user@127.0.0.1/test"
        );
        return ExitCode::from(2);
    };
    match with_schema(&url).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("postgres-transactions: {error}");
            ExitCode::FAILURE
        }
    }
}

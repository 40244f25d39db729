//! A worker is paused, loses its lock, wakes up and sells the lamp that another one has sold: PostgreSQL refuses it.
//!
//! `DATABASE_URL=postgres://… cargo run --features postgres --bin postgres-fencing`, with `LOCK_URL=redis://127.0.0.1/`
//! in front to keep the lock in Redis. It works in a schema of its own, which it drops at the end.
//!
//! One lock guards two tables, so the fence is in a table of its own: every transaction raises it first, and is rolled
//! back if it cannot.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use examples::{Failure, prove};
use lock_runtime::{FencingToken, Lease, LockManager};
use tokio_postgres::{Client, Config, NoTls, Transaction};

const LOCK: &str = "shop:lamps";

const TABLES: &str = "
    CREATE TABLE stock (item text PRIMARY KEY, count bigint NOT NULL);
    CREATE TABLE orders (customer text NOT NULL, item text NOT NULL);
    CREATE TABLE fences (lock_name text PRIMARY KEY, token bigint NOT NULL);
    INSERT INTO stock VALUES ('lamp', 1);";

const RAISE: &str = "
    INSERT INTO fences (lock_name, token) VALUES ($1, $2)
    ON CONFLICT (lock_name) DO UPDATE SET token = EXCLUDED.token
    WHERE fences.token <= EXCLUDED.token";

/// A worker's connection to the database.
struct Shop {
    database: Client,
}

impl Shop {
    async fn open(config: &Config) -> Result<Shop, Failure> {
        let (database, connection) = config.connect(NoTls).await.map_err(|error| {
            let cause = error.source().map(ToString::to_string);
            format!("{error}: {}", cause.unwrap_or_default())
        })?;
        // This task ends with the client.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                eprintln!("the connection to the database has ended: {error}");
            }
        });
        // The next holder waits for a transaction that has raised the fence: not for ever, if its process is frozen.
        let settings = "SET idle_in_transaction_session_timeout = '30s'";
        database.batch_execute(settings).await?;
        Ok(Shop { database })
    }

    /// Begins a transaction of the holder with this token. Returns `None` if a later holder has begun.
    async fn begin(&mut self, token: FencingToken) -> Result<Option<Transaction<'_>>, Failure> {
        let transaction = self.database.transaction().await?;
        let raised = transaction
            .execute(RAISE, &[&LOCK, &i64::from(token)])
            .await?;
        // The next holder's `begin` waits until this transaction has ended. It is rolled back if it is dropped.
        Ok((raised == 1).then_some(transaction))
    }

    /// Returns how many lamps there are. It raises the fence before it reads, so that no earlier holder can change the
    /// count any more.
    async fn lamps(&mut self, token: FencingToken) -> Result<Option<i64>, Failure> {
        let Some(transaction) = self.begin(token).await? else {
            return Ok(None);
        };
        let stock = "SELECT count FROM stock WHERE item = 'lamp'";
        let count = transaction.query_one(stock, &[]).await?.get(0);
        transaction.commit().await?;
        Ok(Some(count))
    }

    /// Sells the lamp. Returns false if a later holder has begun; nothing was written then.
    async fn sell(
        &mut self,
        token: FencingToken,
        customer: &str,
        left: i64,
    ) -> Result<bool, Failure> {
        let Some(transaction) = self.begin(token).await? else {
            return Ok(false);
        };
        let stock = "UPDATE stock SET count = $1 WHERE item = 'lamp'";
        transaction.execute(stock, &[&left]).await?;
        let order = "INSERT INTO orders (customer, item) VALUES ($1, 'lamp')";
        transaction.execute(order, &[&customer]).await?;
        transaction.commit().await?;
        Ok(true)
    }
}

/// Does the work of every worker under the lock. `pause` comes between reading and writing.
async fn work(
    name: &str,
    shop: &mut Shop,
    token: Option<FencingToken>,
    pause: impl Future<Output = Result<(), Failure>>,
) -> Result<bool, Failure> {
    let token = token.ok_or("no token")?;
    let count = shop.lamps(token).await?.ok_or("refused at the beginning")?;
    println!("   {name} has token {token} and sees {count} lamp(s)");
    if count == 0 {
        return Ok(false);
    }
    pause.await?;
    let sold = shop.sell(token, name, count - 1).await?;
    let answer = if sold { "takes" } else { "refuses" };
    println!("   {name} sells a lamp: the database {answer} it");
    Ok(sold)
}

async fn bob(locks: LockManager, config: Config) -> Result<bool, Failure> {
    let mut shop = Shop::open(&config).await?;
    let lock = locks.mutex(LOCK).wait(Duration::from_secs(30));
    let body =
        async |lease: Lease| work("bob", &mut shop, lease.fencing_token(), async { Ok(()) }).await;
    lock.run(body).await?
}

async fn tour(locks: &LockManager, config: &Config) -> Result<(), Failure> {
    let mut shop = Shop::open(config).await?;
    shop.database.batch_execute(TABLES).await?;

    // Ada's lease is not renewed, as if her whole process stood still. A process that stands still cannot look whether
    // it has lost its lock.
    let lock = locks.mutex(LOCK).lease(Duration::from_secs(1));
    let guard = lock.auto_renew(false).acquire().await?;
    let until_bob_has_sold = async {
        println!("   ada is paused for longer than her lease");
        let sold = tokio::spawn(bob(locks.clone(), config.clone())).await??;
        prove(sold, "bob got the lock, and his write was taken")
    };
    let sold = work("ada", &mut shop, guard.fencing_token(), until_bob_has_sold).await?;
    prove(!sold, "ada's late write was refused")?;

    let orders = "SELECT string_agg(customer, ', ') FROM orders";
    let customers: String = shop.database.query_one(orders, &[]).await?.get(0);
    prove(customers == "bob", "one lamp, one order: bob's")
}

/// Runs the tour in a schema of its own.
async fn with_schema(locks: &LockManager, url: &str) -> Result<(), Failure> {
    let mut config: Config = url.parse()?;
    let schema = format!("postgres_fencing_{}", std::process::id());
    config.options(format!("-c search_path={schema}"));
    let shop = Shop::open(&config).await?;
    let create = format!("CREATE SCHEMA {schema}");
    shop.database.batch_execute(&create).await?;
    let outcome = tour(locks, &config).await;
    let drop = format!("DROP SCHEMA {schema} CASCADE");
    shop.database.batch_execute(&drop).await?;
    outcome
}

#[tokio::main]
async fn main() -> ExitCode {
    let Ok(url) = std::env::var("DATABASE_URL") else {
        eprintln!(
            "postgres-fencing: set DATABASE_URL, for example to postgres://user@127.0.0.1/test"
        );
        return ExitCode::from(2);
    };
    examples::run("postgres-fencing", async |locks| {
        with_schema(locks, &url).await
    })
    .await
}

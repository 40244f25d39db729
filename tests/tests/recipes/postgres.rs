//! Tests of the recipes for PostgreSQL.

use std::sync::atomic::{AtomicUsize, Ordering};

use lock_runtime::FencingToken;
use tests::{PostgresServer, documented_recipe, eventually};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, GenericClient, IsolationLevel, NoTls};

use crate::meter::{
    Meter, keeps_the_highest_of_many_writes_at_once,
    refuses_a_paused_holder_once_the_next_one_has_read,
};

const WRITE: &str = "Write";
const WRITE_OR_INSERT: &str = "Write, also the first time";

fn recipe(title: &str) -> &'static str {
    documented_recipe("PostgreSQL", title)
}

/// A schema of the process's server, which belongs to one test.
struct Schema {
    config: Config,
    name: String,
}

impl Schema {
    /// Creates a schema with both tables, and in one of them the meter, which belongs to nobody yet.
    async fn new() -> Self {
        static SCHEMAS: AtomicUsize = AtomicUsize::new(0);
        let name = format!("recipes_{}", SCHEMAS.fetch_add(1, Ordering::Relaxed));
        let mut config: Config = PostgresServer::shared().url().parse().unwrap();
        config.options(format!("-c search_path={name}"));
        config.application_name(&name);
        let schema = Self { config, name };
        let client = schema.connect().await;
        let create = format!("CREATE SCHEMA {}", schema.name);
        for statement in [&create, recipe("The table"), recipe("The table of fences")] {
            client.batch_execute(statement).await.unwrap();
        }
        let rows = write(&client, recipe(WRITE_OR_INSERT), 0, 0).await;
        assert_eq!(rows.unwrap(), 1);
        schema
    }

    async fn connect(&self) -> Client {
        let (client, connection) = self.config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Waits until a statement of this test waits for another transaction.
    async fn a_statement_waits_for_a_row(&self) {
        let waiting = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = '{}'",
            self.name
        );
        eventually("a statement waits for another transaction", async || {
            PostgresServer::shared().query(&waiting) == ["1"]
        })
        .await;
    }
}

async fn write(
    client: &impl GenericClient,
    sql: &str,
    token: i64,
    value: i64,
) -> Result<u64, Error> {
    client.execute(sql, &[&"gas", &token, &value]).await
}

/// Raises the fence of this lock, and returns in how many rows.
async fn raise(client: &impl GenericClient, lock: &str, token: i64) -> u64 {
    let sql = recipe("Raise the fence of a lock");
    client.execute(sql, &[&lock, &token]).await.unwrap()
}

struct PostgresMeter {
    client: Client,
    write: &'static str,
}

impl PostgresMeter {
    async fn connect(schema: &Schema, write: &str) -> Self {
        Self {
            client: schema.connect().await,
            write: recipe(write),
        }
    }
}

impl Meter for PostgresMeter {
    async fn raise_and_read(&self, token: FencingToken) -> Option<i64> {
        let sql = recipe("Raise the fence and read");
        let token = i64::from(token);
        let row = self.client.query_opt(sql, &[&"gas", &token]).await.unwrap();
        row.map(|row| row.get(0))
    }

    async fn write(&self, token: FencingToken, value: i64) -> bool {
        let rows = write(&self.client, self.write, token.into(), value).await;
        rows.unwrap() == 1
    }
}

#[tokio::test]
async fn postgres_refuses_a_paused_holder_once_the_next_one_has_read() {
    for write in [WRITE, WRITE_OR_INSERT] {
        let schema = Schema::new().await;
        let meter = PostgresMeter::connect(&schema, write).await;
        refuses_a_paused_holder_once_the_next_one_has_read(&meter).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_keeps_the_highest_of_many_writes_at_once() {
    for write in [WRITE, WRITE_OR_INSERT] {
        let schema = Schema::new().await;
        let mut connections = Vec::new();
        for _ in 0..8 {
            connections.push(PostgresMeter::connect(&schema, write).await);
        }
        keeps_the_highest_of_many_writes_at_once(connections).await;
    }
}

/// Returns the answer to a write of holder 33 that has to wait for one of holder 34.
async fn write_behind_the_next_holder(level: IsolationLevel) -> Result<u64, Error> {
    let schema = Schema::new().await;
    let (mut paused, mut next) = (schema.connect().await, schema.connect().await);
    let early = paused.build_transaction().isolation_level(level);
    let early = early.start().await.unwrap();
    let late = next.transaction().await.unwrap();
    let rows = write(&late, recipe(WRITE), 34, 2000).await;
    assert_eq!(rows.unwrap(), 1);

    let (answer, ()) = tokio::join!(write(&early, recipe(WRITE), 33, 1000), async {
        schema.a_statement_waits_for_a_row().await;
        late.commit().await.unwrap();
    });
    // If the transaction has failed, this rolls it back.
    early.commit().await.unwrap();
    let select = "SELECT value, fence FROM meters";
    let row = next.query_one(select, &[]).await.unwrap();
    assert_eq!((row.get(0), row.get(1)), (2000_i64, 34_i64));
    answer
}

#[tokio::test]
async fn read_committed_compares_with_what_was_committed_meanwhile() {
    let answer = write_behind_the_next_holder(IsolationLevel::ReadCommitted).await;
    assert_eq!(answer.unwrap(), 0);
}

#[tokio::test]
async fn stricter_levels_fail_a_late_write_with_a_serialization_error() {
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let error = write_behind_the_next_holder(level).await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE));
    }
}

#[tokio::test]
async fn the_next_holder_waits_for_a_transaction_that_raised_a_fence() {
    let schema = Schema::new().await;
    let (mut paused, next) = (schema.connect().await, schema.connect().await);
    let early = paused.transaction().await.unwrap();
    assert_eq!(raise(&early, "meter:gas", 33).await, 1);
    let (raised, ()) = tokio::join!(raise(&next, "meter:gas", 34), async {
        schema.a_statement_waits_for_a_row().await;
        let update = "UPDATE meters SET value = 100";
        early.execute(update, &[]).await.unwrap();
        early.commit().await.unwrap();
    });
    assert_eq!(raised, 1);
    let select = "SELECT value FROM meters";
    let value: i64 = next.query_one(select, &[]).await.unwrap().get(0);
    assert_eq!(value, 100);

    assert_eq!(raise(&paused, "meter:gas", 33).await, 0);
    // The fence of another lock is another fence.
    assert_eq!(raise(&paused, "meter:water", 33).await, 1);
}

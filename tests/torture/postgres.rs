//! PostgreSQL, whose clients have the rights that docs/postgres.md names.

use std::net::SocketAddr;
use std::time::Duration;

use tests::Blocker;
use tests::{FaultProxy, PostgresServer, Protocol};
use tokio::runtime::Runtime;

use crate::server::{Database, Server};

const TABLE: &str = "lock_leases";
/// The role of the clients, and what their connections are called.
const CLIENT: &str = "client";
/// A look at the connections meets few statements under way: this looks again and again for a tenth of a second, and
/// cancels one in two.
const CANCEL: &str = "
CREATE FUNCTION cancel_for_a_while() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    cancelled bigint := 0;
BEGIN
    FOR look IN 1..50 LOOP
        PERFORM pg_stat_clear_snapshot();
        cancelled := cancelled + (
            SELECT count(*) FILTER (WHERE pg_cancel_backend(pid)) FROM pg_stat_activity
            WHERE usename = 'client' AND state = 'active' AND random() < 0.5
        );
        PERFORM pg_sleep(0.002);
    END LOOP;
    RETURN cancelled;
END $$";
const SCHEMA: &str = include_str!("../../lock-runtime/src/backend/postgres/sql/schema.sql");

pub(crate) struct Postgres {
    server: PostgresServer,
    proxy: FaultProxy,
}

impl Postgres {
    /// `durable`: every commit is on disk before it is answered.
    pub(crate) fn start(runtime: &Runtime, durable: bool) -> Self {
        let fsync = if durable { "fsync=on" } else { "fsync=off" };
        let server = PostgresServer::with(&[fsync]);
        let proxy = runtime.block_on(FaultProxy::of(Protocol::Postgres, server.addr()));
        server.query(&SCHEMA.replace("{table}", TABLE));
        server.query(CANCEL);
        server.query(&format!(
            "CREATE ROLE {CLIENT} LOGIN; GRANT SELECT, INSERT, UPDATE ON {TABLE} TO {CLIENT}; \
             GRANT SELECT, INSERT, UPDATE, DELETE ON {TABLE}_managers TO {CLIENT}"
        ));
        Self { server, proxy }
    }

    /// The numbers in the only row of an answer.
    fn numbers(&self, statement: &str) -> Vec<u64> {
        let rows = self.server.query(statement);
        let columns = rows.first().map(|row| row.split('|'));
        let number = |column: &str| {
            column
                .parse()
                .unwrap_or_else(|error| panic!("{statement}: {column:?}: {error}"))
        };
        columns.into_iter().flatten().map(number).collect()
    }
}

impl Server for Postgres {
    fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }

    fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    fn kill9(&mut self) {
        self.server.kill9();
    }

    fn restart(&mut self) {
        self.server.restart();
    }

    fn freeze(&self) {
        self.server.sigstop();
    }

    fn thaw(&self) {
        self.server.sigcont();
    }

    fn run_id(&self) -> String {
        self.server
            .query("SELECT pg_postmaster_start_time()")
            .concat()
    }

    fn end_connections(&self, that_listen: bool) -> u64 {
        let listens = if that_listen { "" } else { "NOT" };
        let ended = format!(
            "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE usename = '{CLIENT}' AND query {listens} LIKE 'LISTEN %'"
        );
        self.numbers(&ended)[0]
    }

    fn shorten_leases(&self, by: Duration) -> (u64, u64) {
        let by = by.as_micros();
        let cut = self.numbers(&format!(
            "WITH cut AS (UPDATE {TABLE} SET
                expires_at = expires_at - {by} * interval '1 microsecond',
                shares = (SELECT jsonb_object_agg(key, jsonb_build_array((value -> 0)::bigint - {by}, value -> 1))
                    FROM jsonb_each(shares))
            WHERE holder IS NOT NULL AND expires_at > clock_timestamp() OR shares IS NOT NULL
            RETURNING holder IS NOT NULL AND expires_at <= clock_timestamp() OR EXISTS (
                SELECT FROM jsonb_each(shares) AS s
                WHERE (s.value -> 0)::bigint <= extract(epoch FROM clock_timestamp()) * 1000000
            ) AS ended)
            SELECT count(*), count(*) FILTER (WHERE ended) FROM cut"
        ));
        (cut[0], cut[1])
    }

    fn forget(&mut self) -> Result<String, String> {
        let rows = self.numbers(&format!("SELECT count(*) FROM {TABLE}"))[0];
        self.server.query(&format!("TRUNCATE {TABLE}"));
        let proof = format!("{rows} rows deleted");
        if rows == 0 { Err(proof) } else { Ok(proof) }
    }

    fn grant(&self, on: bool) {
        let (does, whom) = if on {
            ("GRANT", "TO")
        } else {
            ("REVOKE", "FROM")
        };
        self.server
            .query(&format!("{does} UPDATE ON {TABLE} {whom} {CLIENT}"));
    }

    fn denials(&self) -> u64 {
        let log = self.server.log();
        log.matches("permission denied for table").count() as u64
    }
}

impl Database for Postgres {
    fn url(&self) -> String {
        let addr = self.proxy.addr();
        format!("postgres://{CLIENT}@{addr}/postgres?sslmode=disable")
    }

    fn leases(&self) -> Vec<(String, u64)> {
        let rows = self.server.query(&format!(
            "SELECT name, ends FROM (SELECT name, greatest(
                CASE WHEN holder IS NOT NULL THEN (extract(epoch FROM expires_at) * 1000000)::bigint END,
                (SELECT max((value -> 0)::bigint) FROM jsonb_each(shares))
            ) AS ends FROM {TABLE}) AS l WHERE ends > extract(epoch FROM clock_timestamp()) * 1000000"
        ));
        let lease = |row: &String| {
            let (name, ends) = row.rsplit_once('|')?;
            Some((name.strip_prefix("lock:")?.to_owned(), ends.parse().ok()?))
        };
        rows.iter().filter_map(lease).collect()
    }

    fn cancel_statements(&self) -> u64 {
        self.numbers("SELECT cancel_for_a_while()")[0]
    }

    fn block(&self, key: &str) -> Box<dyn FnOnce()> {
        let blocker = Blocker::of(&mut self.server.client(), TABLE, &format!("lock:{key}"));
        Box::new(move || blocker.commit())
    }
}

//! A server that keeps locks in a table. Its clients have the rights that its page of the documentation names.
//!
//! The table is `lock_leases`. The user of the clients, and the name of their connections, is `client`.

use std::net::SocketAddr;
use std::time::Duration;

use tests::{Blocker, FaultProxy, Mariadb, Postgres, Sql};
use tokio::runtime::Runtime;

use crate::server::{Database, Server};

/// The parts that differ between databases.
pub(crate) trait Tortured: Sql {
    /// The setting with which every commit is on disk before it is answered.
    const DURABLE: &'static str;
    /// The URL that clients connect to. `{addr}` stands for the proxy.
    const CLIENT_URL: &'static str;
    /// The statements that make the table, the clients' user, and the routine that [`CANCEL`](Self::CANCEL) calls.
    const PREPARE: &'static [&'static str];
    /// The query for the names of locks, and when their leases end, in microseconds since 1970.
    const LEASES: &'static str;
    /// The statement that cancels statements of clients. A single look at the connections meets few statements under
    /// way, so this looks again and again for a tenth of a second, cancels one in two, and answers with their number.
    const CANCEL: &'static str;
    /// The statement that answers with how many connections of clients there are, and ends them.
    const END_CLIENTS: &'static str;
    /// The same for those on which clients listen.
    const END_LISTENERS: &'static str;
    /// The statement that ends every lease `{by}` microseconds earlier. It answers with the number of leases, and how
    /// many of them are over by that.
    const SHORTEN: &'static str;
    /// The statement that deletes every row.
    const FORGET: &'static str;
    const GRANT: &'static str;
    const REVOKE: &'static str;

    /// Returns how often a right of a client was missing so far.
    fn denials(server: &tests::Server<Self>) -> u64;
}

impl Tortured for Postgres {
    const DURABLE: &'static str = "fsync=on";
    const CLIENT_URL: &'static str = "postgres://client@{addr}/postgres?sslmode=disable";
    const PREPARE: &'static [&'static str] = &[
        include_str!("../../lock-runtime/src/backend/postgres/sql/schema.sql"),
        "CREATE ROLE client LOGIN; GRANT SELECT, INSERT, UPDATE ON lock_leases TO client;
         GRANT SELECT, INSERT, UPDATE, DELETE ON lock_leases_managers TO client",
        "CREATE FUNCTION cancel_for_a_while() RETURNS bigint LANGUAGE plpgsql AS $$
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
         END $$",
    ];
    const LEASES: &'static str = "
        SELECT name, ends FROM (SELECT name, greatest(
            CASE WHEN holder IS NOT NULL THEN (extract(epoch FROM expires_at) * 1000000)::bigint END,
            (SELECT max((value -> 0)::bigint) FROM jsonb_each(shares))
        ) AS ends FROM lock_leases) AS l WHERE ends > extract(epoch FROM clock_timestamp()) * 1000000";
    const CANCEL: &'static str = "SELECT cancel_for_a_while()";
    const END_CLIENTS: &'static str = "
        SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE usename = 'client' AND query NOT LIKE 'LISTEN %'";
    const END_LISTENERS: &'static str = "
        SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE usename = 'client' AND query LIKE 'LISTEN %'";
    const SHORTEN: &'static str = "
        WITH cut AS (UPDATE lock_leases SET
            expires_at = expires_at - {by} * interval '1 microsecond',
            shares = (SELECT jsonb_object_agg(key, jsonb_build_array((value -> 0)::bigint - {by}, value -> 1))
                FROM jsonb_each(shares))
        WHERE holder IS NOT NULL AND expires_at > clock_timestamp() OR shares IS NOT NULL
        RETURNING holder IS NOT NULL AND expires_at <= clock_timestamp() OR EXISTS (
            SELECT FROM jsonb_each(shares) AS s
            WHERE (s.value -> 0)::bigint <= extract(epoch FROM clock_timestamp()) * 1000000
        ) AS ended)
        SELECT count(*), count(*) FILTER (WHERE ended) FROM cut";
    const FORGET: &'static str = "TRUNCATE lock_leases";
    const GRANT: &'static str = "GRANT UPDATE ON lock_leases TO client";
    const REVOKE: &'static str = "REVOKE UPDATE ON lock_leases FROM client";

    fn denials(server: &tests::Server<Self>) -> u64 {
        let log = server.log();
        log.matches("permission denied for table").count() as u64
    }
}

impl Tortured for Mariadb {
    const DURABLE: &'static str = "innodb-flush-log-at-trx-commit=1";
    const CLIENT_URL: &'static str = "mysql://client@{addr}/locks";
    const PREPARE: &'static [&'static str] = &[
        include_str!("../../lock-runtime/src/backend/mysql/sql/schema.sql"),
        "CREATE USER 'client'@'%'; GRANT SELECT, INSERT, UPDATE ON locks.lock_leases TO client;
         GRANT SELECT, INSERT, DELETE ON locks.lock_leases_forced TO client;
         GRANT SELECT, INSERT, UPDATE, DELETE ON locks.lock_leases_managers TO client",
        "DELIMITER //
         CREATE PROCEDURE cancel_for_a_while()
         BEGIN
             DECLARE cancelled INT DEFAULT 0;
             -- It has ended meanwhile.
             DECLARE CONTINUE HANDLER FOR 1094 BEGIN END;
             FOR look IN 1..50 DO
                 FOR running IN (
                     SELECT ID FROM information_schema.PROCESSLIST
                     WHERE USER = 'client' AND COMMAND = 'Query' AND RAND() < 0.5
                 ) DO
                     EXECUTE IMMEDIATE CONCAT('KILL QUERY ', running.ID);
                     SET cancelled = cancelled + 1;
                 END FOR;
                 DO SLEEP(0.002);
             END FOR;
             SELECT cancelled;
         END//",
    ];
    const LEASES: &'static str = "
        SELECT name, ends FROM (SELECT name, GREATEST(
            IF(holder IS NULL, 0, expires_at),
            COALESCE((SELECT MAX(s.e) FROM JSON_TABLE(COALESCE(l.shares, '[]'), '$[*]' COLUMNS (e BIGINT PATH '$.e')) AS s), 0)
        ) AS ends FROM lock_leases AS l) AS l
        WHERE ends > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    const CANCEL: &'static str = "CALL cancel_for_a_while()";
    const END_CLIENTS: &'static str = "
        SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'client';
        KILL USER client";
    /// There are no such connections.
    const END_LISTENERS: &'static str = "SELECT 0";
    const SHORTEN: &'static str = "
        SET @now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        START TRANSACTION;
        SELECT COUNT(*), COALESCE(SUM(holder IS NOT NULL AND expires_at - {by} <= @now OR EXISTS (
            SELECT 1 FROM JSON_TABLE(COALESCE(l.shares, '[]'), '$[*]' COLUMNS (e BIGINT PATH '$.e')) AS s
            WHERE s.e - {by} <= @now
        )), 0) FROM lock_leases AS l
        WHERE holder IS NOT NULL AND expires_at > @now OR shares IS NOT NULL FOR UPDATE;
        UPDATE lock_leases AS l SET
            expires_at = expires_at - {by},
            shares = (SELECT JSON_ARRAYAGG(JSON_OBJECT('h', s.h, 'e', s.e - {by}, 'u', s.u))
                FROM JSON_TABLE(COALESCE(l.shares, '[]'), '$[*]' COLUMNS
                    (h VARCHAR(64) PATH '$.h', e BIGINT PATH '$.e', u BIGINT PATH '$.u')) AS s)
        WHERE holder IS NOT NULL AND expires_at > @now OR shares IS NOT NULL;
        COMMIT";
    const FORGET: &'static str = "DELETE FROM lock_leases";
    const GRANT: &'static str = "GRANT UPDATE ON locks.lock_leases TO client";
    const REVOKE: &'static str = "REVOKE UPDATE ON locks.lock_leases FROM client";

    fn denials(server: &tests::Server<Self>) -> u64 {
        let counted = server.query("SHOW GLOBAL STATUS LIKE 'Access_denied_errors'");
        let number = counted.iter().find_map(|row| row.split('|').nth(1));
        number.map_or(0, |number| number.parse().expect("a number"))
    }
}

/// A server, and the proxy that leads to it.
pub(crate) struct Proxied<K: Tortured> {
    server: tests::Server<K>,
    proxy: FaultProxy,
}

/// Starts a server and its proxy. With `durable`, every commit is on disk before it is answered.
pub(crate) fn start<K: Tortured>(runtime: &Runtime, durable: bool) -> Box<dyn Database> {
    let settings: &[&str] = if durable { &[K::DURABLE] } else { &[] };
    let server = K::with(settings);
    let proxy = runtime.block_on(FaultProxy::of(K::PROTOCOL, server.addr()));
    for statement in K::PREPARE {
        server.query(&statement.replace("{table}", "lock_leases"));
    }
    Box::new(Proxied { server, proxy })
}

impl<K: Tortured> Proxied<K> {
    /// Returns the numbers in the only row of an answer.
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

impl<K: Tortured> Server for Proxied<K> {
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
        self.server.pid().to_string()
    }

    fn end_connections(&self, that_listen: bool) -> u64 {
        self.numbers(if that_listen {
            K::END_LISTENERS
        } else {
            K::END_CLIENTS
        })[0]
    }

    fn shorten_leases(&self, by: Duration) -> (u64, u64) {
        let by = by.as_micros().to_string();
        let cut = self.numbers(&K::SHORTEN.replace("{by}", &by));
        (cut[0], cut[1])
    }

    fn forget(&mut self) -> Result<String, String> {
        let rows = self.numbers("SELECT count(*) FROM lock_leases")[0];
        self.server.query(K::FORGET);
        let proof = format!("{rows} rows deleted");
        if rows == 0 { Err(proof) } else { Ok(proof) }
    }

    fn grant(&self, on: bool) {
        self.server.query(if on { K::GRANT } else { K::REVOKE });
    }

    fn denials(&self) -> u64 {
        K::denials(&self.server)
    }
}

impl<K: Tortured> Database for Proxied<K> {
    fn url(&self) -> String {
        let addr = self.proxy.addr().to_string();
        K::CLIENT_URL.replace("{addr}", &addr)
    }

    fn leases(&self) -> Vec<(String, u64)> {
        let rows = self.server.query(K::LEASES);
        let lease = |row: &String| {
            let (name, ends) = row.rsplit_once('|')?;
            Some((name.strip_prefix("lock:")?.to_owned(), ends.parse().ok()?))
        };
        rows.iter().filter_map(lease).collect()
    }

    fn cancel_statements(&self) -> u64 {
        self.numbers(K::CANCEL)[0]
    }

    fn block(&self, key: &str) -> Box<dyn FnOnce()> {
        let name = format!("lock:{key}");
        let blocker = Blocker::of(&mut self.server.client(), "lock_leases", &name);
        Box::new(move || blocker.commit())
    }
}

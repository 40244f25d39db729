//! The differences between the databases.

use std::time::{Duration, SystemTime};

use mysql_async::{Conn, Opts};
use tests::{Mariadb, Postgres, Server, Sql};
use tokio_postgres::NoTls;

use crate::session::{Arg, Session, Statement};

/// A database that is measured.
pub(crate) trait Database: Sql {
    const TITLE: &'static str;
    /// The server's settings with which it does not sync what it commits, and those with which it does.
    const SETTINGS: [&'static [&'static str]; 2];
    /// The query of the URL that turns the library's messages off, if the database has messages.
    const WITHOUT_MESSAGES: Option<&'static str>;
    /// The text of the library's own statements. `FRAGMENTS` has the values of their placeholders.
    const ACQUIRE: &'static str;
    const RELEASE: &'static str;
    /// The words of `ACQUIRE` that limit its time, if it has any.
    const LIMIT: Option<&'static str> = None;
    const FRAGMENTS: &'static [(&'static str, &'static str)];
    /// The end of the lease in a row that was never held.
    const LONG_AGO: &'static str;
    /// The two updates that ShedLock's JDBC provider sends once it has made a row.
    const SHED_LOCK: [&'static str; 2];
    const SHED_LOCK_ROWS: &'static [&'static str];
    const ADVISORY: [&'static str; 2];
    /// The statement that waits for an advisory lock, and the one that gives it back.
    const ADVISORY_WAIT: [&'static str; 2];
    /// The statements that begin a transaction that keeps its snapshot.
    const SNAPSHOT: &'static [&'static str];
    /// A try for the row of key 0 by the statement that one writes first, because it works without an existing row.
    const BUSY_INSERT: Option<&'static str> = None;
    /// A query for the number of bytes in the log that commits are written to.
    const LOGGED: &'static str;
    /// A query for another count of writes: transaction ids, or rows that were changed.
    const CHANGED: &'static str;
    /// A query for the number of statements that were run.
    const STATEMENTS: &'static str;
    /// A query for the size of the table in KiB, its index included.
    const SIZE: &'static str;

    /// Opens a connection.
    async fn session(server: &Server<Self>) -> Session;
}

impl Database for Postgres {
    const TITLE: &'static str = "PostgreSQL";
    const SETTINGS: [&'static [&'static str]; 2] = [&[], &["fsync=on"]];
    const WITHOUT_MESSAGES: Option<&'static str> = Some("?lock_notify=off");
    const ACQUIRE: &'static str =
        include_str!("../../../lock-runtime/src/backend/postgres/sql/acquire.sql");
    const RELEASE: &'static str =
        include_str!("../../../lock-runtime/src/backend/postgres/sql/release.sql");
    const FRAGMENTS: &'static [(&'static str, &'static str)] = &[
        ("{micros}", "(extract(epoch FROM c.now) * 1000000)::bigint"),
        ("{channel}", "lock_leases"),
    ];
    const LONG_AGO: &'static str = "'epoch'";
    const SHED_LOCK: [&'static str; 2] = [
        "UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + interval '30 seconds', \
         locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = $2 \
         WHERE name = $1 AND lock_until <= timezone('utc', CURRENT_TIMESTAMP)",
        "UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) WHERE name = $1 AND locked_by = $2",
    ];
    const SHED_LOCK_ROWS: &'static [&'static str] = &[
        "CREATE TABLE IF NOT EXISTS shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL, \
         locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL)",
        "INSERT INTO shedlock (name, lock_until, locked_at, locked_by) \
         SELECT 'k' || n, 'epoch', 'epoch', '' FROM generate_series(0, 99) AS n ON CONFLICT DO NOTHING",
    ];
    const ADVISORY: [&'static str; 2] = [
        "SELECT 1 WHERE pg_try_advisory_lock($1)",
        "SELECT 1 WHERE pg_advisory_unlock($1)",
    ];
    const ADVISORY_WAIT: [&'static str; 2] =
        ["SELECT pg_advisory_lock(1)", "SELECT pg_advisory_unlock(1)"];
    const SNAPSHOT: &'static [&'static str] = &[
        "BEGIN ISOLATION LEVEL REPEATABLE READ",
        "SELECT count(*) FROM lock_leases",
    ];
    const BUSY_INSERT: Option<&'static str> = Some(
        "INSERT INTO shedlock VALUES ('k0', 'epoch', 'epoch', '') ON CONFLICT (name) DO UPDATE \
         SET lock_until = EXCLUDED.lock_until WHERE shedlock.lock_until <= timezone('utc', CURRENT_TIMESTAMP)",
    );
    const LOGGED: &'static str = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint";
    const CHANGED: &'static str = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
    const STATEMENTS: &'static str =
        "SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database WHERE datname = 'postgres'";
    const SIZE: &'static str = "SELECT pg_total_relation_size('lock_leases') / 1024";

    async fn session(server: &Server<Self>) -> Session {
        let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        Session::Postgres(client)
    }
}

impl Database for Mariadb {
    const TITLE: &'static str = "MariaDB";
    const SETTINGS: [&'static [&'static str]; 2] = [
        &[],
        &[
            "innodb-flush-log-at-trx-commit=1",
            "innodb-flush-method=O_DIRECT",
        ],
    ];
    const WITHOUT_MESSAGES: Option<&'static str> = None;
    const ACQUIRE: &'static str =
        include_str!("../../../lock-runtime/src/backend/mysql/sql/acquire.sql");
    const RELEASE: &'static str =
        include_str!("../../../lock-runtime/src/backend/mysql/sql/release.sql");
    const LIMIT: Option<&'static str> = Some("/*M! SET STATEMENT max_statement_time = 0.05 FOR */");
    const FRAGMENTS: &'static [(&'static str, &'static str)] = &[(
        "{micros}",
        "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)))",
    )];
    const LONG_AGO: &'static str = "0";
    const SHED_LOCK: [&'static str; 2] = [
        "UPDATE shedlock SET lock_until = TIMESTAMPADD(MICROSECOND, 30000000, UTC_TIMESTAMP(3)), \
         locked_at = UTC_TIMESTAMP(3), locked_by = $2 WHERE name = $1 AND lock_until <= UTC_TIMESTAMP(3)",
        "UPDATE shedlock SET lock_until = UTC_TIMESTAMP(3) WHERE name = $1 AND locked_by = $2",
    ];
    const SHED_LOCK_ROWS: &'static [&'static str] = &[
        "CREATE TABLE IF NOT EXISTS shedlock (name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP(3) NOT NULL, \
         locked_at TIMESTAMP(3) NOT NULL, locked_by VARCHAR(255) NOT NULL)",
        "INSERT IGNORE INTO shedlock SELECT CONCAT('k', seq), '2000-01-01', '2000-01-01', '' FROM seq_0_to_99",
    ];
    const ADVISORY: [&'static str; 2] = [
        "SELECT 1 FROM DUAL WHERE GET_LOCK(CONCAT($1), 0) = 1",
        "SELECT 1 FROM DUAL WHERE RELEASE_LOCK(CONCAT($1)) = 1",
    ];
    const ADVISORY_WAIT: [&'static str; 2] =
        ["SELECT GET_LOCK('1', 300)", "SELECT RELEASE_LOCK('1')"];
    const SNAPSHOT: &'static [&'static str] = &["START TRANSACTION WITH CONSISTENT SNAPSHOT"];
    const LOGGED: &'static str = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS \
        WHERE VARIABLE_NAME = 'Innodb_os_log_written'";
    const CHANGED: &'static str = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS \
        WHERE VARIABLE_NAME = 'Handler_update'";
    const STATEMENTS: &'static str = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS \
        WHERE VARIABLE_NAME = 'Questions'";
    const SIZE: &'static str = "SELECT FILE_SIZE DIV 1024 FROM information_schema.INNODB_SYS_TABLESPACES \
        WHERE NAME = 'locks/lock_leases'";

    async fn session(server: &Server<Self>) -> Session {
        let opts = Opts::from_url(&server.url()).unwrap();
        let mut conn = Conn::new(opts).await.unwrap();
        mysql_async::prelude::Queryable::query_drop(&mut conn, "SET time_zone = '+00:00'")
            .await
            .unwrap();
        Session::Mariadb(conn)
    }
}

const HOLDER: &str = "0b1f4dc06a3e4c0e9e574f9a4b1c7a11";

/// Returns the library's own statements for a mutex, filled in as the library does it.
pub(crate) fn bare<D: Database>() -> [Statement; 2] {
    let own = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with("--"));
        let text = lines.collect::<Vec<_>>().join("\n");
        let fragments = D::FRAGMENTS.iter().copied();
        let fragments = fragments.chain([("{table}", "lock_leases")]);
        fragments.fold(text, |text, (name, fragment)| text.replace(name, fragment))
    };
    [
        Statement {
            text: own(D::ACQUIRE),
            args: |task| {
                let not_after = SystemTime::now() + Duration::from_secs(60);
                let rest = [
                    Arg::Number(30_000_000),
                    Arg::Moment(not_after),
                    Arg::Number(0),
                ];
                whose(task).into_iter().chain(rest).collect()
            },
        },
        Statement {
            text: own(D::RELEASE),
            args: |task| {
                let topic = Arg::Text("topic".to_owned());
                whose(task).into_iter().chain([topic]).collect()
            },
        },
    ]
}

fn whose(task: usize) -> [Arg; 2] {
    let (key, holder) = (format!("bare:k{task}"), format!("{HOLDER}:{task}"));
    [Arg::Text(key), Arg::Text(holder)]
}

//! The opening of a connection, and the checks of its server before it may keep locks.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};

use super::statements::filled;
use super::url::by_tls;
use super::{Server, faults};
use crate::backend::Fault;
use crate::backend::sql::kinds::renewals::LATE;
use crate::backend::sql::{MissingTable, OpenedConnection, Row, Value, malformed};
use crate::observe::metrics::logged;
use crate::values::{Moment, clock};

/// The oldest versions that run the statements as they are meant: they have `JSON_TABLE` and `SKIP LOCKED`.
const OLDEST: &str = "MySQL 8.0.21 or MariaDB 10.6";

/// A connector, which opens connections for one purpose and runs statements on them.
pub(super) struct MysqlConnector {
    pub(super) server: Arc<Server>,
    pub(super) strict: bool,
    pub(super) timeouts: Timeouts,
}

/// The limits of the time that a statement may take, above all to wait for a row that somebody else has locked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// The limit of the wait for a row, and for a table that somebody else has locked. The databases count it in
    /// seconds.
    pub(super) for_a_row: u64,
    /// The limit of the whole statement, which is counted more finely. MySQL has it for queries only.
    pub(super) in_all: Duration,
}

impl Timeouts {
    /// Returns the limits of a request, which may take as long as its caller waits.
    pub(super) fn of_requests(call_timeout: Duration) -> Timeouts {
        Timeouts {
            for_a_row: call_timeout.as_secs() + 1,
            in_all: call_timeout,
        }
    }

    /// Returns the limits of a renewal. It waits for no row, but the server may be slow.
    pub(super) fn of_renewals(call_timeout: Duration) -> Timeouts {
        Timeouts {
            for_a_row: 1,
            in_all: call_timeout * LATE,
        }
    }
}

/// An open connection. It ends when it is dropped.
pub(super) struct MysqlConnection {
    /// `None` while the connection is being dropped.
    conn: Option<Conn>,
    /// True for MariaDB. MySQL cannot be told to wait for a locked row for less than a second or two, so statements
    /// there should not meet one.
    pub(super) is_mariadb: bool,
    pub(super) used: Moment,
    pub(super) looked: Moment,
}

impl MysqlConnection {
    fn new(conn: Conn) -> MysqlConnection {
        let now = clock::now();
        MysqlConnection {
            conn: Some(conn),
            is_mariadb: false,
            used: now,
            looked: now,
        }
    }

    pub(super) fn conn(&mut self) -> &mut Conn {
        self.conn
            .as_mut()
            .expect("a connection has its `Conn` until it is dropped")
    }
}

impl Drop for MysqlConnection {
    /// Disconnects at once. By itself, a `Conn` ends in a task that reads the answer of its last statement, however
    /// long that takes.
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            let mut context = Context::from_waker(Waker::noop());
            let _ = pin!(conn.disconnect()).poll(&mut context);
        }
    }
}

/// Opens a connection, and checks its server.
pub(super) async fn open(
    connector: &MysqlConnector,
) -> Result<OpenedConnection<MysqlConnection>, Fault> {
    let (server, timeout) = (&connector.server, connector.server.timeout);
    let connecting = connect(server, connector.timeouts);
    let (mut connection, renew_after) = connecting.await?;
    ensure(server, &mut connection).await?;
    let asked_at = clock::now();
    let row = first(&mut connection, &server.statements.fitness.text, timeout).await?;
    let time = judge(&row, connector)?;
    connection.is_mariadb = is_mariadb(&row.word(0)?);
    let conn = connection.conn();
    let rights = filled(include_str!("sql/rights.sql"), &server.target);
    let rights = server.target.table.put_into(&rights);
    within(timeout, conn.query_drop(rights)).await?;
    server.clock.saw(time, asked_at);
    Ok(OpenedConnection {
        connection,
        drawn: row.word(11)?,
        renew_after,
    })
}

/// Creates the tables that are missing, if the user wants that and the URL names a database.
async fn ensure(server: &Server, connection: &mut MysqlConnection) -> Result<(), Fault> {
    let table = &server.target.table;
    if !server.wants_tables() || !table.is_found() {
        return Ok(());
    }
    let missing = filled(include_str!("sql/missing.sql"), &server.target);
    let seen = first(connection, &missing, server.timeout).await?;
    let missing = match (seen.number(0)?, seen.number(1)?) {
        (0, _) => MissingTable::Locks,
        (_, 2) => MissingTable::Nothing,
        _ => MissingTable::Others,
    };
    let grant = format!("GRANT CREATE ON {}* TO …", table.before_name());
    server.create(missing, &grant, create(server)).await
}

/// Creates the tables on a connection of its own, whose statements may take longer. Processes that start at once do it one
/// after the other.
async fn create(server: &Server) -> Result<(), Fault> {
    let timeout = server.creation_timeout();
    let (mut connection, _) = connect(server, Timeouts::of_requests(timeout)).await?;
    let schema = server.target.table.put_into(&server.statements.schema.text);
    // The end of the connection frees the lock.
    let text = format!(
        "SELECT GET_LOCK('lock-runtime', {}); {schema}",
        timeout.as_secs()
    );
    within(timeout, connection.conn().query_drop(text)).await
}

/// Opens a connection whose server is not checked yet. The time is that after which another one has to take its place.
async fn connect(
    server: &Server,
    timeouts: Timeouts,
) -> Result<(MysqlConnection, Option<Duration>), Fault> {
    let settings = &settings(timeouts);
    let advice = server.target.login_advice();
    let connect = |opts, tls| connect_to(by_tls(opts, tls), settings, advice);
    server.target.dial(server.timeout, connect).await
}

/// Connects to one server, if it can be written to. A replica keeps no locks, even if some users may write to it.
/// `advice` is for a user that is refused.
async fn connect_to(
    opts: Opts,
    settings: &str,
    advice: Option<&str>,
) -> Result<MysqlConnection, Fault> {
    let fault = |error| faults::of_connecting(&error, advice);
    let mut connection = MysqlConnection::new(Conn::new(opts).await.map_err(fault)?);
    // A reader of Aurora has only the second one.
    let asked =
        format!("SELECT IF(@@innodb_read_only, 'ON', CAST(@@read_only AS CHAR)); {settings}");
    let asked = connection.conn().query_first(asked).await;
    let read_only: Option<String> = asked.map_err(fault)?;
    match read_only.as_deref() {
        Some("0" | "OFF") => Ok(connection),
        _ => Err(Fault::impossible(
            "the server is read-only (`read_only`), as replicas are: name the primary; of several hosts in the URL, the \
             one is used that can be written to",
        )),
    }
}

/// Runs a statement, and returns the first row that answers it.
async fn first(
    connection: &mut MysqlConnection,
    text: &str,
    timeout: Duration,
) -> Result<Row, Fault> {
    let asked = connection.conn().query_first(text);
    let row: Option<mysql_async::Row> = within(timeout, asked).await?;
    row.map(values).ok_or_else(malformed)
}

async fn within<T>(
    timeout: Duration,
    asked: impl Future<Output = Result<T, mysql_async::Error>>,
) -> Result<T, Fault> {
    match tokio::time::timeout(timeout, asked).await {
        Ok(answer) => answer.map_err(|error| faults::of_connecting(&error, None)),
        Err(_) => Err(Fault::not_done("the server does not answer")),
    }
}

/// Returns the statements that give a session the settings on which ours rely, whatever the server's defaults are.
fn settings(timeouts: Timeouts) -> String {
    let (row, all) = (timeouts.for_a_row, timeouts.in_all.as_secs_f64());
    let millis = timeouts.in_all.as_millis();
    format!(
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE; \
         SET NAMES utf8mb4 COLLATE utf8mb4_bin; \
         SET SESSION time_zone = '+00:00', sql_mode = 'STRICT_TRANS_TABLES', autocommit = 1, \
         completion_type = 0, sql_safe_updates = 0, \
         sql_select_limit = 18446744073709551615, sql_big_selects = 1, \
         innodb_lock_wait_timeout = {row}, lock_wait_timeout = {row}, group_concat_max_len = 16777216 \
         /*M! , max_statement_time = {all:.3} */ /*!80000 , max_execution_time = {millis} */"
    )
}

/// Returns the server's time in µs, if the server may keep locks.
fn judge(row: &Row, connector: &MysqlConnector) -> Result<u64, Fault> {
    let whole = &connector.server.target.table;
    let table = whole.name();
    let version = row.word(0)?;
    if !is_new_enough(&version) {
        return Err(Fault::impossible(format!(
            "the lock store is {version}; {OLDEST}, or newer, is needed"
        )));
    }
    if !row.flag(1)? {
        return Err(Fault::impossible(
            "the URL names no database: mysql://user:password@host/database, or `lock_table=database.table`",
        ));
    }
    match row.number(2)? {
        1 => {}
        0 => {
            return Err(Fault::impossible(
                "`innodb_flush_log_at_trx_commit` is 0: a crash of the server would forget locks that it has granted; \
                 set it to 1",
            ));
        }
        _ => {
            let why = "`innodb_flush_log_at_trx_commit` is not 1: a crash of the server's machine may forget locks that \
                       are held";
            if connector.strict {
                return Err(Fault::impossible(why));
            }
            logged!(warn, "{why}");
        }
    }
    if row.flag(3)? {
        logged!(
            warn,
            "`sync_binlog` is not 1: after a crash of the server's machine, replicas may know other locks than it does"
        );
    }
    if row.flag(4)? {
        return Err(Fault::impossible(
            "`binlog_format` is STATEMENT: what locks write depends on the clock and can only be logged by rows; set it \
             to ROW or MIXED",
        ));
    }
    let Some(engine) = row.text(5)? else {
        return Err(Fault::impossible(format!(
            "there is no table `{table}`, or the user may not see it: create it with `ensure_schema(true)`, or by the \
             statement of docs/mysql.md"
        )));
    };
    if engine != "InnoDB" {
        return Err(Fault::impossible(format!(
            "the table `{table}` is of the engine {engine}: locks need InnoDB"
        )));
    }
    whole.check_columns(&[], row.text(6)?)?;
    if row.text(7)? != Some("varbinary(512)") {
        return Err(Fault::impossible(format!(
            "the column `name` of the table `{table}` is no VARBINARY(512): names that differ would be one, or not fit"
        )));
    }
    let (before, after) = (row.number(8)?, row.number(10)?);
    if after <= before {
        return Err(Fault::impossible(
            "the server's SYSDATE() is the time at which a statement began (`sysdate_is_now`): a request that waited \
             would judge leases by an old time; start it without that option",
        ));
    }
    Ok(before)
}

pub(super) fn values(row: mysql_async::Row) -> Row {
    let values = row.unwrap_raw().into_iter().map(|value| match value {
        Some(mysql_async::Value::Bytes(bytes)) => {
            Value::Text(String::from_utf8_lossy(&bytes).into_owned())
        }
        Some(mysql_async::Value::Int(number)) => Value::Number(number),
        Some(mysql_async::Value::UInt(number)) => {
            Value::Number(i64::try_from(number).unwrap_or(i64::MAX))
        }
        _ => Value::Null,
    });
    Row(values.collect())
}

fn is_mariadb(version: &str) -> bool {
    version.contains("MariaDB")
}

/// Returns `true` for a version of MariaDB from 10.6, or of MySQL from 8.0.21.
fn is_new_enough(version: &str) -> bool {
    let mut numbers = version
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0_u32));
    let mut number = || numbers.next().unwrap_or(0);
    let version_number = (number(), number(), number());
    if is_mariadb(version) {
        version_number >= (10, 6, 0)
    } else {
        version_number >= (8, 0, 21)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told_apart_by_product() {
        for (version, new_enough) in [
            ("10.11.19-MariaDB-0+deb12u1", true),
            ("10.6.0-MariaDB", true),
            ("10.5.28-MariaDB-log", false),
            ("11.4.2-MariaDB", true),
            ("8.0.36", true),
            ("8.0.20", false),
            ("5.7.44-log", false),
            ("9.1.0", true),
        ] {
            assert_eq!(is_new_enough(version), new_enough, "{version}");
        }
    }
}

//! The implementation of the connector, which runs statements on connections.

use std::borrow::Cow;
use std::time::Duration;

use mysql_async::consts::StatusFlags;
use mysql_async::prelude::Queryable;

use super::connection::{self, MysqlConnection, MysqlConnector, values};
use super::faults;
use super::statements::{IS_PRIMARY, MICROS, unwaiting, written};
use crate::backend::Fault;
use crate::backend::sql::{Arg, Connector, Failed, OpenedConnection, Row, Statement, Table, Value};
use crate::values::{StoreError, StoreKind, clock};

/// The idle time after which a connection is checked before it is used. Nobody reads it while it is idle.
const IDLE: Duration = Duration::from_secs(1);
/// The time after which a connection looks at its server again: whether the server has become a replica, and at its
/// clock, because the two clocks drift apart.
const LOOK: Duration = Duration::from_secs(2);

/// The number of times that a statement is sent again after a deadlock ended it.
const DEADLOCKS: usize = 3;

impl Connector for MysqlConnector {
    type Connection = MysqlConnection;

    const STORE: StoreKind = StoreKind::Mysql;

    async fn open(&self) -> Result<OpenedConnection<MysqlConnection>, Fault> {
        connection::open(self).await
    }

    fn is_fresh(&self, connection: &MysqlConnection) -> bool {
        connection.used.elapsed() < IDLE && connection.looked.elapsed() < LOOK
    }

    async fn is_alive(&self, connection: &mut MysqlConnection) -> bool {
        let asked_at = clock::now();
        let look = format!("SELECT {MICROS}, {IS_PRIMARY}");
        let seen: Result<Option<(u64, bool)>, _> = connection.conn().query_first(look).await;
        // The next connection says why a replica keeps no locks, or finds the primary.
        let Ok(Some((micros, true))) = seen else {
            return false;
        };
        self.server.clock.saw(micros, asked_at);
        (connection.used, connection.looked) = (clock::now(), asked_at);
        true
    }

    async fn run(
        &self,
        connection: &mut MysqlConnection,
        statement: &Statement,
        args: &[Arg],
    ) -> Result<Vec<Row>, Failed> {
        let (text, table) = (text(connection, statement, args), &self.server.target.table);
        let answer = match undisturbed(connection, &text, args, table).await {
            // A transaction may hold the lock, and so have locked the row. A look tells.
            Err(error) if statement.name == "acquire" && error.is_of_a_locked_row() => {
                Ok(Vec::new())
            }
            answer => answer,
        };
        connection.used = clock::now();
        answer.map_err(|broken| broken.failed(statement))
    }

    fn longest_statement(&self) -> Duration {
        Duration::from_secs(self.timeouts.for_a_row)
    }

    /// Waits until the statement has ended. The connection is not used again: the rest of the statement's answer would
    /// be taken for that of the next statement.
    async fn retire(&self, connection: &mut MysqlConnection) -> bool {
        // The answer of the statement before the ping is taken for that of the ping.
        let _ = connection.conn().ping().await;
        false
    }
}

/// Returns the text to send. A request that does not wait for a locked row has `false` as its last argument, and the note
/// of a waiter zero.
fn text<'a>(connection: &MysqlConnection, statement: &'a Statement, args: &[Arg]) -> Cow<'a, str> {
    match (statement.name, args.last()) {
        ("take_over" | "take_turn", Some(Arg::Flag(false))) | ("wait", Some(Arg::Number(0))) => {
            unwaiting(&statement.text).into()
        }
        ("acquire", _) if !connection.is_mariadb => unwaiting(&statement.text).into(),
        _ => (&*statement.text).into(),
    }
}

/// Runs a statement, and sends it again if a deadlock ended it.
async fn undisturbed(
    connection: &mut MysqlConnection,
    text: &str,
    args: &[Arg],
    table: &Table,
) -> Result<Vec<Row>, Broken> {
    let mut deadlocks = 0;
    loop {
        match answer(connection, text, args, table).await {
            // The statement was undone, so another statement of the deadlock has got through.
            Err(error) if error.is_of_a_deadlock() && deadlocks < DEADLOCKS => deadlocks += 1,
            answer => return answer,
        }
    }
}

/// A statement that failed.
#[derive(Debug)]
struct Broken {
    error: mysql_async::Error,
    /// True if a part of it was done before.
    partly_done: bool,
}

impl Broken {
    fn is_of_a_locked_row(&self) -> bool {
        !self.partly_done && faults::is_of_a_locked_row(&self.error)
    }

    fn is_of_a_deadlock(&self) -> bool {
        !self.partly_done && faults::is_of_a_deadlock(&self.error)
    }

    fn failed(self, statement: &Statement) -> Failed {
        let missing = faults::missing_table(&self.error);
        // A statement that needs another table, too, names the one that is missing.
        let is_of_locks = |why: &StoreError| {
            let named = why.to_string();
            statement.is_about_locks()
                || !(named.contains("_forced") || named.contains("_managers"))
        };
        let failed = match missing.filter(is_of_locks) {
            Some(why) => Failed::table_is_gone(&why),
            None => Failed {
                fault: faults::of_statement(&self.error),
                ends_the_connection: faults::ends_the_connection(&self.error),
            },
        };
        let fault = match failed.fault {
            Fault::NotDone(why) | Fault::NoTable(why) if self.partly_done => Fault::Unknown(why),
            fault => fault,
        };
        Failed {
            fault,
            // The connection may be in the middle of a transaction.
            ends_the_connection: failed.ends_the_connection || self.partly_done,
        }
    }
}

/// Runs a statement, and returns the rows of the part that asks for rows. If there is no such part, returns a row with
/// the last `LAST_INSERT_ID`, or no row if the last part changed nothing.
async fn answer(
    connection: &mut MysqlConnection,
    text: &str,
    args: &[Arg],
    table: &Table,
) -> Result<Vec<Row>, Broken> {
    let parts = text.matches(';').count() + 1;
    // A first part that sets a variable changes nothing.
    let harmless = usize::from(text.trim_start().starts_with("SET @"));
    // A name that the user chose comes last, so nothing in it is taken for an argument.
    let text = table.put_into(&written(text, args));
    let broken = |partly_done| move |error| Broken { error, partly_done };
    let asked = connection.conn().query_iter(text).await;
    let mut result = asked.map_err(broken(false))?;
    let (mut rows, mut changed) = (None, Vec::new());
    for number in 0..parts {
        let has_rows = !result.columns_ref().is_empty();
        let says_role = result.columns_ref().last().is_some_and(is_role);
        let id = result.last_insert_id().unwrap_or(0);
        changed = match result.affected_rows() {
            0 => Vec::new(),
            _ => vec![Row(vec![Value::Number(i64::try_from(id).unwrap_or(0))])],
        };
        let part = result.collect::<mysql_async::Row>().await;
        let part = part.map_err(broken(number > harmless))?;
        if has_rows {
            let mut part: Vec<Row> = part.into_iter().map(values).collect();
            if says_role {
                part = of_a_primary(part).map_err(broken(number > harmless))?;
            }
            rows = Some(part);
        }
    }
    drop(result);
    if !has_committed(connection) {
        let why =
            "the session does not commit by itself (`autocommit`), or a transaction is open in it";
        return Err(broken(true)(mysql_async::Error::Other(why.into())));
    }
    Ok(rows.unwrap_or(changed))
}

/// Whether the column says that the server has not become a replica.
fn is_role(column: &mysql_async::Column) -> bool {
    column.name_ref() == b"is_primary"
}

/// Returns the rows that a primary has found. What a replica has, or lacks, says nothing: it may lag. The first column of a
/// row that stands for none is NULL; it is there so that the server says its role in any case.
fn of_a_primary(mut rows: Vec<Row>) -> Result<Vec<Row>, mysql_async::Error> {
    let is_primary = |row: &Row| row.flag(row.0.len() - 1).unwrap_or(false);
    if !rows.iter().all(is_primary) {
        return Err(mysql_async::Error::Other(
            "the server has become a replica".into(),
        ));
    }
    rows.retain(|row| !matches!(row.0.first(), Some(Value::Null)));
    Ok(rows)
}

/// Whether what the last statement did is committed. A proxy may have sent it to a session with other settings, where it is
/// undone unless somebody commits.
fn has_committed(connection: &mut MysqlConnection) -> bool {
    let last = connection.conn().last_ok_packet();
    let flags = last.map_or(StatusFlags::empty(), |ok| ok.status_flags());
    flags.contains(StatusFlags::SERVER_STATUS_AUTOCOMMIT)
        && !flags.contains(StatusFlags::SERVER_STATUS_IN_TRANS)
}

//! The opening of a connection, and the checks of its server before it may keep locks.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_postgres::{AsyncMessage, Client, Config, Connection, SimpleQueryMessage, Socket};

use super::connector::{PostgresConnector, values};
use super::statements::typed;
use super::tls::{Encrypted, Tls};
use super::{Server, faults, statements};
use crate::backend::Fault;
use crate::backend::sql::{Arg, MissingTable, OpenedConnection, Row, Table, malformed};
use crate::observe::metrics::logged;
use crate::values::{StoreError, clock};

/// The oldest version that runs the statements as they are meant.
const OLDEST: i64 = 120_000;

/// The routine of the server that waits for a standby. Texts of warnings are in the server's language, names of routines are
/// not.
const WAITS_FOR_STANDBY: &str = "SyncRepWaitForLSN";

/// An open connection.
pub(super) struct PostgresConnection {
    pub(super) client: Client,
    /// A commit was reported as done without the standby that has to confirm it. An operator may end such a wait.
    unconfirmed: Arc<AtomicBool>,
}

impl PostgresConnection {
    /// Whether a commit since the last call was reported as done, and is lost if a standby is promoted.
    pub(super) fn was_unconfirmed(&self) -> bool {
        self.unconfirmed.swap(false, Ordering::Relaxed)
    }
}

/// Drives a connection until it ends. A message comes before the end of the statement that it is about.
async fn drive(mut stream: Connection<Socket, Encrypted>, unconfirmed: Arc<AtomicBool>) {
    while let Some(Ok(message)) = poll_fn(|cx| stream.poll_message(cx)).await {
        if let AsyncMessage::Notice(notice) = message
            && notice.routine() == Some(WAITS_FOR_STANDBY)
        {
            unconfirmed.store(true, Ordering::Relaxed);
        }
    }
}

/// Connects to one host. No task drives the connection yet.
pub(super) async fn connect(
    config: Config,
    tls: Tls,
) -> Result<(Client, Connection<Socket, Encrypted>), Fault> {
    let connected = config.connect(tls).await;
    connected.map_err(|error| faults::of_connecting(&error))
}

/// Opens a connection, finds or creates the table, and checks its server.
pub(super) async fn open(
    connector: &PostgresConnector,
) -> Result<OpenedConnection<PostgresConnection>, Fault> {
    let server = &connector.server;
    let (table, timeout) = (&server.target.table, server.timeout);
    let ((client, stream), renew_after) = server.target.dial(timeout, connect).await?;
    let unconfirmed = Arc::<AtomicBool>::default();
    tokio::spawn(drive(stream, unconfirmed.clone()));
    if !table.is_found() || server.wants_tables() {
        find(&client, server).await?;
    }
    let sent_at = clock::now();
    let args = [
        Arg::text(table.whole()),
        Arg::Text(format!("{}ms", longest_wait(timeout).as_millis())),
        // The session is not ours alone, and the setting would stay in it.
        Arg::Flag(!server.target.notify),
    ];
    let args = args.each_ref().map(typed);
    let asked = client.query_typed(&server.statements.fitness.text, &args);
    let rows = within(timeout, asked).await?;
    let row = values(rows.first().ok_or_else(malformed)?)?;
    let time = judge(&row, table)?;
    if row.signed(13)? == Some(0) {
        let why = StoreError::new("the user may not call `pg_notify(text, text)`");
        connector.notices.refused(&server.target.shown, &why);
    }
    server.clock.saw(time, sent_at);
    Ok(OpenedConnection {
        connection: PostgresConnection {
            client,
            unconfirmed,
        },
        drawn: row.word(15)?,
        renew_after,
    })
}

/// Finds out in which schema the table is. If it is missing and the user wants it, creates it.
async fn find(client: &Client, server: &Server) -> Result<(), Fault> {
    let (missing, writable, place) = look(client, server).await?;
    // If the server is read-only, its check reports that.
    if server.wants_tables() && writable {
        let grant = format!("GRANT CREATE ON SCHEMA {place} TO …");
        let text = statements::creation(&server.target.table, &server.statements.schema);
        let creating = async {
            let created = within(server.creation_timeout(), client.batch_execute(&text)).await;
            if created.is_err() {
                // The session is in the transaction that failed.
                within(server.timeout, client.batch_execute("ROLLBACK")).await?;
            }
            created
        };
        server.create(missing, &grant, creating).await?;
        if missing == MissingTable::Locks {
            look(client, server).await?;
        }
    }
    Ok(())
}

/// Notes the table's schema, if the table exists. Returns what is missing, whether the session can be written to, and
/// the schema in which tables are created.
async fn look(client: &Client, server: &Server) -> Result<(MissingTable, bool, String), Fault> {
    let table = &server.target.table;
    let text = statements::look_for(table);
    let answers = within(server.timeout, client.simple_query(&text)).await?;
    let row = answers.iter().find_map(|answer| match answer {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let row = row.ok_or_else(malformed)?;
    let missing = match (row.get(0), row.get(1)) {
        (None, _) => MissingTable::Locks,
        (Some(_), Some("t")) => MissingTable::Nothing,
        (Some(_), _) => MissingTable::Others,
    };
    if let Some(schema) = row.get(0) {
        table.found_in(schema);
    }
    let place = row.get(3).unwrap_or("…").to_owned();
    Ok((missing, row.get(2) == Some("f"), place))
}

async fn within<T>(
    timeout: Duration,
    asked: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Fault> {
    match tokio::time::timeout(timeout, asked).await {
        Ok(answer) => answer.map_err(|error| faults::of_connecting(&error)),
        Err(_) => Err(Fault::not_done("the server does not answer")),
    }
}

/// Returns the time for which a statement waits for a row or a table at most, as the server counts it. A cancellation may
/// be lost on its way, and a statement whose client is gone would wait for ever.
pub(super) fn longest_wait(call_timeout: Duration) -> Duration {
    call_timeout + Duration::from_secs(1)
}

/// Returns the server's time in µs, if the server may keep locks.
fn judge(row: &Row, whole: &Table) -> Result<u64, Fault> {
    let table = whole.name();
    if row.signed(0)? < Some(OLDEST) {
        return Err(Fault::impossible(format!(
            "the lock store is PostgreSQL {}; 12 or newer is needed",
            row.word(1)?
        )));
    }
    if row.flag(2)? || row.flag(3)? {
        return Err(Fault::impossible(
            "the PostgreSQL server is a read-only standby, or the session is read-only: name the primary; with several \
             hosts in the URL, `target_session_attrs=read-write` finds it",
        ));
    }
    let isolation = row.word(4)?;
    if isolation != "read committed" {
        return Err(Fault::impossible(format!(
            "the default isolation of transactions is `{isolation}`: locks need `read committed`; set it for the role, \
             `ALTER ROLE … SET default_transaction_isolation = 'read committed'`"
        )));
    }
    if row.word(5)? == "off" {
        return Err(Fault::impossible(
            "`synchronous_commit` is off: a crash of the server would forget locks that it has granted; set it for the \
             role, `ALTER ROLE … SET synchronous_commit = on`",
        ));
    }
    let encoding = row.word(6)?;
    if encoding != "UTF8" {
        return Err(Fault::impossible(format!(
            "the database's encoding is {encoding}: names of locks need UTF8"
        )));
    }
    if row.word(7)? == "off" {
        logged!(
            warn,
            "`fsync` is off at the PostgreSQL server: a crash of its machine may forget locks that are held"
        );
    }
    // In a session whose search path others have changed, the name alone may lead to a table that was not found before.
    if !row.flag(8)? || !whole.is_found() {
        return Err(Fault::impossible(format!(
            "there is no table `{table}`: create it with `ensure_schema(true)`, or by the statement of docs/postgres.md"
        )));
    }
    if row.flag(17)? {
        return Err(Fault::impossible(format!(
            "row-level security applies to this user in the table `{table}`, and may hide locks that others hold: the user needs \
             `BYPASSRLS`, or the table no policies"
        )));
    }
    if !row.flag(9)? {
        return Err(Fault::impossible(format!(
            "the user may not read and write the table `{table}`: GRANT SELECT, INSERT, UPDATE ON {table} TO …"
        )));
    }
    if !row.flag(10)? {
        return Err(Fault::impossible(format!(
            "the table `{table}` is not logged: a crash of the server would empty it and forget locks that are held"
        )));
    }
    whole.check_columns(&["waited_until"], row.text(11)?)?;
    row.number(12)
}

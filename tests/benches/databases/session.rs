//! Connections to a database, and the statements that are sent on them.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tokio::sync::Mutex;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

/// The number of connections: as many as this library has for requests by default.
const CONNECTIONS: usize = 8;

/// An argument of a statement.
pub(crate) enum Arg {
    Text(String),
    Number(i64),
    Moment(SystemTime),
}

/// A statement with `$1` in place of its first argument, and its arguments for a task.
pub(crate) struct Statement {
    pub(crate) text: String,
    pub(crate) args: fn(usize) -> Vec<Arg>,
}

/// One connection, which sends statements as this library does.
pub(crate) enum Session {
    Postgres(Client),
    Mariadb(Conn),
}

impl Session {
    /// Runs a statement. Returns how many rows it answers with or changes.
    pub(crate) async fn ask(&mut self, text: &str, args: &[Arg]) -> u64 {
        match self {
            Session::Postgres(client) => {
                let args: Vec<_> = args.iter().map(typed).collect();
                client.execute_typed(text, &args).await.unwrap()
            }
            Session::Mariadb(conn) => {
                let answer = conn.query_iter(written(text, args)).await.unwrap();
                let changed = answer.affected_rows();
                let rows: Vec<mysql_async::Row> = answer.collect_and_drop().await.unwrap();
                changed.max(rows.len() as u64)
            }
        }
    }
}

fn typed(arg: &Arg) -> (&(dyn ToSql + Sync), Type) {
    match arg {
        Arg::Text(text) => (text, Type::TEXT),
        Arg::Number(number) => (number, Type::INT8),
        Arg::Moment(moment) => (moment, Type::TIMESTAMPTZ),
    }
}

/// Returns the statement with its arguments written into it.
fn written(text: &str, args: &[Arg]) -> String {
    let mut parts = text.split('$');
    let mut written = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let number: usize = part[..1].parse().unwrap();
        match &args[number - 1] {
            Arg::Text(text) => {
                written.push_str("X'");
                for byte in text.bytes() {
                    write!(written, "{byte:02x}").unwrap();
                }
                written.push('\'');
            }
            Arg::Number(number) => write!(written, "{number}").unwrap(),
            Arg::Moment(moment) => {
                let since = moment.duration_since(UNIX_EPOCH).unwrap();
                write!(written, "{}", since.as_micros()).unwrap();
            }
        }
        written.push_str(&part[1..]);
    }
    written
}

/// Connections that are lent to one task at a time.
pub(crate) struct Sessions(Vec<Mutex<Session>>);

impl Sessions {
    pub(crate) async fn open<D: crate::Database>(server: &tests::Server<D>) -> Sessions {
        let mut sessions = Vec::new();
        for _ in 0..CONNECTIONS {
            sessions.push(Mutex::new(D::session(server).await));
        }
        Sessions(sessions)
    }

    pub(crate) async fn ask(&self, task: usize, statement: &Statement) -> u64 {
        let mut session = self.0[task % self.0.len()].lock().await;
        session.ask(&statement.text, &(statement.args)(task)).await
    }
}

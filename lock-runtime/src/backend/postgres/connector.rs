//! The connector, which opens connections and runs statements on them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::Type;

use super::connection::PostgresConnection;
use super::notices::{self, Notices};
use super::statements::typed;
use super::{Server, connection, faults};
use crate::backend::Fault;
use crate::backend::sql::{Arg, Connector, Failed, OpenedConnection, Row, Statement, Value};
use crate::values::StoreKind;

/// The time for which a statement that nobody waits for any more may go on before it is cancelled. Most statements end
/// by themselves much sooner, and a new connection costs the server more than the rest of a statement.
const GRACE: Duration = Duration::from_millis(100);

pub(super) struct PostgresConnector {
    pub(super) server: Arc<Server>,
    pub(super) notices: Arc<Notices>,
}

impl Connector for PostgresConnector {
    type Connection = PostgresConnection;

    const STORE: StoreKind = StoreKind::Postgres;

    async fn open(&self) -> Result<OpenedConnection<PostgresConnection>, Fault> {
        connection::open(self).await
    }

    fn is_fresh(&self, connection: &PostgresConnection) -> bool {
        !connection.client.is_closed()
    }

    async fn is_alive(&self, connection: &mut PostgresConnection) -> bool {
        connection.client.simple_query("").await.is_ok()
    }

    async fn run(
        &self,
        connection: &mut PostgresConnection,
        statement: &Statement,
        args: &[Arg],
    ) -> Result<Vec<Row>, Failed> {
        // Of a statement before that nobody waited for.
        connection.was_unconfirmed();
        let client = &connection.client;
        let args: Vec<_> = args.iter().map(typed).collect();
        let text = self.server.target.table.put_into(&statement.text);
        let (loud, notifies) = self.notices.loud(&text);
        let mut answer = client.query_typed(&loud, &args).await;
        if answer.is_ok() && notifies {
            self.notices.accepted();
        }
        if let Err(error) = &answer
            && notifies
            && faults::may_be_of_a_notice(error)
        {
            // The notice may have undone the statement.
            let why = faults::words(error);
            answer = client.query_typed(&notices::quietly(&text), &args).await;
            if answer.is_ok() {
                self.notices.refused(&self.server.target.shown, &why);
            }
        }
        if connection.was_unconfirmed() && answer.is_ok() {
            return Err(Failed {
                fault: Fault::unknown(
                    "the wait for a standby was cancelled: the change is lost if that standby is promoted",
                ),
                ends_the_connection: false,
            });
        }
        let rows = match answer {
            Ok(rows) => rows,
            Err(error) if statement.is_about_locks() && faults::is_of_a_missing_table(&error) => {
                return Err(Failed::table_is_gone(&faults::words(&error)));
            }
            // Another holder took a lock of the set after the statement saw it free, and before the statement could
            // lock its row.
            Err(error) if statement.name == "acquire_all" && faults::is_taken_back(&error) => {
                return Ok(Vec::new());
            }
            Err(error) => {
                return Err(Failed {
                    fault: faults::of_statement(&error),
                    ends_the_connection: faults::ends_the_connection(&error),
                });
            }
        };
        let rows: Result<_, _> = rows.iter().map(values).collect();
        rows.map_err(|fault| Failed {
            fault,
            ends_the_connection: false,
        })
    }

    fn longest_statement(&self) -> Duration {
        connection::longest_wait(self.server.timeout)
    }

    /// Waits until the statement has ended, and cancels it if it does not end soon. After a cancellation, the
    /// connection is not used again: the cancellation may arrive late, and would end the next statement.
    async fn retire(&self, connection: &mut PostgresConnection) -> bool {
        let client = &connection.client;
        // The server answers this after the statement.
        let mut ended = pin!(client.simple_query(""));
        if let Ok(answer) = tokio::time::timeout(GRACE, &mut ended).await {
            return answer.is_ok();
        }
        // The statement may have ended meanwhile, or may not have begun. Both are fine.
        if let Ok(tls) = self.server.target.tls() {
            let _ = client.cancel_token().cancel_query(tls).await;
        }
        let _ = ended.await;
        false
    }
}

pub(super) fn values(row: &tokio_postgres::Row) -> Result<Row, Fault> {
    let columns = row.columns().iter().enumerate();
    let values = columns
        .map(|(index, column)| {
            Ok(match *column.type_() {
                Type::INT8 => row.try_get::<_, Option<i64>>(index)?.map(Value::Number),
                Type::INT4 => {
                    let number: Option<i32> = row.try_get(index)?;
                    number.map(|number| Value::Number(number.into()))
                }
                Type::BOOL => {
                    let flag: Option<bool> = row.try_get(index)?;
                    flag.map(|flag| Value::Number(flag.into()))
                }
                Type::VOID => None,
                _ => row.try_get::<_, Option<String>>(index)?.map(Value::Text),
            }
            .unwrap_or(Value::Null))
        })
        .collect::<Result<_, _>>();
    values.map(Row).map_err(|error: tokio_postgres::Error| {
        Fault::unknown(format!("the database's answer makes no sense: {error}"))
    })
}

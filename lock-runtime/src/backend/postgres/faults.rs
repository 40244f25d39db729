//! The outcome of a statement, as far as an error of PostgreSQL tells it.

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use super::tls;
use crate::backend::Fault;
use crate::values::StoreError;

/// Returns the fault of a statement that was sent.
///
/// If the server reports an error, the statement was undone, unless the report says that the connection or the server
/// ended. Without a report, the statement may have been committed.
pub(super) fn of_statement(error: &Error) -> Fault {
    match error.as_db_error() {
        // The connection or the server ended, perhaps after the commit.
        Some(report) if is_uncertain(report) => Fault::unknown(said(report)),
        Some(report) => of_report(report),
        None => Fault::unknown(cause(error)),
    }
}

/// Returns the fault of an attempt to connect. Nothing was asked for yet.
pub(super) fn of_connecting(error: &Error) -> Fault {
    match error.as_db_error() {
        Some(error) => of_report(error),
        None if is_of_login(error) => Fault::Impossible(cause(error)),
        None => tls::refusal(error).unwrap_or_else(|| Fault::not_done(cause(error))),
    }
}

/// Returns `true` if the connection cannot be used after the error: the server ends it, or the server can no longer be
/// written to.
pub(super) fn ends_the_connection(error: &Error) -> bool {
    let Some(error) = error.as_db_error() else {
        return true;
    };
    let class = error.code().code().get(..2).unwrap_or_default();
    ends_the_session(error)
        || matches!(class, "08" | "57" | "XX") && *error.code() != SqlState::QUERY_CANCELED
        || *error.code() == SqlState::READ_ONLY_SQL_TRANSACTION
}

/// Returns `true` if the session ends with the report, whatever its code is.
fn ends_the_session(report: &DbError) -> bool {
    matches!(
        report.parsed_severity(),
        None | Some(Severity::Fatal | Severity::Panic)
    )
}

fn is_uncertain(report: &DbError) -> bool {
    let code = report.code();
    ends_the_session(report)
        || code.code().starts_with("08")
        || *code == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN
}

fn of_report(error: &DbError) -> Fault {
    let (code, said) = (error.code(), StoreError::new(said(error)));
    if is_missing(code) {
        return Fault::Impossible(format!(
            "{said}: the table of the locks is missing or of another version; create it with `ensure_schema(true)`"
        ));
    }
    match code.code().get(..2).unwrap_or_default() {
        // The login was refused, or its database does not exist.
        "28" | "3D" => Fault::Denied(match login_advice(error.message()) {
            Some(advice) => StoreError::new(format!("{said}: {advice}")),
            None => said,
        }),
        "42" if *code == SqlState::INSUFFICIENT_PRIVILEGE => Fault::Denied(said),
        // The statement or its arguments make no sense to this server.
        "22" | "42" | "0A" => Fault::Impossible(said.to_string()),
        // Deadlocks, serialization failures, too many connections, no disk space, a shutdown, a standby.
        _ => Fault::NotDone(said),
    }
}

/// Returns `true` if the client cannot do what the server wants: send a password that nobody gave, or log in by a
/// method that it does not know.
fn is_of_login(error: &Error) -> bool {
    ["invalid configuration", "authentication error"].contains(&&*error.to_string())
}

/// Returns advice about a refused login, chosen by the server's words.
fn login_advice(said: &str) -> Option<&'static str> {
    if said.contains("no encryption") {
        return Some("if it wants TLS, say `sslmode=verify-full`");
    }
    said.contains("valid client certificate")
        .then_some("the builder's `client_certificate` shows one")
}

/// Returns `true` if a statement took back what it had done, because it could not take the whole set.
pub(super) fn is_taken_back(error: &Error) -> bool {
    error.code() == Some(&SqlState::DIVISION_BY_ZERO)
}

fn is_missing(code: &SqlState) -> bool {
    let missing = [
        SqlState::UNDEFINED_TABLE,
        SqlState::UNDEFINED_COLUMN,
        SqlState::INVALID_SCHEMA_NAME,
    ];
    missing.contains(code)
}

/// Returns `true` if the table does not exist, or is another table.
pub(super) fn is_of_a_missing_table(error: &Error) -> bool {
    error.code().is_some_and(is_missing)
}

/// Returns `true` if the server may have undone a statement because of its notice: the user may not call the function,
/// or the queue of notices is full.
pub(super) fn may_be_of_a_notice(error: &Error) -> bool {
    let codes = [
        SqlState::INSUFFICIENT_PRIVILEGE,
        SqlState::PROGRAM_LIMIT_EXCEEDED,
    ];
    let report = error.as_db_error();
    report.is_some_and(|report| codes.contains(report.code()) && !ends_the_session(report))
}

/// Returns the words of an error.
pub(super) fn words(error: &Error) -> StoreError {
    StoreError::new(error.as_db_error().map_or_else(|| cause(error), said))
}

/// Returns the text of a report without detail and context, which repeat names of locks.
fn said(error: &DbError) -> String {
    format!("{} ({})", error.message(), error.code().code())
}

/// Returns the text of a client-side error with its cause. The error's own text says "error communicating with the
/// server".
fn cause(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio_postgres::{Config, NoTls};

    use super::*;

    /// Returns the error that the driver makes of a server's report.
    async fn reported(severity: &str, code: &str) -> Error {
        let fields = format!("S{severity}\0V{severity}\0C{code}\0Msaid\0\0");
        let length = u32::try_from(fields.len() + 4).unwrap();
        let report = [b"E".as_slice(), &length.to_be_bytes(), fields.as_bytes()].concat();
        let (client, mut server) = tokio::io::duplex(1024);
        server.write_all(&report).await.unwrap();
        let connected = Config::new().user("u").connect_raw(client, NoTls).await;
        connected.map(drop).unwrap_err()
    }

    #[tokio::test]
    async fn a_fatal_report_of_any_class_ends_the_connection() {
        for (severity, code, ends) in [
            ("FATAL", "25P03", true),
            ("FATAL", "25P04", true),
            ("FATAL", "57P01", true),
            ("PANIC", "58030", true),
            ("ERROR", "08006", true),
            ("ERROR", "25006", true),
            ("ERROR", "25P02", false),
            ("ERROR", "57014", false),
            ("ERROR", "40P01", false),
        ] {
            let error = reported(severity, code).await;
            assert_eq!(ends_the_connection(&error), ends, "{severity} {code}");
        }
    }
}

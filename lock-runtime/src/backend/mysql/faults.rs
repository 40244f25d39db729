//! The outcome of a statement, as far as an error of MySQL or MariaDB tells it.

use mysql_async::{DriverError, Error, IoError, ServerError};

use super::tls;
use crate::backend::Fault;
use crate::values::StoreError;

/// Returns the fault of a statement that was sent.
///
/// If the server reports an error, the statement was undone, unless the error may come after a commit. Without a
/// report, the statement may have been committed.
pub(super) fn of_statement(error: &Error) -> Fault {
    match error {
        Error::Server(report) if is_uncertain(report) => Fault::Unknown(said(report)),
        error if is_too_large(error) => Fault::Impossible(error.to_string()),
        Error::Server(report) => of_report(report),
        error => Fault::unknown(error.to_string()),
    }
}

/// The code of a statement that is larger than `max_allowed_packet`. The server reads no more from its connection.
const TOO_LARGE: u16 = 1153;

/// Returns `true` if the statement was not executed, because it is larger than `max_allowed_packet`.
fn is_too_large(error: &Error) -> bool {
    match error {
        Error::Server(report) => report.code == TOO_LARGE,
        // The driver knows the server's bound, and hides its error in another one.
        Error::Io(IoError::Io(error)) => error.to_string().contains("max_allowed_packet"),
        _ => false,
    }
}

/// Returns the fault of an attempt to connect. Nothing was asked for yet. `advice` is for a user that is refused.
pub(super) fn of_connecting(error: &Error, advice: Option<&str>) -> Fault {
    match error {
        Error::Server(report) if report.code == 1045 => match advice {
            Some(advice) => Fault::denied(format!("{}; {advice}", said(report))),
            None => Fault::Denied(said(report)),
        },
        // The server accepts only secure connections.
        Error::Server(report) if [3159, 4201].contains(&report.code) => {
            let advice = "say `sslmode=verify-full`";
            Fault::denied(format!("{}: {advice}", said(report)))
        }
        Error::Server(report) => of_report(report),
        // The server wants another method of login; MySQL also answers so if the user does not exist.
        Error::Driver(
            error @ (DriverError::CleartextPluginDisabled
            | DriverError::UnknownAuthPlugin { .. }
            | DriverError::MysqlOldPasswordDisabled),
        ) => Fault::denied(format!(
            "{error} The user does not exist, or logs in by a plugin that is not supported here"
        )),
        error => tls::refusal(error).unwrap_or_else(|| Fault::not_done(error.to_string())),
    }
}

/// Returns `true` if the connection cannot be used after the error: the server ends it, or the server can no longer be
/// written to.
pub(super) fn ends_the_connection(error: &Error) -> bool {
    match error {
        Error::Server(report) => {
            // The last three are a node that is not ready, and sessions that the server is about to end.
            let is_over = [TOO_LARGE, 1047, 3032, 4031].contains(&report.code);
            is_over || is_uncertain(report) || is_read_only(report.code)
        }
        _ => true,
    }
}

/// Returns `true` if the server has ended the statement because several statements waited for each other.
pub(super) fn is_of_a_deadlock(error: &Error) -> bool {
    matches!(error, Error::Server(report) if report.code == 1213)
}

/// Returns `true` if somebody else has locked a row for longer than this statement may wait.
pub(super) fn is_of_a_locked_row(error: &Error) -> bool {
    // The codes are those of a lock wait timeout, and of MariaDB's and MySQL's limit of a statement's time.
    matches!(error, Error::Server(report) if [1205, 1969, 3024].contains(&report.code))
}

fn is_read_only(code: u16) -> bool {
    // The reasons are an option, a transaction, the engine, and the server's mode.
    [1290, 1792, 1874, 1836].contains(&code)
}

/// Returns `true` if the error may come after a commit: the commit failed, the server shuts down, the connection was
/// killed. The codes from 2000 on are those of a client: a proxy has lost its own connection to the server, and may send the
/// next statement to a session with other settings.
fn is_uncertain(report: &ServerError) -> bool {
    let code = report.code;
    [1180, 1053, 1927, 1194, 1195].contains(&code) || (2000..3000).contains(&code)
}

fn of_report(report: &ServerError) -> Fault {
    let said = said(report);
    match report.code {
        // The login or a right was refused, the account is locked, or the database of the login does not exist.
        1044 | 1045 | 1049 | 1130 | 1142 | 1143 | 1227 | 1370 | 1698 | 1820 | 1862 | 3118
        | 3955 | 3957 | 4151 => Fault::Denied(said),
        code if is_missing(code) => Fault::Impossible(format!(
            "{said}: the table of the locks is missing or of another version; create it with `ensure_schema(true)`"
        )),
        // The statement or its arguments make no sense to this server, or cannot be written to its log.
        1064 | 1264 | 1305 | 1366 | 1406 | 1665 | 1690 | 3141 => {
            Fault::Impossible(said.to_string())
        }
        // Deadlocks, locked rows, too many connections, no disk space, a server that cannot be written to.
        _ => Fault::NotDone(said),
    }
}

/// Returns `true` for a table or a column that is not there.
fn is_missing(code: u16) -> bool {
    [1054, 1146].contains(&code)
}

/// Returns the words of the error if the table does not exist, or is another table.
pub(super) fn missing_table(error: &Error) -> Option<StoreError> {
    match error {
        Error::Server(report) if is_missing(report.code) => Some(said(report)),
        _ => None,
    }
}

fn said(report: &ServerError) -> StoreError {
    StoreError::new(format!("{} ({})", report.message, report.code))
}

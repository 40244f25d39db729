//! What an error of MySQL or MariaDB says about the outcome of a statement.

use mysql_async::{DriverError, Error, ServerError};

use super::tls;
use crate::backend::Fault;
use crate::values::StoreError;

/// Of a statement that was sent.
///
/// An error that the server reports has undone the statement. Without a report, it may have been committed.
pub(super) fn of_statement(error: &Error) -> Fault {
    match error {
        Error::Server(report) if is_uncertain(report) => Fault::Unknown(said(report)),
        Error::Server(report) => of_report(report),
        error => Fault::unknown(error.to_string()),
    }
}

/// Of an attempt to connect: nothing was asked for yet. `advice` is for a user who is refused.
pub(super) fn of_connecting(error: &Error, advice: Option<&str>) -> Fault {
    match error {
        Error::Server(report) if report.code == 1045 => match advice {
            Some(advice) => Fault::denied(format!("{}; {advice}", said(report))),
            None => Fault::Denied(said(report)),
        },
        // Connections have to be secure.
        Error::Server(report) if [3159, 4201].contains(&report.code) => {
            let advice = "say `sslmode=verify-full`";
            Fault::denied(format!("{}: {advice}", said(report)))
        }
        Error::Server(report) => of_report(report),
        // The server wants another way to log in; MySQL also wants one of users who do not exist.
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

/// Whether the connection is of no use after it: the server ends it, or is one that cannot be written to any more.
pub(super) fn ends_the_connection(error: &Error) -> bool {
    match error {
        Error::Server(report) => is_uncertain(report) || is_read_only(report.code),
        _ => true,
    }
}

/// Whether the server has ended it because several statements waited for each other.
pub(super) fn is_of_a_deadlock(error: &Error) -> bool {
    matches!(error, Error::Server(report) if report.code == 1213)
}

/// Whether somebody else has locked a row for longer than this statement may wait.
pub(super) fn is_of_a_locked_row(error: &Error) -> bool {
    // Lock wait timeout; MariaDB's and MySQL's limit of a statement's time.
    matches!(error, Error::Server(report) if [1205, 1969, 3024].contains(&report.code))
}

fn is_read_only(code: u16) -> bool {
    // The option, a transaction, the engine, the server's mode.
    [1290, 1792, 1874, 1836].contains(&code)
}

/// Whether it may come after a commit: the commit failed, the server shuts down, the connection was killed.
fn is_uncertain(report: &ServerError) -> bool {
    [1180, 1053, 1927, 1194, 1195].contains(&report.code)
}

fn of_report(report: &ServerError) -> Fault {
    let said = said(report);
    match report.code {
        // Login, and what exists for it; rights.
        1044 | 1045 | 1049 | 1130 | 1142 | 1143 | 1227 | 1370 | 1698 | 1820 | 1862 => {
            Fault::Denied(said)
        }
        1054 | 1146 => Fault::Impossible(format!(
            "{said}: the table of the locks is missing or of another version; create it with `ensure_schema(true)`"
        )),
        // The statement or its arguments make no sense to this server, or cannot be written to its log.
        1064 | 1264 | 1305 | 1366 | 1406 | 1665 | 3141 => Fault::Impossible(said.to_string()),
        // Deadlocks, locked rows, too many connections, no disk space, a server that cannot be written to.
        _ => Fault::NotDone(said),
    }
}

fn said(report: &ServerError) -> StoreError {
    StoreError::new(format!("{} ({})", report.message, report.code))
}

//! Gets logins from the program's credentials, and says when to get the next one.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Fault;
use crate::observe::metrics::logged;
use crate::values::{Backoff, Credentials, Login, StoreError, clock};

/// The shortest time between two logins, however soon they expire.
const LEAST: Duration = Duration::from_secs(1);

/// Gets a login, within `timeout`. Nothing has been sent to the server yet, so a retry can help after any failure.
///
/// The program's code runs in a task of its own, because a panic must not end the task that keeps the connection.
pub(crate) async fn ask(
    credentials: &Arc<dyn Credentials>,
    timeout: Duration,
) -> Result<Login, Fault> {
    let asked = credentials.clone();
    let mut asking = tokio::task::JoinSet::new();
    asking.spawn(async move { asked.login().await });
    let why = match tokio::time::timeout(timeout, asking.join_next()).await {
        Ok(Some(Ok(Ok(login)))) => return Ok(login),
        Ok(Some(Ok(Err(error)))) => format!("the credentials gave no login: {error}"),
        Ok(_) => "the credentials gave no login: their code panicked".to_owned(),
        Err(_) => format!("the credentials gave no login within {timeout:?}"),
    };
    Err(Fault::NotDone(StoreError::shortened(&why)))
}

/// Returns the time after which a login that is valid for `valid_for` is renewed. The last quarter of its time is left
/// for retries.
pub(crate) fn before_the_end(valid_for: Duration) -> Duration {
    (valid_for / 4).saturating_mul(3).max(LEAST)
}

/// The attempts to renew a login. The old login stays good until the server refuses it.
pub(crate) struct LoginRetries {
    pauses: Backoff,
    warned: bool,
}

impl LoginRetries {
    pub(crate) fn new() -> LoginRetries {
        LoginRetries {
            pauses: Backoff::new(LEAST, 10 * LEAST),
            warned: false,
        }
    }

    /// Logs a warning at the first failure, and pauses.
    pub(crate) async fn failed(&mut self, server: &str, fault: &Fault) {
        if !std::mem::replace(&mut self.warned, true) {
            logged!(
                warn,
                server,
                reason = %fault,
                "a connection to the lock store could not be logged in again; retrying"
            );
        }
        clock::sleep(self.pauses.pause()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_time_is_left_when_a_login_is_renewed() {
        assert_eq!(
            before_the_end(Duration::from_secs(12 * 60 * 60)),
            Duration::from_secs(9 * 60 * 60)
        );
        for brief in [Duration::ZERO, Duration::from_millis(20)] {
            assert_eq!(before_the_end(brief), LEAST, "{brief:?}");
        }
        assert!(before_the_end(Duration::MAX) < Duration::MAX);
    }
}

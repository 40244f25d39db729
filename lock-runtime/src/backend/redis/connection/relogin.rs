//! Logging an open connection in anew, before its login expires.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::task::AbortHandle;

use super::dial_options;
use crate::backend::Fault;
use crate::backend::redis::scripting;
use crate::backend::redis::scripting::faults;
use crate::values::backoff::Backoff;
use crate::values::clock;
use crate::values::error::StoreError;
use crate::values::handshake::{Credentials, Login};

/// Between two logins, however soon they expire.
const LEAST: Duration = Duration::from_secs(1);

/// The task that keeps a connection logged in. It has the connection, too: drop this with the connection, or the
/// connection stays open.
#[derive(Debug)]
pub(crate) struct Relogin(AbortHandle);

impl Drop for Relogin {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Relogin {
    /// For a connection that was opened with a login that is valid for so long.
    pub(super) fn start(
        connection: MultiplexedConnection,
        credentials: Arc<dyn Credentials>,
        valid_for: Duration,
        timeout: Duration,
        server: String,
    ) -> Relogin {
        let keeping = keep(connection, credentials, valid_for, timeout, server);
        Relogin(tokio::spawn(keeping).abort_handle())
    }
}

async fn keep(
    mut connection: MultiplexedConnection,
    credentials: Arc<dyn Credentials>,
    mut valid_for: Duration,
    timeout: Duration,
    server: String,
) {
    loop {
        clock::sleep(before_the_end(valid_for)).await;
        let mut pauses = Backoff::new(LEAST, 10 * LEAST);
        let mut warned = false;
        let login = loop {
            match log_in(&mut connection, &credentials, timeout).await {
                Ok(login) => break login,
                Err(fault) => {
                    // The login before this one is good until the server says otherwise, by cutting the connection.
                    if !std::mem::replace(&mut warned, true) {
                        tracing::warn!(
                            server,
                            reason = %fault,
                            "a connection to the lock store could not be logged in again; trying on"
                        );
                    }
                    clock::sleep(pauses.pause()).await;
                }
            }
        };
        match login.valid_for {
            Some(time) => valid_for = time,
            None => return,
        }
    }
}

/// A quarter of the time is for what may go wrong.
fn before_the_end(valid_for: Duration) -> Duration {
    (valid_for / 4).saturating_mul(3).max(LEAST)
}

async fn log_in(
    connection: &mut MultiplexedConnection,
    credentials: &Arc<dyn Credentials>,
    timeout: Duration,
) -> Result<Login, Fault> {
    let login = dial_options::ask(credentials, timeout).await?;
    let mut auth = redis::cmd("AUTH");
    if let Some(user) = &login.user {
        auth.arg(user);
    }
    auth.arg(&login.password);
    match tokio::time::timeout(timeout, scripting::send(connection, &auth)).await {
        Ok(Ok(_)) => Ok(login),
        Ok(Err(error)) => Err(faults::of_call(&error)),
        Err(_) => Err(Fault::Unknown(StoreError::new(format!(
            "no answer to AUTH within {timeout:?}"
        )))),
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

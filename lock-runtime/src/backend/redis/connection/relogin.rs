//! Logs an open connection in again, before its login expires.

use std::sync::Arc;
use std::time::Duration;

use super::wire::Wire;
use crate::backend::Fault;
use crate::backend::kit::login::{self, LoginRetries};
use crate::backend::redis::scripting::{self, faults};
use crate::values::{Credentials, Login, clock};

/// Keeps a connection logged in whose login is valid for a limited time. This owns a clone of the connection: end it with
/// the connection, or the connection stays open.
pub(super) async fn keep(
    mut connection: Wire,
    credentials: Arc<dyn Credentials>,
    mut valid_for: Duration,
    timeout: Duration,
    server: String,
) {
    loop {
        clock::sleep(login::before_the_end(valid_for)).await;
        let mut tries = LoginRetries::new();
        let login = loop {
            match log_in(&mut connection, &credentials, timeout).await {
                Ok(login) => break login,
                Err(fault) => tries.failed(&server, &fault).await,
            }
        };
        match login.valid_for {
            Some(time) => valid_for = time,
            None => return,
        }
    }
}

async fn log_in(
    connection: &mut Wire,
    credentials: &Arc<dyn Credentials>,
    timeout: Duration,
) -> Result<Login, Fault> {
    let login = login::ask(credentials, timeout).await?;
    let mut auth = redis::cmd("AUTH");
    if let Some(user) = &login.user {
        auth.arg(user);
    }
    auth.arg(&login.password);
    let asked = async {
        let answer = scripting::send(connection, &auth).await;
        answer.map_err(|error| faults::of_call(&error))
    };
    scripting::in_time("AUTH", timeout, asked).await?;
    Ok(login)
}

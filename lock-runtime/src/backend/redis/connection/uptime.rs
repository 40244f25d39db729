//! Asks a server since when it runs, on every new connection of a quorum's node, before the connection is used.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{InfoDict, Value};

use crate::backend::Fault;
use crate::backend::kit::uptime::Uptime;
use crate::backend::redis::scripting;
use crate::backend::redis::scripting::faults;
use crate::values::clock;
use crate::values::error::StoreError;

/// Asks the server at the other end of a new connection.
pub(crate) async fn look(
    uptime: &Uptime,
    connection: &mut MultiplexedConnection,
    timeout: Duration,
) -> Result<(), Fault> {
    let command = redis::cmd("INFO").arg("server").take();
    let at = clock::now();
    let asked = tokio::time::timeout(timeout, scripting::send(connection, &command)).await;
    let text = match asked {
        Ok(Ok(Value::VerbatimString { text, .. })) => text,
        Ok(Ok(Value::BulkString(bytes))) => String::from_utf8_lossy(&bytes).into_owned(),
        Ok(Ok(_)) => return Err(faults::malformed("INFO")),
        Ok(Err(error)) => match faults::of_call(&error) {
            Fault::Denied(reason) => {
                tracing::warn!(
                    %reason,
                    "a quorum node does not show since when it runs (INFO): it counts as restarted at every new \
                     connection"
                );
                String::new()
            }
            fault => return Err(fault),
        },
        Err(_) => {
            return Err(Fault::NotDone(StoreError::new(format!(
                "no answer to INFO within {timeout:?}"
            ))));
        }
    };
    let (run_id, lasts) = read(&text);
    uptime.saw(&run_id, lasts, at)
}

/// What INFO says of the server's run.
fn read(info: &str) -> (String, Duration) {
    let info = InfoDict::new(info);
    let seconds: u64 = info.get("uptime_in_seconds").unwrap_or_default();
    // Both ends of an uptime are cut to whole seconds.
    let lasts = Duration::from_secs(seconds.saturating_sub(1));
    (info.get("run_id").unwrap_or_default(), lasts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_lasts_as_long_as_the_server_says_less_a_second() {
        let info = "# Server\r\nrun_id:a\r\nuptime_in_seconds:100\r\n";
        assert_eq!(read(info), ("a".to_owned(), Duration::from_secs(99)));
        assert_eq!(read(""), (String::new(), Duration::ZERO));
    }
}

//! Asks a server for its uptime, on every new connection of a quorum's node, before the connection is used.

use std::time::Duration;

use redis::InfoDict;
use redis::aio::MultiplexedConnection;

use crate::backend::Fault;
use crate::backend::kit::uptime::Uptime;
use crate::backend::redis::scripting;
use crate::observe::metrics::logged;

/// Asks the server at the other end of a new connection.
pub(crate) async fn look(
    uptime: &Uptime,
    connection: &mut MultiplexedConnection,
    timeout: Duration,
) -> Result<(), Fault> {
    let asked = scripting::info(connection, &["server"]);
    let info = match scripting::in_time("INFO", timeout, asked).await {
        Err(Fault::Denied(reason)) => {
            logged!(
                warn,
                %reason,
                "a quorum node does not show since when it runs (INFO): it counts as restarted at every new connection"
            );
            InfoDict::new("")
        }
        info => info?,
    };
    let (run_id, lasts) = read(&info);
    uptime.saw(&run_id, lasts)
}

/// Parses the id of the server's run, and its age, from INFO.
fn read(info: &InfoDict) -> (String, Duration) {
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
        assert_eq!(
            read(&InfoDict::new(info)),
            ("a".to_owned(), Duration::from_secs(99))
        );
        assert_eq!(read(&InfoDict::new("")), (String::new(), Duration::ZERO));
    }
}

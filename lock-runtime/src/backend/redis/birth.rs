//! Since when a server has kept what it was given: a quorum must know of restarts, because a server that restarts may
//! have lost what it granted. Read on every new connection, before the connection is used.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{InfoDict, Value};

use super::{faults, script};
use crate::backend::Fault;
use crate::clock::{self, Moment};
use crate::error::StoreError;

/// What is known of a server's start.
#[derive(Debug, Default)]
pub(crate) struct Birth(Mutex<Option<Record>>);

#[derive(Clone, Debug)]
struct Record {
    run_id: String,
    /// How old the server was, at least, when it was asked.
    age: Duration,
    at: Moment,
}

impl Birth {
    /// How old the server is at least; `None` if it was never reached.
    pub(crate) fn age(&self) -> Option<Duration> {
        let record = self.record()?;
        Some(record.age.saturating_add(record.at.elapsed()))
    }

    /// What the server calls this run of itself; empty if it does not tell.
    pub(crate) fn run_id(&self) -> Option<String> {
        self.record().map(|record| record.run_id)
    }

    fn record(&self) -> Option<Record> {
        let record = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        record.clone()
    }

    /// Asks the server at the other end of a new connection.
    pub(super) async fn look(
        &self,
        connection: &mut MultiplexedConnection,
        timeout: Duration,
    ) -> Result<(), Fault> {
        let command = redis::cmd("INFO").arg("server").take();
        let at = clock::now();
        let asked = tokio::time::timeout(timeout, script::send(connection, &command)).await;
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
        self.saw(&text, at);
        Ok(())
    }

    fn saw(&self, info: &str, at: Moment) {
        let info = InfoDict::new(info);
        let run_id: String = info.get("run_id").unwrap_or_default();
        let mut record = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let age = match &*record {
            // The same run: its age goes on, whatever its wall clock, of which it derives its uptime, did meanwhile.
            Some(known) if known.run_id == run_id && !run_id.is_empty() => return,
            // Another one has taken its place. It may be older than it: but what was granted here, it need not know.
            Some(_) => Duration::ZERO,
            // Both ends of an uptime are cut to whole seconds.
            None if !run_id.is_empty() => {
                let uptime = info.get::<u64>("uptime_in_seconds").unwrap_or_default();
                Duration::from_secs(uptime.saturating_sub(1))
            }
            None => Duration::ZERO,
        };
        *record = Some(Record { run_id, age, at });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn info(run_id: &str, uptime: u64) -> String {
        format!("# Server\r\nrun_id:{run_id}\r\nuptime_in_seconds:{uptime}\r\n")
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_as_old_as_it_says_less_a_second_when_it_is_first_seen() {
        let birth = Birth::default();
        assert_eq!((birth.age(), birth.run_id()), (None, None));
        birth.saw(&info("a", 100), clock::now());
        assert_eq!(birth.age().unwrap().as_secs(), 99);
        tokio::time::advance(5 * SECOND).await;
        assert_eq!(birth.age().unwrap().as_secs(), 104);
    }

    #[tokio::test(start_paused = true)]
    async fn another_run_starts_at_nothing_whatever_its_uptime() {
        let birth = Birth::default();
        birth.saw(&info("a", 100), clock::now());
        birth.saw(&info("b", 5_000), clock::now());
        assert!(birth.age().unwrap() < SECOND);
        assert_eq!(birth.run_id().unwrap(), "b");
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_run_stays_as_old_as_it_was_when_its_wall_clock_steps() {
        let birth = Birth::default();
        birth.saw(&info("a", 100), clock::now());
        tokio::time::advance(5 * SECOND).await;
        birth.saw(&info("a", 9_000), clock::now());
        assert_eq!(birth.age().unwrap().as_secs(), 104);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_tells_nothing_is_new_at_every_connection() {
        let birth = Birth::default();
        birth.saw("", clock::now());
        tokio::time::advance(5 * SECOND).await;
        birth.saw("", clock::now());
        assert!(birth.age().unwrap() < SECOND);
    }
}

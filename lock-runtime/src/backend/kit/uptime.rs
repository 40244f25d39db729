//! The time for which a server has kept its data. A quorum must notice restarts, because a server that restarts may
//! have lost the locks that it granted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Fault;
use crate::sync::Mutex;
use crate::values::{Moment, clock};

/// Maps each server, by the id of its run, to its quorum node. A server that is two nodes would vote twice: two names
/// may lead to one server from the beginning, or later.
#[derive(Debug, Default)]
pub(crate) struct RunIds(Mutex<HashMap<String, usize>>);

impl RunIds {
    /// Returns `true` if no other node has this server. The first node keeps the server until the node leads to another
    /// server.
    fn claim(&self, node: usize, run_id: &str) -> bool {
        let mut run_ids = self.0.lock();
        run_ids.retain(|_, of| *of != node);
        *run_ids.entry(run_id.to_owned()).or_insert(node) == node
    }
}

/// The known age of a node's server.
#[derive(Debug)]
pub(crate) struct Uptime {
    node: usize,
    run_ids: Arc<RunIds>,
    record: Mutex<Option<RunRecord>>,
}

#[derive(Clone, Debug)]
struct RunRecord {
    run_id: String,
    /// The server's minimum age at `at`.
    age: Duration,
    at: Moment,
}

impl Uptime {
    pub(crate) fn new(node: usize, run_ids: &Arc<RunIds>) -> Uptime {
        Uptime {
            node,
            run_ids: run_ids.clone(),
            record: Mutex::default(),
        }
    }

    /// Returns the server's minimum age; `None` if the server was never reached.
    pub(crate) fn age(&self) -> Option<Duration> {
        let record = self.record.lock().clone()?;
        Some(record.age.saturating_add(record.at.elapsed()))
    }

    /// Records what the server has just answered: the id of its run (empty if the server does not show it), and the time for
    /// which the run has lasted. By the time of the question, it would be older than it is.
    ///
    /// # Errors
    /// [`Fault::Impossible`] if another node has this server.
    pub(crate) fn saw(&self, run_id: &str, lasts: Duration) -> Result<(), Fault> {
        let tells = !run_id.is_empty();
        if tells && !self.run_ids.claim(self.node, run_id) {
            return Err(Fault::impossible(
                "two nodes of the quorum are one server: its vote would count twice",
            ));
        }
        let mut record = self.record.lock();
        let age = match &*record {
            // It is the same run. The server derives its uptime from its wall clock, which may have changed, so the
            // known age counts.
            Some(known) if tells && known.run_id == run_id => return Ok(()),
            // Another run has replaced the known one. It may be older, but it need not have the locks that were granted
            // here.
            Some(_) => Duration::ZERO,
            None if tells => lasts,
            None => Duration::ZERO,
        };
        *record = Some(RunRecord {
            run_id: run_id.to_owned(),
            age,
            at: clock::now(),
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn uptime() -> Uptime {
        Uptime::new(0, &Arc::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_as_old_as_it_says_when_it_is_first_seen() {
        let uptime = uptime();
        assert_eq!(uptime.age(), None);
        uptime.saw("a", 100 * SECOND).unwrap();
        assert_eq!(uptime.age().unwrap().as_secs(), 100);
        tokio::time::advance(5 * SECOND).await;
        assert_eq!(uptime.age().unwrap().as_secs(), 105);
    }

    #[tokio::test(start_paused = true)]
    async fn another_run_starts_with_age_zero() {
        let uptime = uptime();
        uptime.saw("a", 100 * SECOND).unwrap();
        uptime.saw("b", 5_000 * SECOND).unwrap();
        assert!(uptime.age().unwrap() < SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_runs_age_ignores_steps_of_its_wall_clock() {
        let uptime = uptime();
        uptime.saw("a", 100 * SECOND).unwrap();
        tokio::time::advance(5 * SECOND).await;
        uptime.saw("a", 9_000 * SECOND).unwrap();
        assert_eq!(uptime.age().unwrap().as_secs(), 105);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_without_a_run_id_is_new_at_every_connection() {
        let uptime = uptime();
        uptime.saw("", SECOND).unwrap();
        tokio::time::advance(5 * SECOND).await;
        uptime.saw("", SECOND).unwrap();
        assert!(uptime.age().unwrap() < SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_one_node_until_that_node_leads_to_another() {
        let run_ids = Arc::default();
        let (one, other) = (Uptime::new(0, &run_ids), Uptime::new(1, &run_ids));
        one.saw("a", 100 * SECOND).unwrap();
        assert!(other.saw("a", 100 * SECOND).is_err());
        assert_eq!(other.age(), None);
        other.saw("b", 100 * SECOND).unwrap();
        one.saw("a", 100 * SECOND).unwrap();
        one.saw("c", 100 * SECOND).unwrap();
        other.saw("a", 100 * SECOND).unwrap();
        // Servers that show no run id are not known to be one server.
        one.saw("", SECOND).unwrap();
        other.saw("", SECOND).unwrap();
    }
}

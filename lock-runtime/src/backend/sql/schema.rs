//! The creation of the tables, if the user wants it and they are missing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Server;
use crate::backend::Fault;
use crate::observe::metrics::logged;

/// The time that the definition of tables may take, at least. A server syncs several files for each table, and many
/// processes that start at once wait for one of them.
const DEFINITION: Duration = Duration::from_secs(10);

/// The tables that a look has not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingTable {
    Nothing,
    /// The tables beside that of the locks, without which locks work.
    Others,
    /// The table of the locks.
    Locks,
}

impl<H> Server<H> {
    /// Returns `true` if the next connection is to look for the tables, and to create them.
    pub(in crate::backend) fn wants_tables(&self) -> bool {
        self.wants_tables.load(Ordering::Relaxed)
    }

    /// Returns the time that the creation may take.
    pub(in crate::backend) fn creation_timeout(&self) -> Duration {
        self.timeout.max(DEFINITION)
    }

    /// Creates what is missing by `creating`. A user who may not create tables is refused only where there is no table
    /// of the locks. `grant` is the right to name then.
    pub(in crate::backend) async fn create(
        &self,
        missing: MissingTable,
        grant: &str,
        creating: impl Future<Output = Result<(), Fault>>,
    ) -> Result<(), Fault> {
        let table = self.target.table.name();
        if missing != MissingTable::Nothing {
            match (creating.await, missing) {
                (Err(Fault::Denied(why)), MissingTable::Others) => {
                    logged!(warn, "the tables beside `{table}` were not created: {why}");
                }
                (Err(Fault::Denied(why)), _) => {
                    return Err(Fault::denied(format!(
                        "{why}: there is no table `{table}`, and the user may not create it; `{grant}`, or create it by \
                         the statement in the documentation of this store"
                    )));
                }
                (created, _) => created?,
            }
        }
        self.wants_tables.store(false, Ordering::Relaxed);
        Ok(())
    }
}

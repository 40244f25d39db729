//! The creation of the tables, if the user wants it and they are missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Statement, Table};
use crate::backend::Fault;

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

/// The creation of the tables. The connectors of one manager share it.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) statement: Arc<Statement>,
    /// True if the user wants the tables to be created, until they were found or created.
    wanted: AtomicBool,
}

impl Schema {
    pub(crate) fn new(statement: &Arc<Statement>, wanted: bool) -> Arc<Schema> {
        Arc::new(Schema {
            statement: statement.clone(),
            wanted: AtomicBool::new(wanted),
        })
    }

    /// Returns `true` if the next connection is to look for the tables, and to create them.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Returns the time that the creation may take.
    pub(crate) fn timeout(call_timeout: Duration) -> Duration {
        call_timeout.max(DEFINITION)
    }

    /// Creates what is missing by `creating`. A user who may not create tables is refused only where there is no table
    /// of the locks. `grant` is the right to name then.
    pub(crate) async fn create(
        &self,
        missing: MissingTable,
        table: &Table,
        grant: &str,
        creating: impl Future<Output = Result<(), Fault>>,
    ) -> Result<(), Fault> {
        if missing != MissingTable::Nothing {
            match (creating.await, missing) {
                (Err(Fault::Denied(why)), MissingTable::Others) => {
                    tracing::warn!(
                        "the tables beside `{}` were not created: {why}",
                        table.name()
                    );
                }
                (Err(Fault::Denied(why)), _) => {
                    return Err(Fault::denied(format!(
                        "{why}: there is no table `{}`, and the user may not create it; `{grant}`, or create it by the \
                         statement in the documentation of this store",
                        table.name()
                    )));
                }
                (created, _) => created?,
            }
        }
        self.wanted.store(false, Ordering::Relaxed);
        Ok(())
    }
}

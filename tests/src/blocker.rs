//! A stranger's transaction that has locked a row.

use std::process::Command;

use crate::process::Worker;

/// It ends with this value.
#[derive(Debug)]
pub struct Blocker(Worker);

impl Blocker {
    /// Opens it, by a client that runs the statements that it reads. The row has to be there.
    pub fn of(client: &mut Command, table: &str, name: &str) -> Self {
        let mut session = Worker::spawn(client);
        session.tell("BEGIN;");
        session.tell(&format!(
            "SELECT count(*) FROM (SELECT 1 FROM {table} WHERE name = '{name}' FOR UPDATE) AS locked;"
        ));
        session.expect_line("1");
        Self(session)
    }

    /// Ends it in order.
    pub fn commit(mut self) {
        self.0.tell("COMMIT; SELECT 'done';");
        self.0.expect_line("done");
    }
}

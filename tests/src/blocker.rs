//! A transaction of a stranger that has locked a row.

use std::process::Command;

use crate::process::Worker;

/// The transaction. It ends with this value.
#[derive(Debug)]
pub struct Blocker(Worker);

impl Blocker {
    /// Opens the transaction in a session of `client`, which runs the statements that it reads. The row has to exist.
    pub fn of(client: &mut Command, table: &str, name: &str) -> Self {
        let mut session = Worker::spawn(client);
        session.tell("BEGIN;");
        session.tell(&format!(
            "SELECT count(*) FROM (SELECT 1 FROM {table} WHERE name = '{name}' FOR UPDATE) AS locked;"
        ));
        session.expect_line("1");
        Self(session)
    }

    /// Runs a statement in the transaction, without waiting for it.
    pub fn tell(&mut self, statement: &str) {
        self.0.tell(statement);
    }

    /// Commits the transaction.
    pub fn commit(mut self) {
        self.0.tell("COMMIT; SELECT 'done';");
        self.0.expect_line("done");
    }
}

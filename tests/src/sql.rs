//! Servers that keep locks in a table, and the tables that tests have in them.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::eventually::eventually;
use crate::launch::{Kind, Server, run};

/// What differs between databases. `{table}` stands for the table of a test.
pub trait Sql: Kind + Sync + 'static {
    /// The options of the client that come before a statement that it is to run.
    const EXECUTE: &'static [&'static str];
    /// What stands between two columns of an answer.
    const SEPARATOR: char;
    /// Whether a name may have a NUL character.
    const TAKES_NUL: bool;
    /// Deletes every row.
    const EMPTY: &'static str;
    /// The number of each connection of the test's managers.
    const CONNECTIONS: &'static str;
    /// A row if there is a table.
    const IS_THERE: &'static str;
    /// The rows that are held or queued for.
    const IN_USE: &'static str;

    /// A server with settings, each as `name=value`.
    fn with(settings: &[&str]) -> Server<Self>;

    /// The process's server; started by the first test that asks. It is kept in a static, which is never dropped: it ends
    /// with this process, however that ends.
    fn shared() -> &'static Server<Self>;

    /// A client that runs the statements that it reads, as the user who may do everything.
    fn client(server: &Server<Self>) -> Command;

    /// What the same user connects to.
    fn url(server: &Server<Self>) -> String;

    /// What managers on a table connect to.
    fn table_url(server: &Server<Self>, table: &str) -> String;

    /// Ends these connections.
    fn end_connections(server: &Server<Self>, connections: &[String]);

    /// Lets in the managers of a table.
    fn admit(_server: &Server<Self>, _table: &str) {}
}

impl<K: Sql> Server<K> {
    /// A server that keeps what it was given through a kill of its process.
    pub fn start() -> Self {
        K::with(&[])
    }

    /// A server with settings, each as `name=value`.
    pub fn with(settings: &[&str]) -> Self {
        K::with(settings)
    }

    /// The server that the tests of this process share.
    pub fn shared() -> &'static Self {
        K::shared()
    }

    /// What the user who may do everything connects to.
    pub fn url(&self) -> String {
        K::url(self)
    }

    /// A client that runs the statements that it reads, as the same user.
    pub fn client(&self) -> Command {
        K::client(self)
    }

    /// What a statement answers: a line for each row, with `|` between columns.
    pub fn query(&self, statement: &str) -> Vec<String> {
        let said = run::<K>(self.client().args(K::EXECUTE).arg(statement));
        let lines = said.lines();
        lines.map(|line| line.replace(K::SEPARATOR, "|")).collect()
    }

    /// Starts the server again on the same port, with what it had; kills it first if it lives.
    pub fn restart(&mut self) {
        self.start_again();
    }
}

/// A table of the process's server that belongs to one test.
#[derive(Debug)]
pub struct Table<K: Sql> {
    server: &'static Server<K>,
    name: String,
}

impl<K: Sql> Table<K> {
    /// A table that nobody uses yet.
    #[allow(clippy::new_without_default, reason = "it starts a server")]
    pub fn new() -> Self {
        static TABLES: AtomicUsize = AtomicUsize::new(0);
        let number = TABLES.fetch_add(1, Ordering::Relaxed);
        let (server, name) = (K::shared(), format!("leases_{number}"));
        K::admit(server, &name);
        Self { server, name }
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server that it is in.
    pub fn server(&self) -> &'static Server<K> {
        self.server
    }

    /// What a manager on it connects to.
    pub fn url(&self) -> String {
        K::table_url(self.server, &self.name)
    }

    /// Forgets every lock.
    pub fn empty(&self) {
        self.ask(K::EMPTY);
    }

    /// The connections of its managers.
    pub fn connections(&self) -> Vec<String> {
        self.ask(K::CONNECTIONS)
    }

    /// Ends these connections.
    pub fn end_connections(&self) {
        K::end_connections(self.server, &self.connections());
    }

    /// Waits until nobody holds anything, or waits in the store for it.
    pub async fn assert_clean(&self) {
        eventually("no row of the table is held or queued for", async || {
            self.ask(K::IN_USE).is_empty()
        })
        .await;
    }

    /// After the managers are dropped: waits until nothing and nobody is left.
    pub async fn assert_deserted(&self) {
        eventually("every connection of the test has ended", async || {
            self.connections().is_empty()
        })
        .await;
        // Tests that never connect have no table.
        if !self.ask(K::IS_THERE).is_empty() {
            self.assert_clean().await;
        }
    }

    fn ask(&self, statement: &str) -> Vec<String> {
        self.server.query(&statement.replace("{table}", &self.name))
    }
}

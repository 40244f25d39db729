//! Servers that keep locks in a table, and the tables that tests have in them.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::eventually::eventually;
use crate::launch::{Kind, Server, run};
use crate::proxy::Protocol;

/// The parts that differ between databases. `{table}` stands for the table of a test.
pub trait Sql: Kind + Sync + 'static {
    /// The options of the client that come before a statement that it is to run.
    const EXECUTE: &'static [&'static str];
    /// The character between two columns of an answer.
    const SEPARATOR: char;
    /// Whether a name may have a NUL character.
    const TAKES_NUL: bool;
    /// The protocol that it speaks.
    const PROTOCOL: Protocol;
    /// What the statements for it in docs/operations.md begin with.
    const HEADING: &'static str;
    /// The statement that deletes every row.
    const EMPTY: &'static str;
    /// The query for the id of each connection of the test's managers.
    const CONNECTIONS: &'static str;
    /// The query that returns a row if there is a table.
    const IS_THERE: &'static str;
    /// The query for the rows that are held or queued for.
    const IN_USE: &'static str;

    /// Starts a server with settings, each as `name=value`.
    fn with(settings: &[&str]) -> Server<Self>;

    /// Returns the process's server. The first test that asks starts it. It is kept in a static, which is never
    /// dropped: the server ends with this process, however that ends.
    fn shared() -> &'static Server<Self>;

    /// Returns a client that runs the statements that it reads, as the user who has every right.
    fn client(server: &Server<Self>) -> Command;

    /// Returns the URL that the same user connects to.
    fn url(server: &Server<Self>) -> String;

    /// Returns the URL that managers on a table connect to.
    fn table_url(server: &Server<Self>, table: &str) -> String;

    /// Ends these connections.
    fn end_connections(server: &Server<Self>, connections: &[String]);

    /// Admits the managers of a table.
    fn admit(_server: &Server<Self>, _table: &str) {}
}

impl<K: Sql> Server<K> {
    /// Starts a server that keeps its data when its process is killed.
    pub fn start() -> Self {
        K::with(&[])
    }

    /// Starts a server with settings, each as `name=value`.
    pub fn with(settings: &[&str]) -> Self {
        K::with(settings)
    }

    /// Returns the server that the tests of this process share.
    pub fn shared() -> &'static Self {
        K::shared()
    }

    /// Returns the URL that the user who has every right connects to.
    pub fn url(&self) -> String {
        K::url(self)
    }

    /// Returns a client that runs the statements that it reads, as the same user.
    pub fn client(&self) -> Command {
        K::client(self)
    }

    /// Returns the answer to a statement: a line for each row, with `|` between columns.
    pub fn query(&self, statement: &str) -> Vec<String> {
        answer::<K>(&mut self.client(), statement)
    }

    /// Does the same as [`query`](Self::query) without blocking the thread: the other tasks of a runtime of one thread, such
    /// as the renewals of a hold, go on meanwhile.
    pub async fn ask(&self, statement: &str) -> Vec<String> {
        let (mut client, statement) = (self.client(), statement.to_owned());
        let answer = tokio::task::spawn_blocking(move || answer::<K>(&mut client, &statement));
        answer.await.expect("an answer")
    }

    /// Starts the server again on the same port, with its data. Kills it first if it lives.
    pub fn restart(&mut self) {
        self.start_again();
    }
}

fn answer<K: Sql>(client: &mut Command, statement: &str) -> Vec<String> {
    let said = run::<K>(client.args(K::EXECUTE).arg(statement));
    let lines = said.lines();
    lines.map(|line| line.replace(K::SEPARATOR, "|")).collect()
}

/// A table of the process's server that belongs to one test.
#[derive(Debug)]
pub struct Table<K: Sql> {
    server: &'static Server<K>,
    name: String,
}

impl<K: Sql> Table<K> {
    /// Returns a table that nobody uses yet.
    #[allow(clippy::new_without_default, reason = "it starts a server")]
    pub fn new() -> Self {
        static TABLES: AtomicUsize = AtomicUsize::new(0);
        let number = TABLES.fetch_add(1, Ordering::Relaxed);
        let (server, name) = (K::shared(), format!("leases_{number}"));
        K::admit(server, &name);
        Self { server, name }
    }

    /// Returns the table's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the server that it is in.
    pub fn server(&self) -> &'static Server<K> {
        self.server
    }

    /// Returns the URL that a manager on it connects to.
    pub fn url(&self) -> String {
        K::table_url(self.server, &self.name)
    }

    /// Returns the same URL with the address of what stands before the server.
    pub fn url_through(&self, before: SocketAddr) -> String {
        let server = self.server.addr().to_string();
        let through = self.url().replace(&server, &before.to_string());
        assert_ne!(through, self.url());
        through
    }

    /// Deletes every lock.
    pub fn empty(&self) {
        self.ask(K::EMPTY);
    }

    /// Returns the connections of its managers.
    pub fn connections(&self) -> Vec<String> {
        self.ask(K::CONNECTIONS)
    }

    /// Ends these connections.
    pub fn end_connections(&self) {
        K::end_connections(self.server, &self.connections());
    }

    /// Waits until nobody holds a lock or waits for one in the store.
    pub async fn assert_clean(&self) {
        eventually("no row of the table is held or queued for", async || {
            self.ask(K::IN_USE).is_empty()
        })
        .await;
    }

    /// Waits until nothing and nobody is left. The managers must have been dropped before.
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

/// Runs each behaviour on PostgreSQL and on MariaDB, as a test of its own. A behaviour is generic over the database.
#[macro_export]
macro_rules! on_each_database {
    ($($behaviour:ident)+) => {
        mod on_postgres {
            $crate::on_each_database!(@ $crate::Postgres; $($behaviour)+);
        }

        mod on_mysql {
            $crate::on_each_database!(@ $crate::Mariadb; $($behaviour)+);
        }
    };
    (@ $database:ty; $($behaviour:ident)+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $behaviour() {
            super::$behaviour::<$database>().await;
        })+
    };
}

//! A pooler in front of a PostgreSQL server: PgBouncer, which gives each transaction another connection.

use std::net::TcpStream;
use std::process::Command;

use crate::launch::{Kind, Server, run};
use crate::postgres::{DATABASE, PostgresServer, USER, program};
use crate::unprivileged::{directory, give_to_server, logged};

const PROGRAM: &str = "pgbouncer";

/// The server that a [`PgbouncerServer`] is in front of, and its connections to it.
#[derive(Debug)]
pub struct Pgbouncer {
    port: u16,
    connections: usize,
}

/// A PgBouncer with a port of its own. It ends with this value, also on panic.
pub type PgbouncerServer = Server<Pgbouncer>;

impl PgbouncerServer {
    /// Starts a pooler that shares `connections` connections to the server among all transactions.
    pub fn before(server: &PostgresServer, connections: usize) -> Self {
        run::<Pgbouncer>(Command::new(PROGRAM).arg("--version"));
        let port = server.port();
        Self::launch(Pgbouncer { port, connections }, directory())
    }

    /// Returns the server's URL by way of the pooler.
    pub fn url(&self, server: &PostgresServer) -> String {
        let (direct, pooled) = (server.addr().to_string(), self.addr().to_string());
        server.url().replace(&direct, &pooled)
    }

    /// Runs a statement by way of the pooler, as another client that then leaves.
    pub fn leave(&self, server: &PostgresServer, statement: &str) {
        let mut client = program("psql");
        client.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d"]);
        run::<Pgbouncer>(client.args([&self.url(server), "-c", statement]));
    }
}

impl Kind for Pgbouncer {
    const NAME: &'static str = "PgBouncer";
    const MISSING: &'static str = "install it (`apt-get install pgbouncer`, `brew install pgbouncer`, or let ./scripts/test do it)";

    fn command(server: &PgbouncerServer) -> Command {
        let Pgbouncer { port, connections } = server.kind;
        let settings = format!(
            "[databases]\n{DATABASE} = host=127.0.0.1 port={port} user={USER}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\nunix_socket_dir =\n\
             auth_type = any\npool_mode = transaction\ndefault_pool_size = {connections}\n",
            server.port()
        );
        let path = server.path("settings");
        std::fs::write(&path, settings).expect("write the settings");
        give_to_server(&path, 0o600);
        let mut command = Command::new(PROGRAM);
        command.arg(path);
        logged(&command, &server.path("log"))
    }

    fn answers(server: &PgbouncerServer) -> bool {
        TcpStream::connect(server.addr()).is_ok()
    }
}

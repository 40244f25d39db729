//! A real MariaDB server, of one test or shared by those of a process.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use rcgen::CertificateParams;
use tempfile::TempDir;

use crate::first_data::first_data;
use crate::launch::{Kind, Server};
use crate::mysql;
use crate::proxy::Protocol;
use crate::sql::{Sql, Table};
use crate::tls::TlsFiles;
use crate::unprivileged::{as_server, directory, give_to_server, logged};

/// The user of the tests, who has every right.
const USER: &str = "lock";
const DATABASE: &str = "locks";

/// The size of the redo log, which is copied for each server. By default, it has 96 MB.
const LOG_SIZE: &str = "--innodb-log-file-size=10M";

/// The current time, in the unit of the table.
pub const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// The settings that a [`MariadbServer`] is started with.
#[derive(Debug)]
pub struct Mariadb {
    settings: Vec<String>,
    tls: Option<TlsFiles>,
}

/// A MariaDB server with a directory and a port of its own. It ends with this value, also on panic.
pub type MariadbServer = Server<Mariadb>;

/// A table of the process's MariaDB server that belongs to one test, and its user, which has the table's name.
pub type MariadbTable = Table<Mariadb>;

impl MariadbServer {
    /// Starts a server with these settings that also speaks TLS.
    pub fn with_tls(settings: &[&str]) -> Self {
        Self::certified(settings, |_| {})
    }

    /// Does the same as [`with_tls`](Self::with_tls) with another certificate.
    pub fn certified(settings: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Self {
        let dir = directory();
        let files = TlsFiles::write_with(dir.path(), change);
        give_to_server(&files.key, 0o600);
        let mut all = vec![
            format!("ssl-cert={}", files.certificate.display()),
            format!("ssl-key={}", files.key.display()),
            format!("ssl-ca={}", files.authority.display()),
            "tls-version=TLSv1.2,TLSv1.3".to_owned(),
        ];
        all.extend(settings.iter().map(|&setting| setting.to_owned()));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        Self::start_with(dir, &all, Some(files))
    }

    /// Starts a server that others can replicate.
    pub fn primary() -> Self {
        Self::with(&["log-bin=binlog", "binlog-format=ROW", "server-id=1"])
    }

    /// Starts a replica of this server, which cannot be written to. It follows from the beginning.
    pub fn replica(&self) -> Self {
        let replica = Self::with(&["server-id=2", "read-only=1"]);
        replica.query(&format!(
            "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, MASTER_USER = '{USER}', \
             MASTER_USE_GTID = slave_pos; START SLAVE",
            self.port()
        ));
        replica
    }

    /// Makes a replica a primary.
    pub fn promote(&self) {
        self.query("STOP SLAVE; SET GLOBAL read_only = 0");
    }

    /// Ends the connections of a user.
    pub fn end_connections(&self, user: &str) {
        self.kill(&self.query(&format!(
            "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = '{user}'"
        )));
    }

    /// Ends connections one by one, because MySQL has no `KILL USER`.
    fn kill(&self, connections: &[String]) {
        let all: Vec<String> = connections.iter().map(|id| format!("KILL {id}")).collect();
        // Some may have ended by now.
        let mut ending = self.client();
        let ending = ending.args(["--force", "--execute", &all.join("; ")]);
        ending.output().expect("run the client");
    }

    /// Returns the files of a server with TLS.
    pub fn tls_files(&self) -> &TlsFiles {
        self.kind.tls.as_ref().expect("a server with TLS")
    }

    fn start_with(dir: TempDir, settings: &[&str], tls: Option<TlsFiles>) -> Self {
        first_data::<Mariadb>(dir.path(), |dir| {
            let mut making = program("mariadb-install-db");
            match mysql::is_meant() {
                true => mysql::initialize(&mut making, dir),
                false => drop(
                    making
                        .args([
                            "--no-defaults",
                            "--skip-test-db",
                            "--auth-root-authentication-method=normal",
                            LOG_SIZE,
                        ])
                        .arg(format!("--datadir={}", dir.join("data").display()))
                        .arg(format!("--tmpdir={}", dir.display())),
                ),
            }
            making
        });
        let users = format!(
            "CREATE DATABASE IF NOT EXISTS {DATABASE};\nCREATE USER IF NOT EXISTS '{USER}'@'%';\n\
             GRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n"
        );
        std::fs::write(dir.path().join("init.sql"), users).expect("write the first statements");
        give_to_server(&dir.path().join("init.sql"), 0o600);
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        Self::launch(Mariadb { settings, tls }, dir)
    }

    fn url_of(&self, user: &str) -> String {
        format!("mysql://{user}@{}/{DATABASE}", self.addr())
    }
}

impl Kind for Mariadb {
    const NAME: &'static str = "MariaDB server";
    const MISSING: &'static str = "install one (`apt-get install mariadb-server`, `brew install mariadb`, or let \
        ./scripts/test do it), or name the folder of its programs in MARIADB_BIN_DIR";

    fn command(server: &MariadbServer) -> Command {
        let path = |name: &str| server.path(name).display().to_string();
        let mut command = program("mariadbd");
        command
            .args([
                "--no-defaults",
                "--bind-address=127.0.0.1",
                "--skip-log-bin",
            ])
            .arg(format!("--port={}", server.port()))
            .arg(format!("--datadir={}", path("data")))
            .arg(format!("--socket={}", path("socket")))
            .arg(format!("--pid-file={}", path("pid")))
            // A server that starts deletes the temporary tables that it finds in this folder, also those of others.
            .arg(format!("--tmpdir={}", server.dir().display()))
            .arg(format!("--init-file={}", path("init.sql")))
            .args(["--skip-name-resolve", "--max-connections=600"])
            .args([
                "--max-connect-errors=1000000",
                "--innodb-buffer-pool-size=32M",
            ])
            // A crash of the machine is no part of the tests, and syncing takes most of the time of a statement.
            .args([
                "--innodb-flush-log-at-trx-commit=2",
                "--innodb-flush-method=nosync",
            ]);
        match mysql::is_meant() {
            // These settings turn TLS off, because MySQL has a certificate of its own. Later settings may turn it on.
            true => command.args(mysql::SETTINGS),
            false => command.args(["--sync-frm=0", LOG_SIZE]),
        };
        for setting in &server.kind.settings {
            command.arg(format!("--{setting}"));
        }
        logged(&command, &server.path("log"))
    }

    fn answers(server: &MariadbServer) -> bool {
        let ready = server.client().args(["--execute", "SELECT 1"]).output();
        ready.is_ok_and(|answer| answer.status.success())
    }
}

impl Sql for Mariadb {
    const EXECUTE: &'static [&'static str] = &["--execute"];
    const SEPARATOR: char = '\t';
    const TAKES_NUL: bool = true;
    const PROTOCOL: Protocol = Protocol::Mysql;
    const HEADING: &'static str = "**MySQL and MariaDB.**";
    const EMPTY: &'static str = "DELETE FROM {table}";
    const CONNECTIONS: &'static str =
        "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = '{table}'";
    const IS_THERE: &'static str = "SHOW TABLES LIKE '{table}'";
    const IN_USE: &'static str = "
        SELECT name, holder, shares, queue
        FROM (SELECT *, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now FROM {table}) AS l
        WHERE expires_at > now OR queue IS NOT NULL OR EXISTS (
            SELECT 1 FROM JSON_TABLE(COALESCE(l.shares, '[]'), '$[*]' COLUMNS (e BIGINT PATH '$.e')) AS s
            WHERE s.e > now
        )";

    fn with(settings: &[&str]) -> MariadbServer {
        MariadbServer::start_with(directory(), settings, None)
    }

    fn shared() -> &'static MariadbServer {
        static SHARED: OnceLock<MariadbServer> = OnceLock::new();
        SHARED.get_or_init(MariadbServer::start)
    }

    fn client(server: &MariadbServer) -> Command {
        let mut client = program("mariadb");
        client
            .args([
                "--no-defaults",
                "--batch",
                "--skip-column-names",
                "--unbuffered",
            ])
            .args(["--host=127.0.0.1", "--user", USER])
            .arg(format!("--port={}", server.port()))
            .args(["--database", DATABASE]);
        client
    }

    fn url(server: &MariadbServer) -> String {
        server.url_of(USER)
    }

    fn table_url(server: &MariadbServer, table: &str) -> String {
        format!("{}?lock_table={table}", server.url_of(table))
    }

    fn end_connections(server: &MariadbServer, connections: &[String]) {
        server.kill(connections);
    }

    fn admit(server: &MariadbServer, table: &str) {
        server.query(&format!(
            "CREATE USER '{table}'@'%'; GRANT ALL ON {DATABASE}.* TO '{table}'@'%'"
        ));
    }
}

/// Returns the command of a program of MariaDB's, as the user who may run it.
fn program(name: &str) -> Command {
    let (named, name) = match mysql::folder() {
        Some(folder) => (Some(folder), mysql::program(name)),
        None => (std::env::var_os("MARIADB_BIN_DIR").map(PathBuf::from), name),
    };
    // On Debian, the server itself is in no user's path, and not beside the client.
    let places = named
        .into_iter()
        .chain(["/usr/sbin".into(), "/usr/bin".into()]);
    let mut found = places
        .map(|dir| dir.join(name))
        .filter(|path| path.exists());
    let mut command = Command::new(found.next().unwrap_or_else(|| name.into()));
    as_server(&mut command);
    command
}

//! A real MariaDB server, of one test or shared by those of a process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rcgen::CertificateParams;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::eventually::eventually;
use crate::mysql;
use crate::ports::free_port;
use crate::running::Running;
use crate::tls::TlsFiles;
use crate::unprivileged::{as_server, directory, give_to_server, logged};

const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The user of the tests, who may do everything.
const USER: &str = "lock";
const DATABASE: &str = "locks";

const NO_BINARY: &str = "no MariaDB server to test with: install one (`apt-get install mariadb-server`, \
`brew install mariadb`, or let ./scripts/test do it), or name the folder of its programs in MARIADB_BIN_DIR";

/// What time it is, in the unit of the table.
pub const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// A MariaDB server with a directory and a port of its own; ends with this value, also on panic.
#[derive(Debug)]
pub struct MariadbServer {
    port: u16,
    settings: Vec<String>,
    tls: Option<TlsFiles>,
    process: Option<Running>,
    // Declared after the process: the directory goes when nobody writes into it any more.
    dir: TempDir,
}

impl MariadbServer {
    /// A server that keeps what it was given through a kill of its process.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// A server with settings, each as `name=value`.
    pub fn with(settings: &[&str]) -> Self {
        Self::start_with(directory(), settings, None)
    }

    /// A server that speaks TLS, too, with settings.
    pub fn with_tls(settings: &[&str]) -> Self {
        Self::certified(settings, |_| {})
    }

    /// The same with another certificate.
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

    /// A server that others can replicate.
    pub fn primary() -> Self {
        Self::with(&["log-bin=binlog", "binlog-format=ROW", "server-id=1"])
    }

    /// A replica of this server, which cannot be written to. It follows from the beginning.
    pub fn replica(&self) -> Self {
        let replica = Self::with(&["server-id=2", "read-only=1"]);
        replica.query(&format!(
            "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, MASTER_USER = '{USER}', \
             MASTER_USE_GTID = slave_pos; START SLAVE",
            self.port
        ));
        replica
    }

    /// Makes a replica a primary.
    pub fn promote(&self) {
        self.query("STOP SLAVE; SET GLOBAL read_only = 0");
    }

    fn start_with(dir: TempDir, settings: &[&str], tls: Option<TlsFiles>) -> Self {
        let mut making = program("mariadb-install-db");
        match mysql::is_meant() {
            true => mysql::initialize(&mut making, dir.path()),
            false => drop(
                making
                    .args([
                        "--no-defaults",
                        "--skip-test-db",
                        "--auth-root-authentication-method=normal",
                    ])
                    .arg(format!("--datadir={}", dir.path().join("data").display()))
                    .arg(format!("--tmpdir={}", dir.path().display())),
            ),
        }
        let made = making
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("{NO_BINARY} (mariadb-install-db: {error})"));
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "mariadb-install-db failed:\n{said}");
        let users = format!(
            "CREATE DATABASE IF NOT EXISTS {DATABASE};\nCREATE USER IF NOT EXISTS '{USER}'@'%';\n\
             GRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n"
        );
        std::fs::write(dir.path().join("init.sql"), users).expect("write the first statements");
        give_to_server(&dir.path().join("init.sql"), 0o600);
        let mut server = Self {
            port: 0,
            settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
            tls,
            process: None,
            dir,
        };
        for _ in 0..10 {
            server.port = free_port();
            if server.spawn() {
                return server;
            }
        }
        panic!("the MariaDB server did not start: {}", server.log());
    }

    /// The process's server; started by the first test that asks. It is kept in a static, which is never dropped: it ends
    /// with this process, however that ends.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<MariadbServer> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// `mysql://…/locks`.
    pub fn url(&self) -> String {
        self.url_of(USER)
    }

    fn url_of(&self, user: &str) -> String {
        format!("mysql://{user}@127.0.0.1:{}/{DATABASE}", self.port)
    }

    /// The files of a server with TLS.
    pub fn tls_files(&self) -> &TlsFiles {
        self.tls.as_ref().expect("a server with TLS")
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `127.0.0.1:port`.
    pub fn addr(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// A command line client, as the user who may do everything.
    pub fn client(&self) -> Command {
        let mut client = program("mariadb");
        client
            .args([
                "--no-defaults",
                "--batch",
                "--skip-column-names",
                "--unbuffered",
            ])
            .args(["--host=127.0.0.1", "--user", USER])
            .arg(format!("--port={}", self.port))
            .args(["--database", DATABASE]);
        client
    }

    /// What a statement answers: a line for each row, with `|` between columns.
    pub fn query(&self, statement: &str) -> Vec<String> {
        let answer = self.client().args(["--execute", statement]).output();
        let answer = answer.unwrap_or_else(|error| panic!("{NO_BINARY} (mariadb: {error})"));
        let said = String::from_utf8_lossy(&answer.stderr);
        assert!(answer.status.success(), "{statement}: {said}");
        let text = String::from_utf8_lossy(&answer.stdout);
        text.lines().map(|line| line.replace('\t', "|")).collect()
    }

    /// Ends the connections of a user.
    pub fn end_connections(&self, user: &str) {
        let of_user =
            format!("SELECT ID FROM information_schema.PROCESSLIST WHERE USER = '{user}'");
        let all = self.query(&of_user);
        let all: Vec<String> = all.iter().map(|id| format!("KILL {id}")).collect();
        // Some may have ended by now.
        let ending = self
            .client()
            .args(["--force", "--execute", &all.join("; ")])
            .output();
        ending.expect("run the client");
    }

    /// Kills the server as a crash would: no connection ends in order.
    pub fn kill9(&mut self) {
        self.process = None;
    }

    /// Starts the server again on the same port, with what it had; kills it first if it lives.
    pub fn restart(&mut self) {
        self.kill9();
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.spawn() {
            let log = self.log();
            assert!(Instant::now() < deadline, "it did not come back: {log}");
        }
    }

    /// Freezes the server: connections stay open and nothing is answered.
    pub fn sigstop(&self) {
        self.process.as_ref().expect("it runs").signal(Signal::STOP);
    }

    /// Thaws a frozen server.
    pub fn sigcont(&self) {
        self.process.as_ref().expect("it runs").signal(Signal::CONT);
    }

    /// What the server has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// False if it ended before it answered: another process was faster with the port.
    fn spawn(&mut self) -> bool {
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        let mut command = program("mariadbd");
        command
            .args([
                "--no-defaults",
                "--bind-address=127.0.0.1",
                "--skip-log-bin",
            ])
            .arg(format!("--port={}", self.port))
            .arg(format!("--datadir={}", path("data")))
            .arg(format!("--socket={}", path("socket")))
            .arg(format!("--pid-file={}", path("pid")))
            // A server that starts deletes the temporary tables that it finds there: those of others, too.
            .arg(format!("--tmpdir={}", self.dir.path().display()))
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
            // Without its own certificate, unless the settings say more.
            true => command.args(mysql::SETTINGS),
            false => command.arg("--sync-frm=0"),
        };
        for setting in &self.settings {
            command.arg(format!("--{setting}"));
        }
        let mut logged = logged(&command, &self.dir.path().join("log"));
        let started = Running::start(&mut logged, self.dir.path(), Signal::KILL);
        let mut running = started.unwrap_or_else(|error| panic!("{NO_BINARY} (mariadbd: {error})"));
        let deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline {
            if running
                .child
                .try_wait()
                .is_ok_and(|status| status.is_some())
            {
                return false;
            }
            let ready = self.client().args(["--execute", "SELECT 1"]).output();
            if ready.is_ok_and(|answer| answer.status.success()) {
                self.process = Some(running);
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

/// A program of MariaDB's, as the user who may run it.
fn program(name: &str) -> Command {
    let mut command = match mysql::folder() {
        Some(folder) => Command::new(folder.join(mysql::program(name))),
        None => Command::new(path_of(name)),
    };
    as_server(&mut command);
    command
}

fn path_of(name: &str) -> PathBuf {
    let named = std::env::var_os("MARIADB_BIN_DIR").map(PathBuf::from);
    // The server itself is in no user's path on Debian.
    let places = named
        .into_iter()
        .chain(["/usr/sbin".into(), "/usr/bin".into()]);
    let mut found = places
        .map(|dir: PathBuf| dir.join(name))
        .filter(|path| path.exists());
    found.next().unwrap_or_else(|| Path::new(name).to_owned())
}

/// A table of the process's server that belongs to one test, and its user, who bears its name.
#[derive(Debug)]
pub struct MariadbTable {
    server: &'static MariadbServer,
    name: String,
}

impl MariadbTable {
    /// A table that nobody uses yet.
    #[allow(clippy::new_without_default, reason = "it starts a server")]
    pub fn new() -> Self {
        static TABLES: AtomicUsize = AtomicUsize::new(0);
        let number = TABLES.fetch_add(1, Ordering::Relaxed);
        let (server, name) = (MariadbServer::shared(), format!("leases_{number}"));
        server.query(&format!(
            "CREATE USER '{name}'@'%'; GRANT ALL ON {DATABASE}.* TO '{name}'@'%'"
        ));
        Self { server, name }
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server that it is in.
    pub fn server(&self) -> &'static MariadbServer {
        self.server
    }

    /// What a manager on it connects to.
    pub fn url(&self) -> String {
        let (url, name) = (self.server.url_of(&self.name), &self.name);
        format!("{url}?lock_table={name}")
    }

    /// Forgets every lock.
    pub fn empty(&self) {
        self.server.query(&format!("DELETE FROM {}", self.name));
    }

    /// The connections of its user.
    pub fn connections(&self) -> Vec<String> {
        self.server.query(&format!(
            "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = '{}'",
            self.name
        ))
    }

    /// Waits until nobody holds anything, or waits in the store for it.
    pub async fn assert_clean(&self) {
        eventually("no row of the table is held or queued for", async || {
            let rows = format!(
                "SELECT name, holder, shares, queue FROM {} AS l WHERE expires_at > {NOW} OR queue IS NOT NULL \
                 OR EXISTS (SELECT 1 FROM JSON_TABLE(COALESCE(l.shares, '[]'), '$[*]' \
                    COLUMNS (e BIGINT PATH '$.e')) AS s WHERE s.e > {NOW})",
                self.name
            );
            self.server.query(&rows).is_empty()
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
        let made = format!("SHOW TABLES LIKE '{}'", self.name);
        if !self.server.query(&made).is_empty() {
            self.assert_clean().await;
        }
    }
}

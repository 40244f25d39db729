//! A real PostgreSQL server, of one test or shared by those of a process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rcgen::CertificateParams;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::eventually::eventually;
use crate::ports::free_port;
use crate::running::Running;
use crate::tls::TlsFiles;
use crate::unprivileged::{as_server, directory, directory_in, give_to_server, logged};

const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The user of the server's databases.
const USER: &str = "lock";

const NO_BINARY: &str = "no PostgreSQL server to test with: install one (`apt-get install postgresql`, \
`brew install postgresql`, or let ./scripts/test do it), or name the folder of its programs in POSTGRES_BIN_DIR";

/// A PostgreSQL server with a directory and a port of its own; ends with this value, also on panic.
#[derive(Debug)]
pub struct PostgresServer {
    port: u16,
    settings: Vec<String>,
    tls: Option<TlsFiles>,
    process: Option<Running>,
    // Declared after the process: the directory goes when nobody writes into it any more.
    dir: TempDir,
}

impl PostgresServer {
    /// A server that keeps what it was given through a kill of its process.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// A server with settings, each as `name=value`.
    pub fn with(settings: &[&str]) -> Self {
        Self::start_with(directory(), settings, None, &[])
    }

    /// A server with lines of `pg_hba.conf` that come before those that trust everybody.
    pub fn ruled(rules: &[&str]) -> Self {
        Self::start_with(directory(), &[], None, rules)
    }

    /// A server whose data is in this folder.
    pub fn within(folder: &Path) -> Self {
        Self::start_with(
            directory_in(folder),
            &["min_wal_size=32MB", "max_wal_size=32MB"],
            None,
            &[],
        )
    }

    /// A server that speaks TLS, too, with settings and with lines of `pg_hba.conf` that come before those that trust
    /// everybody.
    pub fn with_tls(settings: &[&str], rules: &[&str]) -> Self {
        Self::certified(settings, rules, |_| {})
    }

    /// The same with another certificate.
    pub fn certified(
        settings: &[&str],
        rules: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Self {
        let dir = directory();
        let files = TlsFiles::write_with(dir.path(), change);
        give_to_server(&files.key, 0o600);
        let mut all = vec![
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", files.certificate.display()),
            format!("ssl_key_file={}", files.key.display()),
            format!("ssl_ca_file={}", files.authority.display()),
        ];
        all.extend(settings.iter().map(|&setting| setting.to_owned()));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        Self::start_with(dir, &all, Some(files), rules)
    }

    fn start_with(dir: TempDir, settings: &[&str], tls: Option<TlsFiles>, rules: &[&str]) -> Self {
        let data = dir.path().join("data");
        let made = program("initdb")
            .args(["--no-sync", "--encoding=UTF8", "--locale=C", "--auth=trust"])
            .args(["--username", USER, "--pgdata"])
            .arg(&data)
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("{NO_BINARY} (initdb: {error})"));
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "initdb failed:\n{said}");
        let admitted = data.join("pg_hba.conf");
        let others = std::fs::read_to_string(&admitted).expect("the rules of initdb");
        std::fs::write(&admitted, format!("{}\n{others}", rules.join("\n"))).expect("the rules");
        Self::run_in(dir, settings, tls)
    }

    /// A standby of this server, which follows it by streaming.
    pub fn standby(&self) -> Self {
        let dir = directory();
        let copied = program("pg_basebackup")
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string()])
            .args(["-U", USER, "--no-sync", "--checkpoint=fast", "-R", "-D"])
            .arg(dir.path().join("data"))
            .output()
            .unwrap_or_else(|error| panic!("{NO_BINARY} (pg_basebackup: {error})"));
        let said = String::from_utf8_lossy(&copied.stderr);
        assert!(copied.status.success(), "pg_basebackup failed:\n{said}");
        Self::run_in(dir, &[], None)
    }

    /// Makes a standby a primary.
    pub fn promote(&self) {
        assert_eq!(self.query("SELECT pg_promote()"), ["t"]);
    }

    fn run_in(dir: TempDir, settings: &[&str], tls: Option<TlsFiles>) -> Self {
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
        panic!("the PostgreSQL server did not start: {}", server.log());
    }

    /// The process's server; started by the first test that asks. It is kept in a static, which is never dropped: it ends
    /// with this process, however that ends.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<PostgresServer> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// `postgres://…/postgres`.
    pub fn url(&self) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/postgres", self.port)
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

    /// A client that runs the statements that it reads.
    pub fn client(&self) -> Command {
        let mut psql = program("psql");
        psql.args(["-X", "-q", "-A", "-t", "-d"])
            .arg(format!("{}?application_name=test-support", self.url()));
        psql
    }

    /// What a statement answers: a line for each row, with `|` between columns.
    pub fn query(&self, statement: &str) -> Vec<String> {
        let answer = self
            .client()
            .args(["-v", "ON_ERROR_STOP=1", "-c", statement])
            .output()
            .unwrap_or_else(|error| panic!("{NO_BINARY} (psql: {error})"));
        let said = String::from_utf8_lossy(&answer.stderr);
        assert!(answer.status.success(), "{statement}: {said}");
        let text = String::from_utf8_lossy(&answer.stdout);
        text.lines().map(str::to_owned).collect()
    }

    /// Kills the server as a crash would: no connection ends in order.
    pub fn kill9(&mut self) {
        let Some(process) = self.process.take() else {
            return;
        };
        // The other processes of the server end when they see that the first one has.
        process.signal(Signal::KILL);
        drop(process);
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

    /// Freezes every process of the server, or thaws it.
    fn signal_all(&self, signal: Signal) {
        let process = self.process.as_ref().expect("the server runs");
        // The first one before the others are listed: it would go on starting more.
        process.signal(signal);
        let first = process.child.id().to_string();
        let all = Command::new("pgrep").args(["-P", &first]).output();
        let all = all.expect("pgrep, of the package procps").stdout;
        for pid in String::from_utf8_lossy(&all).lines() {
            let pid = pid.parse().ok().and_then(rustix::process::Pid::from_raw);
            let _ = pid.map(|pid| rustix::process::kill_process(pid, signal));
        }
    }

    /// Freezes the server: connections stay open and nothing is answered.
    pub fn sigstop(&self) {
        self.signal_all(Signal::STOP);
    }

    /// Thaws a frozen server.
    pub fn sigcont(&self) {
        self.signal_all(Signal::CONT);
    }

    /// What the server has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// False if it ended before it answered: another process was faster with the port.
    fn spawn(&mut self) -> bool {
        let log = self.dir.path().join("log");
        let mut command = program("postgres");
        command
            .arg("-D")
            .arg(self.dir.path().join("data"))
            .args(["-p", &self.port.to_string(), "-k", ""])
            .args(["-c", "listen_addresses=127.0.0.1"])
            .args(["-c", "max_connections=600", "-c", "shared_buffers=32MB"])
            // A crash of the machine is no part of the tests, and syncing takes most of the time of a statement.
            .args(["-c", "fsync=off", "-c", "autovacuum=off"])
            .args([
                "-c",
                "logging_collector=off",
                "-c",
                "log_destination=stderr",
            ]);
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        let mut logged = logged(&command, &log);
        let started = Running::start(&mut logged, self.dir.path(), Signal::QUIT);
        let mut running = started.unwrap_or_else(|error| panic!("{NO_BINARY} (postgres: {error})"));
        let deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline {
            if running
                .child
                .try_wait()
                .is_ok_and(|status| status.is_some())
            {
                return false;
            }
            let ready = program("pg_isready")
                .args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()])
                .status();
            if ready.is_ok_and(|status| status.success()) {
                self.process = Some(running);
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

/// A program of PostgreSQL's, as the user who may run it.
pub fn program(name: &str) -> Command {
    let mut command = Command::new(bin_dir().join(name));
    as_server(&mut command);
    command
}

fn bin_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        if let Some(dir) = std::env::var_os("POSTGRES_BIN_DIR") {
            return dir.into();
        }
        // Debian does not put the server's programs into the path.
        let versions = std::fs::read_dir("/usr/lib/postgresql")
            .into_iter()
            .flatten();
        let mut found: Vec<(u32, PathBuf)> = versions
            .flatten()
            .filter_map(|version| {
                let number = version.file_name().to_str()?.parse().ok()?;
                let dir = version.path().join("bin");
                dir.join("initdb").exists().then_some((number, dir))
            })
            .collect();
        found.sort();
        found.pop().map_or_else(PathBuf::new, |(_, dir)| dir)
    })
}

/// A table of the process's server that belongs to one test.
#[derive(Debug)]
pub struct PostgresTable {
    server: &'static PostgresServer,
    name: String,
}

impl PostgresTable {
    /// A table that nobody uses yet.
    #[allow(clippy::new_without_default, reason = "it starts a server")]
    pub fn new() -> Self {
        static TABLES: AtomicUsize = AtomicUsize::new(0);
        let number = TABLES.fetch_add(1, Ordering::Relaxed);
        Self {
            server: PostgresServer::shared(),
            name: format!("leases_{number}"),
        }
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server that it is in.
    pub fn server(&self) -> &'static PostgresServer {
        self.server
    }

    /// What a manager on it connects to. The connections bear the table's name.
    pub fn url(&self) -> String {
        let (url, name) = (self.server.url(), &self.name);
        format!("{url}?lock_table={name}&application_name={name}")
    }

    /// Forgets every lock.
    pub fn empty(&self) {
        self.server.query(&format!("TRUNCATE {}", self.name));
    }

    /// Waits until nobody holds anything, or waits in the store for it.
    pub async fn assert_clean(&self) {
        eventually("no row of the table is held or queued for", async || {
            let rows = format!(
                "SELECT name, holder, shares, queue FROM {} WHERE expires_at > clock_timestamp() OR queue IS NOT NULL \
                 OR EXISTS (SELECT FROM jsonb_each(shares) AS s \
                    WHERE (s.value -> 0)::bigint > extract(epoch FROM clock_timestamp()) * 1000000)",
                self.name
            );
            self.server.query(&rows).is_empty()
        })
        .await;
    }

    /// After the managers are dropped: waits until nothing and nobody is left.
    pub async fn assert_deserted(&self) {
        let connections = format!(
            "SELECT pid FROM pg_stat_activity WHERE application_name = '{}'",
            self.name
        );
        eventually("every connection of the test has ended", async || {
            self.server.query(&connections).is_empty()
        })
        .await;
        // Tests that never connect have no table.
        let made = format!("SELECT to_regclass('{}') IS NOT NULL", self.name);
        if self.server.query(&made) == ["t"] {
            self.assert_clean().await;
        }
    }
}

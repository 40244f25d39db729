//! A real PostgreSQL server, of one test or shared by those of a process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rcgen::CertificateParams;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::first_data::first_data;
use crate::launch::{Kind, Server, run};
use crate::proxy::Protocol;
use crate::sql::{Sql, Table};
use crate::tls::TlsFiles;
use crate::unprivileged::{as_server, directory, directory_in, give_to_server, logged};

/// The user of the server's databases.
pub(crate) const USER: &str = "lock";
pub(crate) const DATABASE: &str = "postgres";

/// The settings that a [`PostgresServer`] is started with.
#[derive(Debug)]
pub struct Postgres {
    settings: Vec<String>,
    tls: Option<TlsFiles>,
}

/// A PostgreSQL server with a directory and a port of its own. It ends with this value, also on panic.
pub type PostgresServer = Server<Postgres>;

/// A table of the process's PostgreSQL server that belongs to one test. Its managers' connections have the table's
/// name.
pub type PostgresTable = Table<Postgres>;

impl PostgresServer {
    /// Starts a server with lines of `pg_hba.conf` that come before those that trust everybody.
    pub fn ruled(rules: &[&str]) -> Self {
        Self::start_with(directory(), &[], None, rules)
    }

    /// Starts a server whose data are in this folder.
    pub fn within(folder: &Path) -> Self {
        Self::start_with(
            directory_in(folder),
            &["min_wal_size=32MB", "max_wal_size=32MB"],
            None,
            &[],
        )
    }

    /// Starts a server that also speaks TLS, with settings and with lines of `pg_hba.conf` that come before those that
    /// trust everybody.
    pub fn with_tls(settings: &[&str], rules: &[&str]) -> Self {
        Self::certified(settings, rules, |_| {})
    }

    /// Does the same as [`with_tls`](Self::with_tls) with another certificate.
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
        first_data::<Postgres>(dir.path(), |dir| {
            let mut making = program("initdb");
            making
                .args(["--no-sync", "--encoding=UTF8", "--locale=C", "--auth=trust"])
                .args(["--username", USER, "--pgdata"])
                .arg(dir.join("data"));
            making
        });
        let admitted = dir.path().join("data/pg_hba.conf");
        let others = std::fs::read_to_string(&admitted).expect("the rules of initdb");
        std::fs::write(&admitted, format!("{}\n{others}", rules.join("\n"))).expect("the rules");
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        Self::launch(Postgres { settings, tls }, dir)
    }

    /// Starts a standby of this server, which follows it by streaming.
    pub fn standby(&self) -> Self {
        let dir = directory();
        run::<Postgres>(
            program("pg_basebackup")
                .args(["-h", "127.0.0.1", "-p", &self.port().to_string()])
                .args(["-U", USER, "--no-sync", "--checkpoint=fast", "-R", "-D"])
                .arg(dir.path().join("data")),
        );
        let (settings, tls) = (Vec::new(), None);
        Self::launch(Postgres { settings, tls }, dir)
    }

    /// Makes a standby a primary.
    pub fn promote(&self) {
        assert_eq!(self.query("SELECT pg_promote()"), ["t"]);
    }

    /// Returns the files of a server with TLS.
    pub fn tls_files(&self) -> &TlsFiles {
        self.kind.tls.as_ref().expect("a server with TLS")
    }
}

impl Kind for Postgres {
    const NAME: &'static str = "PostgreSQL server";
    const MISSING: &'static str = "install one (`apt-get install postgresql`, `brew install postgresql`, or let \
        ./scripts/test do it), or name the folder of its programs in POSTGRES_BIN_DIR";
    // On this signal, the first process makes the others end.
    const END: Signal = Signal::QUIT;
    const HAS_WORKERS: bool = true;

    fn command(server: &PostgresServer) -> Command {
        let mut command = program("postgres");
        command
            .arg("-D")
            .arg(server.path("data"))
            .args(["-p", &server.port().to_string(), "-k", ""])
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
        for setting in &server.kind.settings {
            command.args(["-c", setting]);
        }
        logged(&command, &server.path("log"))
    }

    fn answers(server: &PostgresServer) -> bool {
        let ready = program("pg_isready")
            .args(["-q", "-h", "127.0.0.1", "-p", &server.port().to_string()])
            .status();
        ready.is_ok_and(|status| status.success())
    }
}

impl Sql for Postgres {
    const EXECUTE: &'static [&'static str] = &["-v", "ON_ERROR_STOP=1", "-c"];
    const SEPARATOR: char = '|';
    const TAKES_NUL: bool = false;
    const PROTOCOL: Protocol = Protocol::Postgres;
    const HEADING: &'static str = "**PostgreSQL.**";
    const EMPTY: &'static str = "TRUNCATE {table}";
    const CONNECTIONS: &'static str =
        "SELECT pid FROM pg_stat_activity WHERE application_name = '{table}'";
    const IS_THERE: &'static str = "SELECT oid FROM pg_class WHERE oid = to_regclass('{table}')";
    const IN_USE: &'static str = "
        SELECT name, holder, shares, queue FROM {table}
        WHERE expires_at > clock_timestamp() OR queue IS NOT NULL OR EXISTS (
            SELECT FROM jsonb_each(shares) AS s
            WHERE (s.value -> 0)::bigint > extract(epoch FROM clock_timestamp()) * 1000000
        )";

    fn with(settings: &[&str]) -> PostgresServer {
        Server::start_with(directory(), settings, None, &[])
    }

    fn end_connections(server: &PostgresServer, connections: &[String]) {
        let all = connections.join(", ");
        server.query(&format!(
            "SELECT pg_terminate_backend(pid) FROM unnest(ARRAY[{all}]::int[]) AS pid"
        ));
    }

    fn shared() -> &'static PostgresServer {
        static SHARED: OnceLock<PostgresServer> = OnceLock::new();
        SHARED.get_or_init(PostgresServer::start)
    }

    fn client(server: &PostgresServer) -> Command {
        let mut psql = program("psql");
        psql.args(["-X", "-q", "-A", "-t", "-d"])
            .arg(format!("{}?application_name=test-support", server.url()));
        psql
    }

    fn url(server: &PostgresServer) -> String {
        format!("postgres://{USER}@{}/{DATABASE}", server.addr())
    }

    fn table_url(server: &PostgresServer, table: &str) -> String {
        let url = server.url();
        format!("{url}?lock_table={table}&application_name={table}")
    }
}

/// Returns the command of a program of PostgreSQL's, as the user who may run it.
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

//! A real Redis server that belongs to one test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use redis::{Connection, FromRedisValue, RedisResult, Value};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::conf::ServerConf;
use crate::ports::free_port;
use crate::running::Running;
use crate::tls::TlsFiles;

/// The name under which the tests' own connection shows in `CLIENT LIST`.
pub(crate) const HELPER: &str = "test-support";

const START_TIMEOUT: Duration = Duration::from_secs(20);
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

const NO_BINARY: &str = "no Redis server to test with: install one (`apt-get install redis-server`, \
`brew install redis`, or let ./scripts/test do it), or name its binary in REDIS_SERVER_BIN";

/// What [`RedisServer::restart`] does with the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// Saves first if the server is alive; a killed server comes back with what it had on disk.
    Kept,
    /// Comes back empty.
    Lost,
}

/// A Redis server with a directory and a port of its own; ends with this value, also on panic.
#[derive(Debug)]
pub struct RedisServer {
    conf: ServerConf,
    port: u16,
    tls_port: Option<u16>,
    bus_port: Option<u16>,
    tls_files: Option<TlsFiles>,
    process: Option<Running>,
    helper: Mutex<Helper>,
    // Declared after the process: the directory goes when nobody writes into it any more.
    dir: TempDir,
}

impl RedisServer {
    /// A server with default settings.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Settings for a server.
    pub fn builder() -> ServerConf {
        ServerConf::default()
    }

    pub(crate) fn launch(conf: ServerConf) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("lock-test")
            .tempdir()
            .expect("a directory");
        let own_files = || conf.tls.then(|| TlsFiles::write_to(dir.path()));
        let tls_files = conf.tls_files.clone().or_else(own_files);
        let mut server = Self {
            conf,
            port: 0,
            tls_port: None,
            bus_port: None,
            tls_files,
            process: None,
            helper: Mutex::new(Helper { connection: None }),
            dir,
        };
        let mut last = String::new();
        for _ in 0..10 {
            server.port = free_port();
            server.tls_port = server.conf.tls.then(free_port);
            server.bus_port = server.conf.cluster.then(free_port);
            match server.spawn() {
                Ok(()) => return server,
                Err(why) => last = why,
            }
        }
        panic!("the Redis server did not start:\n{last}");
    }

    /// `redis://…` of the default user.
    pub fn url(&self) -> String {
        match &self.conf.password {
            Some(password) => format!("redis://:{password}@127.0.0.1:{}/", self.port),
            None => format!("redis://127.0.0.1:{}/", self.port),
        }
    }

    /// `redis://user:password@…`.
    pub fn url_with(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}/", self.port)
    }

    /// `redis+unix://…`; needs [`ServerConf::unix_socket`].
    pub fn unix_url(&self) -> String {
        assert!(
            self.conf.unix_socket,
            "this server was built without a unix socket"
        );
        format!("redis+unix://{}", self.socket().display())
    }

    /// `rediss://localhost…`; needs [`ServerConf::tls`].
    pub fn tls_url(&self) -> String {
        format!("rediss://localhost:{}/", self.tls_port())
    }

    /// The port of the TLS listener; needs [`ServerConf::tls`].
    pub fn tls_port(&self) -> u16 {
        self.tls_port.expect("this server was built without TLS")
    }

    /// Certificates of the TLS listener; needs [`ServerConf::tls`].
    pub fn tls_files(&self) -> &TlsFiles {
        self.tls_files
            .as_ref()
            .expect("this server was built without TLS")
    }

    /// The plain TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `127.0.0.1:port`.
    pub fn addr(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// The port on which nodes of a cluster talk to each other.
    pub(crate) fn bus_port(&self) -> u16 {
        self.bus_port.expect("this server is no node of a cluster")
    }

    /// Whether it was started and not killed since; a frozen one runs, too.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// The id of the server's process.
    pub fn pid(&self) -> u32 {
        self.running().child.id()
    }

    /// Freezes the server: connections stay open and nothing is answered.
    pub fn sigstop(&self) {
        self.signal(Signal::STOP);
    }

    /// Thaws a frozen server.
    pub fn sigcont(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the server at once, without saving, and waits until it is gone.
    pub fn kill9(&mut self) {
        self.helper
            .get_mut()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .connection = None;
        self.process = None;
    }

    /// Starts the server again on the same port; kills it first if it lives.
    pub fn restart(&mut self, data: Data) {
        if self.process.is_some() && data == Data::Kept {
            let _: Value = self.query(&["SAVE"]);
        }
        self.kill9();
        if data == Data::Lost {
            let _ = std::fs::remove_file(self.dir.path().join("dump.rdb"));
            let _ = std::fs::remove_dir_all(self.dir.path().join("appendonlydir"));
        }
        let deadline = Instant::now() + START_TIMEOUT;
        while let Err(why) = self.spawn() {
            assert!(
                Instant::now() < deadline,
                "the Redis server did not come back:\n{why}"
            );
        }
    }

    /// Runs a command on the tests' own connection, as the default user.
    ///
    /// # Errors
    /// The server's error reply. Panics when the server does not answer at all.
    pub fn command(&self, args: &[&str]) -> RedisResult<Value> {
        let mut helper = self
            .helper
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        helper.call(&self.url(), args)
    }

    /// Like [`command`](Self::command), converted; panics on an error reply.
    pub fn query<T: FromRedisValue>(&self, args: &[&str]) -> T {
        let reply = self
            .command(args)
            .unwrap_or_else(|error| panic!("{args:?}: {error}"));
        redis::from_redis_value(reply).unwrap_or_else(|error| panic!("{args:?}: {error}"))
    }

    /// All keys of database 0, sorted.
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.query(&["KEYS", "*"]);
        keys.sort();
        keys
    }

    /// Deletes everything.
    pub fn flushall(&self) {
        let _: Value = self.query(&["FLUSHALL"]);
    }

    /// Whether the key exists.
    pub fn exists(&self, key: &str) -> bool {
        self.query::<i64>(&["EXISTS", key]) == 1
    }

    /// `PTTL`: milliseconds, -1 without an expiry, -2 without the key.
    pub fn pttl(&self, key: &str) -> i64 {
        self.query(&["PTTL", key])
    }

    /// What the server wrote to its log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("redis.log")).unwrap_or_default()
    }

    fn running(&self) -> &Running {
        self.process
            .as_ref()
            .expect("the server was killed and not restarted")
    }

    fn signal(&self, signal: Signal) {
        self.running().signal(signal);
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("redis.sock")
    }

    fn write_conf(&self) -> PathBuf {
        let mut lines = vec![
            format!("port {}", self.port),
            "bind 127.0.0.1".to_owned(),
            format!("dir {}", self.dir.path().display()),
            "save \"\"".to_owned(),
            "daemonize no".to_owned(),
            format!("logfile {}", self.dir.path().join("redis.log").display()),
        ];
        if self.conf.unix_socket {
            lines.push(format!("unixsocket {}", self.socket().display()));
        }
        if let (Some(port), Some(files)) = (self.tls_port, &self.tls_files) {
            lines.push(format!("tls-port {port}"));
            lines.extend(files.conf());
        }
        if let Some(port) = self.bus_port {
            lines.push(format!("cluster-port {port}"));
        }
        lines.extend(self.conf.lines.iter().cloned());
        let path = self.dir.path().join("redis.conf");
        std::fs::write(&path, lines.join("\n") + "\n").expect("write redis.conf");
        path
    }

    /// Starts the process and waits for its answer; `Err` when it ended, e.g. by a lost bind race.
    fn spawn(&mut self) -> Result<(), String> {
        let conf = self.write_conf();
        let mut running = start_redis(&conf, &[]);
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Ok(Some(status)) = running.child.try_wait() {
                return Err(format!("{status}\n{}", self.log()));
            }
            if self.answers() {
                self.process = Some(running);
                return Ok(());
            }
            assert!(
                Instant::now() < deadline,
                "no answer from the Redis server\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether *this* server answers: a stranger that won the port has another directory.
    fn answers(&self) -> bool {
        let mut helper = self
            .helper
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        helper.connection = None;
        let Ok(connection) = Helper::connect(&self.url()) else {
            return false;
        };
        let connection = helper.connection.insert(connection);
        let dir: RedisResult<(String, String)> =
            redis::cmd("CONFIG").arg("GET").arg("dir").query(connection);
        // CONFIG is answered while the data are still being loaded, PING is not.
        let loaded = redis::cmd("PING").query::<String>(connection).is_ok();
        let same = |a: &Path, b: &Path| a.canonicalize().ok() == b.canonicalize().ok();
        loaded && dir.is_ok_and(|(_, dir)| same(dir.as_ref(), self.dir.path()))
    }
}

/// The tests' own connection, opened when it is first needed.
struct Helper {
    connection: Option<Connection>,
}

impl std::fmt::Debug for Helper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Helper")
            .field("connected", &self.connection.is_some())
            .finish()
    }
}

impl Helper {
    fn connect(url: &str) -> RedisResult<Connection> {
        let mut connection =
            redis::Client::open(url)?.get_connection_with_timeout(Duration::from_secs(1))?;
        connection.set_read_timeout(Some(CALL_TIMEOUT))?;
        connection.set_write_timeout(Some(CALL_TIMEOUT))?;
        let _: Value = redis::cmd("CLIENT")
            .arg("SETNAME")
            .arg(HELPER)
            .query(&mut connection)?;
        Ok(connection)
    }

    fn call(&mut self, url: &str, args: &[&str]) -> RedisResult<Value> {
        let mut command = redis::cmd(args[0]);
        command.arg(&args[1..]);
        // Sentinels cut all clients of a server that they promote or demote, this one, too.
        if let Some(connection) = &mut self.connection {
            match command.query(connection) {
                Err(error) if error.is_connection_dropped() => self.connection = None,
                answer => return self.answered(args, answer),
            }
        }
        let connection = Self::connect(url).expect("connect to the test's Redis server");
        let answer = command.query(self.connection.insert(connection));
        self.answered(args, answer)
    }

    fn answered(&mut self, args: &[&str], answer: RedisResult<Value>) -> RedisResult<Value> {
        if let Err(error) = &answer
            && (error.is_io_error() || error.is_timeout())
        {
            self.connection = None;
            panic!("{args:?}: no answer from the test's Redis server: {error}");
        }
        answer
    }
}

/// Starts the binary of a server.
pub(crate) fn start_redis(conf: &Path, options: &[&str]) -> Running {
    let binary = std::env::var_os("REDIS_SERVER_BIN").unwrap_or_else(|| "redis-server".into());
    let mut command = Command::new(&binary);
    let dir = conf.parent().expect("a directory");
    Running::start(command.arg(conf).args(options), dir, Signal::KILL)
        .unwrap_or_else(|error| panic!("{NO_BINARY} ({}: {error})", binary.display()))
}

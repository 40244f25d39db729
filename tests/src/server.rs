//! A real Redis server that belongs to one test.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Connection, FromRedisValue, RedisResult, Value};
use tempfile::TempDir;

use crate::conf::ServerConf;
use crate::launch::{Kind, Server, directory_in};
use crate::ports::free_port;
use crate::tls::TlsFiles;

/// The name under which the tests' own connection shows in `CLIENT LIST`.
pub(crate) const HELPER: &str = "test-support";

/// The time that a connection may take. It is generous, because only a test that fails spends it.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) const MISSING: &str = "install one (`apt-get install redis-server`, `brew install redis`, or let \
    ./scripts/test do it), or name its binary in REDIS_SERVER_BIN";

/// The fate of the data in [`RedisServer::restart`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// The server saves its data first if it is alive. A killed server comes back with what it had on disk.
    Kept,
    /// The server comes back empty.
    Lost,
}

/// The settings that a [`RedisServer`] is started with, and the tests' connection to it.
#[derive(Debug)]
pub struct Redis {
    conf: ServerConf,
    tls_port: Option<u16>,
    bus_port: Option<u16>,
    tls_files: Option<TlsFiles>,
    helper: Mutex<Helper>,
}

/// A Redis server with a directory and a port of its own. It ends with this value, also on panic.
pub type RedisServer = Server<Redis>;

impl RedisServer {
    /// Starts a server with default settings.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Returns settings for a server.
    pub fn builder() -> ServerConf {
        ServerConf::default()
    }

    pub(crate) fn of(conf: ServerConf) -> Self {
        let (redis, dir) = Self::made(conf);
        Self::launch(redis, dir)
    }

    pub(crate) fn at(port: u16, conf: ServerConf) -> Self {
        let (redis, dir) = Self::made(conf);
        Self::launch_at(port, redis, dir)
    }

    fn made(conf: ServerConf) -> (Redis, TempDir) {
        let dir = directory_in(&std::env::temp_dir());
        let own_files = || conf.tls.then(|| TlsFiles::write_to(dir.path()));
        let redis = Redis {
            tls_port: None,
            bus_port: None,
            tls_files: conf.tls_files.clone().or_else(own_files),
            helper: Mutex::new(Helper { connection: None }),
            conf,
        };
        (redis, dir)
    }

    /// Returns `redis://…` of the default user.
    pub fn url(&self) -> String {
        match &self.kind.conf.password {
            Some(password) => format!("redis://:{password}@{}/", self.addr()),
            None => format!("redis://{}/", self.addr()),
        }
    }

    /// Returns `redis://user:password@…`.
    pub fn url_with(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@{}/", self.addr())
    }

    /// Returns `redis+unix://…`. It needs [`ServerConf::unix_socket`].
    pub fn unix_url(&self) -> String {
        assert!(
            self.kind.conf.unix_socket,
            "this server was built without a unix socket"
        );
        format!("redis+unix://{}", self.socket().display())
    }

    /// Returns `rediss://localhost…`. It needs [`ServerConf::tls`].
    pub fn tls_url(&self) -> String {
        format!("rediss://localhost:{}/", self.tls_port())
    }

    /// Returns the port of the TLS listener. It needs [`ServerConf::tls`].
    pub fn tls_port(&self) -> u16 {
        self.kind
            .tls_port
            .expect("this server was built without TLS")
    }

    /// Returns the certificates of the TLS listener. It needs [`ServerConf::tls`].
    pub fn tls_files(&self) -> &TlsFiles {
        self.kind
            .tls_files
            .as_ref()
            .expect("this server was built without TLS")
    }

    /// Returns the port on which nodes of a cluster talk to each other.
    pub(crate) fn bus_port(&self) -> u16 {
        self.kind
            .bus_port
            .expect("this server is no node of a cluster")
    }

    /// Starts the server again on the same port. Kills it first if it lives.
    pub fn restart(&mut self, data: Data) {
        if self.is_running() && data == Data::Kept {
            let _: Value = self.query(&["SAVE"]);
        }
        self.kill9();
        if data == Data::Lost {
            let _ = std::fs::remove_file(self.path("dump.rdb"));
            let _ = std::fs::remove_dir_all(self.path("appendonlydir"));
        }
        self.start_again();
    }

    /// Runs a command on the tests' own connection, as the default user.
    ///
    /// # Errors
    /// The server's error reply. Panics if the server does not answer at all.
    pub fn command(&self, args: &[&str]) -> RedisResult<Value> {
        self.helper().call(&self.url(), args)
    }

    /// Does the same as [`command`](Self::command), and converts the reply. Panics on an error reply.
    pub fn query<T: FromRedisValue>(&self, args: &[&str]) -> T {
        let reply = self
            .command(args)
            .unwrap_or_else(|error| panic!("{args:?}: {error}"));
        redis::from_redis_value(reply).unwrap_or_else(|error| panic!("{args:?}: {error}"))
    }

    /// Does the same as [`query`](Self::query) without blocking the thread: the other tasks of a runtime of one thread, such
    /// as the renewals of a hold, go on meanwhile.
    pub async fn ask<T: FromRedisValue>(&self, args: &[&str]) -> T {
        let mut connection = patient(&self.url()).await;
        let mut command = redis::cmd(args[0]);
        let reply = command.arg(&args[1..]).query_async(&mut connection).await;
        reply.unwrap_or_else(|error| panic!("{args:?}: {error}"))
    }

    /// Returns all keys of database 0, sorted.
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.query(&["KEYS", "*"]);
        keys.sort();
        keys
    }

    /// Deletes everything.
    pub fn flushall(&self) {
        let _: Value = self.query(&["FLUSHALL"]);
    }

    /// Returns whether the key exists.
    pub fn exists(&self, key: &str) -> bool {
        self.query::<i64>(&["EXISTS", key]) == 1
    }

    /// Returns `PTTL`: milliseconds, -1 without an expiry, -2 without the key.
    pub fn pttl(&self, key: &str) -> i64 {
        self.query(&["PTTL", key])
    }

    /// Does the same as [`pttl`](Self::pttl). Returns `None` if the server does not say: it names another node of its cluster
    /// while a slot moves.
    pub fn pttl_here(&self, key: &str) -> Option<i64> {
        let reply = self.command(&["PTTL", key]).ok()?;
        redis::from_redis_value(reply).ok()
    }

    /// Returns the server's time in milliseconds, by which it ends leases.
    pub fn time_ms(&self) -> u64 {
        let (seconds, micros): (u64, u64) = self.query(&["TIME"]);
        seconds * 1_000 + micros / 1_000
    }

    fn helper(&self) -> MutexGuard<'_, Helper> {
        let helper = self.kind.helper.lock();
        helper.unwrap_or_else(PoisonError::into_inner)
    }

    fn socket(&self) -> PathBuf {
        self.path("redis.sock")
    }

    fn write_conf(&self) -> PathBuf {
        let Redis { conf, .. } = &self.kind;
        let mut lines = vec![
            format!("port {}", self.port()),
            "bind 127.0.0.1".to_owned(),
            format!("dir {}", self.dir().display()),
            "save \"\"".to_owned(),
            "daemonize no".to_owned(),
            format!("logfile {}", self.path("log").display()),
        ];
        if conf.unix_socket {
            lines.push(format!("unixsocket {}", self.socket().display()));
        }
        if let (Some(port), Some(files)) = (self.kind.tls_port, &self.kind.tls_files) {
            lines.push(format!("tls-port {port}"));
            lines.extend(files.conf());
        }
        if let Some(port) = self.kind.bus_port {
            lines.push(format!("cluster-port {port}"));
        }
        lines.extend(conf.lines.iter().cloned());
        let path = self.path("redis.conf");
        std::fs::write(&path, lines.join("\n") + "\n").expect("write redis.conf");
        path
    }
}

impl Kind for Redis {
    const NAME: &'static str = "Redis server";
    const MISSING: &'static str = MISSING;

    fn draw_ports(&mut self) {
        self.tls_port = self.conf.tls.then(free_port);
        self.bus_port = self.conf.cluster.then(free_port);
    }

    fn command(server: &RedisServer) -> Command {
        let mut command = Command::new(binary());
        command.arg(server.write_conf());
        command
    }

    /// Returns whether *this* server answers: a stranger that won the port has another directory.
    fn answers(server: &RedisServer) -> bool {
        let mut helper = server.helper();
        helper.connection = None;
        let Ok(connection) = Helper::connect(&server.url()) else {
            return false;
        };
        let connection = helper.connection.insert(connection);
        let dir: RedisResult<(String, String)> =
            redis::cmd("CONFIG").arg("GET").arg("dir").query(connection);
        // CONFIG is answered while the data are still being loaded, and PING is not.
        let loaded = redis::cmd("PING").query::<String>(connection).is_ok();
        let same = |a: &Path, b: &Path| a.canonicalize().ok() == b.canonicalize().ok();
        loaded && dir.is_ok_and(|(_, dir)| same(dir.as_ref(), server.dir()))
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
        let mut connection = redis::Client::open(url)?.get_connection_with_timeout(CALL_TIMEOUT)?;
        // With a timeout, a signal would end a call: the system begins only those without one anew. Other tests of this process
        // start processes, and hear of their ends by a signal.
        connection.set_read_timeout(None)?;
        connection.set_write_timeout(None)?;
        let _: Value = redis::cmd("CLIENT")
            .arg("SETNAME")
            .arg(HELPER)
            .query(&mut connection)?;
        Ok(connection)
    }

    fn call(&mut self, url: &str, args: &[&str]) -> RedisResult<Value> {
        let mut command = redis::cmd(args[0]);
        command.arg(&args[1..]);
        // Sentinels cut all clients of a server that they promote or demote, including this one.
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

/// Returns the program of servers and sentinels.
pub(crate) fn binary() -> OsString {
    std::env::var_os("REDIS_SERVER_BIN").unwrap_or_else(|| "redis-server".into())
}

/// Opens a connection that waits for each answer for as long as it takes. By default, the client gives up after a second or
/// half of one, and a busy machine, or a process that is frozen, may stand still for longer.
pub async fn patient(url: &str) -> MultiplexedConnection {
    let client = Client::open(url).expect("a URL");
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    connection.await.expect("connect")
}

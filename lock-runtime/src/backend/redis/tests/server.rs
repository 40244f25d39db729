//! A server that belongs to one test.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, PushInfo, PushKind, RedisError, Value};
use tokio::sync::mpsc;

pub(in super::super) struct TestServer {
    process: Child,
    reaper: Child,
    port: u16,
    arguments: Vec<String>,
}

impl TestServer {
    pub(in super::super) async fn start() -> TestServer {
        TestServer::start_with(&[]).await
    }

    pub(in super::super) async fn start_with(arguments: &[&str]) -> TestServer {
        let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
        // Another process may take the free port before the server does. Then this tries the next port.
        loop {
            let port = TcpListener::bind("127.0.0.1:0")
                .unwrap()
                .local_addr()
                .unwrap()
                .port();
            let [process, reaper] = spawn(port, &arguments);
            let mut server = TestServer {
                process,
                reaper,
                port,
                arguments: arguments.clone(),
            };
            if server.answers().await {
                return server;
            }
        }
    }

    /// Starts a replica of the server at another address of this machine, on the same port.
    pub(in super::super) fn replica_at(&self, address: &str) -> TestServer {
        let (port, of) = (self.port, format!("127.0.0.1 {}", self.port));
        let arguments = ["--bind", address, "--replicaof", &of];
        let whole = ["--repl-diskless-load", "swapdb", "--dbfilename", "none.rdb"];
        let arguments = arguments.iter().chain(&whole);
        let arguments: Vec<String> = arguments.map(|&text| text.to_owned()).collect();
        let [process, reaper] = spawn(port, &arguments);
        TestServer {
            process,
            reaper,
            port,
            arguments,
        }
    }

    /// Waits until the server answers. Returns `false` if the process ended before that. A process that lost the race
    /// for its port lives for another moment, while the winner, another test's server, answers there.
    async fn answers(&mut self) -> bool {
        let own = format!("process_id:{}\r\n", self.process.id());
        while self.process.try_wait().unwrap().is_none() {
            if let Ok(mut connection) = self.try_connect().await
                && let Ok(info) = run(&mut connection, redis::cmd("INFO").arg("server")).await
                && crate::backend::redis::scripting::reply::text(info)
                    .is_some_and(|info| info.contains(&own))
            {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        false
    }

    pub(in super::super) fn port(&self) -> u16 {
        self.port
    }

    pub(in super::super) fn url(&self) -> String {
        let mut words = self
            .arguments
            .iter()
            .skip_while(|word| *word != "--requirepass");
        let login = words
            .nth(1)
            .map_or_else(String::new, |word| format!("default:{word}@"));
        format!("redis://{login}127.0.0.1:{}/", self.port)
    }

    pub(in super::super) fn url_of(&self, user: &str) -> String {
        format!("redis://{user}:secret@127.0.0.1:{}/", self.port)
    }

    async fn try_connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let client = redis::Client::open(self.url())?;
        client
            .get_multiplexed_async_connection_with_config(&patient())
            .await
    }

    pub(in super::super) async fn connection(&self) -> MultiplexedConnection {
        self.try_connect().await.unwrap()
    }

    /// Runs a command given as words.
    pub(in super::super) async fn run(&self, words: &str) -> Value {
        run(&mut self.connection().await, command(words))
            .await
            .unwrap()
    }

    pub(in super::super) async fn text(&self, words: &str) -> String {
        redis::from_redis_value(self.run(words).await).unwrap()
    }

    pub(in super::super) async fn integer(&self, words: &str) -> i64 {
        match self.run(words).await {
            Value::Int(number) => number,
            other => panic!("{words}: {other:?}"),
        }
    }

    /// Returns the server's TIME in µs.
    pub(in super::super) async fn time(&self) -> u64 {
        crate::backend::redis::connection::check::micros(&self.run("TIME").await).unwrap()
    }

    /// Receives the messages on `channels` from now on: channel and payload.
    pub(in super::super) async fn listen(
        &self,
        channels: &[&str],
    ) -> mpsc::UnboundedReceiver<(String, String)> {
        let (sender, messages) = mpsc::unbounded_channel();
        let connection = Arc::new(OnceLock::new());
        let kept = connection.clone();
        let config = patient().set_push_sender(move |push: PushInfo| {
            // The callback keeps its own connection open.
            let _kept = &kept;
            if push.kind == PushKind::Message {
                let mut texts = push
                    .data
                    .into_iter()
                    .filter_map(crate::backend::redis::scripting::reply::text);
                if let (Some(channel), Some(payload)) = (texts.next(), texts.next()) {
                    let _ = sender.send((channel, payload));
                }
            }
            Ok::<(), ()>(())
        });
        let url = format!("{}?protocol=resp3", self.url());
        let client = redis::Client::open(url).unwrap();
        let mut opened = client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .unwrap();
        opened.subscribe(channels).await.unwrap();
        let _ = connection.set(opened);
        messages
    }

    pub(in super::super) fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-s", name, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    pub(in super::super) fn kill(&mut self) {
        // The reaper ends first: later, the server's id may belong to another process.
        for process in [&mut self.reaper, &mut self.process] {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Starts the server again on the same port, after [`kill`](TestServer::kill).
    pub(in super::super) async fn restart(&mut self) {
        [self.process, self.reaper] = spawn(self.port, &self.arguments);
        assert!(self.answers().await);
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_file(std::env::temp_dir().join(database(self.port)));
    }
}

/// The file into which a replica copies its master before it loads it. A server loads this file when it starts, so each
/// server needs a file of its own.
fn database(port: u16) -> String {
    format!("lock-runtime-test-{port}.rdb")
}

/// Starts a server, and a shell that ends it if this process ends before its drops. The shell reads a pipe that nobody writes
/// to, and outlives Ctrl-C, which a frozen server does not see.
fn spawn(port: u16, arguments: &[String]) -> [Child; 2] {
    let binary = std::env::var("REDIS_SERVER_BIN").unwrap_or_else(|_| "redis-server".to_owned());
    let server = Command::new(binary)
        .args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
        ])
        .args(["--appendonly", "no", "--enable-debug-command", "yes"])
        .arg("--dir")
        .arg(std::env::temp_dir())
        .args(["--dbfilename", &database(port)])
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a redis-server to test with: install one or set REDIS_SERVER_BIN");
    let reaper = Command::new("sh")
        .args([
            "-c",
            "trap '' HUP INT TERM; cat >/dev/null; kill -KILL \"$0\"",
        ])
        .arg(server.id().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell");
    [server, reaper]
}

/// The configuration of a connection without a timeout. By default, the client gives up after half a second, and a busy
/// machine may stand still for longer.
pub(in super::super) fn patient() -> redis::AsyncConnectionConfig {
    redis::AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
}

/// Returns the command of these words.
pub(in super::super) fn command(words: &str) -> Cmd {
    let mut parts = words.split_whitespace();
    let mut command = redis::cmd(parts.next().unwrap());
    for part in parts {
        command.arg(part);
    }
    command
}

pub(in super::super) async fn run(
    connection: &mut MultiplexedConnection,
    command: impl std::borrow::Borrow<Cmd>,
) -> Result<Value, RedisError> {
    connection
        .send_packed_command(command.borrow())
        .await?
        .extract_error()
}

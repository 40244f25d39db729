//! A Java process with a Redisson client in it, driven line by line: see `tests/interop/`.

mod lock;

use std::collections::HashMap;
use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::cluster::RedisCluster;
use crate::eventually::eventually;
use crate::server::RedisServer;

pub use lock::JavaLock;

/// The variable that names the directory with the worker's jars. `scripts/test-interop` builds them and sets it.
const JARS: &str = "LOCK_TEST_REDISSON";

/// The time that an answer may take. Only a test that fails spends it.
const PATIENCE: Duration = Duration::from_secs(300);

/// A Redisson client in a Java process of its own, which ends with this value, also on panic.
#[derive(Debug)]
pub struct JavaPeer {
    child: Child,
    client: String,
    stdin: Mutex<ChildStdin>,
    calls: Arc<Calls>,
    complaints: Arc<Mutex<String>>,
}

impl JavaPeer {
    /// Starts a client on this server, with Redisson's defaults.
    pub async fn start(server: &RedisServer) -> Self {
        Self::with_watchdog(server, Duration::from_secs(30)).await
    }

    /// Starts a client with another `lockWatchdogTimeout`, which is the lease of locks that are renewed.
    pub async fn with_watchdog(server: &RedisServer, watchdog: Duration) -> Self {
        Self::launch(server.port().to_string(), watchdog).await
    }

    /// Starts a client on a cluster. `sharded` is its `shardedSubscriptionMode`, which is on by default.
    pub async fn on_cluster(cluster: &RedisCluster, sharded: bool) -> Self {
        let mode = if sharded { "ON" } else { "OFF" };
        let ports: Vec<_> = cluster
            .nodes
            .iter()
            .map(|node| node.port().to_string())
            .collect();
        let nodes = format!("{mode}:{}", ports.join(","));
        Self::launch(nodes, Duration::from_secs(30)).await
    }

    async fn launch(server: String, watchdog: Duration) -> Self {
        let mut child = command(&server, watchdog)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("`java` does not start ({error}): {HINT}"));
        let stdin = child.stdin.take().expect("a pipe to Java");
        let stdout = child.stdout.take().expect("a pipe from Java");
        let stderr = child.stderr.take().expect("a pipe from Java");

        let complaints = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&complaints);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                *locked(&heard) += &(line + "\n");
            }
        });
        let calls = Arc::new(Calls::default());
        let ready = calls.expect(READY);
        let reader = Arc::clone(&calls);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                reader.answer(&line);
            }
            reader.close();
        });

        let mut peer = Self {
            child,
            client: String::new(),
            stdin: Mutex::new(stdin),
            calls,
            complaints,
        };
        match ready.await {
            Ok(client) => peer.client = client,
            Err(why) => panic!("no Redisson client: {why}\n{}\n{HINT}", peer.complaints()),
        }
        peer
    }

    /// Returns the id of the client, which is the first half of its holders' names.
    pub fn client_id(&self) -> &str {
        &self.client
    }

    /// Sends a command now. The caller may await the answer, or drop it.
    pub fn tell(&self, command: impl Display) -> Answer {
        let (id, answer) = self.calls.expect_next();
        // If Java is gone, the answer says so.
        let _ = writeln!(locked(&self.stdin), "{id} {command}");
        answer
    }

    /// Sends a command and returns its value. Panics on an error.
    pub async fn ask(&self, command: impl Display) -> String {
        let answer = self.tell(&command).await;
        answer.unwrap_or_else(|why| panic!("{command}: {why}\n{}", self.complaints()))
    }

    /// Returns what it wrote to its log, which has only warnings and errors.
    pub fn complaints(&self) -> String {
        locked(&self.complaints).clone()
    }

    /// Waits until this thread sleeps until a message comes: the server has answered its last question a little earlier.
    pub async fn sleeps(&self, thread: &str) {
        eventually("the thread of Java sleeps", async || {
            self.ask(format!("sleeps {thread}")).await == "true"
        })
        .await;
    }

    /// Kills the process as a crash would, and waits until it is gone.
    pub fn kill9(&mut self) {
        self.child.kill().expect("kill Java");
        self.child.wait().expect("Java's exit status");
    }
}

impl Drop for JavaPeer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The answer to one command: its value, or the reason why it failed.
#[derive(Debug)]
pub struct Answer {
    receiver: oneshot::Receiver<Result<String, String>>,
    patience: Pin<Box<tokio::time::Sleep>>,
}

impl Answer {
    /// Returns whether the answer is there.
    pub fn is_there(&self) -> bool {
        !self.receiver.is_empty()
    }
}

impl Future for Answer {
    type Output = Result<String, String>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(answer) = Pin::new(&mut self.receiver).poll(cx) {
            return Poll::Ready(answer.unwrap_or_else(|_| Err("Java has ended".to_owned())));
        }
        self.patience
            .as_mut()
            .poll(cx)
            .map(|()| Err(format!("no answer within {PATIENCE:?}")))
    }
}

/// The commands that are not answered yet.
#[derive(Debug, Default)]
struct Calls {
    state: Mutex<CallState>,
}

#[derive(Debug, Default)]
struct CallState {
    last: u64,
    /// The senders by id. `None` once Java has ended.
    waiting: Option<HashMap<String, oneshot::Sender<Result<String, String>>>>,
}

const READY: &str = "ready";

impl Calls {
    fn expect_next(&self) -> (u64, Answer) {
        let id = {
            let mut state = locked(&self.state);
            state.last += 1;
            state.last
        };
        (id, self.expect(&id.to_string()))
    }

    fn expect(&self, id: &str) -> Answer {
        let (sender, receiver) = oneshot::channel();
        let mut state = locked(&self.state);
        if id == READY {
            state.waiting = Some(HashMap::new());
        }
        if let Some(waiting) = &mut state.waiting {
            waiting.insert(id.to_owned(), sender);
        }
        Answer {
            receiver,
            patience: Box::pin(tokio::time::sleep(PATIENCE)),
        }
    }

    fn answer(&self, line: &str) {
        let (id, value) = line.split_once(' ').unwrap_or((line, ""));
        let answer = match value.strip_prefix("! ") {
            Some(error) => Err(error.to_owned()),
            None => Ok(value.to_owned()),
        };
        let sender = locked(&self.state)
            .waiting
            .as_mut()
            .and_then(|waiting| waiting.remove(id));
        if let Some(sender) = sender {
            let _ = sender.send(answer);
        }
    }

    fn close(&self) {
        locked(&self.state).waiting = None;
    }
}

const HINT: &str = "run these tests with `scripts/test-interop`, which installs a JDK and Maven and builds what runs \
in Java (by hand: apt-get install openjdk-17-jdk-headless maven, or brew install openjdk@17 maven)";

fn command(server: &str, watchdog: Duration) -> Command {
    let jars =
        std::env::var_os(JARS).unwrap_or_else(|| panic!("{JARS} names no directory: {HINT}"));
    let jars = PathBuf::from(jars);
    assert!(
        jars.join("worker.jar").is_file(),
        "no worker.jar in {}: {HINT}",
        jars.display()
    );
    let mut command = Command::new(java());
    // These options save start-up time: a test's client does not live long enough for the optimizing compiler.
    command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx192m"]);
    command.arg("-cp").arg(jars.join("*")).arg("interop.Worker");
    command.arg(server).arg(watchdog.as_millis().to_string());
    command
}

fn java() -> PathBuf {
    match std::env::var_os("JAVA_HOME") {
        Some(home) => Path::new(&home).join("bin").join("java"),
        None => PathBuf::from("java"),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

//! The process of a server that belongs to a test: it is started, frozen, killed and started again.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::ports::free_port;
use crate::running::Running;

const START_TIMEOUT: Duration = Duration::from_secs(180);
/// The pauses between looks at a server that starts grow from the first to the last: some need milliseconds, some
/// seconds.
const LOOKS: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(20)];

/// The parts that differ between servers.
pub trait Kind: Sized {
    /// The name of the server.
    const NAME: &'static str;
    /// The advice to those who have not installed its programs.
    const MISSING: &'static str;
    /// The signal that ends it at once.
    const END: Signal = Signal::KILL;
    /// Whether it has processes besides the first one.
    const HAS_WORKERS: bool = false;

    /// Draws the ports that it has besides its first one.
    fn draw_ports(&mut self) {}

    /// Returns the command that starts it. It is called again for each start.
    fn command(server: &Server<Self>) -> Command;

    /// Returns whether it answers.
    fn answers(server: &Server<Self>) -> bool;
}

/// A server with a directory and a port of its own. It ends with this value, also on panic.
#[derive(Debug)]
pub struct Server<K> {
    pub(crate) kind: K,
    port: u16,
    process: Option<Running>,
    // This is declared after the process, so that the directory is removed when nobody writes into it any more.
    dir: TempDir,
}

impl<K: Kind> Server<K> {
    /// Starts it in a directory that has what it needs.
    pub(crate) fn launch(kind: K, dir: TempDir) -> Self {
        let mut server = Self {
            kind,
            port: 0,
            process: None,
            dir,
        };
        for _ in 0..10 {
            server.port = free_port();
            server.kind.draw_ports();
            if server.spawn() {
                return server;
            }
        }
        panic!("the {} did not start:\n{}", K::NAME, server.log());
    }

    /// Starts it on a port that another server has had.
    pub(crate) fn launch_at(port: u16, kind: K, dir: TempDir) -> Self {
        let mut server = Self {
            kind,
            port,
            process: None,
            dir,
        };
        server.kind.draw_ports();
        server.start_again();
        server
    }

    /// Returns the first port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns `127.0.0.1:port`.
    pub fn addr(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// Returns what the server has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Returns whether it was started and not killed since. A frozen server counts as running.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Returns the id of its first process.
    pub fn pid(&self) -> u32 {
        self.running().id()
    }

    /// Freezes the server: connections stay open, and nothing is answered.
    pub fn sigstop(&self) {
        self.signal(Signal::STOP);
    }

    /// Thaws a frozen server.
    pub fn sigcont(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the server as a crash would, and waits until it is gone. No connection ends in order.
    pub fn kill9(&mut self) {
        if let Some(process) = self.process.take() {
            process.signal(Signal::KILL);
        }
    }

    /// Starts the server again on the same ports. Kills it first if it lives.
    pub(crate) fn start_again(&mut self) {
        self.kill9();
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.spawn() {
            let (name, log) = (K::NAME, self.log());
            assert!(
                Instant::now() < deadline,
                "the {name} did not come back:\n{log}"
            );
        }
    }

    /// Returns the path of a file in its directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    /// Returns its directory.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn running(&self) -> &Running {
        self.process
            .as_ref()
            .expect("the server was killed and not restarted")
    }

    fn signal(&self, signal: Signal) {
        let process = self.running();
        // The first process is signalled before the others are listed: it would go on starting more.
        process.signal(signal);
        if K::HAS_WORKERS {
            process.signal_workers(signal);
        }
    }

    /// Starts it and waits until it answers. Returns false if it ended before that: another process was faster with a
    /// port.
    fn spawn(&mut self) -> bool {
        let mut command = K::command(self);
        let started = Running::start(&mut command, self.dir(), K::END);
        let mut process = started.unwrap_or_else(|error| missing::<K>(&command, &error));
        let deadline = Instant::now() + START_TIMEOUT;
        let [mut pause, longest] = LOOKS;
        while !process.has_ended() {
            // What answers may be a server of somebody else, because of which this one ends.
            if K::answers(self) && !process.has_ended() {
                self.process = Some(process);
                return true;
            }
            let (name, log) = (K::NAME, self.log());
            assert!(
                Instant::now() < deadline,
                "no answer from the {name}:\n{log}"
            );
            std::thread::sleep(pause);
            pause = (pause * 2).min(longest);
        }
        false
    }
}

/// Runs one of the server's programs to its end. Returns what it printed.
pub(crate) fn run<K: Kind>(command: &mut Command) -> String {
    let done = command.stdin(Stdio::null()).output();
    let done = done.unwrap_or_else(|error| missing::<K>(command, &error));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}:\n{said}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn missing<K: Kind>(command: &Command, error: &io::Error) -> ! {
    let program = command.get_program().display();
    panic!(
        "no {} to test with: {} ({program}: {error})",
        K::NAME,
        K::MISSING
    )
}

/// Makes a new directory of this process's user.
pub(crate) fn directory_in(folder: &Path) -> TempDir {
    tempfile::Builder::new()
        .prefix("lock-test")
        .tempdir_in(folder)
        .expect("a directory")
}

//! Other processes that contend for the same locks: see `src/bin/worker.rs`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::history::Hold;

const PATIENCE: Duration = Duration::from_secs(120);

/// A second process. It ends with this value, also on panic.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Worker {
    /// Starts the binary, which tests name with `env!("CARGO_BIN_EXE_worker")`.
    pub fn start(binary: &str, args: &[&str]) -> Self {
        Self::spawn(Command::new(binary).args(args))
    }

    /// Starts a command, with pipes to talk to it.
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("a pipe from the worker"));
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            stdin,
            lines,
        }
    }

    /// Returns the next line of its output, or `None` when its output has ended.
    pub fn line(&self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the worker said nothing for {PATIENCE:?}"),
        }
    }

    /// Returns the next line if it has been said already. Does not wait for it.
    pub fn try_line(&self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// Returns whether its process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Waits for the next line, which must be this one.
    pub fn expect_line(&self, expected: &str) {
        assert_eq!(self.line().as_deref(), Some(expected));
    }

    /// Writes a line to its input.
    pub fn tell(&mut self, line: &str) {
        self.try_tell(line).expect("write to the worker");
    }

    /// Writes a line to its input.
    ///
    /// # Errors
    /// It has ended.
    pub fn try_tell(&mut self, line: &str) -> std::io::Result<()> {
        let stdin = self.stdin.as_mut().expect("a pipe to the worker");
        writeln!(stdin, "{line}")
    }

    /// Returns the holds that it reports, up to its end. Panics if it failed.
    pub fn holds(mut self) -> Vec<Hold> {
        let mut holds = Vec::new();
        while let Some(line) = self.line() {
            holds.push(line.parse().expect("a hold from the worker"));
        }
        let status = self.child.wait().expect("the worker's exit status");
        assert!(status.success(), "the worker failed: {status}");
        holds
    }

    /// Returns the id of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to its process.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.process(), signal).expect("signal the worker");
    }

    /// Freezes the process, and returns when none of its threads runs any more. `signal(Signal::CONT)` thaws it.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        let ends = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.process()), ends).expect("wait until the worker stands still");
    }

    fn process(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Kills the process as a crash would.
    pub fn kill9(&mut self) {
        self.child.kill().expect("kill the worker");
        self.child.wait().expect("the worker's exit status");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

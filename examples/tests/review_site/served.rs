//! A review site that runs, for the tests.

use std::process::Command;
use std::time::{Duration, Instant};

use axum::http::Method;
use examples::{Answer, Client};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tests::Worker;

/// The longest wait for an event. Only a test that fails spends it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn program(url: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_review-site"));
    command.env("LOCK_URL", url).env_remove("TRACE");
    command
}

/// A site that is served, in a directory of its own.
pub(crate) struct Site {
    pub(crate) parent: Worker,
    /// The processes behind the port, and the ids of their locks.
    pub(crate) processes: Vec<(u32, String)>,
    /// The server's URL, as it is shown.
    pub(crate) store: String,
    pub(crate) client: Client,
    pub(crate) directory: TempDir,
}

impl Site {
    pub(crate) fn serve(url: &str, processes: usize) -> Site {
        Site::start(program(url), processes)
    }

    pub(crate) fn start(mut command: Command, processes: usize) -> Site {
        let directory = tempfile::tempdir().expect("a directory");
        command.env("TMPDIR", directory.path());
        command.args(["--serve", "--port", "0", "--processes"]);
        let parent = Worker::spawn(command.arg(processes.to_string()));
        let line = || parent.line().expect("a line of the site");
        let mut started = vec![];
        for _ in 0..processes {
            let line = line();
            let (pid, locks) = line
                .strip_prefix("process ")
                .and_then(|line| line.split_once(" has the locks of "))
                .unwrap_or_else(|| panic!("no process in `{line}`"));
            started.push((pid.parse().expect("a number"), locks.to_owned()));
        }
        let line = line();
        let (store, address) = line
            .strip_prefix("The site lives in ")
            .and_then(|line| line.split_once(". Open http://"))
            .unwrap_or_else(|| panic!("no address in `{line}`"));
        Site {
            processes: started,
            store: store.to_owned(),
            client: Client::of(address.parse().expect("an address")),
            parent,
            directory,
        }
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        session: &str,
        json: &str,
    ) -> Answer {
        let cookie = format!("session={session}");
        let headers = [
            ("content-type", "application/json"),
            ("cookie", cookie.as_str()),
        ];
        let answer = self.client.send(method, path, &headers, json).await;
        answer.expect("an answer")
    }
}

/// Asks it to end, so that its processes do not outlive the test for long.
impl Drop for Site {
    fn drop(&mut self) {
        if self.parent.has_ended() {
            return;
        }
        signal(self.parent.pid(), Signal::TERM);
        let begun = Instant::now();
        while !self.parent.has_ended() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid as i32).expect("a process");
    kill_process(pid, signal).expect("signal it");
}

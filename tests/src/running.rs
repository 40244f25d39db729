//! A server's process, which ends with its test.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// A server process, and a shell that ends it and removes its directory if this process ends before its drops.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    end: Signal,
    reaper: Option<Child>,
}

impl Running {
    /// Starts the process. `end` is the signal that ends it at once.
    ///
    /// # Errors
    /// The system's error. Usually, the binary is missing.
    pub(crate) fn start(command: &mut Command, dir: &Path, end: Signal) -> std::io::Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        // The shell reads a pipe that nobody writes to. The pipe closes when this process ends, however it ends. The shell
        // has a process group of its own, because Ctrl-C ends everything in that of the tests. It thaws a frozen server.
        let reaper = Command::new("sh")
            .args([
                "-c",
                "cat >/dev/null; kill -\"$2\" \"$0\"; kill -CONT \"$0\"; sleep 1; rm -rf -- \"$1\"",
                &child.id().to_string(),
            ])
            .arg(dir)
            .arg(end.as_raw().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .ok();
        Ok(Self { child, end, reaper })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("signal the server");
    }

    /// Signals the processes that it has started.
    pub(crate) fn signal_workers(&self, signal: Signal) {
        let first = self.id().to_string();
        let all = Command::new("pgrep").args(["-P", &first]).output();
        let all = all.expect("pgrep, of the package procps").stdout;
        for pid in String::from_utf8_lossy(&all).lines() {
            let pid = pid.parse().ok().and_then(Pid::from_raw);
            let _ = pid.map(|pid| kill_process(pid, signal));
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The shell ends first: after the wait below, the server's id may belong to another process.
        if let Some(reaper) = &mut self.reaper {
            let _ = reaper.kill();
            let _ = reaper.wait();
        }
        let _ = kill_process(self.pid(), self.end);
        // A server that was frozen sees the signal only now.
        let _ = kill_process(self.pid(), Signal::CONT);
        let deadline = Instant::now() + ENDS_WITHIN;
        while !self.has_ended() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

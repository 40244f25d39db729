//! Several processes behind one port: this program starts itself again, as `review-site process …`.
//!
//! The parent listens, and every process inherits the listener as its standard input. There is one queue of connections,
//! from which each takes: when one of them ends, no connection is lost that waits in it. With a listener for each
//! (`SO_REUSEPORT`), those in the queue of the one that ends would be reset.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use examples::Failure;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use crate::site::Home;

/// The time that a process gets for the requests under way when it is asked to end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The processes of a site. They end with this value.
pub(crate) struct Fleet {
    pub(crate) processes: Vec<Process>,
}

pub(crate) struct Process {
    child: Child,
    pub(crate) pid: u32,
    /// The id of its locks' holders.
    pub(crate) locks: String,
}

impl Fleet {
    /// Starts the processes, and waits until each one serves.
    pub(crate) async fn start(
        many: usize,
        listener: std::net::TcpListener,
        home: &Home,
    ) -> Result<Fleet, Failure> {
        let mut started = vec![];
        for _ in 0..many {
            // The URL travels in the environment: it may hold a password, and arguments are public.
            let mut child = Command::new(std::env::current_exe()?)
                .arg("process")
                .arg(&home.database)
                .env("LOCK_URL", home.store.url())
                .stdin(Stdio::from(OwnedFd::from(listener.try_clone()?)))
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()?;
            let stdout = child.stdout.take().ok_or("a process has no output")?;
            started.push((child, BufReader::new(stdout).lines()));
        }
        let mut processes = vec![];
        for (child, mut lines) in started {
            let locks = lines.next_line().await?;
            let locks = locks.ok_or("a process ended before it served")?;
            let pid = child.id().ok_or("a process ended before it served")?;
            tokio::spawn(pass_on(lines));
            processes.push(Process { child, pid, locks });
        }
        Ok(Fleet { processes })
    }

    /// Waits until none is left.
    pub(crate) async fn all_ended(&mut self) {
        for process in &mut self.processes {
            let _ = process.child.wait().await;
        }
    }

    /// Ends all of them in order, and waits for all. Returns the error of the first one that had failed.
    pub(crate) async fn stop(self) -> Result<(), Failure> {
        let mut stopped = Ok(());
        for process in &self.processes {
            // One that has ended already is not signalled: its number may be another process's by now.
            if process.child.id().is_some() {
                process.terminate()?;
            }
        }
        for process in self.processes {
            stopped = stopped.and(process.ended().await);
        }
        stopped
    }
}

async fn pass_on(mut lines: Lines<BufReader<ChildStdout>>) {
    while let Ok(Some(line)) = lines.next_line().await {
        println!("{line}");
    }
}

impl Process {
    pub(crate) fn terminate(&self) -> io::Result<()> {
        let pid = Pid::from_raw(self.pid as i32);
        let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(kill_process(pid, Signal::TERM)?)
    }

    /// Waits for its end, which must be in order.
    pub(crate) async fn ended(mut self) -> Result<(), Failure> {
        // Once for the requests, and once for the locks.
        let status = timeout(2 * PATIENCE + PATIENCE / 2, self.child.wait()).await;
        let pid = self.pid;
        match status.map_err(|_| format!("process {pid} did not end"))?? {
            status if status.success() => Ok(()),
            status => Err(format!("process {pid} ended with {status}").into()),
        }
    }
}

/// Waits for SIGTERM or Ctrl-C, from now on.
pub(crate) fn asked_to_end() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

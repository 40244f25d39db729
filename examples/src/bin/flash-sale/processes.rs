//! Several server processes: this program starts itself again, as `flash-sale serve …`.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use examples::Store;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::args::Serve;
use crate::database::Database;
use crate::sale::Sale;
use crate::server::Server;
use crate::{Failure, LOCKED, UNLOCKED};

/// The time that a process may take to end before it is killed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Server processes on one database file and one lock store. Each ends when its stdin closes, so none outlives
/// this value or this process, no matter how this process ends.
pub(crate) struct Fleet {
    children: Vec<Child>,
    urls: Vec<String>,
}

impl Fleet {
    /// Starts the processes and waits until each one listens.
    pub(crate) async fn start(
        count: usize,
        database: &Path,
        locked: bool,
    ) -> Result<Fleet, Failure> {
        let program = std::env::current_exe()?;
        let mut children = Vec::with_capacity(count);
        for _ in 0..count {
            // The store's URL travels in the environment: it may hold a password, and arguments are public.
            let child = Command::new(&program)
                .arg("serve")
                .arg(database)
                .arg(if locked { LOCKED } else { UNLOCKED })
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            children.push(child);
        }
        let mut urls = Vec::with_capacity(count);
        for child in &mut children {
            let stdout = child
                .stdout
                .take()
                .ok_or("a server process has no output")?;
            let first = BufReader::new(stdout).lines().next_line().await?;
            urls.push(first.ok_or("a server process ended before it listened")?);
        }
        Ok(Fleet { children, urls })
    }

    /// Returns the URLs at which clients reach them.
    pub(crate) fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Lets all of them finish, and waits for all. Returns the error of the first one that had failed.
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        for child in &mut self.children {
            drop(child.stdin.take());
        }
        let mut stopped = Ok(());
        for child in &mut self.children {
            // The others are waited for whatever became of this one: until they have ended, they write to the database.
            stopped = stopped.and(ended_well(child).await);
        }
        stopped
    }
}

async fn ended_well(child: &mut Child) -> Result<(), Failure> {
    let status = wait_or_kill(child).await?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("a server process ended with {status}").into()),
    }
}

async fn wait_or_kill(child: &mut Child) -> Result<ExitStatus, Failure> {
    if let Ok(status) = tokio::time::timeout(PATIENCE, child.wait()).await {
        return Ok(status?);
    }
    child.kill().await?;
    Ok(child.wait().await?)
}

/// Serves until stdin closes, as such a process.
pub(crate) async fn serve(options: Serve) -> Result<(), Failure> {
    // A terminal sends Ctrl-C to the children, too. They end with their parent, after their requests.
    tokio::spawn(async { while tokio::signal::ctrl_c().await.is_ok() {} });

    let locks = Store::from_env().connect().await?;
    let sale = Sale::new(Database::open(&options.database), locks.clone());
    let server = Server::start(sale, options.locked).await?;
    println!("{}", server.url());

    let mut parent = tokio::io::stdin();
    let mut ignored = [0; 64];
    while parent.read(&mut ignored).await? > 0 {}
    server.stop().await?;
    locks.shutdown().await;
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str, directory: &Path) -> Child {
        Command::new("sh")
            .args(["-c", script])
            .current_dir(directory)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap()
    }

    #[tokio::test]
    async fn the_processes_after_one_that_failed_are_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        // The pause keeps the second one at work after the first one has been seen to fail.
        let children = ["exit 3", "read line; sleep 0.2; touch ended", "exit 4"];
        let fleet = Fleet {
            children: children
                .map(|script| shell(script, directory.path()))
                .into(),
            urls: vec![],
        };
        let failure = fleet.stop().await.unwrap_err().to_string();
        assert!(failure.contains("3"), "{failure}");
        assert!(directory.path().join("ended").exists());
    }
}

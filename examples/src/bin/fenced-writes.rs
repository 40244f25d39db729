//! A holder is paused, loses its lock, wakes up, and writes too late.
//!
//! `cargo run --bin fenced-writes`, or with `LOCK_URL=redis://127.0.0.1/` in front to keep the lock in Redis.
//!
//! No lease can close the gap between "do I still hold it?" and the write that follows: the process may be paused right
//! there, for longer than the lease. The database can: every hold has a token, each higher than those before, and a row
//! takes no write from a lower token than it has seen.

use std::process::ExitCode;
use std::sync::mpsc;

use examples::{Failure, prove};
use lock_runtime::{FencingToken, LockError, LockManager, distributed_lock};
use rusqlite::{Connection, params};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::block_in_place;

/// The way in which a writer writes.
#[derive(Clone, Copy, Debug)]
enum Fence {
    Ignored,
    Checked,
}

/// The database's answer to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Yes,
    TooLate,
}

/// The meter readings: a SQLite file, to which each writer has a connection of its own.
struct Readings {
    directory: TempDir,
}

impl Readings {
    fn create() -> Result<Readings, Failure> {
        let directory = tempfile::Builder::new().prefix("fenced-writes").tempdir()?;
        let readings = Readings { directory };
        readings.open()?.execute_batch(
            "CREATE TABLE meters (name TEXT PRIMARY KEY, value INTEGER, token INTEGER NOT NULL);
             INSERT INTO meters VALUES ('gas', 0, 0);",
        )?;
        Ok(readings)
    }

    fn open(&self) -> rusqlite::Result<Connection> {
        Connection::open(self.directory.path().join("readings.sqlite"))
    }

    fn value(&self) -> rusqlite::Result<i64> {
        let sql = "SELECT value FROM meters WHERE name = 'gas'";
        self.open()?.query_one(sql, [], |row| row.get(0))
    }

    /// Checks and writes in one statement, so that the process cannot be paused between the two.
    fn write(&self, value: i64, token: FencingToken, fence: Fence) -> rusqlite::Result<Written> {
        let sql = match fence {
            Fence::Ignored => "UPDATE meters SET value = ?1, token = ?2 WHERE name = 'gas'",
            Fence::Checked => {
                "UPDATE meters SET value = ?1, token = ?2 WHERE name = 'gas' AND token <= ?2"
            }
        };
        let rows = self
            .open()?
            .execute(sql, params![value, i64::from(token)])?;
        Ok(if rows == 1 {
            Written::Yes
        } else {
            Written::TooLate
        })
    }
}

/// The channels of Ada's pause: she says that she runs, and is paused until she is told to go on.
struct Pause {
    running: oneshot::Sender<()>,
    go_on: mpsc::Receiver<()>,
    wrote: oneshot::Sender<Written>,
}

/// Writes as Ada, after a pause. Her lease is short and not renewed, because a pause of the whole process would stop
/// the renewals as well. With `on_lost = error` she is told of the loss although nothing could stop her body.
#[distributed_lock(
    key = "meter:gas",
    lease = "1s",
    auto_renew = false,
    on_lost = error,
    manager = locks,
    guard = lease
)]
async fn ada(
    locks: &LockManager,
    readings: &Readings,
    fence: Fence,
    pause: Pause,
) -> Result<(), Failure> {
    let token = lease.fencing_token().ok_or("no token")?;
    println!("   ada holds {}, token {token}", lease.name());
    if !lease.is_held() {
        return Err("ada lost her lock before her pause".into());
    }
    let _ = pause.running.send(());
    // This is not an `.await`, because a frozen holder cannot be cancelled. The other tasks of the runtime go on
    // meanwhile.
    block_in_place(|| pause.go_on.recv())?;
    println!("   ada wakes up; she last looked before her pause, so she writes 1000");
    let written = readings.write(1000, token, fence)?;
    let _ = pause.wrote.send(written);
    Ok(())
}

#[distributed_lock(key = "meter:gas", wait = "30s", manager = locks, guard = lease)]
async fn bob(locks: &LockManager, readings: &Readings, fence: Fence) -> Result<Written, Failure> {
    let token = lease.fencing_token().ok_or("no token")?;
    println!(
        "   bob holds {}, token {token}, and writes 2000",
        lease.name()
    );
    Ok(readings.write(2000, token, fence)?)
}

/// The results of the two writes.
struct Story {
    late: Written,
    value: i64,
    ada: Result<(), Failure>,
}

/// Pauses Ada under the lock until Bob has written.
async fn tell(locks: &LockManager, fence: Fence) -> Result<Story, Failure> {
    let readings = std::sync::Arc::new(Readings::create()?);
    let (running, is_running) = oneshot::channel();
    let (wake, go_on) = mpsc::channel();
    let (wrote, late) = oneshot::channel();
    let pause = Pause {
        running,
        go_on,
        wrote,
    };
    let ada = tokio::spawn({
        let (locks, readings) = (locks.clone(), readings.clone());
        async move { ada(&locks, &readings, fence, pause).await }
    });
    is_running.await.map_err(|_| "ada did not get the lock")?;
    println!("   ada is paused");
    let written = bob(locks, &readings, fence).await?;
    if written != Written::Yes {
        return Err("bob, who holds the lock, was refused".into());
    }
    wake.send(())?;
    let ada = ada.await?;
    Ok(Story {
        late: late.await?,
        value: readings.value()?,
        ada,
    })
}

async fn tour(locks: &LockManager) -> Result<(), Failure> {
    println!("\n1. The database takes every write.");
    let story = tell(locks, Fence::Ignored).await?;
    prove(
        (story.late, story.value) == (Written::Yes, 1000),
        "without a fence the late write replaced bob's 2000 by 1000",
    )?;

    println!("\n2. The database compares tokens.");
    let story = tell(locks, Fence::Checked).await?;
    prove(
        (story.late, story.value) == (Written::TooLate, 2000),
        "with a fence the late write was refused, and bob's 2000 stands",
    )?;
    let Err(told) = story.ada else {
        return Err("ada was not told of her loss".into());
    };
    println!("   ada is told: {told}");
    let lost = matches!(told.downcast_ref(), Some(LockError::Lost { .. }));
    prove(lost, "ada knows that she worked without the lock")?;
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    examples::run("fenced-writes", tour).await
}

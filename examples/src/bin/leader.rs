//! Three replicas of which one at a time leads.
//!
//! `cargo run --bin leader`, or with `LOCK_URL=redis://127.0.0.1/` in front to elect on Redis. Each replica has a
//! connection of its own, as if it were a process.

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use examples::{Failure, Store, prove};
use lock_runtime::{FencingToken, LeaderObserver, Lease, LockError, LockManager};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep};

const ELECTION: &str = "scheduler";
const NAMES: [&str; 3] = ["ada", "bob", "carol"];
/// The time that a manager gives its holders when it shuts down, unless it is told otherwise.
const GRACE: Duration = Duration::from_secs(10);

/// The channel that gets the token of every term.
type Begins = mpsc::UnboundedSender<Option<FencingToken>>;

/// Takes part in the election, as every replica does while it runs.
async fn replica(locks: LockManager, begins: Begins) -> Result<(), LockError> {
    let election = locks.elect(ELECTION);
    // Waits until it is elected. If it is deposed, its body is dropped, and it waits to be elected again.
    election
        .lead(async |lease| work(&lease, &begins).await)
        .await
}

async fn work(lease: &Lease, begins: &Begins) {
    let _ = begins.send(lease.fencing_token());
    let mut every = interval(Duration::from_millis(10));
    loop {
        tokio::select! {
            // The process is asked to end. The body ends, so that another replica leads at once.
            () = lease.closing() => return,
            // This is a step of the work, which `closing` does not cut in half.
            _ = every.tick() => sleep(Duration::from_millis(5)).await,
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    examples::run("leader", show).await
}

async fn show(operator: &LockManager) -> Result<(), Failure> {
    let (begins, mut terms) = mpsc::unbounded_channel();
    let mut replicas = HashMap::new();
    for name in NAMES {
        let locks = Store::from_env().connect().await?;
        let running = tokio::spawn(replica(locks.clone(), begins.clone()));
        replicas.insert(locks.id(), (name, locks, running));
    }
    let mut observer = operator.elect(ELECTION).observe();

    println!("\n1. Three replicas want to lead.");
    let first = next_leader(&mut observer, &mut terms, &replicas).await?;

    println!("\n2. The leader's process is asked to end.");
    let (name, locks, running) = replicas
        .remove(&first.id)
        .ok_or("a leader that is unknown")?;
    let began = Instant::now();
    locks.shutdown().await;
    let took = began.elapsed();
    running.await??;
    println!("   {name} has ended after {took:?}");
    prove(
        took < GRACE,
        "a leader that listens to `closing` ends before its time is over",
    )?;
    let second = next_leader(&mut observer, &mut terms, &replicas).await?;
    prove(second.id != first.id, "another replica leads")?;

    println!("\n3. An operator deposes the leader.");
    // The leader may go on for a moment, until it is told. A database that checks tokens refuses its late writes,
    // because its token is lower.
    operator.force_release(ELECTION).await?;
    let third = next_leader(&mut observer, &mut terms, &replicas).await?;
    prove(
        first.token < second.token && second.token < third.token,
        "each leader had a larger fencing token than the one before",
    )?;

    for (_, locks, running) in replicas.into_values() {
        locks.shutdown().await;
        match running.await? {
            // It was leading, or it was waiting.
            Ok(()) | Err(LockError::ShuttingDown { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The name, the manager and the task of each replica, by the manager's id.
type Replicas = HashMap<String, (&'static str, LockManager, JoinHandle<Result<(), LockError>>)>;

/// The manager that leads, and the token of its term.
struct Elected {
    id: String,
    token: Option<FencingToken>,
}

/// Waits until another replica leads and its body has begun.
async fn next_leader(
    observer: &mut LeaderObserver,
    terms: &mut mpsc::UnboundedReceiver<Option<FencingToken>>,
    replicas: &Replicas,
) -> Result<Elected, Failure> {
    let token = terms.recv().await.flatten();
    loop {
        let Some(leader) = observer.changed().await? else {
            println!("   nobody leads");
            continue;
        };
        let id = leader.manager_id().to_owned();
        if let Some((name, ..)) = replicas.get(&id) {
            println!("   {name} leads");
            return Ok(Elected { id, token });
        }
    }
}

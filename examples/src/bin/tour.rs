//! A tour: two tasks want one lock, then a holder loses it.
//!
//! `cargo run --bin tour`, or with `LOCK_URL=redis://127.0.0.1/` in front to keep the lock in Redis.

use std::process::ExitCode;
use std::time::Duration;

use examples::Store;
use lock_runtime::{LockError, LockManager, distributed_lock};
use tokio::sync::oneshot;
use tokio::time::sleep;

#[tokio::main]
async fn main() -> ExitCode {
    let store = Store::from_env();
    let locks = match store.connect().await {
        Ok(locks) => locks,
        Err(why) => {
            eprintln!("tour: {why}");
            return ExitCode::from(2);
        }
    };
    println!("The lock lives in {store}.\n");
    let outcome = tour(&locks).await;
    // Gives the locks back: waits 12 s at most.
    locks.shutdown().await;
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tour: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn tour(locks: &LockManager) -> Result<(), LockError> {
    // The attribute uses the global manager if it names none.
    locks.install_global();

    println!("1. Two tasks want the same report; one at a time gets it.");
    let (ada, bob) = tokio::join!(build_report("ada", "monday"), build_report("bob", "monday"));
    ada.and(bob)?;

    println!("\n2. Carol holds the lock when somebody releases it by force.");
    let (started, carol_works) = oneshot::channel();
    let carol = locks.mutex("report:tuesday").run(async |lease| {
        let _draft = Draft;
        println!("   carol holds {}, token {}", lease.name(), token(&lease));
        let _ = started.send(());
        sleep(Duration::from_secs(3600)).await;
        println!("   carol is done: never printed, the hour above was cut short");
    });
    let force = async {
        let _ = carol_works.await;
        let seen = locks.inspect("report:tuesday").await?;
        if let Some(holder) = seen.holder {
            println!("   the store says: held by {holder}");
        }
        locks.force_release("report:tuesday").await
    };
    let (carol, forced) = tokio::join!(carol, force);
    println!("   released by force: {}", forced?);
    match carol {
        Err(error @ LockError::Lost { .. }) => println!("   carol is told: {error}"),
        other => println!("   carol was faster: {other:?}"),
    }
    Ok(())
}

/// Waits up to 5 s for the lock, runs while it is held and renewed, and gives it back.
#[distributed_lock(key = "report:{day}", wait = "5s", guard = lease)]
async fn build_report(who: &str, day: &str) -> Result<(), LockError> {
    println!(
        "   {who} holds {}, token {}, {:.1} s of the lease left",
        lease.name(),
        token(&lease),
        lease.remaining().as_secs_f64(),
    );
    sleep(Duration::from_millis(300)).await;
    println!("   {who} is done");
    Ok(())
}

/// Returns the fencing token. It grows with every acquisition, so a database that remembers the last one can refuse a
/// holder that is too late.
fn token(lease: &lock_runtime::Lease) -> u64 {
    lease.fencing_token().map_or(0, u64::from)
}

/// A value that shows what happens to a body whose lock is lost: it is dropped, and so is everything that it owns.
struct Draft;

impl Drop for Draft {
    fn drop(&mut self) {
        println!("   carol's body is cancelled: her draft is thrown away");
    }
}

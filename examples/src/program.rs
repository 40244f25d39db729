//! The frame around a program: it connects, runs the program, gives the locks back and says how it went.

use std::fmt::Display;
use std::process::ExitCode;

use lock_runtime::LockManager;

use crate::Store;

/// An error that is shown to the user as one line.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs `body` with the locks of `LOCK_URL`. The exit code is 0 if it returned `Ok`, 1 if not, 2 if the store could
/// not be reached.
pub async fn run(
    program: &str,
    body: impl AsyncFnOnce(&LockManager) -> Result<(), Failure>,
) -> ExitCode {
    let store = Store::from_env();
    let locks = match store.connect().await {
        Ok(locks) => locks,
        Err(why) => {
            eprintln!("{program}: {why}");
            return ExitCode::from(2);
        }
    };
    println!("The locks live in {store}.");
    let outcome = body(&locks).await;
    // Gives the locks back: waits 12 s at most.
    locks.shutdown().await;
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a fact that the program has just shown.
///
/// # Errors
/// If it is not so.
pub fn prove(is_so: bool, fact: impl Display) -> Result<(), Failure> {
    if !is_so {
        return Err(format!("not so: {fact}").into());
    }
    println!("   proved: {fact}");
    Ok(())
}

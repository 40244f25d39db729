//! A process of its own that holds a lock; started by the fault tests through `tests::process`.
//!
//! `holder step URL KEY LEASE_MILLIS` runs a body under the lock. Two witnesses report with the machine's clock: the
//! body's steps (`step NANOS`, the start of the poll that took it), and a thread that asks the lease without the runtime
//! (`sure NANOS`, once `over NANOS`).
//! It says `held TOKEN` first, and at its end `ended` and the return value of `run`.
//! `holder lead URL NAME LEASE_MILLIS` leads and says `leads`. On SIGTERM it shuts down and says `ended` and the return
//! value of `lead`.
//! `holder permits URL SEMAPHORE PERMITS LEASE_MILLIS` leases permits, says `held` and keeps the permits.
//! `holder take URL KIND NAME` tries to take a lock of that kind, says `taken` or `busy`, and keeps what it has.
//! `holder connect URL` connects, takes a lock, releases it, and says `ok` or `error` and the error.
//! `holder chooses-late URL` connects, and installs a provider of cryptography of its own after that. It says `installed`,
//! if it may, and then the same as `connect`.
//! `holder chooses-early URL` installs one before it connects. It says `used` if that one was asked, and then the same as
//! `connect`.
//! `holder configured` does the same with the configuration of its environment: `LockConfig::from_env`.
//! `holder threads` does the same as `configured` without a runtime of its own, and leaves the release to the end of
//! `main`.
//!
//! The first four end when their input closes, so that none outlives the test that started it.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lock_runtime::{Lease, LockConfig, LockError, LockManager, TryAcquire, blocking};
use rustls::crypto::{CryptoProvider, GetRandomFailed, SecureRandom, ring};
use tests::connected;
use tests::history::now_ns;
use tokio::signal::unix::{SignalKind, signal};

const STEP: Duration = Duration::from_millis(5);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if let ["threads"] = args[..] {
        say(&without_a_runtime());
        return ExitCode::SUCCESS;
    }
    with_a_runtime(&args)
}

#[tokio::main(flavor = "current_thread")]
async fn with_a_runtime(args: &[&str]) -> ExitCode {
    match *args {
        ["step", url, key, lease] => {
            let lease = Duration::from_millis(lease.parse().expect("milliseconds"));
            end_with_the_input();
            step(url, key, lease).await;
        }
        ["lead", url, name, lease] => {
            let lease = Duration::from_millis(lease.parse().expect("milliseconds"));
            end_with_the_input();
            lead(url, name, lease).await;
        }
        ["permits", url, name, permits, lease] => {
            let lease = Duration::from_millis(lease.parse().expect("milliseconds"));
            end_with_the_input();
            let locks = connected(url).await;
            let permits = permits.parse().expect("a number");
            let request = locks.semaphore(name).permits(permits).lease(lease);
            let _guard = request.acquire().await.expect("the permits");
            println!("held");
            std::future::pending::<()>().await;
        }
        ["take", url, kind, name] => {
            end_with_the_input();
            let locks = connected(url).await;
            let request = match kind {
                "multi" => {
                    return take(
                        locks
                            .multi([locks.mutex(name), locks.mutex("b")])
                            .try_acquire()
                            .await,
                    )
                    .await;
                }
                "semaphore" => {
                    return take(locks.semaphore(name).permits(1).try_acquire().await).await;
                }
                "fenced" => locks.fenced(name),
                "write" => locks.write(name),
                "fair" => locks.fair(name),
                _ => locks.mutex(name),
            };
            return take(request.try_acquire().await).await;
        }
        ["connect", url] => say(&take_a_lock(manager(url)).await),
        ["chooses-late", url] => {
            let outcome = take_a_lock(manager(url)).await;
            if own_provider().install_default().is_ok() {
                println!("installed");
            }
            say(&outcome);
        }
        ["chooses-early", url] => {
            own_provider().install_default().expect("the first one");
            let outcome = take_a_lock(manager(url)).await;
            if ASKED.load(Ordering::Relaxed) {
                println!("used");
            }
            say(&outcome);
        }
        ["configured"] => say(&configured().await),
        _ => {
            eprintln!("see the head of holder.rs; got {args:?}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Says what became of the request, and keeps the guard.
async fn take<G>(answer: Result<TryAcquire<G>, LockError>) -> ExitCode {
    let answer = answer.expect("an answer");
    println!(
        "{}",
        if matches!(answer, TryAcquire::Acquired(_)) {
            "taken"
        } else {
            "busy"
        }
    );
    std::future::pending().await
}

/// Whether the provider that this program has chosen was asked for anything.
static ASKED: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
struct Noticed(&'static dyn SecureRandom);

impl SecureRandom for Noticed {
    fn fill(&self, buffer: &mut [u8]) -> Result<(), GetRandomFailed> {
        ASKED.store(true, Ordering::Relaxed);
        self.0.fill(buffer)
    }
}

fn own_provider() -> CryptoProvider {
    let provider = ring::default_provider();
    CryptoProvider {
        secure_random: Box::leak(Box::new(Noticed(provider.secure_random))),
        ..provider
    }
}

/// The time for an answer. A busy machine may need more, so it is asked again.
const CALL: Duration = Duration::from_secs(4);

/// Connects. Where no answer came in time, which says nothing on a busy machine, it tries twice more.
async fn manager(url: &str) -> Result<LockManager, LockError> {
    let mut further = 0..2;
    loop {
        let began = Instant::now();
        let connected = tests::builder().call_timeout(CALL).connect(url).await;
        match connected {
            Err(LockError::Unavailable { .. })
                if began.elapsed() >= CALL && further.next().is_some() => {}
            connected => return connected,
        }
    }
}

async fn step(url: &str, key: &str, lease: Duration) {
    let locks = connected(url).await;
    let polled_at = Cell::new(now_ns());
    let mut run = pin!(locks.mutex(key).lease(lease).run(async |lease| {
        println!("held {}", lease.fencing_token().expect("a token"));
        std::thread::spawn(move || watch(&lease));
        loop {
            println!("step {}", polled_at.get());
            tokio::time::sleep(STEP).await;
        }
    }));
    // `run` looks for a loss when it is polled. The time is read before that: a process that is frozen after it looked,
    // and takes the step when it wakes, reports a time before the freeze.
    let outcome = poll_fn(|cx| {
        polled_at.set(now_ns());
        run.as_mut().poll(cx)
    });
    let outcome: Result<(), LockError> = outcome.await;
    println!("ended {outcome:?}");
    std::future::pending::<()>().await;
}

async fn lead(url: &str, name: &str, lease: Duration) {
    let mut terminate = signal(SignalKind::terminate()).expect("a signal handler");
    // Whatever waits for the grace to be over hangs.
    let patient = tests::builder().shutdown_grace(Duration::from_secs(600));
    let locks = tests::faults::connected(patient, url).await;
    let election = locks.elect(name).lease(lease);
    let leading = election.lead(async |lease| {
        println!("leads");
        lease.closing().await;
        "in good order"
    });
    let shutdown = async {
        terminate.recv().await;
        locks.shutdown().await;
    };
    let (outcome, ()) = tokio::join!(leading, shutdown);
    println!("ended {outcome:?}");
}

fn watch(lease: &Lease) {
    loop {
        let at = now_ns();
        if !lease.is_held() {
            println!("over {at}");
            return;
        }
        println!("sure {at}");
        std::thread::sleep(STEP);
    }
}

async fn take_a_lock(
    connecting: impl Future<Output = Result<LockManager, LockError>>,
) -> Result<(), LockError> {
    let locks = connecting.await?;
    let guard = locks.mutex("k").acquire().await?;
    guard.release().await
}

async fn configured() -> Result<(), LockError> {
    let config = LockConfig::from_env()?;
    take_a_lock(config.connect()).await
}

fn without_a_runtime() -> Result<(), LockError> {
    let config = LockConfig::from_env()?;
    let locks = blocking::LockManager::new(config.connect())?;
    let _guard = locks.mutex("k").acquire()?;
    Ok(())
}

fn say(result: &Result<(), LockError>) {
    match result {
        Ok(()) => println!("ok"),
        Err(error) => println!("error {error:?}"),
    }
}

fn end_with_the_input() {
    std::thread::spawn(|| {
        // The copy ends at the end of the input or with an error. Both mean that the test is gone.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        std::process::exit(3);
    });
}

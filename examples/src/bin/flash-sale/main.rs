//! A flash sale over HTTP, without a lock and with one.
//!
//! `cargo run --release --bin flash-sale`; `--help` tells the rest. Read `sale.rs` first: it is the service, and the
//! lock is one attribute there.
//!
//! | file | what is in it |
//! | --- | --- |
//! | `sale.rs` | the service method that checks, decides and writes under the lock |
//! | `database.rs` | the orders, in SQLite |
//! | `server.rs` | the service over HTTP, with axum |
//! | `storm.rs` | the customers |
//! | `processes.rs` | several server processes |
//! | `report.rs` | the table and the verdict |

mod args;
mod database;
mod processes;
mod report;
mod sale;
mod server;
mod storm;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use examples::Store;
use indicatif::{ProgressBar, ProgressStyle};
use lock_runtime::LockManager;

use args::{Plan, Task};
use database::Database;
use processes::Fleet;
use report::Figures;
use sale::Sale;
use server::Server;

/// Shown to the user as one line.
type Failure = Box<dyn std::error::Error + Send + Sync>;

const COUPON: &str = "SPRING";
const LOCKED: &str = "locked";
const UNLOCKED: &str = "unlocked";

const INTERRUPTED: u8 = 130;

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match args::parse() {
        Ok(Task::Help) => {
            print!("{}", args::HELP);
            Ok(ExitCode::SUCCESS)
        }
        Ok(Task::Serve(options)) => processes::serve(options).await.map(|()| ExitCode::SUCCESS),
        Ok(Task::Sell(plan)) => sell(plan).await,
        Err(error) => Err(format!("{error} (see --help)").into()),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("flash-sale: {error}");
        ExitCode::from(2)
    })
}

/// Both sales, or as much of them as Ctrl-C allows.
async fn sell(plan: Plan) -> Result<ExitCode, Failure> {
    let store = Store::from_env();
    if plan.processes > 1 && !store.is_shared() {
        return Err(format!(
            "{} processes need a store that they share: set LOCK_URL, e.g. LOCK_URL=redis://127.0.0.1/",
            plan.processes
        )
        .into());
    }
    let locks = store.connect().await?;
    println!(
        "Coupon {COUPON}: {} in stock, {} users × {} clicks, {} server {}, locks in {store}\n",
        plan.stock,
        plan.size.users,
        plan.size.clicks,
        plan.processes,
        if plan.processes == 1 {
            "process"
        } else {
            "processes"
        },
    );
    let directory = tempfile::Builder::new().prefix("flash-sale").tempdir()?;
    let outcome = tokio::select! {
        // Listens for Ctrl-C before there is anything to clean up.
        biased;
        _ = tokio::signal::ctrl_c() => {
            eprintln!("flash-sale: interrupted");
            Ok(ExitCode::from(INTERRUPTED))
        }
        outcome = compare(&plan, &locks, directory.path()) => outcome,
    };
    locks.shutdown().await;
    outcome
}

async fn compare(plan: &Plan, locks: &LockManager, directory: &Path) -> Result<ExitCode, Failure> {
    let unlocked = run(plan, locks, directory, false).await?;
    let locked = run(plan, locks, directory, true).await?;
    let (verdict, kept) = report::verdict(plan, &unlocked, &locked);
    println!("{}\n{verdict}", report::table(&unlocked, &locked));
    Ok(if kept {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// One sale, on a database of its own.
async fn run(
    plan: &Plan,
    locks: &LockManager,
    directory: &Path,
    locked: bool,
) -> Result<Figures, Failure> {
    let name = if locked { LOCKED } else { UNLOCKED };
    let path = directory.join(name).with_extension("sqlite");
    let database = Database::create(&path, COUPON, plan.stock).await?;
    let progress = progress_bar(plan.size.requests(), locked);
    let answers = if plan.processes == 1 {
        let sale = Sale::new(database.clone(), locks.clone());
        let server = Server::start(sale, locked).await?;
        let answers = storm::blow(plan.size, &[server.url()], COUPON, &progress).await;
        server.stop().await?;
        answers
    } else {
        let fleet = Fleet::start(plan.processes, &path, locked).await?;
        let answers = storm::blow(plan.size, fleet.urls(), COUPON, &progress).await;
        if let Err(error) = fleet.stop().await {
            progress.suspend(|| eprintln!("flash-sale: {error}"));
        }
        answers
    };
    progress.finish_and_clear();
    let totals = database.totals(COUPON).await?;
    Ok(Figures::new(plan.stock, totals, answers))
}

/// On stderr, and only if that is a terminal.
fn progress_bar(requests: u64, locked: bool) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let progress = ProgressBar::new(requests).with_style(style);
    progress.set_message(if locked {
        "with lock   "
    } else {
        "without lock"
    });
    progress.enable_steady_tick(Duration::from_millis(100));
    progress
}

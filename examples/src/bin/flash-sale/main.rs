//! A flash sale over HTTP, without a lock and with one.
//!
//! `cargo run -p examples --bin flash-sale`; `--help` tells the rest. Read `sale.rs` first: it is the service, and the
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
use tokio::sync::watch;

use args::{Plan, Task};
use database::Database;
use processes::Fleet;
use report::Figures;
use sale::Sale;
use server::Server;

/// An error that is shown to the user as one line.
type Failure = Box<dyn std::error::Error + Send + Sync>;

const COUPON: &str = "SPRING";
const LOCKED: &str = "locked";
const UNLOCKED: &str = "unlocked";

const INTERRUPTED: u8 = 130;

/// A value that turns true with the first Ctrl-C. The second one ends the program at once.
type Interrupted = watch::Receiver<bool>;

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

/// Runs both sales, or as much of them as Ctrl-C allows.
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
    let (interrupt, interrupted) = watch::channel(false);
    let ctrl_c_twice = async {
        let _ = tokio::signal::ctrl_c().await;
        eprintln!("flash-sale: interrupted, finishing what is under way");
        interrupt.send_replace(true);
        let _ = tokio::signal::ctrl_c().await;
    };
    let outcome = tokio::select! {
        // Listens for Ctrl-C before there is anything to clean up.
        biased;
        () = ctrl_c_twice => Ok(ExitCode::from(INTERRUPTED)),
        outcome = compare(&plan, &locks, directory.path(), interrupted) => outcome,
    };
    locks.shutdown().await;
    outcome
}

async fn compare(
    plan: &Plan,
    locks: &LockManager,
    directory: &Path,
    mut interrupted: Interrupted,
) -> Result<ExitCode, Failure> {
    let mut sales = Vec::with_capacity(2);
    for locked in [false, true] {
        match run(plan, locks, directory, locked, &mut interrupted).await? {
            Some(figures) => sales.push(figures),
            None => return Ok(ExitCode::from(INTERRUPTED)),
        }
    }
    let [unlocked, locked] = &sales[..] else {
        return Err("a sale is missing".into());
    };
    let (verdict, kept) = report::verdict(plan, unlocked, locked);
    println!("{}\n{verdict}", report::table(unlocked, locked));
    Ok(if kept {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs one sale, on a database of its own. Returns `None` if it was interrupted.
async fn run(
    plan: &Plan,
    locks: &LockManager,
    directory: &Path,
    locked: bool,
    interrupted: &mut Interrupted,
) -> Result<Option<Figures>, Failure> {
    let name = if locked { LOCKED } else { UNLOCKED };
    let path = directory.join(name).with_extension("sqlite");
    let database = Database::create(&path, COUPON, plan.stock).await?;
    let servers = if plan.processes == 1 {
        let sale = Sale::new(database.clone(), locks.clone());
        Servers::Here(Server::start(sale, locked).await?)
    } else {
        Servers::Elsewhere(Fleet::start(plan.processes, &path, locked).await?)
    };

    let progress = progress_bar(plan.size.requests(), locked);
    let urls = servers.urls();
    let answers = tokio::select! {
        answers = storm::blow(plan.size, &urls, COUPON, &progress) => Some(answers),
        _ = interrupted.wait_for(|interrupted| *interrupted) => None,
    };
    progress.finish_and_clear();

    if let Err(error) = servers.stop().await {
        eprintln!("flash-sale: {error}");
    }
    let totals = database.totals(COUPON).await?;
    database.close().await;
    Ok(answers.map(|answers| Figures::new(plan.stock, totals, answers)))
}

/// The servers that the customers talk to.
enum Servers {
    Here(Server),
    Elsewhere(Fleet),
}

impl Servers {
    fn urls(&self) -> Vec<String> {
        match self {
            Servers::Here(server) => vec![server.url()],
            Servers::Elsewhere(fleet) => fleet.urls().to_vec(),
        }
    }

    async fn stop(self) -> Result<(), Failure> {
        match self {
            Servers::Here(server) => Ok(server.stop().await?),
            Servers::Elsewhere(fleet) => fleet.stop().await,
        }
    }
}

/// Shows the progress on stderr, and only if that is a terminal.
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

//! Benchmarks of locks in a database, each beside what one would use instead, in the same run.
//!
//! `cargo bench -p tests --bench databases [-- postgres mysql pairs many limit busy handover waiters churn snapshot]`
//!
//! `FSYNC=off` takes the disk out of the figures: only the work of the programs is left. `QUICK=on` shows in a minute
//! whether everything runs; its figures mean nothing.
//!
//! | peer | what it is |
//! | --- | --- |
//! | lock-runtime | this library on PostgreSQL or MariaDB |
//! | two bare statements | its own statements for a mutex, with nothing around them |
//! | ShedLock's statements | the two updates that ShedLock's JDBC provider sends once it has made a row |
//! | advisory lock | `pg_try_advisory_lock` as madelson's DistributedLock, or `GET_LOCK`: no lease, no token |
//! | lock-runtime on Redis | the alternative for those who have a Redis server |
#![allow(missing_docs)]

mod busy;
mod churn;
mod database;
mod handover;
mod pairs;
mod peers;
mod session;
mod snapshot;
mod waiters;

use database::Database;
use tests::{Mariadb, Postgres, Server};

const STORES: [&str; 2] = ["postgres", "mysql"];

/// The stores and benchmarks that the command line names. An empty list means all of them.
struct Wanted {
    stores: Vec<String>,
    works: Vec<String>,
}

impl Wanted {
    fn store(&self, name: &str) -> bool {
        self.stores.is_empty() || self.stores.iter().any(|store| store == name)
    }

    fn work(&self, name: &str) -> bool {
        self.works.is_empty() || self.works.iter().any(|work| work == name)
    }
}

fn main() {
    let args = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"));
    let (stores, works) = args.partition(|arg| STORES.contains(&arg.as_str()));
    let wanted = Wanted { stores, works };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        if wanted.store("postgres") {
            on::<Postgres>(&wanted).await;
        }
        if wanted.store("mysql") {
            on::<Mariadb>(&wanted).await;
        }
        if wanted.work("handover") {
            handover::run().await;
        }
    });
}

async fn on<D: Database>(wanted: &Wanted) {
    if wanted.work("pairs") {
        pairs::one_task::<D>().await;
    }
    if wanted.work("many") {
        pairs::many_tasks::<D>().await;
    }
    if wanted.work("limit") {
        pairs::limit::<D>().await;
    }
    if wanted.work("busy") {
        busy::run::<D>().await;
    }
    if wanted.work("waiters") {
        waiters::run::<D>().await;
    }
    if wanted.work("snapshot") {
        snapshot::run::<D>().await;
    }
    if wanted.work("churn") {
        churn::run::<D>().await;
    }
}

/// Starts a server that syncs what it commits, as one in production does, unless `FSYNC=off` is set.
fn server<D: Database>() -> Server<D> {
    let syncs = std::env::var("FSYNC").as_deref() != Ok("off");
    println!("{}, which syncs: {syncs}", D::TITLE);
    D::with(D::SETTINGS[usize::from(syncs)])
}

/// Returns `quick` with `QUICK=on`, and `long` without it.
fn quick_or<T>(quick: T, long: T) -> T {
    match std::env::var("QUICK").as_deref() {
        Ok("on") => quick,
        _ => long,
    }
}

/// Returns a number that the server counts.
fn number<D: Database>(server: &Server<D>, what: &str) -> i64 {
    let answer = server.query(what);
    answer[0].parse().unwrap()
}

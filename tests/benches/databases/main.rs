//! What locks in a database cost, each beside what one would use instead, in the same run.
//!
//! `cargo bench -p tests --bench databases [-- pairs many busy handover waiters churn snapshot]`
//!
//! `FSYNC=off` takes the disk out of the figures: what is left is the work of the programs.
//!
//! | peer | what it is |
//! | --- | --- |
//! | lock-runtime | this library on PostgreSQL |
//! | two bare statements | its own statements for a mutex, with nothing around them |
//! | ShedLock's statements | what ShedLock's JDBC provider sends once it has made a row: two updates |
//! | advisory lock | `pg_try_advisory_lock` and `pg_advisory_unlock`, as madelson's DistributedLock: no lease, no token |
//! | lock-runtime on Redis | what else there is for who has a Redis |
#![allow(missing_docs)]

mod busy;
mod churn;
mod handover;
mod pairs;
mod peers;
mod snapshot;
mod waiters;

use tests::PostgresServer;

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    let wanted = |name: &str| args.is_empty() || args.iter().any(|arg| arg == name);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        if wanted("pairs") {
            pairs::one_task().await;
        }
        if wanted("many") {
            pairs::many_tasks().await;
        }
        if wanted("busy") {
            busy::run().await;
        }
        if wanted("handover") {
            handover::run().await;
        }
        if wanted("waiters") {
            waiters::run().await;
        }
        if wanted("snapshot") {
            snapshot::run().await;
        }
        if wanted("churn") {
            churn::run().await;
        }
    });
}

/// A server that syncs what it commits, as one in production does, unless `FSYNC=off` says otherwise.
fn server() -> PostgresServer {
    let fsync = std::env::var("FSYNC").unwrap_or_else(|_| "on".to_owned());
    println!("PostgreSQL with fsync={fsync} and autovacuum=off");
    PostgresServer::with(&[&format!("fsync={fsync}")])
}

/// A number that the server counts.
fn number(server: &PostgresServer, what: &str) -> i64 {
    let answer = server.query(&format!("SELECT ({what})::bigint"));
    answer[0].parse().unwrap()
}

/// How many bytes of WAL were written so far.
fn wal(server: &PostgresServer) -> i64 {
    number(server, "pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
}

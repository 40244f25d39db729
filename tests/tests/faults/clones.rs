//! Copies of a process draw the same random bytes: those of a process that is restored twice from one snapshot, and of
//! machines whose random generators begin alike. They are holders of their own all the same.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use lock_runtime::{LockManager, LostReason, TryAcquire};
use tests::faults::connected;
use tests::{MariadbTable, PostgresTable, RedisServer, Worker, builder, randomness};

const HOLDER: &str = env!("CARGO_BIN_EXE_holder");
const KINDS: [&str; 6] = ["mutex", "fenced", "write", "fair", "semaphore", "multi"];

/// A library that gives each process the same random bytes.
fn same_randomness() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    BUILT.get_or_init(|| randomness::same_randomness(folder))
}

/// Starts a process that tries to take a lock and keeps what it got.
fn copy(url: &str, kind: &str) -> Worker {
    let mut command = Command::new(HOLDER);
    command.args(["take", url, kind, kind]);
    Worker::spawn(command.env("LD_PRELOAD", same_randomness()))
}

/// The first copy has a lock of each kind, the second one gets none of them, and leaves the first one's alone.
async fn copies_are_not_one_holder(locks: LockManager, url: &str) {
    locks.semaphore("semaphore").set_permits(1).await.unwrap();
    for kind in KINDS {
        let first = copy(url, kind);
        first.expect_line("taken");
        // The second time shows that the first one still has it.
        for _ in 0..2 {
            let said = copy(url, kind).line();
            assert_eq!(said.as_deref(), Some("busy"), "{kind}");
        }
        drop(first);
    }
}

#[tokio::test]
async fn copies_of_a_process_are_not_one_holder_on_redis() {
    let server = RedisServer::start();
    let locks = connected(builder(), &server.url()).await;
    copies_are_not_one_holder(locks, &server.url()).await;
}

#[tokio::test]
async fn copies_of_a_process_are_not_one_holder_on_postgres() {
    let table = PostgresTable::new();
    let locks = connected(builder().ensure_schema(true), &table.url()).await;
    copies_are_not_one_holder(locks, &table.url()).await;
}

#[tokio::test]
async fn copies_of_a_process_are_not_one_holder_on_mysql() {
    let table = MariadbTable::new();
    let locks = connected(builder().ensure_schema(true), &table.url()).await;
    copies_are_not_one_holder(locks, &table.url()).await;
}

#[tokio::test]
async fn copies_that_connect_at_once_do_not_disturb_each_others_check() {
    let server = RedisServer::start();
    for _ in 0..5 {
        let copies: Vec<_> = (0..4).map(|_| copy(&server.url(), "mutex")).collect();
        let said: Vec<_> = copies.iter().map(|it| it.line().unwrap()).collect();
        let taken = said.iter().filter(|said| *said == "taken").count();
        let busy = said.iter().filter(|said| *said == "busy").count();
        assert_eq!((taken, busy), (1, 3), "{said:?}");
        drop(copies);
        server.query::<()>(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn a_restored_process_gives_up_what_its_copies_may_have() {
    let server = RedisServer::start();
    let locks = connected(builder(), &server.url()).await;
    let held = locks.mutex("k").acquire().await.unwrap();
    let kept = locks.mutex("kept").keep_for(Duration::from_secs(60));
    kept.acquire().await.unwrap().release().await.unwrap();
    locks.renew_identity();
    assert_eq!(held.lost().wait().await, LostReason::Refused);
    drop(held);
    // The copies may work under them: they are not given back.
    for key in ["lock:k", "lock:kept"] {
        assert!(server.exists(key), "{key}");
    }
    let again = locks.mutex("k").try_acquire().await.unwrap();
    assert!(matches!(again, TryAcquire::Busy { .. }), "{again:?}");
    let other = locks.mutex("other").acquire().await.unwrap();
    other.release().await.unwrap();
}

//! The programs prove what they say: their exit codes, and the facts in their output.

use std::process::{Command, Output};

use tests::{PostgresServer, RedisServer};

fn run(program: &str, url: &str) -> Output {
    Command::new(program)
        .env("LOCK_URL", url)
        .output()
        .expect("run it")
}

/// Runs a program, checks that it proved all `facts`, and returns its output.
fn proof(program: &str, url: &str, facts: &[&str]) -> String {
    let output = run(program, url);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert_eq!(errors, "");
    for fact in facts {
        let proved = format!("proved: {fact}");
        assert!(text.contains(&proved), "no `{proved}` in\n{text}");
    }
    text
}

/// Runs a program on Redis. Returns its output and the keys that it leaves there, except the fencing counters, and the
/// lists of those who waited when it ended, which are gone five seconds later.
fn left_on_redis(program: &str, facts: &[&str]) -> (String, Vec<String>) {
    let server = RedisServer::start();
    let text = proof(program, &server.url(), facts);
    let mut left: Vec<String> = server.keys();
    left.retain(|key| !key.starts_with("lock:fence:") && !key.starts_with("lock:waiting:"));
    (text, left)
}

const AXUM_ORDERS: &str = env!("CARGO_BIN_EXE_axum-orders");
const ORDER_FACTS: &[&str] = &[
    "10 of 10 items are in the order; its updates ran one at a time",
    "updates of different orders ran at the same time",
    "3 orders got a lamp, 2 were told 409, none is oversold",
    "423 without waiting, 503 after it; neither ran",
    "once it is free, the order can be cancelled",
    "two identical requests, one payment, the same answer",
    "without a key it is 400",
    "it is ready: locks can be had",
];

#[test]
fn requests_for_an_order_take_turns_and_double_clicks_pay_once() {
    let text = proof(AXUM_ORDERS, "", ORDER_FACTS);
    for status in [
        "423 Locked, Retry-After: ",
        "503 Service Unavailable, Retry-After: ",
    ] {
        assert!(text.contains(status), "no `{status}` in\n{text}");
    }
}

#[test]
fn requests_take_turns_on_redis_and_leave_no_lock() {
    let (_, left) = left_on_redis(AXUM_ORDERS, ORDER_FACTS);
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn the_guides_program_prints_what_the_guide_shows() {
    let guide = include_str!("../../docs/guide.md");
    let (_, session) = guide.split_once("```text\n$ cargo run\n").unwrap();
    let (shown, _) = session.split_once("```").unwrap();
    let output = run(env!("CARGO_BIN_EXE_quickstart"), "memory://");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), shown);
}

const CACHE_REBUILD: &str = env!("CARGO_BIN_EXE_cache-rebuild");
const CACHE_FACTS: &[&str] = &[
    "1 query instead of 100; the other readers waited for its answer",
    "1 query; ",
    "1 query in all: that there is nothing is cached, too",
    "they expire over 1",
];

#[test]
fn a_hundred_readers_of_a_stale_or_missing_product_query_once() {
    proof(CACHE_REBUILD, "", CACHE_FACTS);
}

#[test]
fn a_hundred_readers_query_once_on_redis_and_leave_no_lock() {
    let (_, left) = left_on_redis(CACHE_REBUILD, CACHE_FACTS);
    assert_eq!(left, Vec::<String>::new());
}

const CRON_ONCE: &str = env!("CARGO_BIN_EXE_cron-once");
const CRON_FACTS: &[&str] = &["4 ticks, each run by exactly 1 of 3 schedulers"];

#[test]
fn three_tasks_run_a_job_once_per_tick() {
    let text = proof(CRON_ONCE, "", CRON_FACTS);
    assert!(text.contains("(tasks)"), "{text}");
}

#[test]
fn a_job_runs_once_per_tick_and_leaves_each_tick_taken_on_redis() {
    let (text, left) = left_on_redis(CRON_ONCE, CRON_FACTS);
    assert!(text.contains("(processes)"), "{text}");
    assert_eq!(left.len(), 4, "{left:?}");
    assert!(
        left.iter()
            .all(|key| key.starts_with("lock:cron:invoices:")),
        "{left:?}"
    );
}

const FENCED_WRITES: &str = env!("CARGO_BIN_EXE_fenced-writes");
const FENCED_FACTS: &[&str] = &[
    "without a fence the late write replaced bob's 2000 by 1000",
    "with a fence the late write was refused, and bob's 2000 stands",
    "ada knows that she worked without the lock",
];

#[test]
fn a_fence_refuses_the_late_write_of_a_paused_holder() {
    proof(FENCED_WRITES, "", FENCED_FACTS);
}

#[test]
fn a_fence_refuses_the_late_write_under_a_lock_on_redis() {
    let (_, left) = left_on_redis(FENCED_WRITES, FENCED_FACTS);
    assert_eq!(left, Vec::<String>::new());
}

const POSTGRES_FENCING: &str = env!("CARGO_BIN_EXE_postgres-fencing");

/// Runs `postgres-fencing` on this database. Returns its output, its errors and its exit code.
fn on_database(url: Option<&str>) -> (String, String, Option<i32>) {
    let mut command = Command::new(POSTGRES_FENCING);
    command.env("LOCK_URL", "").env_remove("DATABASE_URL");
    if let Some(url) = url {
        command.env("DATABASE_URL", url);
    }
    let output = command.output().expect("run it");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    (said, errors, output.status.code())
}

#[test]
fn postgres_refuses_the_late_transaction_of_a_paused_holder() {
    let server = PostgresServer::start();
    let (said, errors, code) = on_database(Some(&server.url()));
    assert_eq!((errors.as_str(), code), ("", Some(0)), "{said}");
    for fact in [
        "bob got the lock, and his write was taken",
        "ada's late write was refused",
        "one lamp, one order: bob's",
    ] {
        let proved = format!("proved: {fact}");
        assert!(said.contains(&proved), "no `{proved}` in\n{said}");
    }
    let left = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'postgres_fencing%'";
    assert_eq!(server.query(left), Vec::<String>::new());
}

#[test]
fn an_update_is_lost_unless_the_lock_lasts_until_the_commit() {
    let server = PostgresServer::start();
    let output = Command::new(env!("CARGO_BIN_EXE_postgres-transactions"))
        .env("DATABASE_URL", server.url())
        .output()
        .expect("run it");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((&*errors, output.status.code()), ("", Some(0)), "{said}");
    for fact in [
        "bob saw what was there before ada's transaction",
        "50 are left: what ada has spent is back",
        "bob saw what ada has committed",
        "20 are left",
    ] {
        let proved = format!("proved: {fact}");
        assert!(said.contains(&proved), "no `{proved}` in\n{said}");
    }
    let left = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'postgres_transactions%'";
    assert_eq!(server.query(left), Vec::<String>::new());
}

#[test]
fn a_missing_database_is_reported_in_one_line() {
    let refused = "postgres://lock:secret@127.0.0.1:1/postgres";
    for (url, code, why) in [
        (None, 2, "set DATABASE_URL"),
        (Some("nonsense"), 1, "invalid connection string"),
        (Some(refused), 1, "Connection refused"),
    ] {
        let (_, errors, ended) = on_database(url);
        assert_eq!(ended, Some(code), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(errors.contains(why), "no `{why}` in {errors}");
        assert!(!errors.contains("secret"), "{errors}");
    }
}

const GRPC_TRANSFER: &str = env!("CARGO_BIN_EXE_grpc-transfer");
const TRANSFER_FACTS: &[&str] = &[
    "40 of 40 are done, no two waited for each other; ada has 80, nothing is lost",
    "the stream said [80, 70, 60, 50]",
    "it is refused while the first one is open, and admitted when that has ended",
    "the transfer is refused and moves nothing; later it can be repeated",
];

#[test]
fn opposite_transfers_lock_two_accounts_without_a_deadlock() {
    proof(GRPC_TRANSFER, "", TRANSFER_FACTS);
}

#[test]
fn opposite_transfers_lock_accounts_on_redis_and_leave_no_lock() {
    let (_, left) = left_on_redis(GRPC_TRANSFER, TRANSFER_FACTS);
    assert_eq!(left, Vec::<String>::new());
}

const LEADER: &str = env!("CARGO_BIN_EXE_leader");
const LEADER_FACTS: &[&str] = &[
    "a leader that listens to `closing` ends before its time is over",
    "another replica leads",
    "each leader had a larger fencing token than the one before",
];

#[test]
fn one_replica_after_the_other_leads() {
    proof(LEADER, "", LEADER_FACTS);
}

#[test]
fn replicas_lead_one_after_the_other_on_redis_and_leave_no_lock() {
    let (_, left) = left_on_redis(LEADER, LEADER_FACTS);
    assert_eq!(left, Vec::<String>::new());
}

const READ_WRITE: &str = env!("CARGO_BIN_EXE_read-write");
const READ_WRITE_FACTS: &[&str] = &[
    "all of them read version 1, at the same time",
    "ten read version 2 while the first one checks it; none saw half of it",
    "nobody wrote before it was checked; then the second one did",
];

#[test]
fn a_writer_that_becomes_a_reader_admits_readers_and_no_writers() {
    proof(READ_WRITE, "", READ_WRITE_FACTS);
}

#[test]
fn readers_and_writers_take_turns_on_redis_and_leave_no_lock() {
    let (_, left) = left_on_redis(READ_WRITE, READ_WRITE_FACTS);
    assert_eq!(left, Vec::<String>::new());
}

const SEMAPHORE: &str = env!("CARGO_BIN_EXE_semaphore");
const SEMAPHORE_FACTS: &[&str] = &[
    "3 connections at a time, never more",
    "every permit came back",
];

#[test]
fn calls_of_an_api_are_three_at_a_time() {
    proof(SEMAPHORE, "", SEMAPHORE_FACTS);
}

#[test]
fn three_calls_of_an_api_run_at_a_time_and_leave_redis_empty() {
    let (_, left) = left_on_redis(SEMAPHORE, SEMAPHORE_FACTS);
    assert_eq!(left, [""; 0]);
}

#[test]
fn a_store_that_is_away_is_one_line_and_exit_code_2() {
    for program in [
        AXUM_ORDERS,
        CACHE_REBUILD,
        CRON_ONCE,
        FENCED_WRITES,
        GRPC_TRANSFER,
        LEADER,
        READ_WRITE,
        SEMAPHORE,
    ] {
        let output = run(program, "redis://127.0.0.1:1/");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(errors.contains("LOCK_URL=redis://127.0.0.1:1/"), "{errors}");
    }
}

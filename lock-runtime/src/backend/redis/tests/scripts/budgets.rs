//! Tests of hashes, queues and leases that others made too long. No script works on them for longer than a few
//! milliseconds, and none acquires a lock because it did not look at all of it. The tests count commands instead of
//! measuring time, because a clock would fail on a busy machine. A thousand of these commands take about a millisecond.

use super::fair::{TIMEOUTS, fair_acquire, fair_release};
use super::read_write::ReadWriteKeys;
use super::*;
use crate::values::kind::LockMode;

/// The largest number of commands that a script may run.
const MOST: i64 = 1_100;

impl ScriptBench {
    /// Returns the result of `what`, and the number of commands that the scripts ran meanwhile.
    async fn commands<T>(&self, what: impl Future<Output = T>) -> (T, i64) {
        self.run("CONFIG RESETSTAT").await;
        let done = what.await;
        let stats = self.text("INFO commandstats").await.unwrap();
        let calls = stats.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let calls: i64 = rest.split(',').next()?.parse().ok()?;
            let own = ["info", "config", "eval", "script"];
            (!own.iter().any(|own| name.starts_with(own))).then_some(calls)
        });
        (done, calls.sum())
    }

    /// Makes `many` readers, each with that count. Only the reader `alive`, if any, has a lease.
    async fn readers(&self, many: usize, count: u64, alive: Option<usize>) {
        self.run("FLUSHALL").await;
        self.run("HSET lock:k mode read").await;
        let names: Vec<_> = (0..many)
            .map(|number| format!("{} {count}", reader(number)))
            .collect();
        for names in names.chunks(1_000) {
            self.run(&format!("HSET lock:k {}", names.join(" "))).await;
        }
        self.run("PEXPIRE lock:k 60000").await;
        if let Some(alive) = alive {
            self.run(&format!(
                "SET {{lock:k}}:{}:rwlock_timeout:1 1 PX 60000",
                reader(alive)
            ))
            .await;
        }
    }
}

/// Returns the id of a reader of this library. One of Redisson's counts as alive without a lease of its own.
fn reader(number: usize) -> String {
    format!("aaaaaaaa-0000-8000-8000-000000000000:{number}")
}

#[tokio::test]
async fn a_writer_checks_some_dead_readers_and_spares_the_rest() {
    let bench = ScriptBench::new().await;
    let w = ReadWriteKeys::of("w");
    for (many, count, free) in [
        (100, 1, true),
        (400, 1, true),
        (1, 700, true),
        (100, 10_000, false),
        (1_000, 10_000, false),
        (20_000, 1, false),
        (1, 999_999_999_999_999, false),
    ] {
        bench.readers(many, count, None).await;
        let (answer, commands) = bench.commands(bench.call(w.write())).await;
        let granted = matches!(answer.unwrap(), AcquireReply::Granted { .. });
        assert_eq!(granted, free, "{many} of {count}");
        assert!(commands < MOST, "{many} of {count}: {commands} commands");
    }
}

#[tokio::test]
async fn a_release_among_many_dead_readers_leaves_the_hash_its_lease() {
    let bench = ScriptBench::new().await;
    let a = ReadWriteKeys::of("a");
    for (many, count, free) in [(100, 1, true), (1_000, 10_000, false), (20_000, 1, false)] {
        bench.readers(many, count, None).await;
        bench.call(a.read()).await.unwrap();
        let (answer, commands) = bench.commands(bench.call(a.release())).await;
        assert_eq!(answer.unwrap(), DONE);
        assert!(commands < MOST, "{many} of {count}: {commands} commands");
        assert_eq!(
            bench.integer("EXISTS lock:k").await == 0,
            free,
            "{many} of {count}"
        );
        if !free {
            assert!(
                bench.integer("PTTL lock:k").await > 30_000,
                "{many} of {count}"
            );
        }
    }
}

#[tokio::test]
async fn an_inspection_counts_unchecked_readers_as_alive() {
    let bench = ScriptBench::new().await;
    for (many, count, readers) in [
        (100, 1, 1..=1),
        (1_000, 10_000, 1_000..=1_000),
        (20_000, 1, 19_000..=20_000),
    ] {
        bench.readers(many, count, Some(7)).await;
        let (answer, commands) = bench.commands(bench.call(inspect())).await;
        let seen = answer.unwrap().expect("there are readers");
        assert_eq!(seen.mode, LockMode::Read);
        assert!(readers.contains(&seen.readers), "{}", seen.readers);
        assert!(commands < MOST, "{many} of {count}: {commands} commands");
    }
}

#[tokio::test]
async fn a_forced_release_names_some_readers_and_counts_the_others() {
    let bench = ScriptBench::new().await;
    for (many, count, untold) in [
        (100, 1, 0),
        (300, 1, 0),
        (1_000, 10_000, 999),
        (9_999, 1, 9_000),
    ] {
        bench.readers(many, count, Some(7)).await;
        let (answer, commands) = bench.commands(bench.call(force())).await;
        let (released, found) = answer.unwrap().done;
        assert!(released);
        assert!(
            found >= untold && (untold > 0 || found == 0),
            "{found} untold"
        );
        assert!(commands < MOST, "{many} of {count}: {commands} commands");
        assert_eq!(bench.integer("EXISTS lock:k").await, 0);
    }
    bench.readers(10_000, 1, None).await;
    let (answer, commands) = bench.commands(bench.call(force())).await;
    let Err(Fault::Foreign { key, why }) = answer else {
        panic!("to delete it takes too long")
    };
    assert!(
        key == LOCK && why.contains("10001") && why.contains("UNLINK"),
        "{why}"
    );
    assert!(commands < 10, "{commands}");
    assert_eq!(bench.integer("HLEN lock:k").await, 10_001);
}

/// A hash that was long keeps its empty places when its fields are deleted, and a scan looks at them.
#[tokio::test]
async fn a_hash_that_was_once_long_costs_a_limited_number_of_pages() {
    let bench = ScriptBench::new().await;
    bench.readers(200_000, 1, None).await;
    let gone: Vec<_> = (10..200_000).map(reader).collect();
    for gone in gone.chunks(1_000) {
        bench.run(&format!("HDEL lock:k {}", gone.join(" "))).await;
    }
    let (answer, commands) = bench.commands(bench.call(inspect())).await;
    answer.unwrap();
    assert!(commands < 100, "{commands}");
}

impl ScriptBench {
    /// Makes a fair lock with a holder and a queue of waiters.
    async fn queue_of(&self, many: usize, name: impl Fn(usize) -> String, dead_at: i64) {
        self.run("FLUSHALL").await;
        self.acquire("holder").await;
        let names: Vec<_> = (0..many).map(name).collect();
        for names in names.chunks(1_000) {
            self.run(&format!("RPUSH {QUEUE} {}", names.join(" ")))
                .await;
            let scores: Vec<_> = names
                .iter()
                .map(|name| format!("{dead_at} {name}"))
                .collect();
            self.run(&format!("ZADD {} {}", TIMEOUTS, scores.join(" ")))
                .await;
        }
    }
}

/// Returns the id of a waiter of this library, or of a waiter of Redisson's.
fn waiter(version: char, number: usize) -> String {
    format!("00000000-0000-{version}000-8000-{number:012}:1")
}

#[tokio::test]
async fn a_queue_of_dead_waiters_is_swept_a_part_at_a_time() {
    let bench = ScriptBench::new().await;
    bench.queue_of(2_000, |number| waiter('8', number), 1).await;
    bench.call(release("holder")).await.unwrap();
    let me = waiter('8', 9_999);
    let mut granted = false;
    for _ in 0..10 {
        let (answer, commands) = bench.commands(bench.call(fair_acquire(&me))).await;
        assert!(commands < MOST, "{commands}");
        granted = matches!(answer.unwrap(), AcquireReply::Granted { .. });
        if granted {
            break;
        }
    }
    assert!(granted, "all of them are dead");
}

#[tokio::test]
async fn a_newcomer_behind_a_distant_java_waiter_is_parked() {
    let bench = ScriptBench::new().await;
    let later = i64::try_from(bench.server.time().await / 1_000).unwrap() + 600_000;
    let java = |number| waiter(if number == 0 { '4' } else { '8' }, number);
    bench.queue_of(2_000, java, later).await;
    let me = waiter('8', 9_999);
    let asked = bench.call(fair_acquire(&me)).await.unwrap();
    assert!(
        matches!(
            asked,
            AcquireReply::Busy {
                first: Some(false),
                ..
            }
        ),
        "{asked:?}"
    );
    let score = bench.run(&format!("ZSCORE {} {me}", TIMEOUTS)).await;
    assert!(
        format!("{score:?}").contains(&later.to_string()),
        "{score:?}"
    );
}

#[tokio::test]
async fn a_waiter_that_leaves_a_long_queue_is_marked_as_dead() {
    let bench = ScriptBench::new().await;
    let later = i64::try_from(bench.server.time().await / 1_000).unwrap() + 600_000;
    bench
        .queue_of(10_001, |number| waiter('8', number), later)
        .await;
    let (second, last) = (waiter('8', 1), waiter('8', 10_000));
    for leaving in [&second, &last] {
        let left = bench.call(fair_release(leaving)).await.unwrap();
        assert_eq!(left, DONE);
    }
    assert_eq!(bench.integer(&format!("LLEN {QUEUE}")).await, 10_001);
    let first = waiter('8', 0);
    bench.call(fair_release(&first)).await.unwrap();
    bench.call(release("holder")).await.unwrap();
    // The second waiter does not keep the third one waiting.
    let third = bench.call(fair_acquire(&waiter('8', 2))).await.unwrap();
    assert!(matches!(third, AcquireReply::Granted { .. }), "{third:?}");
    // Now the queue is short enough to be looked through.
    bench.call(fair_release(&last)).await.unwrap();
    assert_eq!(bench.integer(&format!("LLEN {QUEUE}")).await, 9_997);
}

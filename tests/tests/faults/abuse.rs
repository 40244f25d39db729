//! Tests of what others may write beside our locks, or publish to us: it costs little, and is reported.

use std::time::Duration;

use lock_runtime::{LockError, LockGuard, LockManager, LockMode, LostReason, TryAcquire};
use redis::Value;
use tests::faults::{connected, free_within};
use tests::{RedisServer, Worker, eventually};
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(60 * 60);
const WORKER: &str = env!("CARGO_BIN_EXE_worker");

/// Uses one key under two namespaces: `lock:` with the name `x`, and the empty one with the name `lock:x`.
#[tokio::test]
async fn a_forced_release_by_another_namespace_ends_a_hold_at_once() {
    async fn hold(locks: &LockManager, kind: &str, name: &str) -> LockGuard {
        let held = match kind {
            "mutex" => locks.mutex(name).acquire().await,
            "fenced" => locks.fenced(name).acquire().await,
            "fair" => locks.fair(name).acquire().await,
            "read" => locks.read(name).auto_renew(false).acquire().await,
            "write" => locks.write(name).acquire().await,
            _ => {
                let semaphore = locks.semaphore(name);
                semaphore.try_set_permits(3).await.unwrap();
                semaphore.permits(2).acquire().await
            }
        };
        held.unwrap()
    }
    let server = RedisServer::start();
    // Only a message can tell it within the test: the next renewal is a third of an hour away. A read is renewed, or checked,
    // after nine seconds, and would be lost by another reason then.
    let builder = tests::builder().lease(HOUR);
    let usual = connected(builder.clone(), &server.url()).await;
    let bare = connected(builder.namespace(""), &server.url()).await;
    for kind in ["mutex", "fenced", "fair", "read", "write", "permits"] {
        let bare_name = format!("lock:{kind}");
        for [(holder, held), (operator, forced)] in [
            [(&usual, kind), (&bare, &*bare_name)],
            [(&bare, &*bare_name), (&usual, kind)],
        ] {
            let guard = hold(holder, kind, held).await;
            assert!(operator.force_release(forced).await.unwrap(), "{kind}");
            let reason = timeout(4 * LONG, guard.lost().wait()).await;
            assert_eq!(reason.expect(kind), LostReason::ForceReleased, "{kind}");
        }
    }
}

#[tokio::test]
async fn all_locks_of_a_slot_report_a_bad_fence_and_its_remedy() {
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let (first, second) = ("{slot}:a", "{slot}:b");
    let before = server.keys();
    free_within(&locks, first, LONG).await;
    let fence = server.keys().into_iter().find(|key| !before.contains(key));
    let fence = fence.expect("the fence of the slot");
    let _: Value = server.query(&["SET", &fence, "junk"]);
    let told = [
        locks.mutex(first).acquire().await.unwrap_err(),
        locks.mutex(second).try_acquire().await.unwrap_err(),
        locks.fair(second).acquire().await.unwrap_err(),
        locks.write(second).acquire().await.unwrap_err(),
        locks
            .multi([locks.mutex(first), locks.mutex(second)])
            .acquire()
            .await
            .unwrap_err(),
    ];
    let mend = format!("DEL {fence}");
    for error in told {
        assert!(matches!(error, LockError::ForeignKey { .. }), "{error:?}");
        let said = error.to_string();
        for part in [&*fence, "`junk`", &format!("`{mend}`")] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    let words: Vec<_> = mend.split(' ').collect();
    assert_eq!(server.query::<i64>(&words), 1);
    let guard = locks.mutex(second).acquire().await.unwrap();
    assert!(guard.fencing_token().unwrap().get() > 1_700_000_000_000_000);
}

/// A hundred readers, each of which claims 10,000 holds, kept the server busy for a second.
#[tokio::test]
async fn dead_readers_of_many_holds_do_not_keep_the_server_busy() {
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let make = || {
        for reader in 0..100 {
            // As this library's readers have it: a reader of Redisson counts as alive at once.
            let field = format!("aaaaaaaa-0000-8000-8000-000000000000:{reader}");
            let _: Value = server.query(&["HSET", "lock:k", "mode", "read", &field, "10000"]);
        }
        let _: Value = server.query(&["PEXPIRE", "lock:k", "60000"]);
    };
    make();
    let looks = || -> i64 {
        let stats: String = server.query(&["INFO", "commandstats"]);
        let line = stats
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_pttl:calls="));
        let calls = line.and_then(|line| line.split(',').next()?.parse().ok());
        calls.unwrap_or(0)
    };
    let info = locks.inspect("k").await.unwrap();
    assert!(info.held, "one of them may live");
    assert_eq!((info.mode, info.readers), (Some(LockMode::Read), 100));
    assert!((500..1_100).contains(&looks()), "{}", looks());
    assert!(matches!(
        locks.write("k").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    assert!(looks() < 2_200, "{}", looks());
    let reader = locks.read("k").acquire().await.unwrap();
    reader.release().await.unwrap();
    assert!(looks() < 3_300, "{}", looks());
    assert!(locks.force_release("k").await.unwrap());
    let write = locks.write("k").acquire().await.unwrap();
    write.release().await.unwrap();
}

#[tokio::test]
async fn a_holder_that_is_no_text_is_told_as_a_foreign_key() {
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let script = "return redis.call('HSET', 'lock:k', '\\255\\254', '1')";
    let _: Value = server.query(&["EVAL", script, "0"]);
    let error = locks.inspect("k").await.unwrap_err();
    assert!(matches!(error, LockError::ForeignKey { .. }), "{error:?}");
    assert!(matches!(
        locks.mutex("k").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    assert!(locks.force_release("k").await.unwrap());
}

/// Publishes messages that name more holders than our scripts name in one, to a process that has nothing else to
/// remember.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn messages_of_any_size_on_the_control_channel_are_not_kept() {
    fn resident_bytes(process: &Worker) -> usize {
        let pages = std::fs::read_to_string(format!("/proc/{}/statm", process.pid())).unwrap();
        let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
        pages * 4_096
    }
    let server = RedisServer::start();
    // The lease is longer than any test.
    let holder = Worker::start(WORKER, &["hang", &server.url(), "k", "3600000"]);
    assert!(holder.line().unwrap().starts_with("held "));
    let channels = server.channels();
    let control = channels
        .iter()
        .find(|channel| channel.starts_with("lock:control:"))
        .unwrap();
    let before = resident_bytes(&holder);
    // The holders are all different, because a set of equal ones would be small.
    let publish = "local t = {} for i = 1, 125000 do t[i] = string.format('%032x', i) end \
                   redis.call('PUBLISH', KEYS[1], 'holders:' .. table.concat(t))";
    for _ in 0..60 {
        let _: Value = server.query(&["EVAL", publish, "1", control]);
        eventually("it is taken", async || {
            let clients: String = server.query(&["CLIENT", "LIST"]);
            clients.lines().all(|client| client.contains(" omem=0 "))
        })
        .await;
    }
    // Nothing has changed in the store, so the hold is as good as before.
    assert_eq!(holder.try_line(), None);
    let locks = tests::connected(&server.url()).await;
    assert!(locks.force_release("k").await.unwrap());
    holder.expect_line("lost");
    let kept = resident_bytes(&holder).saturating_sub(before);
    // One of the messages is 4 MB as text. Kept as sets, sixty of them were 285 MB.
    assert!(kept < 100_000_000, "{kept} bytes more");
}

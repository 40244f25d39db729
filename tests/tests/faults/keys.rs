//! Tests of keys that are not what they should be: they are never overwritten, and never taken for a free lock.

use std::time::Duration;

use lock_runtime::{LockError, LockManager, LockMode, LostReason, TryAcquire};
use redis::Value;
use tests::faults::{asleep, behind_a_proxy, connected, free_within, renewed, took};
use tests::{RedisServer, Store, answered, eventually};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);
/// A wait that is not to be waited to its end.
const WAIT: Duration = Duration::from_secs(120);

/// The commands that make something else of the lock's key.
const FOREIGN: [&[&str]; 10] = [
    &["SET", "lock:k", "one"],
    &["SET", "lock:k", ""],
    &["LPUSH", "lock:k", "1"],
    &["SADD", "lock:k", "1"],
    &["ZADD", "lock:k", "1", "1"],
    &["XADD", "lock:k", "*", "1", "1"],
    &["HSET", "lock:k", "a", "1", "b", "1"],
    &["HSET", "lock:k", "a", "x"],
    &["HSET", "lock:k", "a", "99999999999999999999"],
    &["HSET", "lock:k", "mode", "read", "a", "0"],
];

async fn scene() -> (RedisServer, LockManager) {
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    (server, locks)
}

fn dump(server: &RedisServer, key: &str) -> (Value, i64) {
    (server.query(&["DUMP", key]), server.pttl(key))
}

fn assert_foreign<T: std::fmt::Debug>(answer: Result<T, LockError>, named: &str) {
    let error = answer.unwrap_err();
    assert!(matches!(error, LockError::ForeignKey { .. }), "{error:?}");
    assert!(error.to_string().contains(named), "{error}");
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn a_key_of_another_kind_is_refused_at_once_and_left_as_it_is() {
    let (server, locks) = scene().await;
    for command in FOREIGN {
        let _: Value = server.query(command);
        let before = dump(&server, "lock:k");
        let (waited_for, waited) = took(locks.mutex("k").wait(WAIT).acquire()).await;
        assert!(waited < WAIT / 2, "no wait can help: {waited:?}");
        assert_foreign(waited_for, "lock:k");
        assert_foreign(locks.mutex("k").try_acquire().await, "lock:k");
        assert_foreign(locks.fair("k").try_acquire().await, "lock:k");
        assert_foreign(locks.read("k").try_acquire().await, "lock:k");
        assert_foreign(locks.write("k").try_acquire().await, "lock:k");
        let both = [locks.mutex("other"), locks.mutex("k")];
        assert_foreign(locks.multi(both).acquire().await, "lock:k");
        assert_foreign(locks.inspect("k").await, "lock:k");
        assert_foreign(locks.force_release("k").await, "lock:k");
        assert_foreign(
            locks.mutex("k").run(async |_| panic!("the body ran")).await,
            "lock:k",
        );
        assert_eq!(dump(&server, "lock:k"), before, "{command:?}");
        server.query::<i64>(&["DEL", "lock:k"]);
    }
    free_within(&locks, "k", LONG).await;
}

#[tokio::test]
async fn what_stands_at_a_key_is_named_beside_what_was_asked_for() {
    let (server, _) = scene().await;
    let builder = tests::builder().namespace("");
    // This user may use mutexes, and look at nothing that other kinds need.
    let rules = "on >secret ~k ~connect-check:* ~lock:fence:* &* +@all -zcard";
    let _: Value = server.query(&["ACL", "SETUSER", "mutexes", "reset"]);
    let mut command = vec!["ACL", "SETUSER", "mutexes"];
    command.extend(rules.split(' '));
    let _: Value = server.query(&command);
    let limited = server.url_with("mutexes", "secret");
    let limited = connected(builder.clone(), &limited).await;
    let locks = connected(builder, &server.url()).await;
    for (command, is) in [
        (&["SET", "k", "text"][..], "a string"),
        (&["SET", "k", "7"], "a semaphore or a latch"),
        (&["LPUSH", "k", "1"], "a list"),
        (&["ZADD", "k", "1", "1"], "a sorted set"),
        (&["SADD", "k", "1"], "of another type"),
        (&["XADD", "k", "*", "1", "1"], "of another type"),
        (&["HSET", "k", "a", "x"], "a hash that is not a lock"),
        (
            &["HSET", "k", "a", "1", "b", "1"],
            "a hash that is not a lock",
        ),
        (
            &["HSET", "k", "mode", "read", "a", "1"],
            "a read/write lock",
        ),
    ] {
        let _: Value = server.query(command);
        let says = format!("key `k` is not what it should be: it is {is}; you asked for a mutex");
        let said = locks.mutex("k").acquire().await.unwrap_err();
        assert_eq!(said.to_string(), says, "{command:?}");
        let said = limited.mutex("k").acquire().await.unwrap_err();
        // A user without the right to look is told less.
        let less = says.replace("a sorted set", "of another type");
        assert_eq!(said.to_string(), less, "{command:?}");
        server.query::<i64>(&["DEL", "k"]);
    }
    // This key belongs to another lock of ours.
    let held = locks.fair("k").acquire().await.unwrap();
    let queued = tokio::spawn(locks.fair("k").wait(LONG).acquire());
    let queue = "redisson_lock_queue:{k}";
    eventually("it queues", async || server.exists(queue)).await;
    let said = locks.mutex(queue).acquire().await.unwrap_err().to_string();
    assert!(
        said.ends_with("it is a list; you asked for a mutex"),
        "{said}"
    );
    held.release().await.unwrap();
    queued.await.unwrap().unwrap().release().await.unwrap();
    let _: Value = server.query(&["SET", queue, "text"]);
    let said = locks.fair("k").acquire().await.unwrap_err().to_string();
    assert!(said.contains(queue), "{said}");
    assert!(
        said.ends_with("it holds no list; you asked for a fair lock"),
        "{said}"
    );
    let said = locks.inspect(queue).await.unwrap_err().to_string();
    assert!(
        said.ends_with("it is a string; you asked for a lock"),
        "{said}"
    );
}

/// A semaphore or a latch is a number: `inspect` knows it, no lock takes it, and there is no holder to release.
#[tokio::test]
async fn a_number_is_refused_by_a_lock_and_known_to_inspect() {
    let (server, locks) = scene().await;
    server.query::<()>(&["SET", "lock:k", "3"]);
    assert_foreign(locks.mutex("k").wait(LONG).acquire().await, "lock:k");
    assert_foreign(locks.read("k").try_acquire().await, "lock:k");
    assert_foreign(locks.write("k").try_acquire().await, "lock:k");
    assert_foreign(locks.fair("k").try_acquire().await, "lock:k");
    let info = locks.inspect("k").await.unwrap();
    assert!(!info.held, "{info:?}");
    assert_eq!(
        (info.mode, info.available),
        (Some(LockMode::Counter), Some(3))
    );
    assert!(!locks.force_release("k").await.unwrap());
    assert_eq!(server.query::<String>(&["GET", "lock:k"]), "3");
}

/// A key of the same format that another client wrote is no foreign key: it has a holder.
#[tokio::test]
async fn a_key_of_another_client_of_the_format_is_busy_and_unchanged() {
    let (server, locks) = scene().await;
    let id = "c6b0a1de-0000-4000-8000-000000000000:1";
    server.query::<i64>(&["HSET", "lock:k", id, "2"]);
    server.query::<i64>(&["PEXPIRE", "lock:k", "600000"]);
    assert!(matches!(
        locks.mutex("k").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    let request = locks.mutex("k").wait(100 * MS);
    let error = answered(async || request.clone().acquire().await)
        .await
        .unwrap_err();
    assert!(matches!(error, LockError::Busy { .. }), "{error:?}");
    let info = locks.inspect("k").await.unwrap();
    assert!(info.held && info.count == 2);
    assert!(
        !format!("{info:?} {}", info.holder.as_ref().unwrap()).contains(id),
        "redacted"
    );
    assert_eq!(server.query::<String>(&["HGET", "lock:k", id]), "2");
    assert!(server.pttl("lock:k") <= 600_000);
}

#[tokio::test]
async fn a_key_turned_foreign_under_a_holder_is_a_loss_and_unchanged() {
    let (server, locks) = scene().await;
    // They are renewed after a third of the lease, in one batch with a good key.
    let lock = |name: String| locks.mutex(name).lease(18_000 * MS).acquire();
    let other = lock("other".to_owned()).await.unwrap();
    let mut turned = Vec::new();
    for (number, command) in FOREIGN.iter().enumerate() {
        let guard = lock(format!("k{number}")).await.unwrap();
        let key = format!("lock:k{number}");
        server.query::<i64>(&["DEL", &key]);
        let mut command = command.to_vec();
        command[1] = &key;
        let _: Value = server.query(&command);
        let before = dump(&server, &key);
        turned.push((guard, key, before));
    }
    for (guard, key, before) in turned {
        assert_eq!(guard.lost().wait().await, LostReason::Refused, "{before:?}");
        assert!(guard.release().await.is_err());
        assert_eq!(dump(&server, &key), before);
    }
    renewed([&other]).await;
    other.release().await.unwrap();
}

#[tokio::test]
async fn a_key_that_turns_foreign_before_the_release_is_left_as_it_is() {
    let (server, locks) = scene().await;
    for command in FOREIGN {
        let guard = locks.mutex("k").acquire().await.unwrap();
        server.query::<i64>(&["DEL", "lock:k"]);
        let _: Value = server.query(command);
        let before = dump(&server, "lock:k");
        let released = guard.release().await;
        assert!(
            matches!(released, Err(LockError::Lost { .. })),
            "{released:?}"
        );
        assert_eq!(dump(&server, "lock:k"), before, "{command:?}");
        server.query::<i64>(&["DEL", "lock:k"]);
    }
}

#[tokio::test]
async fn a_key_that_turns_foreign_under_a_waiter_is_told_to_it() {
    let server = RedisServer::start();
    let holder = tests::connected(&server.url()).await;
    let (proxy, waiter) = behind_a_proxy(&server, tests::builder()).await;
    let guard = holder.mutex("k").acquire().await.unwrap();
    let waiting = asleep(&proxy, waiter.mutex("k").wait(WAIT).acquire()).await;
    let _: Value = server.query(&["SET", "lock:k", "something else"]);
    let (answer, waited) = took(waiting).await;
    assert!(waited < WAIT / 2, "{waited:?}");
    assert_foreign(answer.unwrap(), "lock:k");
    drop(guard);
}

#[tokio::test]
async fn a_fence_key_that_holds_junk_is_refused_and_left_as_it_is() {
    let (server, locks) = scene().await;
    free_within(&locks, "k", LONG).await;
    let fence = {
        // The connection's own check has left other fences. The fence of `k` is the one that moves with it.
        let before: Vec<(String, Value)> = server
            .keys()
            .into_iter()
            .filter(|key| key.starts_with("lock:fence:"))
            .map(|key| (key.clone(), server.query(&["GET", &key])))
            .collect();
        free_within(&locks, "k", LONG).await;
        let moved = before
            .into_iter()
            .find(|(key, was)| server.query::<Value>(&["GET", key]) != *was);
        moved.expect("the fence of `k`").0
    };
    for junk in [
        "",
        "abc",
        "12.5",
        "-1",
        " 7",
        "1e3",
        "nan",
        "inf",
        "0x10",
        "9007199254740991",
        "9007199254740992",
        "18446744073709551615",
        "99999999999999999999",
        "7\n",
    ] {
        let _: Value = server.query(&["SET", &fence, junk]);
        assert_foreign(locks.mutex("k").acquire().await, &fence);
        assert_eq!(server.query::<String>(&["GET", &fence]), junk, "untouched");
        assert!(!server.exists("lock:k"), "{junk:?}: a lock without a token");
    }
    server.query::<i64>(&["DEL", &fence]);
    server.query::<i64>(&["LPUSH", &fence, "7"]);
    assert_foreign(locks.mutex("k").acquire().await, &fence);
    assert!(!server.exists("lock:k"));
    server.query::<i64>(&["DEL", &fence]);
    free_within(&locks, "k", LONG).await;
}

/// A hand-over cannot raise such a fence either: the lock is then released, and both learn why.
#[tokio::test]
async fn a_fence_that_turns_to_junk_does_not_hang_a_hand_over() {
    let (server, locks) = scene().await;
    let guard = locks.mutex("k").acquire().await.unwrap();
    let waiter = tokio::spawn(locks.mutex("k").wait(LONG).acquire());
    eventually("it queues", async || {
        locks.inspect("k").await.unwrap().local_waiters == 1
    })
    .await;
    for key in server
        .keys()
        .iter()
        .filter(|key| key.starts_with("lock:fence:"))
    {
        let _: Value = server.query(&["SET", key, "junk"]);
    }
    guard.release().await.unwrap();
    assert_foreign(waiter.await.unwrap(), "lock:fence:");
    assert!(!server.exists("lock:k"));
}

#[tokio::test]
async fn a_key_without_its_expiry_regains_it_at_the_next_renewal() {
    let (server, locks) = scene().await;
    let guard = locks.mutex("k").lease(18_000 * MS).acquire().await.unwrap();
    assert_eq!(server.query::<i64>(&["PERSIST", "lock:k"]), 1);
    eventually("it expires again", async || server.pttl("lock:k") > 0).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_late_release_never_deletes_the_next_holders_lock() {
    let store = Store::redis();
    let (first, second) = (store.manager().await, store.manager().await);
    for _ in 0..20 {
        let old = first.mutex("k").acquire().await.unwrap();
        store.flush();
        let new = second.mutex("k").acquire().await.unwrap();
        assert!(matches!(old.release().await, Err(LockError::Lost { .. })));
        new.renew(LONG).await.unwrap();
        new.release().await.unwrap();
    }
}

/// Names are bytes: characters that structure keys elsewhere are only text here.
#[tokio::test]
async fn names_of_any_bytes_are_locks_of_their_own() {
    let (server, locks) = scene().await;
    let long = "n".repeat(507);
    let names = [
        "a",
        "a:b",
        "{a}",
        "{a",
        "a}",
        "{}",
        "{}a",
        "a\0b",
        "a\r\nb",
        "*",
        "?",
        "[a]",
        "ü",
        "\u{1F512}",
        " ",
        "%",
        "fence",
        "lock:a",
        &long,
    ];
    let mut guards = Vec::new();
    for name in names {
        guards.push(locks.mutex(name).acquire().await.unwrap());
        let key = format!("lock:{name}");
        assert!(server.exists(&key), "{name:?} is byte-exact");
        let other = tests::connected(&server.url()).await;
        assert!(matches!(
            other.mutex(name).try_acquire().await.unwrap(),
            TryAcquire::Busy { .. }
        ));
    }
    let tokens: Vec<_> = guards
        .iter()
        .map(|guard| guard.fencing_token().unwrap())
        .collect();
    assert!(tokens.is_sorted());
    for guard in guards {
        guard.release().await.unwrap();
    }
    server.assert_clean().await;
}

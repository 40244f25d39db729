//! Tests of a server that lives and refuses: each refusal is a definite no-op, retried within the caller's time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use lock_runtime::{LockError, LockManager, LostReason};
use redis::Value;
use tests::faults::{connected, free_within, renewed, took};
use tests::{Events, History, RedisServer, answered, eventually};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(300);
/// That of holds which are to be renewed.
const LEASE: Duration = Duration::from_secs(18);

async fn manager(server: &RedisServer) -> LockManager {
    tests::connected(&server.url()).await
}

fn set(server: &RedisServer, parameter: &str, value: &str) {
    assert_eq!(
        server.query::<String>(&["CONFIG", "SET", parameter, value]),
        "OK"
    );
}

/// Asserts that an acquire is refused with the server's own word, in the caller's time, and that the error says that a
/// retry can help.
async fn refused(locks: &LockManager, word: &str) {
    // On a busy machine the server may answer no question of such a short wait.
    eventually(word, async || {
        let (error, waited) = took(locks.mutex("new").wait(SHORT).acquire()).await;
        let error = error.unwrap_err();
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
        assert!(error.is_retryable());
        assert!(waited >= SHORT && waited < 2 * LONG, "{waited:?}");
        error.to_string().contains(word)
    })
    .await;
}

/// Renews, hands over and releases a hold that was there before the server began to refuse acquires.
async fn holds_go_on(locks: &LockManager, guard: lock_runtime::LockGuard) {
    guard.renew(LONG).await.unwrap();
    let heir = tokio::spawn(locks.mutex("old").wait(LONG).acquire());
    eventually("it queues", async || {
        locks.inspect("old").await.unwrap().local_waiters == 1
    })
    .await;
    guard.release().await.unwrap();
    heir.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_full_memory_refuses_acquires_only() {
    let server = RedisServer::start();
    let locks = manager(&server).await;
    let guard = locks.mutex("old").lease(LEASE).acquire().await.unwrap();
    set(&server, "maxmemory", "1");
    refused(&locks, "OOM").await;
    let waiter = tokio::spawn(locks.mutex("new").wait(LONG).acquire());
    renewed([&guard]).await;
    holds_go_on(&locks, guard).await;
    assert!(!waiter.is_finished());
    set(&server, "maxmemory", "0");
    let next = waiter.await.unwrap().unwrap();
    next.release().await.unwrap();
    server.assert_clean().await;
}

#[tokio::test]
async fn missing_replicas_refuse_for_a_while() {
    let server = RedisServer::start();
    let locks = manager(&server).await;
    let guard = locks.mutex("old").lease(LEASE).acquire().await.unwrap();
    set(&server, "min-replicas-to-write", "1");
    refused(&locks, "NOREPLICAS").await;
    let waiter = tokio::spawn(locks.mutex("new").wait(LONG).acquire());
    eventually("a renewal was refused", async || {
        guard.remaining() < LEASE * 3 / 5
    })
    .await;
    assert!(guard.is_held());
    set(&server, "min-replicas-to-write", "0");
    waiter.await.unwrap().unwrap().release().await.unwrap();
    renewed([&guard]).await;
    holds_go_on(&locks, guard).await;
}

/// On a demoted master, a plain script would answer "not the holder", and a good hold would be given up.
#[tokio::test]
async fn a_demoted_master_is_not_believed_that_a_hold_is_gone() {
    let in_one = async |serve_stale: &str| {
        let server = RedisServer::start();
        set(&server, "replica-serve-stale-data", serve_stale);
        // Two calls last until they time out, and a renewal is due after them, within the lease.
        const LEASE: Duration = Duration::from_secs(30);
        let builder = tests::builder().call_timeout(Duration::from_secs(5));
        let locks = connected(builder, &server.url()).await;
        let guard = locks.mutex("old").lease(LEASE).acquire().await.unwrap();
        let _: Value = server.query(&["REPLICAOF", "127.0.0.1", "1"]);
        // The first one may be told by the refusal of its script alone.
        refused(&locks, "it is not a master but a").await;
        let inspected = locks.inspect("old").await;
        assert!(
            matches!(inspected, Err(LockError::Unavailable { .. })),
            "{inspected:?}"
        );
        let answer = guard.renew(LONG).await;
        assert!(
            matches!(answer, Err(LockError::Unavailable { .. })),
            "{answer:?}"
        );
        eventually("the watchdog was refused, too", async || {
            guard.remaining() < LEASE * 3 / 5
        })
        .await;
        assert!(guard.is_held());
        let _: Value = server.query(&["REPLICAOF", "NO", "ONE"]);
        renewed([&guard]).await;
        holds_go_on(&locks, guard).await;
        free_within(&locks, "new", LONG).await;
    };
    tokio::join!(in_one("yes"), in_one("no"));
}

/// MISCONF means that the disk is full and the server stops every write. Nothing can be done except to say so.
#[tokio::test]
async fn a_broken_disk_is_reported_and_the_lease_frees_the_lock() {
    let server = RedisServer::builder().line("save 3600 1").start();
    let locks = manager(&server).await;
    let lost = locks
        .mutex("lost")
        .lease(1_000 * MS)
        .acquire()
        .await
        .unwrap();
    // It is released once the other one is lost.
    let released = locks.mutex("released").lease(LEASE);
    let released = released.acquire().await.unwrap();
    let (_, dir): (String, String) = server.query(&["CONFIG", "GET", "dir"]);
    // A snapshot cannot replace a directory.
    let obstacle = std::path::Path::new(&dir).join("dump.rdb");
    std::fs::create_dir(&obstacle).unwrap();
    let _: Value = server.query(&["BGSAVE"]);
    eventually("the snapshot failed", async || {
        server
            .query::<String>(&["INFO", "persistence"])
            .contains("rdb_last_bgsave_status:err")
    })
    .await;
    refused(&locks, "MISCONF").await;
    assert_eq!(lost.lost().wait().await, LostReason::Expired);
    let error = released.release().await.unwrap_err();
    assert!(error.to_string().contains("MISCONF"), "{error}");
    eventually("leases end by themselves", async || {
        server.query::<i64>(&["EXISTS", "lock:lost", "lock:released"]) == 0
    })
    .await;
    std::fs::remove_dir(&obstacle).unwrap();
    let _: Value = server.query(&["BGSAVE"]);
    // A busy disk may keep the snapshot waiting.
    free_within(&locks, "lost", 4 * LONG).await;
    drop(lost);
    server.assert_clean().await;
}

#[tokio::test]
async fn a_busy_script_is_waited_out() {
    let server = RedisServer::builder()
        .line("busy-reply-threshold 30")
        .start();
    let locks = manager(&server).await;
    let guard = locks.mutex("old").lease(20 * LONG).acquire().await.unwrap();
    let url = server.url();
    let hog = std::thread::spawn(move || {
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        redis::cmd("EVAL")
            .arg("while true do end")
            .arg(0)
            .query::<Value>(&mut connection)
    });
    eventually("the server is busy", async || {
        let inspected = locks.inspect("old").await;
        inspected.is_err_and(|error| error.to_string().contains("BUSY"))
    })
    .await;
    refused(&locks, "BUSY").await;
    assert!(guard.is_held());
    let waiter = tokio::spawn(locks.mutex("new").wait(LONG).acquire());
    eventually("the script is killed", async || {
        server.command(&["SCRIPT", "KILL"]).is_ok()
    })
    .await;
    waiter.await.unwrap().unwrap().release().await.unwrap();
    holds_go_on(&locks, guard).await;
    assert!(hog.join().unwrap().is_err());
}

#[tokio::test]
async fn too_many_clients_is_no_refusal_for_good() {
    let server = RedisServer::start();
    let locks = manager(&server).await;
    set(&server, "maxclients", "1");
    eventually("a further manager is told why", async || {
        let refused = LockManager::connect(&server.url()).await.unwrap_err();
        assert!(
            matches!(refused, LockError::Unavailable { .. }),
            "{refused:?}"
        );
        refused.to_string().contains("max number of clients")
    })
    .await;
    let rejected = || {
        let stats: String = server.query(&["INFO", "stats"]);
        let line = stats
            .lines()
            .find_map(|line| line.strip_prefix("rejected_connections:"));
        line.unwrap().parse::<u64>().unwrap()
    };
    let before = rejected();
    server.cut_clients();
    let waiter = tokio::spawn(locks.mutex("new").wait(LONG).acquire());
    eventually("it tried to connect", async || rejected() > before).await;
    assert!(!waiter.is_finished());
    set(&server, "maxclients", "100");
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_scripts_and_killed_clients_in_use_hurt_nobody() {
    let server = Arc::new(RedisServer::start());
    let history = Arc::new(History::new());
    let long = manager(&server).await;
    // A connection that is cut again and again is not rebuilt without a pause: a second at most.
    let held = long.mutex("held").lease(LEASE).acquire().await.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let mut contenders = tokio::task::JoinSet::new();
    for m in 0..2 {
        let locks = manager(&server).await;
        for task in 0..3 {
            let (locks, history, done) = (locks.clone(), history.clone(), done.clone());
            contenders.spawn(async move {
                while !done.load(SeqCst) {
                    let guard = locks.mutex("k").wait(LONG).acquire().await.unwrap();
                    let token = guard.fencing_token().map(|token| token.get());
                    let hold = history.begin("k", format!("{m}-{task}"), token);
                    tokio::task::yield_now().await;
                    hold.end();
                    // A connection that is cut twice may be away for longer than a release waits to be confirmed. What a
                    // message has granted lasts for a second at first, which a busy machine may need for something else.
                    let released = guard.release().await;
                    let is_expected = matches!(
                        released,
                        Ok(()) | Err(LockError::Unavailable { .. } | LockError::Lost { .. })
                    );
                    assert!(is_expected, "{released:?}");
                }
            });
        }
    }
    for _ in 0..40 {
        let _: Value = server.query(&["SCRIPT", "FLUSH"]);
        tokio::time::sleep(20 * MS).await;
    }
    for _ in 0..6 {
        let before = history.len();
        server.cut_clients();
        eventually("it goes on", async || {
            history.len() > before + 5 && long.inspect("held").await.is_ok()
        })
        .await;
    }
    renewed([&held]).await;
    done.store(true, SeqCst);
    while let Some(contender) = contenders.join_next().await {
        contender.unwrap();
    }
    history.assert_exclusive();
    held.release().await.unwrap();
    drop(long);
    server.assert_deserted().await;
}

#[tokio::test]
async fn flushed_data_is_a_loss_and_tokens_still_rise() {
    let server = RedisServer::start();
    let locks = manager(&server).await;
    let lease = 36_000 * MS;
    let guard = locks.mutex("k").lease(lease).acquire().await.unwrap();
    let token = guard.fencing_token().unwrap();
    server.flushall();
    let (reason, waited) = took(guard.lost().wait()).await;
    assert_eq!(reason, LostReason::Refused);
    assert!(
        waited < lease * 3 / 5,
        "with the next renewal, not with the one after it: {waited:?}"
    );
    drop(guard);
    let again = locks.mutex("k").acquire().await.unwrap();
    assert!(again.fencing_token().unwrap() > token);
    again.release().await.unwrap();
}

/// Every policy except `noeviction` may evict held locks. Here the eviction is a plain deletion.
#[tokio::test]
async fn strict_refuses_an_evicting_server_and_an_eviction_is_a_loss() {
    for policy in ["volatile-ttl", "volatile-lru", "allkeys-lru"] {
        let server = RedisServer::builder().maxmemory("100mb", policy).start();
        let strict = LockManager::builder().strict(true);
        let strict = answered(async || strict.clone().connect(&server.url()).await).await;
        let error = strict.unwrap_err();
        assert!(
            matches!(error, LockError::InvalidConfig { .. }),
            "{error:?}"
        );
        assert!(
            error.to_string().contains(policy) && !error.is_retryable(),
            "{error}"
        );
        let events = Events::default();
        let _logging = tracing::subscriber::set_default(events.clone());
        drop(manager(&server).await);
        let warned = events.of(tracing::Level::WARN);
        // A manager whose first answers came too late is connected a second time.
        assert!(!warned.is_empty(), "nobody is warned of {policy}");
        assert!(
            warned.iter().all(|text| text.contains(policy)),
            "{warned:?}"
        );
    }
    let server = RedisServer::builder()
        .maxmemory("100mb", "volatile-ttl")
        .user("blind", "on >secret ~* &* +@all -info")
        .start();
    let (strict, url) = (
        LockManager::builder().strict(true),
        server.url_with("blind", "secret"),
    );
    let hidden = answered(async || strict.clone().connect(&url).await).await;
    let error = hidden.unwrap_err();
    assert!(matches!(error, LockError::Denied { .. }), "{error:?}");
    assert!(error.to_string().contains("`+info`"), "{error}");
    let locks = manager(&server).await;
    let guard = locks.mutex("k").lease(LEASE).acquire().await.unwrap();
    set(&server, "maxmemory", "1");
    // Any write makes the server look for something to evict.
    let _ = server.command(&["SET", "x", "y"]);
    assert!(!server.exists("lock:k"), "evicted");
    // By a renewal, and not at the end of the lease.
    assert_eq!(guard.lost().wait().await, LostReason::Refused);
    drop(guard);
}

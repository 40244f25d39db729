//! Tests of servers that answer and are of no use for locks: a master that was demoted behind its name, a replica that
//! takes writes, a server that is full or has too few replicas.

use std::time::Duration;

use lock_runtime::{HealthState, LockError, LockManager};
use redis::Value;
use tests::eventually::PATIENCE;
use tests::faults::{connected, free_within, renewed};
use tests::sentinel::replicated;
use tests::{FaultProxy, Quorum, RedisServer, answered, eventually};

const LONG: Duration = Duration::from_secs(60);
/// This is longer than the servers take to change their parts.
const LEASE: Duration = Duration::from_secs(45);

fn follow(replica: &RedisServer, master: &RedisServer) {
    let port = master.port().to_string();
    let _: Value = replica.query(&["REPLICAOF", "127.0.0.1", &port]);
}

#[tokio::test]
async fn a_master_demoted_behind_its_name_is_left_for_the_new_master() {
    let conf = || RedisServer::builder().line("repl-diskless-sync-delay 0");
    let servers = replicated(conf, 1).await;
    let [old, new] = &servers[..] else {
        unreachable!("two servers")
    };
    let proxy = FaultProxy::start(old.addr()).await;
    let builder = tests::builder().lease(LEASE);
    let locks = connected(builder.clone(), &proxy.url()).await;
    let other = connected(builder, &proxy.url()).await;
    assert!(locks.semaphore("s").try_set_permits(3).await.unwrap());
    other.latch("l").try_set_count(1).await.unwrap();
    let holds = [
        locks.mutex("k").acquire().await.unwrap(),
        locks.read("r").acquire().await.unwrap(),
        locks.semaphore("s").permits(2).acquire().await.unwrap(),
    ];
    let taken = other.mutex("taken").acquire().await.unwrap();
    let waiter = tokio::spawn(locks.mutex("taken").wait(LONG).acquire());
    let opened = {
        let latch = locks.latch("l");
        tokio::spawn(async move { latch.opened().wait(LONG).await })
    };
    eventually("they wait, and the replica knows all of it", async || {
        let waits = locks.inspect("taken").await.unwrap().local_waiters == 1;
        waits && new.exists("lock:k") && new.exists("lock:taken") && new.exists("lock:l")
    })
    .await;

    // Open connections stay at the old master, which lives on as a replica.
    proxy.lead_to(new.addr());
    let _: Value = new.query(&["REPLICAOF", "NO", "ONE"]);
    follow(old, new);

    free_within(&locks, "new", PATIENCE).await;
    renewed(&holds).await;
    taken.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    answered(async || other.latch("l").count_down().await)
        .await
        .unwrap();
    opened.await.unwrap().unwrap();
    for hold in holds {
        hold.release().await.unwrap();
    }
    assert!(locks.health().await.is_ok());
}

#[tokio::test]
async fn a_replica_that_takes_writes_is_refused() {
    let conf = || RedisServer::builder().line("repl-diskless-sync-delay 0");
    let servers = replicated(conf, 1).await;
    let replica = &servers[1];
    let _: Value = replica.query(&["CONFIG", "SET", "replica-read-only", "no"]);
    let refused = tests::builder().connect(&replica.url()).await.unwrap_err();
    assert!(matches!(refused, LockError::Unavailable { .. }));
    let text = refused.to_string();
    assert!(text.contains("connect to its master"), "{text}");
}

/// What makes a server refuse locks, and what ends that.
const OF_NO_USE: [[&[&str]; 2]; 4] = [
    [
        &["REPLICAOF", "127.0.0.1", "1"],
        &["REPLICAOF", "NO", "ONE"],
    ],
    [
        &["CONFIG", "SET", "min-replicas-to-write", "1"],
        &["CONFIG", "SET", "min-replicas-to-write", "0"],
    ],
    [
        &["CONFIG", "SET", "maxmemory", "1"],
        &["CONFIG", "SET", "maxmemory", "0"],
    ],
    [
        &["ACL", "SETUSER", "locks", "-@scripting"],
        &["ACL", "SETUSER", "locks", "+@scripting"],
    ],
];

async fn until(locks: &LockManager, state: HealthState) {
    eventually("the health is told", async || {
        locks.health().await.state == state
    })
    .await;
}

#[tokio::test]
async fn a_server_that_answers_and_keeps_no_locks_is_not_well() {
    for [refuse, serve] in OF_NO_USE {
        let server = RedisServer::builder()
            .user("locks", "on >secret ~* &* +@all")
            .start();
        let url = server.url_with("locks", "secret");
        let locks = tests::connected(&url).await;
        let _: Value = server.query(refuse);
        until(&locks, HealthState::Down).await;
        let tried = locks.mutex("k").try_acquire().await;
        assert!(tried.is_err(), "{refuse:?}: {tried:?}");
        let _: Value = server.query(serve);
        until(&locks, HealthState::Ok).await;
        free_within(&locks, "k", PATIENCE).await;
    }
}

#[tokio::test]
async fn a_quorum_of_which_most_are_full_is_not_well() {
    let quorum = Quorum::redis(3).await;
    let locks = quorum.manager().await;
    for server in &quorum.servers()[..2] {
        let _: Value = server.query(&["CONFIG", "SET", "maxmemory", "1"]);
    }
    until(&locks, HealthState::Down).await;
}

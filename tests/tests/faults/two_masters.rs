//! Tests of locks that replicas confirm, while an old master is still asked: nobody believes in a lock for longer than
//! the new master knows it.

use std::time::Duration;

use lock_runtime::{LockGuard, Replicas};
use redis::Value;
use tests::faults::connected;
use tests::sentinel::replicated;
use tests::{FaultProxy, RedisServer, eventually};
use tokio::time::Instant;

const STEP: Duration = Duration::from_millis(20);
/// This is longer than the servers take to change their parts.
const LEASE: Duration = Duration::from_secs(20);

fn follow(replica: &RedisServer, master: &RedisServer) {
    let port = master.port().to_string();
    let _: Value = replica.query(&["REPLICAOF", "127.0.0.1", &port]);
}

/// Ends the connections that wait for replicas, which were opened after the one for commands, and returns their number.
fn kill_lanes(server: &RedisServer) -> usize {
    let clients: Vec<String> = server.clients();
    let commands = clients.iter().filter(|client| client.contains(" sub=0 "));
    let lanes = commands.skip(1);
    let ids = lanes.filter_map(|client| client.split(' ').next()?.strip_prefix("id="));
    ids.filter(|id| server.command(&["CLIENT", "KILL", "ID", id]).is_ok())
        .count()
}

/// Returns which locks a server knows: a mutex, a reader and two permits.
fn known(server: &RedisServer) -> [bool; 3] {
    let now = server.time_ms().to_string();
    let permits: u64 = server.query(&["ZCOUNT", "{lock:s}:timeout", &now, "+inf"]);
    let [mutex, reader] = ["lock:k", "lock:r"].map(|key| server.exists(key));
    [mutex, reader, permits == 2]
}

#[tokio::test]
async fn new_replicas_do_not_vouch_for_a_renewal_at_the_old_master() {
    let conf = || RedisServer::builder().line("repl-diskless-sync-delay 0");
    let servers = replicated(conf, 2).await;
    let [old, new, replica] = &servers[..] else {
        unreachable!("three servers")
    };
    let proxy = FaultProxy::start(old.addr()).await;
    let builder = tests::builder().replicas(Replicas::at_least(1).renewals(true));
    let locks = connected(builder, &proxy.url()).await;
    assert!(locks.semaphore("s").try_set_permits(3).await.unwrap());
    let requests = [
        locks.mutex("k"),
        locks.read("r"),
        locks.semaphore("s").permits(2),
    ];
    let mut guards = Vec::new();
    for request in requests {
        guards.push(request.lease(LEASE).acquire().await.unwrap());
    }

    eventually("the new one has them", async || known(new) == [true; 3]).await;

    // Open connections stay at the old master. Those that wait for replicas are opened anew.
    proxy.lead_to(new.addr());
    let _: Value = new.query(&["REPLICAOF", "NO", "ONE"]);
    follow(replica, new);
    eventually("the other replica follows the new master", async || {
        let _ = new.command(&["SET", "probe", "1"]);
        replica.exists("probe")
    })
    .await;
    let killed = kill_lanes(old);
    assert!(killed > 0, "{:?}", old.clients());
    assert_eq!(known(new), [true; 3]);
    assert!(guards.iter().all(LockGuard::is_held));

    let moved = Instant::now();
    let mut renewed = [false; 2];
    while moved.elapsed() < LEASE * 3 / 2 || renewed != [true; 2] && moved.elapsed() < LEASE * 3 {
        let since = moved.elapsed();
        for (server, renewed) in [old, new].into_iter().zip(&mut renewed) {
            let left = Duration::from_millis(server.pttl("lock:k").try_into().unwrap_or(0));
            // This is later than the end of the last lease from before the move.
            *renewed |= since + left > LEASE + STEP;
        }
        for (guard, known) in guards.iter().zip(known(new)) {
            assert!(
                known || !guard.is_held(),
                "the new master does not know `{}`, after {:?}",
                guard.name(),
                moved.elapsed()
            );
        }
        tokio::time::sleep(STEP).await;
    }
    assert_eq!(renewed, [true; 2], "at the old one, at the new one");
}

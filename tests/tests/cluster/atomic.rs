//! Tests of slots that a cluster moves in one step (Valkey 9: `CLUSTER MIGRATESLOTS`) while their locks are in use.
//! Servers that do not know the command have nothing to show here, so the test ends at once there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lock_runtime::LockManager;
use redis::Value;
use tests::faults::{given_back, renewed};
use tests::{RedisCluster, eventually};

const LONG: Duration = Duration::from_secs(120);

async fn manager(cluster: &RedisCluster) -> LockManager {
    tests::connected(&cluster.url()).await
}

fn moves_in_one_step(cluster: &RedisCluster) -> bool {
    let known: Vec<Value> = cluster.query(0, &["COMMAND", "INFO", "cluster|migrateslots"]);
    known != [Value::Nil]
}

async fn move_in_one_step(cluster: &RedisCluster, slot: u16, to: usize) {
    let id: String = cluster.query(to, &["CLUSTER", "MYID"]);
    let name = slot.to_string();
    let order = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &name, &name];
    let order = [&order[..], &["NODE", &id]].concat();
    let _: Value = cluster.query(cluster.owner_of(slot), &order);
    eventually("the slot has moved", async || cluster.owner_of(slot) == to).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moved_in_one_step_takes_holds_waiters_and_channels() {
    let cluster = RedisCluster::start().await;
    if !moves_in_one_step(&cluster) {
        return;
    }
    let (locks, other) = (manager(&cluster).await, manager(&cluster).await);
    let slot = cluster.slot_of("{m}");
    let mut guards = Vec::new();
    for request in [
        locks.mutex("a{m}"),
        locks.fenced("f{m}"),
        locks.fair("q{m}"),
        locks.read("r{m}"),
        locks.write("w{m}"),
    ] {
        let request = request.lease(Duration::from_secs(20));
        guards.push(request.acquire().await.unwrap());
    }
    let next = other.fair("q{m}").wait(LONG);
    let next = tokio::spawn(next.acquire());

    let (over, served) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let mut contenders = Vec::new();
    for hot in ["mutex", "fair"] {
        let inside = Arc::new(AtomicUsize::new(0));
        for locks in [&locks, &locks, &other] {
            let name = format!("{hot}{{m}}");
            let request = match hot {
                "fair" => locks.fair(name),
                _ => locks.mutex(name),
            };
            let (over, served, inside) = (over.clone(), served.clone(), inside.clone());
            contenders.push(tokio::spawn(async move {
                let mut last = None;
                while !over.load(Ordering::SeqCst) {
                    let guard = request.clone().wait(LONG).acquire().await.unwrap();
                    assert!(guard.fencing_token() > last);
                    last = guard.fencing_token();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    served.fetch_add(1, Ordering::SeqCst);
                    // A hold that is lost here would have been seen beside the next one.
                    given_back(guard).await;
                }
            }));
        }
    }
    for _ in 0..5 {
        let to = (cluster.owner_of(slot) + 1) % 3;
        move_in_one_step(&cluster, slot, to).await;
        let before = served.load(Ordering::SeqCst);
        eventually("everyone goes on", async || {
            served.load(Ordering::SeqCst) > before + 20
        })
        .await;
    }
    over.store(true, Ordering::SeqCst);
    for contender in contenders {
        contender.await.unwrap();
    }
    // At a node at which it was not acquired.
    renewed(&guards).await;
    for guard in guards {
        guard.release().await.unwrap();
    }
    next.await.unwrap().unwrap().release().await.unwrap();
}

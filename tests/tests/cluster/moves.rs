//! Tests of a Redis Cluster whose slots move and whose masters change while locks are held, waited for and given back.

use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use lock_runtime::{LockGuard, LockManager, LostReason, TryAcquire};
use tests::faults::{connected, renewed, told, use_once};
use tests::{CommandStats, RedisCluster, eventually};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);
/// That of holds which are to be renewed.
const LEASE: Duration = Duration::from_secs(15);

async fn manager(cluster: &RedisCluster) -> LockManager {
    tests::connected(&cluster.url()).await
}

/// Returns a lock in the slot that is moved: its name, its slot, from where and to where.
fn moving(cluster: &RedisCluster) -> (&'static str, u16, usize, usize) {
    let slot = cluster.slot_of("lock:{m}");
    let from = cluster.owner_of(slot);
    ("{m}", slot, from, (from + 1) % 3)
}

fn stands_at(cluster: &RedisCluster, node: usize, key: &str) -> bool {
    let keys = cluster.keys_in_slot(node, cluster.slot_of(key));
    keys.iter().any(|other| other == key)
}

async fn held(locks: &LockManager, name: &str) -> LockGuard {
    locks.mutex(name).acquire().await.unwrap()
}

#[tokio::test]
async fn a_moved_slot_is_found_by_clients_that_still_ask_the_old_node() {
    let cluster = RedisCluster::start().await;
    let (locks, other) = (manager(&cluster).await, manager(&cluster).await);
    let (name, slot, _, to) = moving(&cluster);
    let guard = held(&locks, name).await;
    let before = guard.fencing_token().unwrap();
    cluster.move_slot(slot, to).await;
    assert!(matches!(
        other.mutex(name).try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    guard.release().await.unwrap();
    let guard = held(&other, name).await;
    assert!(guard.fencing_token().unwrap() > before);
    assert!(stands_at(&cluster, to, "lock:{m}"));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_lock_is_acquired_with_its_fence_at_either_node_of_a_move() {
    let cluster = RedisCluster::start().await;
    let locks = manager(&cluster).await;
    let (name, slot, from, to) = moving(&cluster);
    for request in [locks.mutex(name), locks.fenced("f{m}")] {
        let guard = request.clone().acquire().await.unwrap();
        let mut last = guard.fencing_token().unwrap();
        guard.release().await.unwrap();
        let fences = cluster.keys_in_slot(cluster.owner_of(slot), slot);
        assert!(!fences.is_empty(), "the fence stays");
        let (from, to) = match cluster.owner_of(slot) == from {
            true => (from, to),
            false => (to, from),
        };
        cluster.begin_move(slot, to);
        for fence in [None].into_iter().chain(fences.iter().map(Some)) {
            if let Some(fence) = fence {
                assert!(cluster.migrate_key(fence, to));
            }
            for _ in 0..3 {
                let guard = request.clone().acquire().await.unwrap();
                let token = guard.fencing_token().unwrap();
                assert!(token > last, "{token} after {last}");
                last = token;
                let key = format!("lock:{}", guard.name());
                assert!(
                    stands_at(&cluster, to, &key),
                    "new keys come into being there"
                );
                guard.release().await.unwrap();
                assert!(!stands_at(&cluster, to, &key));
            }
        }
        cluster.finish_move(slot, to).await;
        let guard = request.clone().acquire().await.unwrap();
        assert!(guard.fencing_token().unwrap() > last);
        let key = format!("lock:{}", guard.name());
        guard.release().await.unwrap();
        assert!(!stands_at(&cluster, from, &key));
    }
}

#[tokio::test]
async fn holds_of_every_kind_are_renewed_through_a_migration() {
    let cluster = RedisCluster::start().await;
    let locks = manager(&cluster).await;
    let (_, slot, from, to) = moving(&cluster);
    let semaphore = locks.semaphore("s{m}");
    semaphore.try_set_permits(2).await.unwrap();
    let mut guards = Vec::new();
    for request in [
        locks.mutex("a{m}"),
        locks.mutex("b{m}"),
        locks.mutex("c{m}"),
        locks.fenced("f{m}"),
        locks.fair("q{m}"),
        locks.read("r{m}"),
        locks.write("w{m}"),
        semaphore.permits(1),
    ] {
        guards.push(request.lease(LEASE).acquire().await.unwrap());
    }
    let keys = cluster.keys_in_slot(from, slot);
    cluster.begin_move(slot, to);
    for some in keys.chunks(4) {
        for key in some {
            cluster.migrate_key(key, to);
        }
        renewed(&guards).await;
    }
    cluster.finish_move(slot, to).await;
    renewed(&guards).await;
    for guard in guards {
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn waiters_are_woken_before_during_and_after_a_migration() {
    let cluster = RedisCluster::start().await;
    let manager = async || connected(told(), &cluster.url()).await;
    let (locks, other) = (manager().await, manager().await);
    let (name, slot, from, to) = moving(&cluster);
    for step in 0..3 {
        let guard = held(&locks, name).await;
        let waiting = tokio::spawn(other.mutex(name).acquire());
        let listens = |node: usize| {
            let all: Vec<String> = cluster.query(node, &["PUBSUB", "SHARDCHANNELS"]);
            all.iter().any(|channel| channel.contains(name))
        };
        eventually("it listens", async || listens(from)).await;
        match step {
            0 => {}
            1 => {
                cluster.begin_move(slot, to);
                cluster.migrate_keys(slot, to);
            }
            _ => {
                cluster.finish_move(slot, to).await;
                eventually("it listens there", async || listens(to)).await;
            }
        }
        // Once it listens, it asks once more.
        tokio::time::sleep(50 * MS).await;
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_release_at_the_new_node_is_published_at_the_old_node() {
    let cluster = RedisCluster::start().await;
    let (locks, other) = (manager(&cluster).await, manager(&cluster).await);
    let semaphore = locks.semaphore("permit");
    semaphore.try_set_permits(1).await.unwrap();
    let (latch, plain) = (locks.latch("latch"), locks.plain_semaphore("plain"));
    latch.try_set_count(1).await.unwrap();
    plain.try_set_permits(0).await.unwrap();
    let mutex = locks.mutex("mutex").acquire().await.unwrap();
    let permit = semaphore.permits(1).acquire().await.unwrap();
    let fair = locks.fair("fair").acquire().await.unwrap();
    let waiting = tokio::spawn(other.fair("fair").wait(LONG).acquire());
    eventually("it queues", async || {
        locks.inspect("fair").await.unwrap().waiters == 1
    })
    .await;
    let all: [(_, Pin<Box<dyn Future<Output = _>>>); 5] = [
        ("mutex", Box::pin(mutex.release())),
        ("fair", Box::pin(fair.release())),
        ("permit", Box::pin(permit.release())),
        ("plain", Box::pin(plain.release(1))),
        (
            "latch",
            Box::pin(async { latch.count_down().await.map(drop) }),
        ),
    ];
    for (name, given_back) in all {
        let slot = cluster.slot_of(&format!("lock:{name}"));
        let from = cluster.owner_of(slot);
        let to = (from + 1) % 3;
        cluster.begin_move(slot, to);
        assert!(cluster.migrate_keys(slot, to) > 0, "{name}");
        let published = || CommandStats::of(&cluster.nodes[from]).calls("spublish");
        let before = published();
        given_back.await.unwrap();
        eventually(name, async || published() > before).await;
        cluster.finish_move(slot, to).await;
    }
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn acquires_dropped_in_a_migration_leave_nothing_behind() {
    let cluster = RedisCluster::start().await;
    let locks = manager(&cluster).await;
    let (name, slot, from, to) = moving(&cluster);
    held(&locks, name).await.release().await.unwrap();
    for round in 0..12 {
        let (from, to) = if round % 2 == 0 {
            (from, to)
        } else {
            (to, from)
        };
        cluster.settled().await;
        cluster.begin_move(slot, to);
        drop_after(&locks, name, round).await;
        cluster.migrate_keys(slot, to);
        drop_after(&locks, name, round / 2).await;
        cluster.finish_move(slot, to).await;
        drop_after(&locks, name, round).await;
        eventually("the lock is free", async || {
            !stands_at(&cluster, to, "lock:{m}") && !stands_at(&cluster, from, "lock:{m}")
        })
        .await;
    }
    held(&locks, name).await.release().await.unwrap();
}

/// Polls an acquire `polls` times, with pauses for replies in between, and drops it.
async fn drop_after(locks: &LockManager, name: &str, polls: usize) {
    let mut acquiring = Box::pin(locks.mutex(name).lease(Duration::from_secs(60)).acquire());
    for _ in 0..polls {
        let ready = poll_fn(|cx| Poll::Ready(acquiring.as_mut().poll(cx).is_ready())).await;
        if ready {
            return;
        }
        tokio::time::sleep(MS / 4).await;
    }
}

#[tokio::test]
async fn a_failover_loses_no_replicated_lock_holder_or_waiter() {
    let mut cluster = RedisCluster::builder().replicas().start().await;
    let (locks, other) = (manager(&cluster).await, manager(&cluster).await);
    let (name, slot, _, _) = moving(&cluster);
    for killed in [false, true] {
        let master = cluster.owner_of(slot);
        // An election that fails is repeated after several seconds.
        let guard = locks.mutex(name).lease(LONG).acquire().await.unwrap();
        let token = guard.fencing_token().unwrap();
        let waiting = tokio::spawn(other.mutex(name).wait(3 * LONG).acquire());
        let _: i64 = cluster.query(master, &["WAIT", "1", "60000"]);
        tokio::time::sleep(100 * MS).await;
        let new = match killed {
            true => cluster.kill_master(master).await,
            false => cluster.failover(master).await,
        };
        assert_ne!(new, master);
        assert!(guard.is_held());
        let mut left = i64::MAX;
        eventually("it is renewed at the new master", async || {
            assert!(guard.is_held());
            let before = mem::replace(&mut left, cluster.query(new, &["PTTL", "lock:{m}"]));
            left > before
        })
        .await;
        assert!(guard.is_held() && !waiting.is_finished());
        guard.release().await.unwrap();
        let next = waiting.await.unwrap().unwrap();
        assert!(next.fencing_token().unwrap() > token);
        next.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_frozen_master_stops_its_slots_only_until_an_election() {
    let cluster = RedisCluster::builder().replicas().start().await;
    let locks = tests::builder().call_timeout(1_500 * MS);
    let locks = connected(locks, &cluster.url()).await;
    let (name, slot, from, _) = moving(&cluster);
    use_once(locks.mutex(name)).await;
    cluster.pause(from);
    use_once(locks.mutex(name).wait(3 * LONG)).await;
    assert_ne!(cluster.owner_of(slot), from);
    cluster.resume(from);
    cluster.settled().await;
    use_once(locks.mutex(name)).await;
}

#[tokio::test]
async fn what_one_slot_does_not_answer_says_nothing_about_the_others() {
    let cluster = RedisCluster::start().await;
    let locks = manager(&cluster).await;
    let mut guards = Vec::new();
    for number in 0..30 {
        let request = locks.mutex(format!("k{number}")).lease(LEASE);
        guards.push(request.acquire().await.unwrap());
    }
    let is_at_the_first =
        |guard: &LockGuard| cluster.owner_of_key(&format!("lock:{}", guard.name())) == 0;
    let (ends, lives): (Vec<_>, Vec<_>) = guards.into_iter().partition(is_at_the_first);
    cluster.pause(0);
    for guard in ends {
        assert_eq!(guard.lost().wait().await, LostReason::Expired);
    }
    renewed(&lives).await;
    cluster.resume(0);
    for guard in lives {
        guard.release().await.unwrap();
    }
}

/// Renews two holds that are due at the same time and would be in one batch.
#[tokio::test]
async fn a_silent_node_delays_no_confirmation_at_other_nodes() {
    let cluster = RedisCluster::start().await;
    let locks = tests::builder().call_timeout(LONG);
    let locks = locks.connect(&cluster.url()).await.unwrap();
    let mut guards = Vec::new();
    for node in [0, 1] {
        let key = cluster.key_at(node, "lock:k");
        let request = locks.mutex(&key["lock:".len()..]).lease(LONG);
        guards.push(request.acquire().await.unwrap());
    }
    cluster.pause(0);
    // The holds are renewed after 20 s. The call at the frozen node is given up after 10 s.
    let mut least = LONG;
    eventually("the frozen node does not answer", async || {
        least = least.min(guards[1].remaining());
        guards[0].remaining() < LONG / 2
    })
    .await;
    assert!(least > LONG / 2 + 200 * MS, "{least:?}");
    cluster.resume(0);
    for guard in guards {
        guard.release().await.unwrap();
    }
}

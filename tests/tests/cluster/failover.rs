//! Tests of a Redis Cluster under load, with recorded holds of every kind while slots move, masters change, masters
//! die.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockGuard, LockManager, LostReason};
use redis::Value;
use tests::faults::connected;
use tests::history::Violation;
use tests::stops::{STOP_OF_A_GRANT, Stops, in_one_of_a_few_rounds};
use tests::{Data, History, RedisCluster, answered, eventually, eventually_within};
use tokio::task::JoinSet;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);
/// Of holds that may be lost with their masters: what a failover brings back is free soon after it.
const LEASE: Duration = Duration::from_secs(6);
const PERMITS: u64 = 2;
/// The tasks of each of the three managers.
const TASKS: usize = 5;

/// The tags of the locks. Each has a lock of every kind in its slot.
const TAGS: [&str; 4] = ["a", "b", "c", "d"];

/// Returns the slot of a tag's locks.
fn slot_of(cluster: &RedisCluster, tag: &str) -> u16 {
    cluster.slot_of(&format!("lock:{{{tag}}}"))
}

/// The state and the observations of a storm: many tasks that hold random locks.
#[derive(Default)]
struct Storm {
    history: History,
    /// True if data may be lost: acquires may fail, and a caller that has lost a lock has to be told.
    lossy: bool,
    /// True while a failover that loses data is about to come.
    dire: AtomicBool,
    /// The holds whose holders were told that they are lost, or that their release is not confirmed.
    told: Mutex<BTreeSet<String>>,
    /// The permits, readers and writers that are inside now, by tag.
    permits: [AtomicI64; TAGS.len()],
    readers: [AtomicI64; TAGS.len()],
    writers: [AtomicI64; TAGS.len()],
    /// The number of times that more permits were out than there are, or a read was beside a write.
    crowded: AtomicUsize,
    /// The number of holds whose holders were told that they are lost.
    lost: AtomicUsize,
    finished: AtomicUsize,
    over: AtomicBool,
}

impl Storm {
    /// Lets three managers contend. Returns their tasks, and what looks for stops of the machine meanwhile.
    async fn start(cluster: &RedisCluster, lossy: bool) -> (Arc<Self>, (JoinSet<()>, Stops)) {
        let storm = Self {
            lossy,
            ..Self::default()
        };
        let storm = Arc::new(storm);
        let (mut tasks, stops) = (JoinSet::new(), Stops::watch());
        for m in 0..3 {
            let locks = tests::connected(&cluster.url()).await;
            for tag in TAGS {
                let semaphore = locks.semaphore(format!("{{{tag}}}permits"));
                let set = answered(async || semaphore.try_set_permits(PERMITS).await);
                set.await.unwrap();
            }
            for task in 0..TASKS {
                let (storm, locks) = (storm.clone(), locks.clone());
                tasks.spawn(async move {
                    for round in 0.. {
                        if storm.over.load(SeqCst) {
                            return;
                        }
                        storm.one(&locks, &format!("{m}-{task}-{round}")).await;
                        storm.finished.fetch_add(1, SeqCst);
                    }
                });
            }
        }
        (storm, (tasks, stops))
    }

    /// Acquires a random lock, holds it and releases it.
    async fn one(&self, locks: &LockManager, holder: &str) {
        // Where no data are lost, no hold is, however slow the machine.
        let lease = if self.lossy { LEASE } else { LONG };
        let tag = fastrand::usize(..TAGS.len());
        let name = |kind: &str| format!("{{{}}}{kind}", TAGS[tag]);
        let kind = fastrand::u8(..8);
        let acquired = match kind {
            0 | 1 => {
                locks
                    .mutex(name("mutex"))
                    .lease(lease)
                    .wait(3 * LONG)
                    .acquire()
                    .await
            }
            2 => {
                locks
                    .fair(name("fair"))
                    .lease(lease)
                    .wait(3 * LONG)
                    .acquire()
                    .await
            }
            3 => {
                locks
                    .fenced(name("fenced"))
                    .lease(lease)
                    .wait(3 * LONG)
                    .acquire()
                    .await
            }
            4 => {
                locks
                    .write(name("rw"))
                    .lease(lease)
                    .wait(3 * LONG)
                    .acquire()
                    .await
            }
            5 => {
                locks
                    .read(name("rw"))
                    .lease(lease)
                    .wait(3 * LONG)
                    .acquire()
                    .await
            }
            6 => {
                let semaphore = locks.semaphore(name("permits"));
                semaphore
                    .permits(1)
                    .lease(lease)
                    .wait(3 * LONG)
                    .acquire()
                    .await
            }
            _ => {
                let all = TAGS.map(|tag| locks.mutex(format!("{{{tag}}}mutex")).lease(lease));
                locks.multi(all).wait(3 * LONG).acquire().await
            }
        };
        let guard = match acquired {
            Ok(guard) => guard,
            Err(LockError::Unavailable { .. } | LockError::Busy { .. }) if self.lossy => return,
            Err(error) => panic!("{holder}, kind {kind}: {error}"),
        };
        match kind {
            4 => {
                self.writers[tag].fetch_add(1, SeqCst);
                self.crowded_if(self.readers[tag].load(SeqCst) > 0);
            }
            5 => {
                self.readers[tag].fetch_add(1, SeqCst);
                self.crowded_if(self.writers[tag].load(SeqCst) > 0);
            }
            6 => self.crowded_if(self.permits[tag].fetch_add(1, SeqCst) >= PERMITS as i64),
            _ => {}
        }
        let shared = [5, 6].contains(&kind);
        self.record(&guard, holder, shared).await;
        let left = [(4, &self.writers), (5, &self.readers), (6, &self.permits)];
        for (_, inside) in left.into_iter().filter(|(of, _)| *of == kind) {
            inside[tag].fetch_sub(1, SeqCst);
        }
        if let Err(error) = guard.release().await {
            // A master that hands over to its replica answers no writes for a second; the release is repeated.
            let unconfirmed = matches!(error, LockError::Unavailable { .. });
            let lost = matches!(error, LockError::Lost { .. });
            assert!(
                self.lossy || unconfirmed || lost,
                "{holder}, kind {kind}: {error}"
            );
            if lost {
                self.lost.fetch_add(1, SeqCst);
            }
            self.told.lock().unwrap().insert(holder.to_owned());
        }
    }

    fn crowded_if(&self, crowded: bool) {
        self.crowded.fetch_add(crowded.into(), SeqCst);
    }

    /// Holds the lock for a few milliseconds, records the hold and watches it all the time.
    async fn record(&self, guard: &LockGuard, holder: &str, shared: bool) {
        let mut holds: Vec<_> = guard
            .members()
            .filter(|_| !shared)
            .map(|member| {
                let token = member.fencing_token.map(|token| token.get());
                self.history.begin(member.name, holder, token)
            })
            .collect();
        // Some holds outlast a failover. A second holder then comes early enough to overlap with the first.
        let long = self.dire.load(SeqCst) && fastrand::u8(..6) == 0;
        for _ in 0..fastrand::u16(if long { 1_500..2_500 } else { 1..5 }) {
            tokio::time::sleep(MS * fastrand::u32(..3)).await;
            if !guard.is_held() {
                break;
            }
            for hold in &mut holds {
                hold.seen(|| guard.is_held());
            }
        }
        if !guard.is_held() {
            let lost = guard.lost().wait().await;
            println!("{holder} lost {}: {lost:?}", guard.name());
            self.told.lock().unwrap().insert(holder.to_owned());
        }
        for hold in holds {
            hold.end_as_seen();
        }
    }

    /// Waits until `further` more holds have ended.
    async fn goes_on(&self, further: usize) {
        let before = self.finished.load(SeqCst);
        eventually_within(3 * LONG, "locks are acquired and released", async || {
            self.finished.load(SeqCst) >= before + further
        })
        .await;
    }

    /// Ends the storm and checks what it saw: in a storm without loss, that nobody overlapped; in a lossy one, that the
    /// first holder of every overlap was told.
    async fn calm(&self, (mut tasks, stops): (JoinSet<()>, Stops)) {
        self.over.store(true, SeqCst);
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        if !self.lossy {
            self.history.assert_exclusive();
            let (lost, finished) = (self.lost.load(SeqCst), self.finished.load(SeqCst));
            // What a message gives lasts for a second at first. If the machine stood still, each task may have lost a hold.
            let longest = stops.longest();
            let excused = if longest >= STOP_OF_A_GRANT {
                3 * TASKS
            } else {
                0
            };
            assert!(
                lost <= finished / 100 + excused,
                "{lost} of {finished} are lost, with stops of {longest:?} at most"
            );
            // While its process stands still, a hold that is lost is still inside.
            let crowded = self.crowded.load(SeqCst);
            assert!(
                crowded == 0 || lost > 0,
                "{crowded} times too many permits, or reads beside a write"
            );
            return;
        }
        let told = self.told.lock().unwrap();
        println!(
            "told {} violations {} of {}",
            told.len(),
            self.history.violations().len(),
            self.history.len()
        );
        for violation in self.history.violations() {
            match &violation {
                Violation::Overlap(first, _) => {
                    assert!(told.contains(&first.holder), "{violation}")
                }
                // Redisson's counter goes back to the value that the new master has of it. Tokens by the clock do not.
                Violation::Token(first, _) if first.key.ends_with("fenced") => {}
                Violation::Token(..) => panic!("{violation}"),
            }
        }
    }
}

/// Waits until no key is left except the counters of the semaphores.
async fn is_clean(cluster: &RedisCluster) {
    let mut before = Vec::new();
    eventually("no key of a hold is left", async || {
        let mut keys = cluster.stray_keys();
        keys.retain(|key| !key.ends_with("permits"));
        if keys != before {
            println!("left: {keys:?}");
            before.clone_from(&keys);
        }
        keys.is_empty()
    })
    .await;
}

/// Moves each tag's slot to the next master, key by key.
async fn move_all(cluster: &RedisCluster) {
    for tag in TAGS {
        let slot = slot_of(cluster, tag);
        let from = cluster.owner_of(slot);
        let to = (from + 1) % 3;
        cluster.begin_move(slot, to);
        for key in cluster.keys_in_slot(from, slot) {
            cluster.migrate_key(&key, to);
            tokio::time::sleep(MS * fastrand::u32(..6)).await;
        }
        cluster.finish_move(slot, to).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_under_a_storm_cost_no_lock_and_admit_nobody() {
    let cluster = RedisCluster::start().await;
    let (storm, tasks) = Storm::start(&cluster, false).await;
    for _ in 0..6 {
        storm.goes_on(40).await;
        move_all(&cluster).await;
    }
    storm.goes_on(40).await;
    storm.calm(tasks).await;
    is_clean(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn master_changes_under_load_lose_no_lock_and_admit_nobody() {
    // A node that a busy machine keeps from answering is not given up: it would lose what its replica does not have.
    let cluster = RedisCluster::builder().replicas();
    let cluster = cluster.node_timeout(LONG / 6).start().await;
    let (storm, tasks) = Storm::start(&cluster, false).await;
    // Each master gives way to its replica, and each replica to its master: nobody stands for election twice.
    for master in 0..6 {
        storm.goes_on(40).await;
        cluster.failover(master).await;
    }
    storm.goes_on(40).await;
    storm.calm(tasks).await;
    is_clean(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn masters_that_die_under_a_storm_leave_no_second_holder_untold() {
    let mut cluster = RedisCluster::builder().replicas().start().await;
    let (storm, tasks) = Storm::start(&cluster, true).await;
    for tag in ["a", "b"] {
        storm.goes_on(40).await;
        let master = cluster.owner_of(slot_of(&cluster, tag));
        stop_replication(&cluster, master);
        storm.dire.store(true, SeqCst);
        storm.goes_on(10).await;
        cluster.kill9(master);
        storm.dire.store(false, SeqCst);
        cluster.resume(cluster.partner_of(master));
        cluster.replaced(master).await;
        storm.goes_on(40).await;
        cluster.restart(master, Data::Lost).await;
    }
    storm.goes_on(40).await;
    storm.calm(tasks).await;
    everything_can_be_had(&cluster).await;
    is_clean(&cluster).await;
}

/// Has all permits and the fair lock of each tag. A failover that loses writes brings leases of permits back, and places
/// in queues: they stay in the store until somebody asks after their end.
async fn everything_can_be_had(cluster: &RedisCluster) {
    let locks = tests::connected(&cluster.url()).await;
    for tag in TAGS {
        let permits = locks.semaphore(format!("{{{tag}}}permits"));
        let all = permits
            .permits(PERMITS as u32)
            .wait(3 * LONG)
            .acquire()
            .await;
        let fair = locks
            .fair(format!("{{{tag}}}fair"))
            .wait(3 * LONG)
            .acquire()
            .await;
        all.unwrap().release().await.unwrap();
        fair.unwrap().release().await.unwrap();
    }
}

/// Freezes the replica and cuts its connection: what the master writes from now on is in no buffer on its way there.
fn stop_replication(cluster: &RedisCluster, master: usize) {
    cluster.pause(cluster.replica_of(master));
    let _: Value = cluster.query(master, &["CLIENT", "KILL", "TYPE", "replica"]);
}

/// Tests the only case in which a failover admits a second holder: the write was acknowledged, and is nowhere else.
#[tokio::test]
async fn a_failover_makes_an_unreplicated_lock_a_reported_loss() {
    let mut cluster = RedisCluster::builder().replicas().start().await;
    let locks = tests::connected(&cluster.url()).await;
    let other = tests::connected(&cluster.url()).await;
    let master = cluster.owner_of_key("lock:k");
    let replica = cluster.replica_of(master);
    stop_replication(&cluster, master);
    let guard = locks.mutex("k").lease(2 * LONG).acquire().await.unwrap();
    cluster.kill9(master);
    cluster.resume(replica);
    assert_eq!(cluster.replaced(master).await, replica);
    let second = other.mutex("k").wait(3 * LONG).acquire().await.unwrap();
    assert!(
        second.fencing_token() > guard.fencing_token(),
        "what is fenced is safe"
    );
    // The holder is told by a renewal, and not at the end of the lease.
    assert_eq!(guard.lost().wait().await, LostReason::Refused);
    assert!(guard.release().await.is_err() && second.is_held());
    second.release().await.unwrap();
}

/// A renewal goes on a connection that is silent, too. Without news of the failover, it would wait there until the next one is
/// planned, and often the lease would be over by then.
#[tokio::test]
async fn a_renewal_at_a_silent_master_is_repeated_at_its_successor() {
    let left = Duration::from_secs(10);
    in_one_of_a_few_rounds(left / 4, "the hold is renewed at once", async || {
        let conf = RedisCluster::builder().replicas().node_timeout(LONG);
        let cluster = conf.start().await;
        let locks = tests::connected(&cluster.url()).await;
        let key = cluster.key_at(0, "lock:");
        let lock = locks.mutex(key.strip_prefix("lock:").unwrap());
        let lock = lock.lease(Duration::from_secs(36));
        let guard = answered(async || lock.clone().acquire().await)
            .await
            .unwrap();
        cluster.replicated().await;
        let replica = cluster.replica_of(0);
        cluster.pause(0);
        eventually("the lease is nearly over", async || {
            guard.remaining() < left
        })
        .await;
        // The next one is planned for about two seconds before the end of the lease.
        let planned = Instant::now() + guard.remaining() - 2_500 * MS;
        let takeover = ["CLUSTER", "FAILOVER", "TAKEOVER"];
        let _: Value = cluster.nodes[replica].ask(&takeover).await;
        eventually("the hold is renewed or lost", async || {
            guard.remaining() > left || !guard.is_held()
        })
        .await;
        guard.is_held() && Instant::now() < planned
    })
    .await;
}

/// A request to count is sent once. A redirection means that it was certainly not done, so each of them arrives, and
/// none of them twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_add_up_while_their_slot_moves() {
    let cluster = Arc::new(RedisCluster::start().await);
    // It says that an answer was not in time, and not whether it counted.
    let builder = tests::builder().call_timeout(LONG / 2);
    let locks = connected(builder, &cluster.url()).await;
    let (latch, permits) = (locks.latch("{a}latch"), locks.plain_semaphore("{a}plain"));
    latch.try_set_count(2_000).await.unwrap();
    permits.try_set_permits(0).await.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let counting = tokio::spawn({
        let (latch, permits, over) = (latch.clone(), permits.clone(), over.clone());
        async move {
            let mut counted = 0;
            while !over.load(SeqCst) || counted < 20 {
                latch.count_down().await.unwrap();
                permits.release(1).await.unwrap();
                counted += 1;
                tokio::time::sleep(MS).await;
            }
            counted
        }
    });
    let opened = tokio::spawn({
        let latch = latch.clone();
        async move { latch.opened().wait(10 * LONG).await }
    });
    for _ in 0..4 {
        move_all(&cluster).await;
    }
    over.store(true, SeqCst);
    let counted: u64 = counting.await.unwrap();
    assert_eq!(permits.available().await.unwrap(), counted as i64);
    assert_eq!(latch.count().await.unwrap(), 2_000 - counted);
    for _ in counted..2_000 {
        latch.count_down().await.unwrap();
    }
    opened.await.unwrap().unwrap();
    permits.delete().await.unwrap();
}

//! Tests of locks that replicas have before they are handed out, with replicas that are frozen and masters that die.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use lock_runtime::{LockError, LockManager, LostReason, Replicas};
use tests::eventually::PATIENCE;
use tests::faults::{at_each_poll, behind_a_proxy, connected, free_within, poll_times, took};
use tests::sentinel::replicated;
use tests::{CommandStats, Direction, RedisServer, SentinelGroup, eventually};
use tokio::task::JoinSet;
use tokio::time::Instant;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

/// Starts a master and that many replicas, which hear at once of what is written.
async fn servers(replicas: usize) -> Vec<RedisServer> {
    let conf = || RedisServer::builder().line("repl-diskless-sync-delay 0");
    replicated(conf, replicas).await
}

async fn manager(master: &RedisServer, replicas: Replicas) -> LockManager {
    connected(tests::builder().replicas(replicas), &master.url()).await
}

/// Returns how many connections wait for replicas.
fn waiting_lanes(master: &RedisServer) -> usize {
    let clients = master.clients();
    let blocked = clients.iter().filter(|client| client.contains(" flags=b "));
    blocked.count()
}

/// Returns all that is at the key, except expiries.
fn content(server: &RedisServer, key: &str) -> Vec<String> {
    server.query(&["HGETALL", key])
}

/// Waits until all is undone: that goes on in the background when a caller is told.
async fn nothing_is_left(server: &RedisServer) {
    eventually("nothing is left", async || server.stray_keys().is_empty()).await;
}

fn assert_too_few(error: &LockError) {
    let text = error.to_string();
    assert_not_busy(error);
    // On a busy machine, this is known from an earlier try.
    assert!(text.contains("0 of 1 replicas"), "{text}");
}

/// Asserts that the error is not about a busy lock. The last try of a wait may have so little time that not even the
/// master answers.
fn assert_not_busy(error: &LockError) {
    let text = error.to_string();
    let known = [
        "replicas confirmed the lock",
        "no answer",
        "no time was left",
    ];
    assert!(matches!(error, LockError::Unavailable { .. }), "{text}");
    assert!(known.iter().any(|known| text.contains(known)), "{text}");
    assert!(error.is_retryable());
}

#[tokio::test]
async fn a_master_without_enough_replicas_is_not_healthy() {
    let servers = servers(1).await;
    let locks = manager(&servers[0], Replicas::at_least(1)).await;
    let state = async || locks.health().await;
    eventually("it is healthy", async || state().await.is_ok()).await;
    let second = Duration::from_secs(1);
    let healthy = state().await.since;
    // The times are computed from two clocks.
    eventually("that was a while ago", async || {
        healthy.elapsed().is_ok_and(|ago| ago > 2 * second)
    })
    .await;
    servers[1].sigstop();
    let mut failing = healthy;
    eventually("too few replicas confirm", async || {
        let health = state().await;
        failing = health.since;
        health
            .error
            .is_some_and(|why| why.contains("0 of 1 replicas"))
    })
    .await;
    assert!(failing > healthy + second, "since the replica is away");
    servers[1].sigcont();
    eventually("it is healthy again", async || state().await.is_ok()).await;
    assert!(state().await.since >= failing, "since it is back");
    nothing_is_left(&servers[0]).await;
}

#[tokio::test]
async fn a_lock_is_at_the_replica_when_it_is_handed_out() {
    let servers = servers(1).await;
    let locks = manager(&servers[0], Replicas::majority()).await;
    for _ in 0..50 {
        let guard = locks.mutex("k").acquire().await.unwrap();
        assert_eq!(content(&servers[1], "lock:k").len(), 2);
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn every_kind_is_confirmed() {
    let servers = servers(1).await;
    let locks = manager(&servers[0], Replicas::at_least(1)).await;
    let replica = &servers[1];
    for round in 0..5 {
        for (request, key) in [
            (locks.mutex("m"), "lock:m"),
            (locks.fenced("e"), "lock:e"),
            (locks.fair("f"), "lock:f"),
            (locks.read("r"), "lock:r"),
            (locks.write("w"), "lock:w"),
        ] {
            let before = CommandStats::of(&servers[0]);
            let guard = request.acquire().await.unwrap();
            let asked = CommandStats::of(&servers[0]).since(&before);
            assert!(asked.calls("wait") > 0, "{key}: {asked:?}");
            assert!(replica.exists(key), "{key}, round {round}");
            guard.release().await.unwrap();
        }
        let many = locks.multi(["a", "b", "c"].map(|name| locks.mutex(name)));
        let guard = many.acquire().await.unwrap();
        for key in ["lock:a", "lock:b", "lock:c"] {
            assert!(replica.exists(key), "{key}, round {round}");
        }
        guard.release().await.unwrap();
    }
    let permits = locks.semaphore("s");
    assert!(permits.try_set_permits(5).await.unwrap());
    let guard = permits.permits(3).acquire().await.unwrap();
    let leased: i64 = replica.query(&["ZCARD", "{lock:s}:timeout"]);
    assert_eq!(leased, 3);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_wait_for_a_frozen_replica_is_not_busy_and_leaves_nothing() {
    let servers = servers(1).await;
    let locks = manager(&servers[0], Replicas::at_least(1).within(300 * MS)).await;
    servers[1].sigstop();
    // On a busy machine, a wait may be over after its first try.
    eventually("it tries again while it waits", async || {
        let before = CommandStats::of(&servers[0]);
        let (refused, waited) = took(locks.mutex("k").wait(4_000 * MS).acquire()).await;
        assert_not_busy(&refused.unwrap_err());
        assert!(waited >= 3_900 * MS && waited < PATIENCE, "{waited:?}");
        nothing_is_left(&servers[0]).await;
        CommandStats::of(&servers[0]).since(&before).calls("wait") >= 2
    })
    .await;
    let refused = locks.mutex("k").try_acquire().await;
    assert_too_few(&refused.unwrap_err());
    // The wait ends in the same way for all kinds of lock.
    let set = locks.multi([locks.mutex("a"), locks.mutex("b")]);
    let fair = locks.fair("f").wait(500 * MS).acquire();
    assert_not_busy(&fair.await.unwrap_err());
    assert_not_busy(&set.wait(500 * MS).acquire().await.unwrap_err());
    nothing_is_left(&servers[0]).await;
    servers[1].sigcont();
    eventually("the replica has forgotten it, too", async || {
        servers[1].stray_keys().is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_wait_goes_on_until_the_replica_is_back() {
    let servers = servers(1).await;
    let replicas = Replicas::at_least(1).within(200 * MS);
    let locks = manager(&servers[0], replicas).await;
    for fair in [false, true] {
        servers[1].sigstop();
        let request = if fair {
            locks.fair("f")
        } else {
            locks.mutex("k")
        };
        let before = CommandStats::of(&servers[0]);
        let waiting = tokio::spawn(request.wait(LONG).acquire());
        eventually("it has tried twice", async || {
            CommandStats::of(&servers[0]).since(&before).calls("wait") >= 2
        })
        .await;
        assert!(!waiting.is_finished());
        servers[1].sigcont();
        let guard = waiting.await.unwrap().unwrap();
        assert!(servers[1].exists(if fair { "lock:f" } else { "lock:k" }));
        assert!(guard.is_held());
        guard.release().await.unwrap();
        servers[0].assert_clean().await;
    }
}

#[tokio::test]
async fn a_wait_for_a_holder_and_then_for_replicas_blames_replicas() {
    let servers = servers(1).await;
    let locks = manager(&servers[0], Replicas::at_least(1).within(200 * MS)).await;
    let other = tests::connected(&servers[0].url()).await;
    let guard = other.mutex("k").acquire().await.unwrap();
    let waiting = tokio::spawn(locks.mutex("k").wait(20_000 * MS).acquire());
    eventually("it waits", async || {
        servers[0]
            .channels()
            .iter()
            .any(|channel| channel.ends_with("k}"))
    })
    .await;
    servers[1].sigstop();
    guard.release().await.unwrap();
    assert_not_busy(&waiting.await.unwrap().unwrap_err());
    nothing_is_left(&servers[0]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_is_confirmed() {
    let servers = Arc::new(servers(1).await);
    // What is not confirmed in time is asked for again. Here, all is in time.
    let builder = tests::builder().call_timeout(LONG).lease(20 * LONG);
    let builder = builder.replicas(Replicas::at_least(1).within(LONG));
    let locks = connected(builder, &servers[0].url()).await;
    let mut waiters = JoinSet::new();
    let before = CommandStats::of(&servers[0]);
    for _ in 0..8 {
        let (locks, servers) = (locks.clone(), servers.clone());
        waiters.spawn(async move {
            for _ in 0..10 {
                let guard = locks.mutex("k").wait(LONG).acquire().await.unwrap();
                // The lock was confirmed by a hand-over just now, or by the one that began this tenure.
                assert_eq!(
                    content(&servers[1], "lock:k"),
                    content(&servers[0], "lock:k")
                );
                guard.release().await.unwrap();
            }
        });
    }
    while let Some(done) = waiters.join_next().await {
        done.unwrap();
    }
    let commands = CommandStats::of(&servers[0]).since(&before);
    // An acquire looks whether the lock is free, which is an HLEN. A hand-over counts who listens, which is a PUBSUB
    // NUMSUB, and so do the releases of those after whom nobody waits at that moment, which are few.
    let granted = commands.calls("hlen") + commands.calls("pubsub|numsub");
    assert!(
        granted >= 2 && 2 * commands.calls("wait") >= granted,
        "{commands:?}"
    );
    servers[0].assert_clean().await;
}

/// The message of a reservation is no grant here, and no release puts the next caller on the list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_turn_of_a_process_on_the_list_is_confirmed() {
    const TURNS: usize = 40;
    let servers = servers(1).await;
    for is_dropped in [false, true] {
        let before = CommandStats::of(&servers[0]);
        let counts = || {
            let commands = CommandStats::of(&servers[0]).since(&before);
            (commands.calls("zadd"), commands.calls("wait"))
        };
        // By chance, one of them has all of its turns before the other one asks.
        eventually("they meet at the list", async || {
            let turns = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
            let mut running = JoinSet::new();
            for process in 0..2 {
                let locks = manager(&servers[0], Replicas::at_least(1).within(LONG)).await;
                let turns = turns.clone();
                running.spawn(async move {
                    while turns.iter().any(|turns| turns.load(SeqCst) < TURNS) {
                        let guard = locks.mutex("k").wait(LONG).acquire().await.unwrap();
                        turns[process].fetch_add(1, SeqCst);
                        if is_dropped {
                            drop(guard);
                        } else {
                            guard.release().await.unwrap();
                        }
                    }
                });
            }
            running.join_all().await;
            counts().0 > 0
        })
        .await;
        // A process that goes to the list asks again after its message, and is confirmed then.
        let (listed, confirmed) = counts();
        assert!(2 * confirmed >= listed, "{confirmed} of {listed}");
    }
    nothing_is_left(&servers[0]).await;
}

#[tokio::test]
async fn an_unconfirmed_hand_over_is_a_release_and_leaves_nothing() {
    let servers = servers(1).await;
    let locks = manager(&servers[0], Replicas::at_least(1).within(200 * MS)).await;
    let guard = locks.mutex("k").acquire().await.unwrap();
    let heir = tokio::spawn(locks.mutex("k").wait(20_000 * MS).acquire());
    eventually("the heir queues", async || {
        locks.inspect("k").await.unwrap().local_waiters == 1
    })
    .await;
    servers[1].sigstop();
    guard.release().await.unwrap();
    assert_not_busy(&heir.await.unwrap().unwrap_err());
    servers[0].assert_clean().await;
}

#[tokio::test]
async fn no_release_or_wait_for_a_set_lasts_as_long_as_replicas_may() {
    let servers = servers(1).await;
    let locks = manager(&servers[0], Replicas::at_least(1).within(LONG)).await;
    let lease = Duration::from_secs(600);
    let guard = locks.mutex("k").lease(lease).acquire().await.unwrap();
    let next = tokio::spawn(locks.mutex("k").lease(lease).wait(LONG).acquire());
    eventually("the next one queues", async || {
        locks.inspect("k").await.unwrap().local_waiters == 1
    })
    .await;
    servers[1].sigstop();
    let (released, waited) = took(guard.release()).await;
    released.unwrap();
    assert!(waited < LONG, "{waited:?}");
    next.abort();
    let set = ["a", "b"].map(|name| locks.mutex(name).lease(lease));
    let (refused, waited) = took(locks.multi(set).wait(500 * MS).acquire()).await;
    assert_not_busy(&refused.unwrap_err());
    assert!(waited < LONG, "{waited:?}");
    servers[1].sigcont();
    nothing_is_left(&servers[0]).await;
}

#[tokio::test]
async fn a_future_dropped_at_any_poll_leaves_nothing() {
    let servers = servers(1).await;
    // In the first case the lock is confirmed in the end. In the second it never is, because the replica is frozen.
    for (within, frozen) in [(20_000 * MS, false), (60 * MS, true)] {
        let builder = tests::builder();
        let replicas = Replicas::at_least(1).within(within);
        let (proxy, slow) = behind_a_proxy(&servers[0], builder.replicas(replicas)).await;
        proxy.delay(Direction::Requests, 2 * MS);
        proxy.delay(Direction::Replies, 2 * MS);
        if frozen {
            servers[1].sigstop();
        }
        at_each_poll(async |polls, leave| {
            // A request that was sent before may arrive, and be undone, after a look that found nothing.
            let wait = if frozen { Duration::ZERO } else { LONG };
            let request = slow.mutex("k").wait(wait);
            let guard = poll_times(request.acquire(), polls, leave).await;
            let completed = guard.is_some();
            if let Some(guard) = guard {
                assert_eq!(guard.is_err(), frozen);
                drop(guard);
            }
            nothing_is_left(&servers[0]).await;
            completed
        })
        .await;
    }
}

#[tokio::test]
async fn nobody_else_waits_for_a_frozen_replica() {
    const LEASE: Duration = Duration::from_secs(18);
    let servers = servers(1).await;
    // The replicas may take a sixth of the lease, and the replica stays frozen until the test is over.
    let (within, long) = (60_000 * MS, 20 * LONG);
    let locks = manager(&servers[0], Replicas::at_least(1).within(within)).await;
    let plain = manager(&servers[0], Replicas::off()).await;
    let held = locks.mutex("held").lease(long).acquire().await.unwrap();
    let renewed = locks.mutex("renewed").lease(LEASE).acquire().await.unwrap();
    servers[1].sigstop();
    let frozen = Instant::now();
    let ask = |index| {
        let request = locks.mutex(format!("waiting-{index}"));
        tokio::spawn(request.lease(long).wait(within).acquire())
    };
    let mut waiting = vec![ask(0)];
    eventually("a lane waits", async || waiting_lanes(&servers[0]) == 1).await;
    waiting.extend((1..8).map(ask));
    eventually("two lanes wait", async || waiting_lanes(&servers[0]) == 2).await;
    let before = CommandStats::of(&servers[0]);
    for _ in 0..20 {
        assert!(locks.inspect("held").await.unwrap().held);
        free_within(&plain, "other", LONG).await;
    }
    eventually("the lease is over, unless it is renewed", async || {
        frozen.elapsed() > LEASE
    })
    .await;
    assert!(renewed.is_held() && held.is_held());
    held.release().await.unwrap();
    // Nobody of them was behind a WAIT, for none is over.
    let asked = CommandStats::of(&servers[0]).since(&before);
    assert_eq!(asked.calls("wait"), 0, "{asked:?}");
    assert_eq!(waiting_lanes(&servers[0]), 2);
    assert!(!waiting.iter().any(|task| task.is_finished()));
    servers[1].sigcont();
    for task in waiting {
        task.await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn those_who_come_together_are_asked_about_together() {
    let servers = servers(1).await;
    let locks = manager(&servers[0], Replicas::at_least(1).within(LONG)).await;
    free_within(&locks, "warm", LONG).await;
    let before = CommandStats::of(&servers[0]);
    let mut tasks = JoinSet::new();
    for index in 0..100 {
        tasks.spawn(locks.mutex(format!("k{index}")).wait(LONG).acquire());
    }
    let mut guards = Vec::new();
    while let Some(guard) = tasks.join_next().await {
        guards.push(guard.unwrap().unwrap());
    }
    let asked = CommandStats::of(&servers[0]).since(&before);
    assert!(asked.calls("wait") <= 30, "{asked:?}");
    for index in 0..100 {
        assert!(servers[1].exists(&format!("lock:k{index}")));
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_lock_outlives_a_master_that_dies_right_after_the_grant() {
    let mut group = SentinelGroup::start().await;
    let builder = tests::builder().replicas(Replicas::majority());
    let locks = connected(builder, &group.url()).await;
    let mut guards = Vec::new();
    for index in 0..20 {
        let request = locks.mutex(format!("k{index}"));
        guards.push(request.lease(20 * LONG).acquire().await.unwrap());
    }
    group.servers[0].kill9();
    let new = group.moved_from(0).await;
    for (index, guard) in guards.iter().enumerate() {
        assert!(group.servers[new].exists(&format!("lock:k{index}")));
        assert!(guard.is_held());
    }
    for guard in guards {
        eventually("it is given back at the new master", async || {
            locks.inspect(guard.name()).await.is_ok()
        })
        .await;
        guard.release().await.unwrap();
    }
    // There is no replica any more, and no lock without one.
    let refused = locks.mutex("k").wait(500 * MS).acquire().await;
    assert_not_busy(&refused.unwrap_err());
    eventually("the new master is clean", async || group.is_clean(&[new])).await;
}

#[tokio::test]
async fn lanes_follow_the_master() {
    let group = SentinelGroup::builder(2, 1).steady().start().await;
    let builder = tests::builder().replicas(Replicas::at_least(1).within(400 * MS));
    let locks = connected(builder, &group.url()).await;
    for _ in 0..20 {
        free_within(&locks, "k", LONG).await;
    }
    let new = group.failover().await;
    // The old master takes writes until it is demoted, and one replica was still its own.
    eventually("the manager follows", async || {
        let guard = locks.mutex("k").wait(LONG).acquire().await.unwrap();
        let follows = group.servers[new].exists("lock:k");
        drop(guard.release().await);
        follows
    })
    .await;
    for _ in 0..20 {
        let guard = locks.mutex("k").wait(LONG).acquire().await.unwrap();
        let copies = group
            .servers
            .iter()
            .filter(|server| server.exists("lock:k"));
        assert!(group.servers[new].exists("lock:k") && copies.count() >= 2);
        guard.release().await.unwrap();
    }
    eventually("the new master is clean", async || group.is_clean(&[new])).await;
}

#[tokio::test]
async fn renewals_are_confirmed_only_if_asked_for() {
    let servers = servers(1).await;
    let strict = Replicas::at_least(1).renewals(true);
    let strict = manager(&servers[0], strict).await;
    let lenient = manager(&servers[0], Replicas::at_least(1)).await;
    let term = 15_000 * MS;
    let ends = strict.mutex("strict").lease(term).acquire().await.unwrap();
    let lives = lenient
        .mutex("lenient")
        .lease(term)
        .acquire()
        .await
        .unwrap();
    // Confirmed renewals count.
    let began = Instant::now();
    eventually("both outlive their leases", async || {
        began.elapsed() > term * 5 / 4
    })
    .await;
    assert!(ends.is_held() && lives.is_held());
    servers[1].sigstop();
    let lost = tokio::time::timeout(8 * term, ends.lost().wait()).await;
    assert_eq!(lost.unwrap(), LostReason::Expired);
    assert!(lives.is_held());
    servers[1].sigcont();
    lives.release().await.unwrap();
    drop(ends);
    servers[0].assert_clean().await;
}

#[tokio::test]
async fn a_majority_counts_the_replicas() {
    let servers = servers(3).await;
    let locks = manager(&servers[0], Replicas::majority().within(300 * MS)).await;
    servers[1].sigstop();
    free_within(&locks, "k", LONG).await;
    servers[2].sigstop();
    eventually("it says how many confirmed", async || {
        let refused = locks.mutex("k").try_acquire().await.unwrap_err();
        assert_not_busy(&refused);
        refused.to_string().contains("1 of 2 replicas")
    })
    .await;
}

#[tokio::test]
async fn what_cannot_work_is_refused() {
    let refused = |result: Result<LockManager, LockError>| match result {
        Err(error @ LockError::InvalidConfig { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    // Nobody listens there.
    let nowhere = "redis://127.0.0.1:1/";
    // A quorum grants no lease of more than a minute.
    let with = |replicas| tests::builder().lease(LONG).replicas(replicas);
    let none = with(Replicas::at_least(0)).connect(nowhere).await;
    assert!(refused(none).contains("Replicas::off"));
    let endless = Replicas::majority().within(Duration::from_secs(61));
    assert!(refused(with(endless).connect(nowhere).await).contains("60 s"));
    let memory = with(Replicas::majority()).connect("memory://").await;
    assert!(refused(memory).contains("memory store"));
    refused(with(Replicas::majority()).in_memory());
    let nodes = [
        "redis://127.0.0.1:1/",
        "redis://127.0.0.1:2/",
        "redis://127.0.0.1:3/",
    ];
    assert!(refused(with(Replicas::majority()).quorum(nodes).await).contains("quorum"));
}

#[tokio::test]
async fn a_right_that_is_missing_is_named_at_connect() {
    for (missing, named) in [("-wait", "WAIT"), ("-info", "at_least")] {
        let rights = format!("on >secret ~* &* +@all {missing}");
        let server = RedisServer::builder().user("locks", &rights).start();
        let builder = tests::builder().replicas(Replicas::majority());
        let refused = builder.connect(&server.url_with("locks", "secret")).await;
        let error = refused.unwrap_err();
        assert!(
            matches!(error, LockError::Denied { .. }),
            "{missing}: {error}"
        );
        assert!(error.to_string().contains(named), "{missing}: {error}");
    }
}

#[tokio::test]
async fn a_master_without_replicas_grants_nothing_and_still_connects() {
    let server = RedisServer::start();
    let locks = manager(&server, Replicas::majority().within(200 * MS)).await;
    let refused = locks.mutex("k").wait(400 * MS).acquire().await;
    assert_not_busy(&refused.unwrap_err());
    server.assert_clean().await;
    locks.shutdown().await;
    server.assert_deserted().await;
}

//! Tests of Redis behind Sentinels: the master is found, and found again when it moves, whatever is under way.

use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockGuard, LockManager, TryAcquire};
use redis::Value;
use tests::eventually::PATIENCE;
use tests::faults::{connected, free_within, renewed, told, took};
use tests::sentinel::SERVICE;
use tests::{
    Data, FaultProxy, RedisServer, SentinelGroup, answered, eventually, eventually_within,
};
use tokio::task::JoinSet;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(120);
/// This is longer than a failover takes, on a busy machine, too.
const LEASE: Duration = Duration::from_secs(60);

async fn manager(url: &str) -> LockManager {
    connected(tests::builder(), url).await
}

/// Starts a replica and sentinels that move the master only when they are told to.
async fn steady(sentinels: usize) -> SentinelGroup {
    SentinelGroup::builder(1, sentinels).steady().start().await
}

async fn refused(url: &str) -> LockError {
    tests::builder().connect(url).await.unwrap_err()
}

#[tokio::test]
async fn any_sentinel_that_answers_leads_to_the_master() {
    let mut group = SentinelGroup::builder(1, 2).start().await;
    let url = group.url_with("", "/3");
    group.sentinels[0].kill9();
    let locks = manager(&url).await;
    let guard = locks.mutex("k").acquire().await.unwrap();
    let master = &group.servers[0];
    let databases: String = master.query(&["INFO", "keyspace"]);
    assert!(
        databases.contains("db3:") && !databases.contains("db0:"),
        "{databases}"
    );
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_answers_at_once_cause_few_requests_to_the_sentinels() {
    let group = SentinelGroup::builder(1, 1).steady().start().await;
    let locks = manager(&group.url()).await;
    let mut guards = Vec::new();
    for number in 0..100 {
        guards.push(locks.mutex(format!("k{number}")).acquire().await.unwrap());
    }
    let _: Value = group.servers[group.master()].query(&["FLUSHALL"]);
    let connections = || -> u64 {
        let each = group.sentinels.iter().map(|sentinel| {
            let stats = sentinel.command(&["INFO", "stats"]).unwrap();
            let stats: String = redis::from_redis_value(stats).unwrap();
            let received = "total_connections_received:";
            let count = stats.lines().find_map(|line| line.strip_prefix(received));
            count.unwrap().parse::<u64>().unwrap()
        });
        each.sum()
    };
    let before = connections();
    let mut releasing = JoinSet::new();
    for guard in guards {
        releasing.spawn(guard.release());
    }
    while let Some(released) = releasing.join_next().await {
        let released = released.unwrap();
        assert!(
            matches!(released, Err(LockError::Lost { .. })),
            "{released:?}"
        );
    }
    let asked = connections() - before;
    assert!(asked < 100, "{asked} connections for 100 answers");
}

#[tokio::test]
async fn holds_are_renewed_and_released_at_a_new_master_that_is_full() {
    let group = steady(1).await;
    let locks = connected(tests::builder().lease(LEASE), &group.url()).await;
    let guard = locks.mutex("k").acquire().await.unwrap();
    let old = group.master();
    for (index, server) in group.servers.iter().enumerate() {
        eventually("each has the lock", async || server.exists("lock:k")).await;
        if index != old {
            let _: Value = server.query(&["CONFIG", "SET", "maxmemory", "1"]);
        }
    }
    let new = group.failover().await;
    renewed([&guard]).await;
    eventually("no lock is granted", async || {
        let tried = locks.mutex("other").try_acquire().await;
        tried.is_err_and(|error| error.to_string().contains("OOM"))
    })
    .await;
    guard.release().await.unwrap();
    let _: Value = group.servers[new].query(&["CONFIG", "SET", "maxmemory", "0"]);
    // Its lease, of which two thirds are left at least, does not end before that.
    free_within(&locks, "k", LEASE / 2).await;
}

#[tokio::test]
async fn an_unknown_service_is_refused_by_name() {
    let group = SentinelGroup::builder(0, 1).start().await;
    let error = refused(&group.url().replace(SERVICE, "other")).await;
    let text = error.to_string();
    assert!(matches!(error, LockError::InvalidConfig { .. }), "{text}");
    assert!(
        text.contains("`other`") && text.contains(&group.sentinels[0].addr().to_string()),
        "{text}"
    );
}

#[tokio::test]
async fn sentinels_that_cannot_be_reached_are_named() {
    let mut group = SentinelGroup::builder(0, 2).start().await;
    let url = group.url();
    for sentinel in &mut group.sentinels {
        sentinel.kill9();
    }
    let (error, waited) = took(refused(&url)).await;
    let text = error.to_string();
    assert!(matches!(error, LockError::Unavailable { .. }), "{text}");
    for sentinel in &group.sentinels {
        assert!(text.contains(&sentinel.addr().to_string()), "{text}");
    }
    assert!(text.contains(SERVICE), "{text}");
    assert!(waited < PATIENCE, "{waited:?}");
}

#[tokio::test]
async fn a_master_that_cannot_be_reached_is_named_with_its_sentinel() {
    let mut group = SentinelGroup::builder(0, 1).start().await;
    group.servers[0].kill9();
    let text = refused(&group.url()).await.to_string();
    let master = format!("127.0.0.1:{}", group.servers[0].port());
    for part in [&master, &group.sentinels[0].addr().to_string(), SERVICE] {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn sentinels_and_servers_may_have_different_passwords() {
    let conf = SentinelGroup::builder(1, 1)
        .steady()
        .requirepass("for-data")
        .sentinel_password("for-sentinels");
    let group = conf.start().await;
    let sentinel = "?sentinel_pass=for-sentinels";
    let locks = manager(&group.url_with(":for-data@", sentinel)).await;
    let guard = locks.mutex("k").acquire().await.unwrap();
    guard.release().await.unwrap();
    for (login, rest, who) in [
        (":for-data@", "", group.sentinels[0].addr().to_string()),
        (
            ":for-data@",
            "?sentinel_pass=hunter2",
            group.sentinels[0].addr().to_string(),
        ),
        ("", sentinel, "the master 127.0.0.1".to_owned()),
        (":hunter2@", sentinel, "the master 127.0.0.1".to_owned()),
    ] {
        let error = refused(&group.url_with(login, rest)).await;
        let text = error.to_string();
        assert!(
            matches!(error, LockError::Denied { .. }),
            "{login} {rest}: {text}"
        );
        assert!(text.contains(&who) && !text.contains("hunter2"), "{text}");
    }
}

/// Waits until the replica has the lock: what it does not have yet does not outlive the master.
async fn is_replicated(group: &SentinelGroup) {
    eventually("the replica has the lock", async || {
        group.servers[1].exists("lock:k")
    })
    .await;
}

/// Waits until the new master renews the hold, so that it lives there for longer than it could without.
async fn is_renewed_at(group: &SentinelGroup, index: usize, guard: &LockGuard) {
    let lost = guard.lost();
    let new = &group.servers[index];
    let mut left = i64::MAX;
    eventually_within(LONG, "the new master renews it", async || {
        if lost.is_lost() {
            panic!("a failover is no loss: {}", lost.wait().await);
        }
        assert!(guard.is_held());
        let before = std::mem::replace(&mut left, new.pttl("lock:k"));
        left > before
    })
    .await;
}

/// Starts a manager that will not be told of a failover, because a proxy keeps its sentinel's messages from it.
async fn with_a_mute_sentinel() -> (SentinelGroup, LockManager, FaultProxy) {
    let group = steady(1).await;
    let sentinel = group.sentinels[0].addr();
    let proxy = FaultProxy::start(sentinel).await;
    proxy.lose_messages(true);
    let locks = manager(&format!("redis-sentinel://{}/{SERVICE}", proxy.addr())).await;
    (group, locks, proxy)
}

/// Fails over to the replica, which has the lock, and deletes the lock at the old master. Returns the new master.
async fn is_forgotten(group: &SentinelGroup) -> usize {
    is_replicated(group).await;
    // Otherwise the sentinels would make it a replica some seconds later.
    let stays = ["ACL", "SETUSER", "default", "-replicaof", "-slaveof"];
    let _: Value = group.servers[0].query(&stays);
    let new = group.failover().await;
    let deleted: i64 = group.servers[0].query(&["DEL", "lock:k"]);
    assert_eq!(deleted, 1, "it still takes writes");
    new
}

/// Returns a manager that was not told of a failover, its hold, the old master that has forgotten it, and the proxy.
async fn with_a_forgetful_old_master() -> (SentinelGroup, usize, LockManager, LockGuard, FaultProxy)
{
    let (group, locks, proxy) = with_a_mute_sentinel().await;
    let guard = locks.mutex("k").lease(LEASE).acquire().await.unwrap();
    let new = is_forgotten(&group).await;
    (group, new, locks, guard, proxy)
}

#[tokio::test]
async fn the_word_of_a_deposed_master_ends_no_hold() {
    let (group, new, _locks, guard, _proxy) = with_a_forgetful_old_master().await;
    is_renewed_at(&group, new, &guard).await;
    guard.release().await.unwrap();
    assert!(!group.servers[new].exists("lock:k"));
}

#[tokio::test]
async fn the_word_of_a_deposed_master_is_no_answer_to_a_release() {
    let (group, new, _locks, guard, _proxy) = with_a_forgetful_old_master().await;
    guard.release().await.unwrap();
    assert!(
        !group.servers[new].exists("lock:k"),
        "it was released there"
    );
}

#[tokio::test]
async fn the_word_of_a_deposed_master_is_no_answer_to_a_hand_over() {
    let (group, new, locks, guard, _proxy) = with_a_forgetful_old_master().await;
    let mut next = Box::pin(locks.mutex("k").wait(LONG).acquire());
    assert!(poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx).is_pending())).await);
    guard.release().await.unwrap();
    let next = next.await.unwrap();
    assert!(group.servers[new].exists("lock:k"));
    next.release().await.unwrap();
}

#[tokio::test]
async fn the_word_of_a_deposed_master_is_no_answer_to_a_downgrade() {
    let (group, locks, _proxy) = with_a_mute_sentinel().await;
    let write = locks.write("k").lease(LEASE).acquire().await.unwrap();
    let read = write.scope(async { locks.read("k").acquire().await });
    let read = read.await.unwrap();
    let new = is_forgotten(&group).await;
    write.release().await.unwrap();
    assert!(read.is_held());
    let mode: String = group.servers[new].query(&["HGET", "lock:k", "mode"]);
    assert_eq!(mode, "read");
    let other = manager(&group.url()).await;
    let beside = other
        .read("k")
        .try_acquire()
        .await
        .unwrap()
        .expect("it is free");
    beside.release().await.unwrap();
    assert!(read.is_held());
    read.release().await.unwrap();
    assert!(!group.servers[new].exists("lock:k"));
}

#[tokio::test]
async fn a_hold_goes_on_at_the_new_master_after_a_manual_failover() {
    let group = steady(3).await;
    let (locks, other) = (manager(&group.url()).await, manager(&group.url()).await);
    let guard = locks.mutex("k").lease(LEASE).acquire().await.unwrap();
    is_replicated(&group).await;
    let token = guard.fencing_token();
    let new = group.failover().await;
    // The old server is still a master for some seconds; nobody here may believe it.
    is_renewed_at(&group, new, &guard).await;
    let tried = answered(async || other.mutex("k").try_acquire().await).await;
    assert!(matches!(tried.unwrap(), TryAcquire::Busy { .. }));
    assert_eq!(guard.fencing_token(), token);
    guard.release().await.unwrap();
    assert!(!group.servers[new].exists("lock:k"));
    let next = other.mutex("k").wait(LONG).acquire().await.unwrap();
    assert!(group.servers[new].exists("lock:k"));
    assert!(
        next.fencing_token() > token,
        "tokens rise across a failover"
    );
    next.release().await.unwrap();
    eventually("the new master is clean", async || group.is_clean(&[new])).await;
}

#[tokio::test]
async fn a_hold_outlives_a_master_that_dies_and_comes_back_empty() {
    let mut group = SentinelGroup::start().await;
    let locks = manager(&group.url()).await;
    let guard = locks.mutex("k").lease(LEASE).acquire().await.unwrap();
    is_replicated(&group).await;
    group.servers[0].kill9();
    let new = group.moved_from(0).await;
    group.servers[0].restart(Data::Lost);
    is_renewed_at(&group, new, &guard).await;
    guard.release().await.unwrap();
    eventually("the new master is clean", async || group.is_clean(&[new])).await;
}

#[tokio::test]
async fn a_frozen_master_that_thaws_does_not_end_a_hold() {
    let group = SentinelGroup::start().await;
    let locks = manager(&group.url()).await;
    let guard = locks.mutex("k").lease(LEASE).acquire().await.unwrap();
    is_replicated(&group).await;
    group.servers[0].sigstop();
    let new = group.moved_from(0).await;
    is_renewed_at(&group, new, &guard).await;
    group.servers[0].sigcont();
    is_renewed_at(&group, new, &guard).await;
    guard.release().await.unwrap();
    eventually("both are clean", async || group.is_clean(&[0, new])).await;
}

#[tokio::test]
async fn a_demoted_master_that_refuses_is_left_without_sentinel_news() {
    let group = steady(1).await;
    let locks = manager(&group.url()).await;
    let guard = locks.mutex("k").lease(LEASE).acquire().await.unwrap();
    is_replicated(&group).await;
    // This is a move by hand and in silence: only READONLY tells of it.
    let (sentinel, old, new) = (&group.sentinels[0], &group.servers[0], &group.servers[1]);
    sentinel.command(&["SENTINEL", "REMOVE", SERVICE]).unwrap();
    let port = new.port().to_string();
    new.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
    old.command(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
    let monitor = ["SENTINEL", "MONITOR", SERVICE, "127.0.0.1", &port, "1"];
    sentinel.command(&monitor).unwrap();
    is_renewed_at(&group, 1, &guard).await;
    guard.release().await.unwrap();
}

/// Sentinels that keep their state on no disk come back with epochs from zero, which are older than the failover that the
/// manager knows.
#[tokio::test]
async fn a_sentinel_set_up_anew_leads_to_a_new_master_in_time() {
    let mut group = steady(2).await;
    let locks = manager(&group.url()).await;
    let guard = locks.mutex("k").lease(LEASE).acquire().await.unwrap();
    is_replicated(&group).await;
    let new = group.failover().await;
    is_renewed_at(&group, new, &guard).await;
    guard.release().await.unwrap();
    for server in &mut group.servers {
        server.kill9();
    }
    group.sentinels[0].kill9();
    let anew = RedisServer::start();
    group.sentinels[1].set_up_anew(&anew);
    // The known master has to be away for half a minute before that.
    let guard = locks.mutex("k").wait(2 * LONG).acquire().await.unwrap();
    assert!(anew.exists("lock:k"));
    guard.release().await.unwrap();
    assert!(!anew.exists("lock:k"));
}

#[tokio::test]
async fn a_waiter_is_woken_at_the_new_master() {
    let group = steady(3).await;
    let locks = manager(&group.url()).await;
    let other = connected(told(), &group.url()).await;
    // The lease outlasts the wait, so its end helps nobody.
    let lease = 20 * LONG;
    let guard = locks.mutex("k").lease(lease).acquire().await.unwrap();
    is_replicated(&group).await;
    let request = other.mutex("k").wait(4 * LONG);
    let waiting = tokio::spawn(async move { request.acquire().await });
    let channel = "redisson_lock__channel:{lock:k}".to_owned();
    eventually("the waiter listens", async || {
        group.servers[0].channels().contains(&channel)
    })
    .await;
    let new = group.failover().await;
    eventually("the waiter listens at the new master", async || {
        group.servers[new].channels().contains(&channel)
    })
    .await;
    answered(async || guard.renew(lease).await).await.unwrap();
    assert!(!waiting.is_finished());
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    eventually("the new master is clean", async || group.is_clean(&[new])).await;
}

#[tokio::test]
async fn a_failover_ends_no_acquire_and_leaves_the_old_master_clean() {
    for frozen in [false, true] {
        let mut group = SentinelGroup::builder(1, if frozen { 1 } else { 3 })
            .start()
            .await;
        let locks = manager(&group.url()).await;
        if frozen {
            group.servers[0].sigstop();
        } else {
            group.servers[0].kill9();
        }
        let guard = locks.mutex("k").wait(LONG).acquire().await.unwrap();
        let new = group.moved_from(0).await;
        assert!(group.servers[new].exists("lock:k"), "frozen: {frozen}");
        if frozen {
            group.servers[0].sigcont();
        }
        guard.release().await.unwrap();
        let alive = if frozen { vec![0, new] } else { vec![new] };
        eventually("nothing is left", async || group.is_clean(&alive)).await;
    }
}

/// The old master has granted the lock, the replica has it, and nobody has read the answer.
#[tokio::test]
async fn what_was_granted_before_a_failover_is_undone_after_it() {
    let mut group = SentinelGroup::start().await;
    let locks = manager(&group.url()).await;
    let mut acquire = Box::pin(locks.mutex("k").lease(6 * LEASE).acquire());
    // One poll queues the request. The connection's task, on this very thread, sends it when this one yields.
    poll_fn(|context| {
        assert!(acquire.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    let deadline = Instant::now() + PATIENCE;
    while !group.servers[1].exists("lock:k") {
        assert!(Instant::now() < deadline, "the lock is not at the replica");
        tokio::task::yield_now().await;
        std::thread::sleep(MS);
    }
    group.servers[0].kill9();
    drop(acquire);
    let new = group.moved_from(0).await;
    assert_eq!(new, 1);
    let left = group.servers[1].pttl("lock:k");
    assert!(left > 60_000 || left == -2, "{left}");
    eventually("it is given back at the new master", async || {
        group.is_clean(&[1])
    })
    .await;
}

#[tokio::test]
async fn a_release_outlasts_a_failover() {
    let mut group = SentinelGroup::start().await;
    let locks = manager(&group.url()).await;
    let guard = locks.mutex("k").lease(6 * LEASE).acquire().await.unwrap();
    is_replicated(&group).await;
    group.servers[0].kill9();
    let released = guard.release().await;
    assert!(
        matches!(released, Ok(()) | Err(LockError::Unavailable { .. })),
        "{released:?}"
    );
    let new = group.moved_from(0).await;
    eventually("it is given back at the new master", async || {
        group.is_clean(&[new])
    })
    .await;
}

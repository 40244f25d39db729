//! The watchdog outlives outages and bodies that block, and no hold pays for another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lock_runtime::{LockGuard, LockManager, LostReason};
use tests::faults::{behind_a_proxy, free_within, renewed, took};
use tests::{CommandStats, Events, RedisServer, Store, eventually};
use tracing::Level;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);
/// That of holds which are to be renewed.
const LEASE: Duration = Duration::from_secs(18);

#[tokio::test]
async fn an_outage_of_several_cadences_ends_short_leases_only() {
    let server = RedisServer::start();
    let (proxy, locks) = behind_a_proxy(&server, tests::builder().call_timeout(300 * MS)).await;
    let (elsewhere, memory) = (RedisServer::start(), Store::memory());
    let second = tests::connected(&elsewhere.url()).await;
    let third = memory.manager().await;
    let hold = async |locks: &LockManager, key: &str, lease| {
        locks.mutex(key).lease(lease).acquire().await.unwrap()
    };
    let short = hold(&locks, "short", 1_000 * MS).await;
    let long = hold(&locks, "long", 24_000 * MS).await;
    let request = locks.mutex("fixed").lease(1_500 * MS).auto_renew(false);
    let fixed = request.acquire().await.unwrap();
    let request = locks.mutex("bounded").lease(LEASE).max_hold(1_200 * MS);
    let bounded = request.acquire().await.unwrap();
    let others = [
        hold(&second, "other", LEASE).await,
        hold(&third, "other", LEASE).await,
    ];
    proxy.go_down();
    assert_eq!(short.lost().wait().await, LostReason::Expired);
    assert_eq!(bounded.lost().wait().await, LostReason::MaxHold);
    assert_eq!(fixed.lost().wait().await, LostReason::Expired);
    eventually("a renewal of the long one was due and failed", async || {
        long.remaining() < 15_000 * MS
    })
    .await;
    assert!(long.is_held(), "unknown is not lost");
    renewed(&others).await;
    for other in others {
        other.release().await.unwrap();
    }
    proxy.refuse(false);
    renewed([&long]).await;
    // The watchdog still does all it did before.
    let again = hold(&locks, "again", LEASE).await;
    renewed([&again]).await;
    // The calls of this manager may be shorter than the answers of a busy machine.
    drop((again, long));
    drop((short, fixed, bounded));
    drop((locks, second, third));
    server.assert_deserted().await;
}

/// Returns holds of the locks `0`, `1`, …, taken in one instant.
async fn hold(locks: &LockManager, count: usize, lease: Duration) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    for key in 0..count {
        let request = locks.mutex(key.to_string()).lease(lease);
        guards.push(request.acquire().await.unwrap());
    }
    guards
}

#[tokio::test]
async fn holds_of_one_instant_are_renewed_in_batches() {
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let asked = Instant::now();
    let guards = hold(&locks, 300, LEASE).await;
    let acquiring = asked.elapsed();
    let before = CommandStats::of(&server);
    renewed(&guards).await;
    let done = CommandStats::of(&server).since(&before);
    let per_script = done.calls("pexpire") / done.scripts().max(1);
    // A batch has what is due within a thirtieth of the lease, and it may have taken longer to acquire them.
    let parts = (acquiring.as_millis() / (LEASE / 30).as_millis()) as u64;
    let least = 300 / (30 + parts);
    assert!(
        per_script >= least,
        "{per_script} holds per script of {least}: {done:?}"
    );
    drop(guards);
    drop(locks);
    server.assert_deserted().await;
}

#[tokio::test]
async fn one_hold_that_is_gone_takes_none_of_its_batch_along() {
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let guards = hold(&locks, 20, LEASE).await;
    server.query::<i64>(&["DEL", "lock:3"]);
    let _: redis::Value = server.query(&["SET", "lock:4", "x"]);
    server.query::<i64>(&["DEL", "lock:5"]);
    server.query::<i64>(&[
        "HSET",
        "lock:5",
        "00000000-0000-4000-8000-000000000000:1",
        "1",
    ]);
    for gone in [3, 4, 5] {
        assert_eq!(guards[gone].lost().wait().await, LostReason::Refused);
    }
    renewed(guards[..3].iter().chain(&guards[6..])).await;
    assert_eq!(
        server.pttl("lock:5"),
        -1,
        "a stranger's key is left as it is"
    );
    server.query::<i64>(&["DEL", "lock:4", "lock:5"]);
    drop(guards);
    drop(locks);
    server.assert_deserted().await;
}

#[tokio::test]
async fn a_hold_ends_by_itself_at_its_max_hold_and_frees_its_key() {
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let other = tests::connected(&server.url()).await;
    let request = locks.mutex("k").lease(20 * LONG).max_hold(700 * MS);
    let body = async |_| std::future::pending::<()>().await;
    let (ended, after) = took(request.run(body)).await;
    assert!(ended.unwrap_err().to_string().contains("max_hold"));
    assert!(after >= 690 * MS && after < 2 * LONG, "{after:?}");
    free_within(&other, "k", 2 * LONG).await;
}

/// A log subscriber that panics whenever it is told of a loss. The watchdog calls it and does not own it.
#[derive(Clone, Default)]
struct Brittle(Arc<AtomicUsize>);

impl Brittle {
    fn panics(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl tracing::Subscriber for Brittle {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        let of_ours = metadata.target().starts_with("lock_runtime");
        // Only losses have a reason. A renewal that a busy machine answers late is warned of as well, and is none.
        metadata.is_event() && of_ours && metadata.fields().field("reason").is_some()
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("a log subscriber of the test panics, as it should");
    }
}

#[tokio::test]
async fn a_panicking_log_subscriber_costs_no_other_hold_its_renewals() {
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let guards = hold(&locks, 20, LEASE).await;
    // Somebody in this process wants events. Otherwise tracing may remember that nobody does.
    drop(Events::default());
    let brittle = Brittle::default();
    let _logging = tracing::subscriber::set_default(brittle.clone());
    server.query::<i64>(&["DEL", "lock:3", "lock:9"]);
    for gone in [3, 9] {
        assert_eq!(guards[gone].lost().wait().await, LostReason::Refused);
    }
    // Each of the others is renewed as before.
    let others = guards.iter().enumerate();
    let others = others.filter(|(key, _)| ![3, 9].contains(key));
    renewed(others.map(|(_, guard)| guard)).await;
    let told = async || brittle.panics() == 2;
    eventually("one loss is told at once, one a second later", told).await;
    drop(guards);
    drop(locks);
    server.assert_deserted().await;
}

#[tokio::test(start_paused = true)]
async fn a_panicking_log_subscriber_does_not_hide_losses_from_holders() {
    let locks = LockManager::in_memory();
    let mut waits = Vec::new();
    for key in 0..5 {
        let request = locks.mutex(key.to_string()).lease(1_000 * MS);
        let guard = request.auto_renew(false).acquire().await.unwrap();
        let lost = guard.lost();
        waits.push((guard, tokio::spawn(async move { lost.wait().await })));
    }
    // Somebody in this process wants events. Otherwise tracing may remember that nobody does.
    drop(Events::default());
    let brittle = Brittle::default();
    let _logging = tracing::subscriber::set_default(brittle.clone());
    for (guard, told) in waits {
        let told = tokio::time::timeout(LONG, told).await;
        assert_eq!(told.expect("it is told").unwrap(), LostReason::Expired);
        drop(guard);
    }
    let again = locks.mutex("again").lease(1_000 * MS).acquire().await;
    let again = again.unwrap();
    tokio::time::sleep(LONG).await;
    assert_eq!(brittle.panics(), 2, "one for the first, one for the others");
    assert!(again.is_held(), "the watchdog renews as before");
}

/// Blocks the runtime for longer than the lease of a hold, and returns what the watchdog says of that once the hold has
/// ended.
async fn starved(then: impl AsyncFnOnce(LockGuard)) -> String {
    let server = RedisServer::start();
    let locks = tests::connected(&server.url()).await;
    let events = Events::default();
    let _logging = tracing::subscriber::set_default(events.clone());
    let guard = locks.mutex("k").lease(1_000 * MS).acquire().await.unwrap();
    std::thread::sleep(1_500 * MS);
    then(guard).await;
    let is_it = |said: &String| said.contains("watchdog did not run");
    let named = || events.of(Level::WARN).into_iter().find(is_it);
    eventually("the watchdog says so", async || named().is_some()).await;
    named().unwrap_or_default()
}

#[tokio::test]
async fn a_runtime_blocked_past_a_lease_is_named_at_any_end_of_a_hold() {
    let waits = starved(async |guard| assert_eq!(guard.lost().wait().await, LostReason::Expired));
    let looks = starved(async |guard| assert!(!guard.is_held()));
    let releases = starved(async |guard| assert!(guard.release().await.is_err()));
    let drops = starved(async |guard| drop(guard));
    for named in [waits.await, looks.await, releases.await, drops.await] {
        assert!(named.contains("late="), "{named}");
    }
}

#[tokio::test]
async fn a_hold_whose_renewals_go_on_failing_is_told_of_once() {
    let server = RedisServer::start();
    let (proxy, locks) = behind_a_proxy(&server, tests::builder()).await;
    let events = Events::default();
    let _logging = tracing::subscriber::set_default(events.clone());
    let guard = locks.mutex("k").lease(LEASE).acquire().await.unwrap();
    let _: redis::Value = server.query(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let asked = proxy.count("EVALSHA");
    assert_eq!(guard.lost().wait().await, LostReason::Expired);
    let asked = proxy.count("EVALSHA") - asked;
    assert!(asked > 3, "its renewal was repeated: {asked}");
    let logged = events.of(Level::WARN);
    let count = |what: &str| logged.iter().filter(|said| said.contains(what)).count();
    // A server of a busy machine may be silent meanwhile. The next failure after that is told of again.
    let most = 1 + count("message=no answer to a renewal");
    let of_renewals = count("message=renewal");
    assert!((1..=most).contains(&of_renewals), "{logged:#?}");
}

/// Blocks its thread until the server has a longer lease for the key than before. Returns `false` if the key is gone.
fn blocks_until_renewed(server: &RedisServer, key: &str) -> bool {
    let left = || server.query::<i64>(&["PTTL", key]);
    let mut before = left();
    loop {
        std::thread::sleep(10 * MS);
        match left() {
            now if now < 0 => return false,
            now if now > before => return true,
            now => before = now,
        }
    }
}

/// Runs a body in a runtime of its own with two workers. Each message to it wakes the worker that then runs the body.
fn on_one_of_two_workers<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    server: &RedisServer,
    body: impl FnOnce(LockManager) -> F,
) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let locks = runtime.block_on(async {
        let locks = tests::connected(&server.url()).await;
        // A manager's first hold starts tasks. Once they rest, no worker is awake that could help the body's.
        let first = locks.mutex("first").acquire().await.unwrap();
        first.release().await.unwrap();
        tokio::time::sleep(300 * MS).await;
        locks
    });
    let task = runtime.spawn(body(locks));
    runtime.block_on(task).unwrap()
}

#[test]
fn a_body_that_blocks_one_of_two_workers_keeps_its_lock() {
    let server = Arc::new(RedisServer::start());
    let of_body = server.clone();
    on_one_of_two_workers(&server, async move |locks| {
        let guard = locks.mutex("k").lease(LEASE).acquire().await.unwrap();
        assert!(blocks_until_renewed(&of_body, "lock:k"), "it is renewed");
        guard.release().await.unwrap();
    });
}

/// The hold is over after a second if nobody asks for its lease, which may happen on a busy machine.
#[tokio::test]
async fn a_body_that_blocks_keeps_a_lock_that_a_message_granted() {
    let server = Arc::new(RedisServer::start());
    let first = tests::connected(&server.url()).await;
    let of_body = server.clone();
    let mut body = tokio::task::spawn_blocking(move || {
        on_one_of_two_workers(&of_body.clone(), async move |locks| {
            let request = || locks.mutex("k").lease(LEASE).wait(LONG);
            let mut turns = 0;
            while turns < 400 {
                let guard = request().acquire().await.unwrap();
                turns += 1;
                let by_message = guard.remaining() <= Duration::from_secs(1);
                // Another holder's lease would be longer, too.
                let renewed = || blocks_until_renewed(&of_body, "lock:k") && guard.is_held();
                if turns % 20 == 0 && by_message && renewed() {
                    return true;
                }
                // One that is lost is released in vain.
                _ = guard.release().await;
            }
            false
        })
    });
    let renewed = loop {
        let turn = async {
            let request = first.mutex("k").lease(LEASE).wait(LONG);
            request.acquire().await.unwrap().release().await.unwrap();
        };
        tokio::select! {
            renewed = &mut body => break renewed.unwrap(),
            () = turn => {}
        }
    };
    assert!(renewed, "no lease was asked for while the body blocked");
}

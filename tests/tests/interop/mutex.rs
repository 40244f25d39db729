//! Tests of `mutex` and `getLock`: a holder excludes the other side, and its release wakes the other side.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lock_runtime::{LockManager, TryAcquire};
use tests::faults::given_back;
use tests::server::patient;
use tests::{JavaPeer, RedisServer, connected, eventually};

use crate::pair::{LONG, PUSHED, Pair, bare};

type Count = Arc<AtomicUsize>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rust_waits_for_java_and_has_the_lock_within_one_push() {
    let pair = Pair::start().await;
    // Each round has another name, because our subscriptions linger for a while after a wait.
    for name in ["k0", "k1", "k2", "k3", "k4"] {
        let java = pair.java.mutex(name);
        java.lock("a").await;
        assert!(matches!(
            pair.rust.mutex(name).try_acquire().await.unwrap(),
            TryAcquire::Busy { .. }
        ));
        let waiting = pair
            .asleep(|| tokio::spawn(pair.told.mutex(name).wait(PUSHED).acquire()))
            .await;
        java.unlock("a").await;
        let guard = waiting.await.unwrap().unwrap();
        assert!(java.is_locked().await && !java.is_held("a").await);
        guard.release().await.unwrap();
        assert!(!java.is_locked().await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_waits_for_rust_and_has_the_lock_within_one_push() {
    let pair = Pair::start().await;
    let java = pair.java.mutex("k");
    for _ in 0..5 {
        let guard = pair.rust.mutex("k").acquire().await.unwrap();
        assert!(!java.try_lock("a").await);
        let waiting = pair.asleep(|| java.begin(PUSHED, "a")).await;
        guard.release().await.unwrap();
        assert_eq!(waiting.await.unwrap(), "true");
        assert!(pair.rust.inspect("k").await.unwrap().held);
        java.unlock("a").await;
    }
    assert_eq!(pair.java.complaints(), "", "Java could not read a message");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_times_the_lock_goes_to_and_fro() {
    let pair = Pair::start().await;
    let java = pair.java.mutex("k");
    let mut guard = pair.rust.mutex("k").acquire().await.unwrap();
    let mut token = guard.fencing_token().unwrap().get();
    for round in 0..500 {
        // Every other time the release meets the waiter somewhere on its way to sleep.
        let asleep = round % 2 == 0;
        // A message that was missed costs a waiter the rest of a lease, which is 20 s at least.
        let begin = || java.begin(PUSHED, "a");
        let java_waits = if asleep {
            pair.asleep(begin).await
        } else {
            begin()
        };
        guard.release().await.unwrap();
        assert_eq!(java_waits.await.unwrap(), "true");

        let begin = || tokio::spawn(pair.told.mutex("k").wait(PUSHED).acquire());
        let rust_waits = if asleep {
            pair.asleep(begin).await
        } else {
            begin()
        };
        java.unlock("a").await;
        guard = rust_waits.await.unwrap().unwrap();

        let next = guard.fencing_token().unwrap().get();
        assert!(next > token, "{next} after {token}");
        token = next;
    }
    guard.release().await.unwrap();
    assert_eq!(pair.java.complaints(), "");
}

/// A client that works under the lock.
struct Worker {
    locks: LockManager,
    store: redis::aio::MultiplexedConnection,
}

impl Worker {
    async fn new(locks: &LockManager, url: &str) -> Worker {
        Worker {
            locks: locks.clone(),
            store: patient(url).await,
        }
    }

    async fn ask<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut self.store).await.unwrap()
    }

    /// Adds one to `counter` by reading and writing it, under the lock. Returns whether somebody else was inside, or nothing if
    /// the hold was lost.
    async fn adds_one(&mut self, counter: &str) -> Option<bool> {
        let request = self.locks.mutex("k").wait(LONG);
        let guard = request.acquire().await.unwrap();
        let inside = format!("{counter}:inside");
        let alone: Option<String> = self.ask(&["SET", &inside, "rust", "NX"]).await;
        let old: Option<u64> = self.ask(&["GET", counter]).await;
        let old = old.unwrap_or(0);
        let (read, new) = (old.to_string(), (old + 1).to_string());
        let args = ["EVAL", WRITE, "1", counter, &read, &new];
        let _: i64 = self.ask(&args).await;
        let () = self.ask(&["DEL", &inside]).await;
        given_back(guard).await.then_some(alone.is_none())
    }
}

/// Writes a counter of which nobody has written another value since it was read. So a turn that was lost and comes late undoes
/// nothing of what others have added since, and of two turns at once, one is still missing in the end.
const WRITE: &str = "if (redis.call('GET', KEYS[1]) or '0') == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) end return 0";

/// What the turns of Rust tasks have shown.
#[derive(Default)]
struct Turns {
    kept: usize,
    /// How many were lost before they ended. They show nothing, because others may have been inside by right.
    lost: usize,
    /// How many of those that were kept met somebody else inside.
    overlaps: usize,
}

impl Turns {
    fn add(&mut self, turn: Option<bool>) {
        match turn {
            Some(met) => {
                self.kept += 1;
                self.overlaps += usize::from(met);
            }
            None => self.lost += 1,
        }
    }

    fn add_all(&mut self, others: Turns) {
        self.kept += others.kept;
        self.lost += others.lost;
        self.overlaps += others.overlaps;
    }

    /// Asserts that no two were inside together, in these turns and in `in_java` turns of Java, of which `met_in_java` met
    /// somebody.
    fn assert_exclusive(&self, in_java: usize, met_in_java: usize) {
        let Turns {
            kept,
            lost,
            overlaps,
        } = self;
        // What a message has given to a process lasts for a second at first, and a busy machine may stop it for longer.
        let all = kept + lost + in_java;
        assert!(*lost <= all / 100, "{lost} of {all} turns were lost");
        // A lost turn may leave its mark to another turn. That one meets the mark, and deletes it.
        assert!(
            overlaps + met_in_java <= *lost,
            "{overlaps} in Rust and {met_in_java} in Java met somebody inside, and {lost} were lost"
        );
    }
}

/// Returns how often Java met somebody inside.
fn met(answer: Result<String, String>) -> usize {
    answer.unwrap().parse().expect("how often")
}

/// Adds `times` to `counter`, one by one.
async fn contend(locks: &LockManager, url: &str, times: usize, counter: &str) -> Turns {
    let mut worker = Worker::new(locks, url).await;
    let mut turns = Turns::default();
    for _ in 0..times {
        turns.add(worker.adds_one(counter).await);
    }
    turns
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_at_once_are_never_inside_together() {
    let pair = Pair::start().await;
    let second = JavaPeer::start(&pair.server).await;
    let other = bare(&pair.server).await;
    let mut in_java = Vec::new();
    for (peer, thread) in [(&pair.java, "a"), (&pair.java, "b"), (&second, "c")] {
        in_java.push(peer.mutex("k").contend(200, "counter", thread));
    }
    let mut in_rust = Vec::new();
    for locks in [&pair.rust, &pair.rust, &pair.rust, &other] {
        let (locks, url) = (locks.clone(), pair.server.url());
        in_rust.push(tokio::spawn(async move {
            contend(&locks, &url, 150, "counter").await
        }));
    }
    let mut ours = Turns::default();
    for task in in_rust {
        ours.add_all(task.await.unwrap());
    }
    let mut met_in_java = 0;
    for answer in in_java {
        met_in_java += met(answer.await);
    }
    ours.assert_exclusive(3 * 200, met_in_java);
    let counted: usize = pair.server.query(&["GET", "counter"]);
    let (kept, lost) = (3 * 200 + ours.kept, ours.lost);
    // A lost turn may have written before it was lost.
    assert!(
        (kept..=kept + lost).contains(&counted),
        "{counted} after {kept} turns, beside {lost} that were lost"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_full_of_rust_waiters_lets_java_in() {
    let pair = Pair::start().await;
    let java = pair.java.mutex("k");
    let holds = Count::default();
    let tasks: Vec<_> = (0..32)
        .map(|_| {
            let (locks, holds) = (pair.rust.clone(), holds.clone());
            tokio::spawn(async move {
                loop {
                    let guard = locks.mutex("k").wait(LONG).acquire().await.unwrap();
                    holds.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    let mut holds_before_java = Vec::new();
    for _ in 0..20 {
        let before = holds.load(Ordering::Relaxed);
        assert_eq!(java.begin(LONG, "a").await.unwrap(), "true");
        let since = holds.load(Ordering::Relaxed) - before;
        holds_before_java.push(since);
        java.unlock("a").await;
    }
    for task in tasks {
        task.abort();
    }
    // This is a second of theirs on an idle machine.
    holds_before_java.sort_unstable();
    assert!(holds_before_java[10] < 5_000, "{holds_before_java:?}");
}

/// Lets one task of each manager contend with a Java thread for five stretches, until that has had so many holds in each. Each
/// must have had its share in most of them: a process that stands still spoils one or two.
async fn all_have_their_share(
    pair: &Pair,
    managers: Vec<LockManager>,
    holds: usize,
    are_ready: impl AsyncFn(),
) {
    let java = pair.java.mutex("k");
    let over = Arc::new(AtomicBool::new(false));
    let counts: Vec<_> = managers.iter().map(|_| Count::default()).collect();
    let mut tasks = Vec::new();
    for (locks, count) in managers.into_iter().zip(counts.clone()) {
        let (url, over) = (pair.server.url(), over.clone());
        tasks.push(tokio::spawn(async move {
            let mut worker = Worker::new(&locks, &url).await;
            let mut turns = Turns::default();
            while !over.load(Ordering::Relaxed) {
                let turn = worker.adds_one("counter").await;
                count.fetch_add(usize::from(turn.is_some()), Ordering::Relaxed);
                turns.add(turn);
            }
            turns
        }));
    }
    const STRETCHES: usize = 5;
    // Java compiles its code during the first holds.
    let first = 50;
    let mut met_in_java = met(java.contend(first, "counter", "a").await);
    are_ready().await;
    let so_far = || counts.iter().map(|count| count.load(Ordering::Relaxed));
    let mut fair_stretches = vec![0; counts.len() + 1];
    for _ in 0..STRETCHES {
        let before: Vec<_> = so_far().collect();
        met_in_java += met(java.contend(holds, "counter", "a").await);
        let mut had: Vec<_> = so_far().zip(before).map(|(now, then)| now - then).collect();
        had.push(holds);
        println!("holds of each task, and of the Java thread: {had:?}");
        // On a machine with time to spare, each has half of its share, and more.
        let fair = had.iter().sum::<usize>() / had.len();
        for (stretches, had) in fair_stretches.iter_mut().zip(had) {
            *stretches += usize::from(had >= fair / 4);
        }
    }
    over.store(true, Ordering::Relaxed);
    let mut turns = Turns::default();
    for task in tasks {
        turns.add_all(task.await.unwrap());
    }
    turns.assert_exclusive(first + STRETCHES * holds, met_in_java);
    assert!(
        fair_stretches
            .iter()
            .all(|stretches| *stretches > STRETCHES / 2),
        "stretches with a share: {fair_stretches:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_java_thread_and_rust_tasks_all_get_a_share_of_one_lock() {
    let pair = Pair::start().await;
    let tasks = vec![pair.rust.clone(); 4];
    all_have_their_share(&pair, tasks, 100, async || {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_java_thread_beside_a_crowd_of_rust_processes_has_its_share() {
    const PROCESSES: usize = 7;
    let pair = Pair::start().await;
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        processes.push(bare(&pair.server).await);
    }
    all_have_their_share(&pair, processes, 50, async || {
        let list = ["ZCARD", "lock:waiting:{k}"];
        eventually("Rust's processes wait on a list", async || {
            pair.server.query::<usize>(&list) >= PROCESSES - 1
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn javas_re_entries_are_counted_and_left_alone() {
    let pair = Pair::start().await;
    let java = pair.java.mutex("k");
    java.lock("a").await;
    java.lock("a").await;
    let info = pair.rust.inspect("k").await.unwrap();
    assert_eq!((info.held, info.count), (true, 2));
    let thread = pair.java.ask("thread-id @a").await;
    let expected = format!("{}…:{thread}", &pair.java.client_id()[..8]);
    assert_eq!(info.holder.unwrap().to_string(), expected);

    let waiting = pair
        .asleep(|| tokio::spawn(pair.told.mutex("k").wait(PUSHED).acquire()))
        .await;
    java.unlock("a").await;
    // Java's first unlock publishes nothing. A caller that asks now still finds the lock held, once.
    assert!(matches!(
        bare(&pair.server)
            .await
            .mutex("k")
            .try_acquire()
            .await
            .unwrap(),
        TryAcquire::Busy { .. }
    ));
    assert_eq!(java.hold_count("a").await, 1);
    assert_eq!(pair.rust.inspect("k").await.unwrap().count, 1);
    assert!(!waiting.is_finished());
    java.unlock("a").await;
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_thread_of_javas_client_is_a_stranger_to_our_hold() {
    let pair = Pair::start().await;
    let java = pair.java.mutex("k");
    let guard = pair.rust.mutex("k").acquire().await.unwrap();
    for thread in ["a", "b"] {
        assert!(!java.try_lock(thread).await);
        java.unlock_is_refused(thread).await;
    }
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_shared_without_a_namespace_or_with_it_as_a_prefix() {
    let server = RedisServer::start();
    let java = JavaPeer::start(&server).await;
    let spaced = connected(&server.url()).await;
    java.mutex("k").lock("a").await;
    let guard = spaced.mutex("k").try_acquire().await.unwrap();
    guard
        .expect("`lock:k` is another lock than `k`")
        .release()
        .await
        .unwrap();
    java.mutex("lock:k").lock("a").await;
    assert!(matches!(
        spaced.mutex("k").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
}

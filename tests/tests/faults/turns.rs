//! Tests of many processes that want one lock: they take turns by a list in the store, and nobody's turn is lost when
//! one of them leaves, dies or is not on the list.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use lock_runtime::{LockGuard, LockManager};
use tests::faults::{Op, connected, given_back, took};
use tests::stops::{STOP, STOP_OF_A_GRANT, in_one_of_a_few_rounds, shut_down};
use tests::{
    CommandStats, Direction, Events, FaultProxy, History, RedisServer, Then, eventually,
    eventually_within,
};
use tokio::task::JoinSet;
use tracing::Level;

const LONG: Duration = Duration::from_secs(120);
/// What a turn never takes. One that is lost lasts for an [`HOUR`].
const SOON: Duration = Duration::from_secs(60);
/// The lease of all holds: nothing becomes free by its end.
const HOUR: Duration = Duration::from_secs(60 * 60);
const LIST: &str = "lock:waiting:{lock:k}";

/// Connects a manager, which stands for a process: each has connections, channels and holder ids of its own.
async fn process(url: &str) -> LockManager {
    connected(tests::builder().lease(HOUR), url).await
}

async fn processes(server: &RedisServer, number: usize) -> Vec<LockManager> {
    let mut all = Vec::new();
    for _ in 0..number {
        all.push(process(&server.url()).await);
    }
    all
}

/// The holders on the list. The time until which the lock is left to others may stand before them.
fn list(server: &RedisServer) -> Vec<String> {
    server.query(&["ZRANGEBYSCORE", LIST, "0", "+inf"])
}

async fn acquire(locks: &LockManager) -> LockGuard {
    locks.mutex("k").wait(LONG).acquire().await.unwrap()
}

/// Lets them all want the lock, until all of them wait on the list but the holder.
async fn all_want_it(server: &RedisServer, processes: &[LockManager]) {
    let over = AtomicBool::new(false);
    let wants = async |locks: &LockManager| {
        while !over.load(SeqCst) {
            given_back(acquire(locks).await).await;
        }
    };
    let all = futures_of(processes, wants);
    let found_out = async {
        eventually("they wait on a list", async || {
            list(server).len() >= processes.len() - 1
        })
        .await;
        over.store(true, SeqCst);
    };
    tokio::join!(all, found_out);
}

/// Runs the same for each of them at the same time.
async fn futures_of(processes: &[LockManager], run: impl AsyncFn(&LockManager)) {
    let mut running: Vec<_> = processes.iter().map(|locks| Box::pin(run(locks))).collect();
    std::future::poll_fn(|cx| {
        running.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        match running.is_empty() {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
}

/// Begins to wait, and returns once the process is on the list.
async fn on_list(
    server: &RedisServer,
    waiting: &mut JoinSet<(usize, LockGuard)>,
    number: usize,
    locks: &LockManager,
) -> tokio::task::AbortHandle {
    let before = list(server).len();
    let request = locks.mutex("k").wait(LONG).acquire();
    let task = waiting.spawn(async move { (number, request.await.unwrap()) });
    eventually("one more is on the list", async || {
        list(server).len() > before
    })
    .await;
    task
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_processes_get_equal_turns_at_two_scripts_a_turn() {
    // Two scripts for each turn: the request that comes to the list, and the release, whose message is the grant.
    let cost = Cost {
        scripts: 2.0,
        commands: 19.0,
    };
    take_turns(End::Awaited, cost).await;
}

/// One script: the release, whose message is the grant. It also puts the caller on the list that comes back to the key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_costs_one_script_where_an_acquire_follows_a_drop() {
    let cost = Cost {
        scripts: 1.0,
        commands: 14.0,
    };
    take_turns(End::Dropped, cost).await;
}

/// Two scripts: the release, and the request after its message, for a runtime of one worker believes no message.
#[tokio::test]
async fn a_runtime_of_one_worker_asks_after_the_message_of_its_turn() {
    let cost = Cost {
        scripts: 2.0,
        commands: 21.0,
    };
    take_turns(End::Dropped, cost).await;
}

/// Lets another process wait for a lock, drops the guard, and comes back for it. Then the release puts the caller on the list.
/// Returns the other one's guard and the caller's request; `None` if this process ran so late that the caller asked by itself.
async fn comes_back<'a>(
    server: &RedisServer,
    locks: &'a LockManager,
    other: &LockManager,
    before_the_release: impl FnOnce(),
) -> Option<(LockGuard, Pin<Box<dyn Future<Output = LockGuard> + 'a>>)> {
    all_want_it(server, &[locks.clone(), other.clone()]).await;
    let guard = acquire(locks).await;
    let mut waiting = JoinSet::new();
    on_list(server, &mut waiting, 0, other).await;
    before_the_release();
    drop(guard);
    let mut back: Pin<Box<dyn Future<Output = LockGuard> + 'a>> = Box::pin(acquire(locks));
    let theirs = tokio::select! {
        biased;
        back = &mut back => {
            given_back(back).await;
            return None;
        }
        theirs = waiting.join_next() => theirs.unwrap().unwrap().1,
    };
    if list(server).is_empty() {
        drop(back);
        given_back(theirs).await;
        return None;
    }
    Some((theirs, back))
}

#[tokio::test]
async fn a_place_that_an_unanswered_release_may_hold_is_given_up() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr()).await;
    let [other] = processes(&server, 1).await.try_into().unwrap();
    let locks = process(&proxy.url()).await;
    for then in [Then::Cut, Then::Silence] {
        let round = async || {
            let lose_its_reply = || Op::ListedRelease.lose_reply(&proxy, then);
            let both = comes_back(&server, &locks, &other, lose_its_reply).await;
            let Some((theirs, back)) = both else {
                return false;
            };
            let given_up = list(&server);
            let rest = async {
                eventually("the caller waits as another holder", async || {
                    let now = list(&server);
                    now.len() == 1 && now != given_up
                })
                .await;
                given_back(theirs).await;
            };
            let (guard, ()) = tokio::join!(back, rest);
            given_back(guard).await;
            true
        };
        eventually_within(LONG, "a release takes its caller along", round).await;
    }
    drop((locks, other));
    server.assert_clean().await;
}

#[tokio::test]
async fn a_caller_that_a_release_put_on_the_list_may_leave() {
    let server = RedisServer::start();
    let [locks, other] = processes(&server, 2).await.try_into().unwrap();
    let round = async || {
        let Some((theirs, back)) = comes_back(&server, &locks, &other, || ()).await else {
            return false;
        };
        // The list does not end by itself.
        let _: i64 = server.query(&["PERSIST", LIST]);
        drop(back);
        eventually("it has left the list", async || list(&server).is_empty()).await;
        given_back(theirs).await;
        given_back(acquire(&locks).await).await;
        true
    };
    eventually_within(LONG, "a release takes its caller along", round).await;
    drop((locks, other));
    server.assert_clean().await;
}

#[derive(Clone, Copy)]
enum End {
    Awaited,
    Dropped,
}

/// What the server executes for a turn. The commands are the scripts, what these call, and a few others.
#[derive(Clone, Copy, Debug)]
struct Cost {
    scripts: f64,
    commands: f64,
}

/// Runs few and many processes of one task that take turns.
async fn take_turns(end: End, cost: Cost) {
    for number in [2, 4, 12] {
        let round = async || are_fair_and_cheap(number, end, cost).await;
        in_one_of_a_few_rounds(STOP, "fair and cheap turns", round).await;
    }
}

/// Returns whether each process had turns, by as few scripts as they cost. A process that the machine does not run for a while
/// has fewer turns, and asks more often.
async fn are_fair_and_cheap(number: usize, end: End, most: Cost) -> bool {
    const TURNS: usize = 100;
    let server = RedisServer::start();
    let processes = processes(&server, number).await;
    let history = Arc::new(History::new());
    let over = Arc::new(AtomicBool::new(false));
    all_want_it(&server, &processes).await;
    let before = CommandStats::of(&server);
    let mut running = JoinSet::new();
    for (number, locks) in processes.iter().enumerate() {
        let (locks, history, over) = (locks.clone(), history.clone(), over.clone());
        running.spawn(async move {
            let mut turns = 0;
            while !over.load(SeqCst) {
                let guard = acquire(&locks).await;
                let token = guard.fencing_token().map(|token| token.get());
                history.begin("k", number, token).end();
                match end {
                    End::Awaited => {
                        given_back(guard).await;
                    }
                    End::Dropped => drop(guard),
                }
                turns += 1;
                if turns == TURNS {
                    over.store(true, SeqCst);
                }
            }
            turns
        });
    }
    let turns = running.join_all().await;
    let done = CommandStats::of(&server).since(&before);
    history.assert_exclusive();
    let (all, least) = (turns.iter().sum::<usize>(), turns.iter().min());
    let for_each = |done: u64| done as f64 / all as f64;
    let cost = Cost {
        scripts: for_each(done.scripts()),
        commands: for_each(done.total()),
    };
    // A process that runs late asks for its lease as well, or comes too late for its turn.
    let is_cheap = cost.scripts < most.scripts + 0.4 && cost.commands < most.commands * 1.25;
    let is_good = least >= Some(&(TURNS / 2)) && is_cheap;
    if !is_good {
        eprintln!("{cost:.2?} for a turn, {most:?} aimed at: {turns:?}");
    }
    drop(processes);
    server.assert_clean().await;
    is_good
}

/// A grant by a message is for the reservation, which is short. The watchdog asks for the lease. A lease that is not renewed
/// is never granted by a message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_a_message_granted_asks_for_its_lease() {
    let server = RedisServer::start();
    let processes = processes(&server, 2).await;
    let (one, other) = (&processes[0], &processes[1]);
    for renewed in [true, false] {
        let round = async || {
            all_want_it(&server, &processes).await;
            let held = acquire(one).await;
            let lease = Duration::from_secs(60);
            let request = other.mutex("k").wait(LONG).lease(lease).auto_renew(renewed);
            let waiting = tokio::spawn(request.acquire());
            eventually("it is on the list", async || !list(&server).is_empty()).await;
            let before = CommandStats::of(&server);
            given_back(held).await;
            let guard = waiting.await.unwrap().unwrap();
            eventually("it has its lease, or is lost", async || {
                let left: i64 = server.query(&["PTTL", "lock:k"]);
                let has_its_lease = left > 30_000 && guard.remaining() > lease / 2;
                has_its_lease || !guard.is_held()
            })
            .await;
            let is_held = guard.is_held();
            let scripts = CommandStats::of(&server).since(&before).scripts();
            given_back(guard).await;
            // The release, and the request for the lease. A hold that came too late to believe the message asks once more.
            is_held && (2..=3).contains(&scripts)
        };
        // What the message gave is lost if this process stands still for a second.
        in_one_of_a_few_rounds(STOP, "it asks once for its lease", round).await;
    }
    drop(processes);
    server.assert_clean().await;
}

/// Publishes a message that the lock is reserved for a holder, as the script of a release does.
fn reserve_in_words(server: &RedisServer, holder: &str) {
    let message = "
        local info = redis.call('INFO', 'server')
        local run_id = string.match(info, 'run_id:(%x+)')
        local time = redis.call('TIME')
        local ends = time[1] * 1000 + math.floor(time[2] / 1000) + 1000
        return string.sub(redis.sha1hex(ARGV[1]), 1, 32) .. ':' .. run_id .. ':' .. string.format('%.0f', ends) .. ':77'";
    let message: String = server.query(&["EVAL", message, "0", holder]);
    let channel = format!("redisson_lock__channel:{{lock:k}}:{}", &holder[..8]);
    let _: i64 = server.query(&["PUBLISH", &channel, &message]);
}

/// What the caller is that gets a message.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Caller {
    /// It has asked once. Such a message is a grant.
    Plain,
    HasAskedTwice,
    /// The end of its lease would come without a renewal.
    HasAFixedLease,
    /// A kept lock begins with a whole lease.
    KeepsTheLock,
    /// The answer brings tokens for those behind it.
    HasOthersBehindIt,
}

/// The messages here are false: a caller that believes one has the lock at once, and one that asks is told that it is busy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_grants_only_a_lone_callers_first_renewed_request() {
    for caller in [
        Caller::Plain,
        Caller::HasAskedTwice,
        Caller::HasAFixedLease,
        Caller::KeepsTheLock,
        Caller::HasOthersBehindIt,
    ] {
        // A busy machine brings a message too late, and the list may have ended by then.
        let round = async || match believes(caller).await {
            Some(true) if caller != Caller::Plain => panic!("{caller:?} believes it"),
            believes => believes == Some(caller == Caller::Plain),
        };
        eventually_within(LONG, &format!("{caller:?}"), round).await;
    }
}

/// Returns whether such a caller takes a message for the grant; `None` if its place is not the only one on the list, or if it
/// asks as another holder by now.
async fn believes(caller: Caller) -> Option<bool> {
    let server = RedisServer::start();
    let one = process(&server.url()).await;
    let asks_again = caller == Caller::HasAskedTwice;
    let nap = Duration::from_millis(if asks_again { 200 } else { 60_000 });
    let builder = tests::builder().lease(HOUR).longest_nap(nap);
    let other = connected(builder, &server.url()).await;
    all_want_it(&server, &[one.clone(), other.clone()]).await;
    let held = acquire(&one).await;
    let request = other.mutex("k").wait(LONG);
    let request = match caller {
        Caller::HasAFixedLease => request.auto_renew(false),
        Caller::KeepsTheLock => request.keep_for(SOON),
        _ => request,
    };
    let asked = || CommandStats::of(&server).calls("zadd");
    let before = asked();
    // All callers leave with this set.
    let mut callers = JoinSet::new();
    let waiting = callers.spawn(request.acquire());
    eventually("it has asked", async || asked() > before).await;
    let places = list(&server);
    if asks_again {
        let before = asked();
        eventually("it has asked again", async || asked() > before).await;
    }
    if caller == Caller::HasOthersBehindIt {
        callers.spawn(other.mutex("k").wait(LONG).acquire());
        eventually("another one waits behind it", async || {
            other.inspect("k").await.unwrap().local_waiters == 2
        })
        .await;
    }
    let before = asked();
    // After a request without an answer it asks as another holder, for the first time.
    let now = list(&server);
    let ([place], true) = (&places[..], now == places) else {
        return None;
    };
    reserve_in_words(&server, place);
    eventually("it believes it, or asks", async || {
        waiting.is_finished() || asked() > before
    })
    .await;
    let believes = waiting.is_finished();
    given_back(held).await;
    Some(believes)
}

/// The other process hears of each release too late to win a race.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_never_refused_leaves_its_second_release_to_others() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr()).await;
    let round = async || {
        let greedy = process(&server.url()).await;
        let patient = process(&proxy.url()).await;
        let mut guard = acquire(&greedy).await;
        let had_its_turn = Arc::new(AtomicBool::new(false));
        let (request, had) = (patient.mutex("k").wait(LONG), had_its_turn.clone());
        let waiting = tokio::spawn(async move {
            let guard = request.acquire().await.unwrap();
            had.store(true, SeqCst);
            given_back(guard).await;
        });
        eventually("the other one waits", async || list(&server).len() == 1).await;
        proxy.delay(Direction::Replies, Duration::from_millis(20));
        let mut holds = 1;
        while !had_its_turn.load(SeqCst) && holds < 3 {
            let refused = CommandStats::of(&server).calls("zadd");
            given_back(guard).await;
            guard = acquire(&greedy).await;
            holds += 1;
            eventually("the other one had its turn, or asked in vain", async || {
                had_its_turn.load(SeqCst) || CommandStats::of(&server).calls("zadd") > refused
            })
            .await;
        }
        let had_its_turn = had_its_turn.load(SeqCst);
        waiting.abort();
        given_back(guard).await;
        proxy.delay(Direction::Replies, Duration::ZERO);
        had_its_turn
    };
    // On a busy machine, a process may come too late for its reservation, and waits for another turn.
    eventually_within(LONG, "it has its turn", round).await;
}

/// Nobody has told it of the other one, but its hold was longer than a slice.
#[tokio::test]
async fn a_process_back_after_a_drop_waits_for_the_other_process() {
    let server = RedisServer::start();
    let round = async || {
        let [dropping, other] = processes(&server, 2).await.try_into().unwrap();
        let guard = acquire(&dropping).await;
        let theirs = tokio::spawn(async move { acquire(&other).await });
        eventually("the other one waits", async || list(&server).len() == 1).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(guard);
        let ours = acquire(&dropping);
        tokio::select! {
            biased;
            theirs = theirs => {
                given_back(theirs.unwrap()).await;
                true
            }
            ours = ours => {
                given_back(ours).await;
                false
            }
        }
    };
    // On a busy machine, the other one may ask too late.
    eventually_within(LONG, "the other one is first", round).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_turn_of_a_waiter_that_leaves_goes_to_the_next_one() {
    let server = RedisServer::start();
    let processes = processes(&server, 4).await;
    for _ in 0..5 {
        all_want_it(&server, &processes).await;
        let guard = acquire(&processes[0]).await;
        let mut waiting = JoinSet::new();
        let mut tasks = Vec::new();
        for (number, locks) in processes.iter().enumerate().skip(1) {
            tasks.push(on_list(&server, &mut waiting, number, locks).await);
        }
        // One leaves while others have the lock, the other one at about the time when its turn comes.
        tasks[0].abort();
        eventually("it has left the list", async || list(&server).len() == 2).await;
        tokio::join!(given_back(guard), async { tasks[1].abort() });
        let next = async {
            loop {
                if let Ok((number, guard)) = waiting.join_next().await.unwrap() {
                    return (number, guard);
                }
            }
        };
        let ((number, guard), took) = took(next).await;
        // The second one may have been served before it could leave.
        assert!(
            (2..4).contains(&number) && took < SOON,
            "{number} after {took:?}"
        );
        given_back(guard).await;
    }
    drop(processes);
    server.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_place_of_a_leaving_caller_goes_to_the_next_local_caller() {
    let server = RedisServer::start();
    let processes = processes(&server, 3).await;
    // A caller whose time is over, and one whose future is dropped.
    for wait in [Duration::from_secs(1), LONG] {
        let round = async || goes_to_the_next_caller(&server, &processes, wait).await;
        eventually_within(
            10 * LONG,
            "a round without a long pause of this process",
            round,
        )
        .await;
    }
    drop(processes);
    server.assert_clean().await;
}

/// Returns false if this process ran so late that the round shows nothing.
async fn goes_to_the_next_caller(
    server: &RedisServer,
    processes: &[LockManager],
    wait: Duration,
) -> bool {
    all_want_it(server, processes).await;
    let guard = acquire(&processes[0]).await;
    let mut waiting = JoinSet::new();
    let request = processes[1].mutex("k").wait(wait).acquire();
    let gives_up = tokio::spawn(async move { request.await.map(drop) });
    let is_there = async |places, callers| {
        eventually("it waits, or the first one has given up", async || {
            let seen = processes[1].inspect("k").await.unwrap().local_waiters;
            gives_up.is_finished() || (list(server).len() == places && seen == callers)
        })
        .await;
    };
    is_there(1, 1).await;
    for (number, callers) in [(2, 1), (1, 2)] {
        let request = processes[number].mutex("k").wait(LONG).acquire();
        waiting.spawn(async move { (number, request.await.unwrap()) });
        is_there(2, callers).await;
    }
    let places = list(server);
    if gives_up.is_finished() {
        return false;
    }
    if wait == LONG {
        gives_up.abort();
    }
    assert!(!matches!(gives_up.await, Ok(Ok(()))));
    // A process that is late loses its place, and such a round shows nothing. If the place went with the caller who gave up,
    // every round would be so.
    if list(server) != places {
        return false;
    }
    let released = Instant::now();
    given_back(guard).await;
    let mut order = Vec::new();
    for _ in 0..2 {
        let (next, took) = took(waiting.join_next()).await;
        assert!(took < SOON, "{took:?}");
        let (number, guard) = next.unwrap().unwrap();
        // A last question without an answer is undone, and the place with it, perhaps only now. A process that misses its
        // reservation comes back to the list behind the other one. Then the round shows nothing.
        let in_time = released.elapsed() < STOP_OF_A_GRANT;
        let is_overtaken = in_time && number == 2 && list(server).contains(&places[0]);
        assert!(!is_overtaken, "{places:?}");
        order.push(number);
        given_back(guard).await;
    }
    order[0] == 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_far_away_has_its_turns_beside_near_ones() {
    let server = RedisServer::start();
    let near = processes(&server, 6).await;
    let proxy = FaultProxy::start(server.addr()).await;
    let far = process(&proxy.url()).await;
    for direction in [Direction::Requests, Direction::Replies] {
        proxy.delay(direction, Duration::from_millis(75));
    }
    all_want_it(&server, &near).await;
    let over = AtomicBool::new(false);
    let near = futures_of(&near, async |locks| {
        while !over.load(SeqCst) {
            given_back(acquire(locks).await).await;
        }
    });
    let far = async {
        // It asks, is told of its turn, and asks again. A turn that it misses costs another question or two.
        const TURNS: u64 = 8;
        let turns = async || {
            let before = proxy.count("EVALSHA");
            for _ in 0..TURNS {
                let guard = acquire(&far).await;
                given_back(guard).await;
            }
            let asked = proxy.count("EVALSHA") - before - TURNS;
            asked <= 4 * TURNS
        };
        // A process that the machine does not run misses turns.
        in_one_of_a_few_rounds(STOP, "it has its turns by few questions", turns).await;
        over.store(true, SeqCst);
    };
    tokio::join!(near, far);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_dead_on_the_list_delays_others_like_a_lost_message() {
    let round = async || keep_others_waiting_for_no_longer().await;
    in_one_of_a_few_rounds(STOP, "the others ask a few times", round).await;
}

/// Returns false if the waiting processes asked often: then they waited for long, or the machine stood still.
async fn keep_others_waiting_for_no_longer() -> bool {
    let server = RedisServer::start();
    let mut processes = Vec::new();
    for _ in 0..3 {
        // So long the wait after a lost message lasts.
        let builder = tests::builder()
            .lease(HOUR)
            .longest_nap(Duration::from_millis(200));
        processes.push(connected(builder, &server.url()).await);
    }
    all_want_it(&server, &processes).await;
    let guard = acquire(&processes[0]).await;
    let mut waiting = JoinSet::new();
    for (number, locks) in processes.iter().enumerate().skip(1) {
        on_list(&server, &mut waiting, number, locks).await;
    }
    for dead in ["1", "2"] {
        let holder = format!("deadbeef-0000-8000-8000-000000000001:{dead}");
        let _: i64 = server.query(&["ZADD", LIST, dead, &holder]);
    }
    let before = CommandStats::of(&server);
    given_back(guard).await;
    // Their order is no promise: on a busy machine, one may come only after the lock was reserved for it.
    for _ in 1..3 {
        let (next, took) = took(waiting.join_next()).await;
        assert!(took < SOON, "{took:?}");
        let (_, guard) = next.unwrap().unwrap();
        given_back(guard).await;
    }
    // Those who wait for longer ask more often.
    let asked = CommandStats::of(&server).since(&before).scripts();
    asked <= 20
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_comes_later_soon_has_its_turn() {
    let server = RedisServer::start();
    let old = processes(&server, 8).await;
    all_want_it(&server, &old).await;
    let over = Arc::new(AtomicBool::new(false));
    let mut running = JoinSet::new();
    for locks in &old {
        let (locks, over) = (locks.clone(), over.clone());
        running.spawn(async move {
            while !over.load(SeqCst) {
                given_back(acquire(&locks).await).await;
            }
        });
    }
    for _ in 0..5 {
        let [newcomer] = &*processes(&server, 1).await else {
            unreachable!("one was asked for")
        };
        let (guard, took) = took(acquire(newcomer)).await;
        assert!(took < SOON, "{took:?}");
        given_back(guard).await;
    }
    over.store(true, SeqCst);
    running.join_all().await;
    drop(old);
    server.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_takes_waiters_off_the_list() {
    let round = takes_waiters_off_the_list;
    in_one_of_a_few_rounds(Duration::ZERO, "nobody is on the list", round).await;
}

/// Returns false if somebody is still on it: a shutdown waits for two seconds at most, and a machine that stands still may
/// need longer.
async fn takes_waiters_off_the_list() -> bool {
    let server = RedisServer::start();
    let processes = processes(&server, 3).await;
    all_want_it(&server, &processes).await;
    let guard = acquire(&processes[0]).await;
    let request = processes[1].mutex("k").wait(LONG).acquire();
    let leaves = tokio::spawn(request);
    eventually("it is on the list", async || !list(&server).is_empty()).await;
    let in_time = shut_down(&processes[1]).await;
    assert!(leaves.await.unwrap().is_err());
    let is_empty = list(&server).is_empty();
    assert!(is_empty || !in_time, "it is still on the list");
    given_back(guard).await;
    given_back(acquire(&processes[2]).await).await;
    is_empty
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_rights_to_the_list_races_for_locks() {
    const TURNS: usize = 50;
    let server = RedisServer::start();
    let user =
        "ACL SETUSER limited reset on >secret +@all &* ~lock:k ~lock:fence:* ~lock:connect-check:*";
    let user: Vec<_> = user.split(' ').collect();
    let _: redis::Value = server.query(&user);
    let events = Events::default();
    let _guard = tracing::subscriber::set_default(events.clone());
    let url = server.url_with("limited", "secret");
    let mut processes = Vec::new();
    for _ in 0..4 {
        processes.push(process(&url).await);
    }
    let history = History::new();
    futures_of(&processes, async |locks| {
        for _ in 0..TURNS {
            let guard = acquire(locks).await;
            let token = guard.fencing_token().map(|token| token.get());
            let hold = history.begin("k", locks.id(), token);
            tokio::task::yield_now().await;
            hold.end();
            given_back(guard).await;
        }
    })
    .await;
    history.assert_exclusive();
    assert_eq!(history.len(), 4 * TURNS);
    assert!(!server.exists(LIST));
    let told = events.of(Level::INFO);
    let of_list: Vec<_> = told
        .iter()
        .filter(|text| text.contains("the waiting list of locks cannot be used"))
        .collect();
    // Each manager that found out says so once, with the right that is missing.
    assert!((1..=4).contains(&of_list.len()), "{told:?}");
    assert!(of_list[0].contains("~lock:waiting:"), "{of_list:?}");
}

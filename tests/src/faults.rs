//! The parts that several of the fault tests need: futures that are dropped half-way, and one script's traffic.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use lock_runtime::{LockError, LockGuard, LockManager, LockManagerBuilder, LockRequest};
use tokio::time::Instant;

use crate::eventually::{PATIENCE, answered, eventually, eventually_within};
use crate::proxy::{FaultProxy, Then};
use crate::server::RedisServer;
use crate::stops::in_one_of;

/// The moment at which a future is dropped after its last poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// Right after the last poll.
    AtOnce,
    /// After it was woken, before it is polled again.
    WhenWoken,
}

/// A list of both moments, for loops.
pub const LEAVES: [Leave; 2] = [Leave::AtOnce, Leave::WhenWoken];

/// Polls `future` at most `polls` times, each time only after it was woken, and then drops it. Returns `None` if it did
/// not complete.
pub async fn poll_times<F: Future>(future: F, polls: usize, leave: Leave) -> Option<F::Output> {
    let mut some = SomePolls {
        future: Box::pin(future),
        left: polls,
        leave,
    };
    (&mut some).await
}

/// Runs `round` with 0, 1, 2 … polls, for both moments of leaving, until it returns that the future completed.
pub async fn at_each_poll(mut round: impl AsyncFnMut(usize, Leave) -> bool) {
    for leave in LEAVES {
        let mut polls = 0;
        // Now and then the answer is there before the first poll is over.
        for _ in 0..100 {
            polls = 0;
            while !round(polls, leave).await {
                polls += 1;
                assert!(polls < 1_000, "it never completes");
            }
            if polls >= 2 {
                break;
            }
        }
        assert!(polls >= 2, "nothing was dropped half-way");
    }
}

struct SomePolls<F> {
    future: Pin<Box<F>>,
    left: usize,
    leave: Leave,
}

impl<F: Future> Future for SomePolls<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        match self.future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.left == 0 && self.leave == Leave::AtOnce => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Runs the future. Returns its value and how long it took.
pub async fn took<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let started = Instant::now();
    let value = future.await;
    (value, started.elapsed())
}

/// Returns the future's value. Panics if it is not ready some time after a timer of the same runtime, which has one thread,
/// has fired at `deadline`. On a busy machine the runtime's timers are late together, so what has just become due may still
/// have to wait for another timer, and for answers.
pub async fn done_by<T>(deadline: Instant, future: impl Future<Output = T>) -> T {
    const REST: Duration = Duration::from_millis(250);
    const TURNS: usize = 100;
    let mut future = pin!(future);
    let turns = async {
        tokio::time::sleep_until(deadline).await;
        tokio::time::sleep(REST).await;
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        value = &mut future => value,
        () = turns => panic!("it is still not ready {:?} after its deadline", deadline.elapsed()),
    }
}

/// Takes the lock and gives it back. Panics if that takes longer than `bound`. Returns how long it waited.
pub async fn free_within(locks: &LockManager, key: &str, bound: Duration) -> Duration {
    let (guard, waited) = took(locks.mutex(key).wait(bound).acquire()).await;
    let guard =
        guard.unwrap_or_else(|error| panic!("`{key}` is not free within {bound:?}: {error}"));
    given_back(guard).await;
    waited
}

/// Has the lock and gives it back, by a manager whose calls may be shorter than a busy machine's answers.
pub async fn use_once(request: LockRequest) {
    eventually("it is had and given back", async || {
        let guard = request.clone().acquire().await.unwrap();
        match guard.release().await {
            Ok(()) => true,
            Err(LockError::Unavailable { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    })
    .await;
}

/// Connects a manager, though the first answers of a busy machine may come later than its calls may last.
pub async fn connected(builder: LockManagerBuilder, url: &str) -> LockManager {
    let connected = answered(async || builder.clone().connect(url).await).await;
    connected.expect("connect")
}

/// Waits until the watchdog has renewed each of the holds. Panics if one is lost. A third of a lease has to end for it, so
/// the leases are short, and yet longer than a busy machine may stand still.
pub async fn renewed<'a>(holds: impl IntoIterator<Item = &'a LockGuard>) {
    let with_rest = |hold: &'a LockGuard| (hold, hold.remaining());
    let mut waiting: Vec<_> = holds.into_iter().map(with_rest).collect();
    eventually_within(2 * PATIENCE, "the holds are renewed", async || {
        waiting.retain_mut(|(hold, rest)| {
            assert!(hold.is_held(), "`{}` is lost", hold.name());
            let before = std::mem::replace(rest, hold.remaining());
            *rest <= before
        });
        waiting.is_empty()
    })
    .await;
}

/// Returns settings for managers whose waiters only a message wakes: they do not ask again by themselves, and no lease ends
/// before a wait does.
pub fn told() -> LockManagerBuilder {
    let builder = crate::builder().longest_nap(Duration::from_secs(60 * 60));
    builder.wait(PATIENCE)
}

/// Releases a lock that was taken in a crowd, and returns whether it was held to the end. What a message gives lasts for a
/// second at first, until its process has confirmed it, and a busy machine may stop the process for longer: such a hold is
/// lost, its holder is told, and that is no fault. Panics on any other error. The test counts the losses, if there must
/// not be many.
pub async fn given_back(guard: LockGuard) -> bool {
    let name = guard.name().to_owned();
    match guard.release().await {
        Ok(()) => true,
        Err(LockError::Lost { .. }) => false,
        Err(error) => panic!("`{name}` is not released: {error}"),
    }
}

/// Connects a manager whose traffic goes through a proxy.
pub async fn behind_a_proxy(
    server: &RedisServer,
    builder: LockManagerBuilder,
) -> (FaultProxy, LockManager) {
    let proxy = FaultProxy::start(server.addr()).await;
    let locks = connected(builder, &proxy.url()).await;
    (proxy, locks)
}

/// Runs `round` until it returns that the order of a queue was kept. A machine that stands still long enough costs a waiter its
/// place by right, and the round is run again. Panics if the order was not kept in a round in which no long stop was seen and
/// that took little longer than `planned`, the time for which it sleeps on an idle machine, or in none of ten rounds. The time
/// is the machine's: where tokio's clock is paused, no stop costs a place.
pub async fn kept_in_order(planned: Duration, round: impl AsyncFnMut() -> bool) {
    // A place lives for five seconds after the last question, and a waiter asks every 1.6 s at the latest.
    const LEAST: Duration = Duration::from_secs(3);
    // A stop within a sleep makes the round no longer.
    let is_excuse = |took, longest| took >= planned + LEAST || longest >= LEAST;
    in_one_of(10, "the order is kept", is_excuse, round).await;
}

/// Starts a waiter on a held key and returns when the waiter sleeps on its subscription: it asked the store,
/// subscribed, and asked again. Nobody else may use this manager meanwhile, which is one of those that are [`told`] if the
/// test shows what wakes the waiter.
pub async fn asleep<T: Send + 'static>(
    proxy: &FaultProxy,
    waiter: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    let before = proxy.count("EVALSHA");
    let task = tokio::spawn(waiter);
    eventually("the waiter asked twice", async || {
        proxy.count("EVALSHA") >= before + 2
    })
    .await;
    // Wait until nothing is on its way to the waiter any more. The waiter asks again after 0.8 s at the earliest.
    let mut seen = proxy.requests();
    let mut quiet = 0;
    eventually("the waiter sleeps", async || {
        let now = proxy.requests();
        quiet = if now == seen { quiet + 1 } else { 0 };
        seen = now;
        quiet >= 4
    })
    .await;
    task
}

/// One of the scripts, recognized by its keys and arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Keys: lock, fence. Arguments: holder, lease, not_after, counted.
    Acquire,
    /// Key: lock. Arguments: holder, channel.
    Release,
    /// Keys: lock, fence. Arguments: from, to, lease, channel, counted, spare.
    HandOver,
    /// Key: one lock. Arguments: holder, ttl.
    Renew,
    /// Keys: lock, queue, timeouts, fence. Arguments: holder, place, lease, not_after, waits, channel.
    FairAcquire,
    /// Keys: lock, waiting list, fence. Arguments: holder, lease, not_after, counted, channel, spare.
    ListedAcquire,
    /// Keys: lock, waiting list, fence. Arguments: holder, channel, round trip, run id, next holder and its date.
    ListedRelease,
}

impl Op {
    /// Returns whether a request calls this script for one lock.
    pub fn is(self, args: &[&[u8]]) -> bool {
        // The number of keys, that of all words, and whether the second argument is the channel of a lock.
        let (keys, words, has_channel) = match self {
            Op::Acquire => (2, 9, false),
            Op::Release => (1, 6, true),
            Op::HandOver => (2, 11, false),
            Op::Renew => (1, 6, false),
            Op::FairAcquire => (4, 13, false),
            Op::ListedAcquire => (3, 12, false),
            Op::ListedRelease => (3, 12, true),
        };
        args.len() == words
            && args[0] == b"EVALSHA"
            && args[2] == keys.to_string().as_bytes()
            && args[4 + keys].starts_with(b"redisson_lock__channel") == has_channel
    }

    /// Takes away the reply to the next call.
    pub fn lose_reply(self, proxy: &FaultProxy, then: Then) {
        proxy.lose_reply_to(move |args| self.is(args), then);
    }
}

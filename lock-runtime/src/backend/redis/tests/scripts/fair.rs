//! Tests of the fair lock's queue, beside Redisson's own steps.

use tokio::sync::mpsc::UnboundedReceiver;

use super::*;
use crate::backend::redis::kinds::fair::{FairAcquire, FairRelease};

pub(super) const TIMEOUTS: &str = "redisson_lock_timeout:{lock:k}";
const OURS: [&str; 4] = [
    "0a2b6a5e-0000-8000-8000-000000000001:1",
    "0a2b6a5e-0000-8000-8000-000000000001:2",
    "0a2b6a5e-0000-8000-8000-000000000001:3",
    "0a2b6a5e-0000-8000-8000-000000000001:4",
];
const JAVA: [&str; 2] = [
    "6f1c1a9e-0000-4000-8000-000000000001:71",
    "6f1c1a9e-0000-4000-8000-000000000001:72",
];

/// The steps that Redisson takes when it waits. Keys: lock, queue, timeouts. Arguments: lease, holder, wait, now.
const JAVA_ACQUIRE: &str = r"
local lock, queue, scores = KEYS[1], KEYS[2], KEYS[3]
local lease, me, wait, now = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local head = redis.call('LINDEX', queue, 0)
while head do
  local score = redis.call('ZSCORE', scores, head)
  if not score or tonumber(score) > now then
    break
  end
  redis.call('ZREM', scores, head)
  redis.call('LPOP', queue)
  head = redis.call('LINDEX', queue, 0)
end

if redis.call('EXISTS', lock) == 0 and (not head or head == me) then
  redis.call('LPOP', queue)
  redis.call('ZREM', scores, me)
  for _, waiter in ipairs(redis.call('ZRANGE', scores, 0, -1)) do
    redis.call('ZINCRBY', scores, -wait, waiter)
  end
  redis.call('HSET', lock, me, 1)
  redis.call('PEXPIRE', lock, lease)
  return false
end

if redis.call('ZSCORE', scores, me) then
  return math.max(0, redis.call('PTTL', lock))
end
local tail = redis.call('LINDEX', queue, -1)
local before = tail and tail ~= me and redis.call('ZSCORE', scores, tail)
local ttl = before and tonumber(before) - now or redis.call('PTTL', lock)
if redis.call('ZADD', scores, ttl + wait + now, me) == 1 then
  redis.call('RPUSH', queue, me)
end
return ttl
";

pub(super) fn fair_acquire(holder: &str) -> FairAcquire<'_> {
    FairAcquire {
        lock: LOCK,
        queue: QUEUE,
        timeouts: TIMEOUTS,
        fence: Some(FENCE),
        holder,
        place: holder,
        lease_ms: LEASE,
        not_after_us: FAR,
        waits: true,
        channel: CHANNEL,
    }
}

pub(super) fn fair_release(holder: &str) -> FairRelease<'_> {
    FairRelease {
        lock: LOCK,
        queue: QUEUE,
        timeouts: TIMEOUTS,
        holder,
        channel: CHANNEL,
    }
}

impl ScriptBench {
    async fn ask(&self, holder: &str) -> AcquireReply {
        self.call(fair_acquire(holder)).await.unwrap()
    }

    async fn is_granted(&self, holder: &str) -> bool {
        matches!(self.ask(holder).await, AcquireReply::Granted { .. })
    }

    async fn is_first(&self, holder: &str) -> bool {
        match self.ask(holder).await {
            AcquireReply::Busy {
                first: Some(first), ..
            } => first,
            other => panic!("{other:?}"),
        }
    }

    async fn leave(&self, holder: &str) -> bool {
        let reply = self.call(fair_release(holder)).await.unwrap();
        reply == DONE
    }

    async fn listen(&self) -> UnboundedReceiver<(String, String)> {
        let channels = OURS.map(|holder| format!("{CHANNEL}:{holder}"));
        self.server
            .listen(&channels.each_ref().map(String::as_str))
            .await
    }

    async fn line(&self) -> Vec<String> {
        match self.run(&format!("LRANGE {QUEUE} 0 -1")).await {
            Value::Array(items) => items
                .into_iter()
                .map(|item| reply::text(item).unwrap())
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the time for which a waiter counts as alive, in ms from now.
    async fn life(&self, holder: &str) -> i64 {
        let score = self.text(&format!("ZSCORE {TIMEOUTS} {holder}")).await;
        let score: f64 = score.unwrap().parse().unwrap();
        score as i64 - self.server.time().await as i64 / 1_000
    }

    async fn set_life(&self, holder: &str, millis: i64) {
        let score = self.server.time().await as i64 / 1_000 + millis;
        self.run(&format!("ZADD {TIMEOUTS} XX {score} {holder}"))
            .await;
    }

    /// Runs Redisson's steps. Returns `true` if they acquired the lock.
    async fn java(&self, holder: &str, wait: u64) -> bool {
        let now = self.server.time().await / 1_000;
        let mut command = redis::cmd("EVAL");
        command.arg(JAVA_ACQUIRE).arg(3);
        command.arg(LOCK).arg(QUEUE).arg(TIMEOUTS);
        command.arg(LEASE).arg(holder).arg(wait).arg(now);
        let reply = server::run(&mut self.connection.clone(), command).await;
        reply.unwrap() == Value::Nil
    }
}

#[tokio::test]
async fn waiters_are_served_in_the_order_of_their_first_question() {
    let bench = ScriptBench::new().await;
    let [a, b, c, d] = OURS;
    assert!(bench.is_granted(a).await);
    assert!(bench.is_first(b).await);
    assert!(!bench.is_first(c).await);
    assert!(!bench.is_first(d).await && !bench.is_first(c).await);
    assert_eq!(bench.line().await, [b, c, d]);
    assert!(bench.leave(a).await);
    assert!(!bench.is_first(c).await, "the lock is free, and b is first");
    assert!(bench.is_granted(b).await);
    assert!(bench.is_granted(b).await, "a second copy");
    assert!(bench.is_first(c).await);
    assert_eq!(bench.line().await, [c, d]);
    assert_eq!(bench.text(&format!("HGET {LOCK} {b}")).await.unwrap(), "1");
}

#[tokio::test]
async fn a_try_is_refused_while_others_queue_and_leaves_no_trace() {
    let bench = ScriptBench::new().await;
    let [a, b, c, _] = OURS;
    assert!(bench.is_granted(a).await);
    assert!(bench.is_first(b).await);
    let attempt = || FairAcquire {
        waits: false,
        ..fair_acquire(c)
    };
    for _ in 0..2 {
        let busy = bench.call(attempt()).await.unwrap();
        assert!(
            matches!(busy, AcquireReply::Busy { first: None, .. }),
            "{busy:?}"
        );
        assert_eq!(bench.line().await, [b]);
        bench.leave(a).await;
    }
    bench.leave(b).await;
    let granted = bench.call(attempt()).await.unwrap();
    assert!(matches!(granted, AcquireReply::Granted { .. }));
}

#[tokio::test]
async fn a_leaving_waiter_removes_its_own_place_once() {
    let bench = ScriptBench::new().await;
    let [a, b, c, d] = OURS;
    for holder in OURS {
        bench.ask(holder).await;
    }
    assert!(bench.leave(c).await, "from the middle");
    assert_eq!(bench.line().await, [b, d]);
    assert!(!bench.leave(c).await);
    assert!(bench.leave(a).await);
    assert!(!bench.leave(a).await);
    assert_eq!(bench.line().await, [b, d]);
    assert!(bench.leave(d).await && bench.leave(b).await);
    let keys = bench.run("KEYS redisson*").await;
    assert_eq!(keys, Value::Array(vec![]), "an empty queue is no key");
}

#[tokio::test]
async fn only_the_first_waiter_is_woken_and_only_for_a_free_lock() {
    let bench = ScriptBench::new().await;
    let [a, b, c, d] = OURS;
    for holder in OURS {
        bench.ask(holder).await;
    }
    let mut heard = bench.listen().await;
    bench.leave(c).await;
    bench.leave(b).await;
    bench.run(&format!("PUBLISH {CHANNEL}:{c} marker")).await;
    assert_eq!(heard.recv().await.unwrap().1, "marker", "it is held");
    bench.leave(a).await;
    assert_eq!(
        heard.recv().await.unwrap(),
        (format!("{CHANNEL}:{d}"), "0".into())
    );
    bench.ask(a).await;
    bench.leave(d).await;
    assert_eq!(
        heard.recv().await.unwrap().0,
        format!("{CHANNEL}:{a}"),
        "the first has left"
    );
}

#[tokio::test]
async fn a_dead_waiter_is_skipped_and_the_next_one_woken() {
    let bench = ScriptBench::new().await;
    let [a, b, c, d] = OURS;
    for holder in OURS {
        bench.ask(holder).await;
    }
    let mut heard = bench.listen().await;
    for holder in [b, c] {
        let life = bench.life(holder).await;
        assert!((1_000..=5_000).contains(&life), "{life}");
        bench.set_life(holder, -1).await;
    }
    bench.leave(a).await;
    assert_eq!(heard.recv().await.unwrap().0, format!("{CHANNEL}:{d}"));
    assert_eq!(bench.line().await, [d]);
    // The next request finds that d is dead, too, and that there is no other waiter.
    bench.set_life(d, -1).await;
    assert!(bench.is_granted(a).await);
}

#[tokio::test]
async fn a_question_that_removes_a_dead_head_wakes_the_next() {
    let bench = ScriptBench::new().await;
    let [a, b, c, d] = OURS;
    for holder in OURS {
        bench.ask(holder).await;
    }
    bench.leave(a).await;
    let mut heard = bench.listen().await;
    bench.set_life(b, -1).await;
    assert!(!bench.is_first(d).await);
    assert_eq!(heard.recv().await.unwrap().0, format!("{CHANNEL}:{c}"));
    // A waiter that asks is alive, whatever its score is.
    bench.set_life(c, -1_000_000).await;
    assert!(bench.is_granted(c).await);
}

#[tokio::test]
async fn an_inspection_names_the_first_waiters() {
    let bench = ScriptBench::new().await;
    bench.run(&format!("HSET {LOCK} a:1 1")).await;
    let seen = async || bench.call(inspect()).await.unwrap().unwrap();
    assert!(seen().await.first_waiters.is_empty());
    let long = "x".repeat(10_000);
    bench.run(&format!("RPUSH {QUEUE} b:1 {long}")).await;
    for waiter in 0..30 {
        bench.run(&format!("RPUSH {QUEUE} c:{waiter}")).await;
    }
    let seen = seen().await;
    assert_eq!((seen.queued, seen.first_waiters.len()), (32, FIRST_WAITERS));
    let cut = &long[..64];
    assert_eq!(seen.first_waiters[..3], ["b:1", cut, "c:0"]);
}

#[tokio::test]
async fn a_queue_that_lost_half_of_its_data_is_repaired() {
    let bench = ScriptBench::new().await;
    let [_, b, c, d] = OURS;
    for holder in OURS {
        bench.ask(holder).await;
    }
    bench.run(&format!("DEL {TIMEOUTS}")).await;
    for holder in [d, b, c] {
        bench.ask(holder).await;
    }
    assert_eq!(bench.line().await, [b, c, d], "no waiter is in it twice");
    bench.run(&format!("DEL {QUEUE}")).await;
    for holder in [b, c, d] {
        bench.ask(holder).await;
    }
    assert_eq!(bench.line().await, [b, c, d]);
    bench.run(&format!("ZREM {TIMEOUTS} {b}")).await;
    bench.ask(d).await;
    assert!(bench.life(b).await <= 5_000, "every head has an end");
}

#[tokio::test]
async fn keys_of_another_type_are_named_and_left_alone() {
    for (wrong, command) in [(QUEUE, "SET"), (TIMEOUTS, "SET")] {
        let bench = ScriptBench::new().await;
        bench.run(&format!("{command} {wrong} v")).await;
        let answer = bench.call(fair_acquire("a")).await;
        assert!(is_foreign(answer, wrong), "{wrong}");
        assert_eq!(bench.integer(&format!("EXISTS {LOCK} {FENCE}")).await, 0);
        bench.run(&format!("HSET {LOCK} a 1")).await;
        assert!(bench.leave("a").await, "a hold is given back all the same");
    }
}

#[tokio::test]
async fn java_and_our_waiters_keep_the_order_in_which_they_came() {
    for order in 0..4 {
        let bench = ScriptBench::new().await;
        bench.ask(OURS[0]).await;
        let mixed = match order {
            0 => [OURS[1], JAVA[0], OURS[2], JAVA[1], OURS[3]],
            1 => [JAVA[0], OURS[1], JAVA[1], OURS[2], OURS[3]],
            2 => [JAVA[0], JAVA[1], OURS[1], OURS[2], OURS[3]],
            _ => [OURS[1], OURS[2], JAVA[0], JAVA[1], OURS[3]],
        };
        let is_java = |holder: &str| JAVA.contains(&holder);
        for holder in mixed {
            let granted = if is_java(holder) {
                bench.java(holder, 300_000).await
            } else {
                bench.is_granted(holder).await
            };
            assert!(!granted);
        }
        assert_eq!(bench.line().await, mixed);
        let mut last = OURS[0];
        for (served, holder) in mixed.into_iter().enumerate() {
            // A Java hold ends like this: the lock is deleted, and the head gets a message if it is not dead.
            if is_java(last) {
                bench.run(&format!("DEL {LOCK}")).await;
            } else {
                bench.leave(last).await;
            }
            for behind in &mixed[served + 1..] {
                let jumped = if is_java(behind) {
                    bench.java(behind, 300_000).await
                } else {
                    bench.is_granted(behind).await
                };
                assert!(!jumped, "order {order}: {behind} before {holder}");
            }
            let granted = if is_java(holder) {
                bench.java(holder, 300_000).await
            } else {
                bench.is_granted(holder).await
            };
            assert!(
                granted,
                "order {order}: {holder}, of {:?}",
                bench.line().await
            );
            last = holder;
        }
    }
}

#[tokio::test]
async fn our_waiters_behind_a_java_waiter_survive_its_subtraction() {
    let bench = ScriptBench::new().await;
    let [a, b, c, d] = OURS;
    bench.ask(a).await;
    assert!(!bench.java(JAVA[0], 300_000).await);
    bench.ask(b).await;
    bench.ask(c).await;
    assert!(bench.life(b).await > 300_000);
    bench.leave(a).await;
    assert!(bench.java(JAVA[0], 300_000).await);
    for holder in [b, c] {
        assert!(bench.life(holder).await > 0, "{holder}");
    }
    // b is dead, and is the head now. The next waiter that asks gives it the usual life.
    bench.ask(c).await;
    assert!(bench.life(b).await <= 5_000);
    assert!(bench.life(c).await <= 5_000, "no Java waiter is before it");
    bench.ask(d).await;
    assert!(bench.life(d).await <= 5_000);
}

#[tokio::test]
async fn a_try_that_removes_a_dead_head_wakes_the_next_waiter() {
    let bench = ScriptBench::new().await;
    let [a, b, c, d] = OURS;
    for holder in [a, b, c] {
        bench.ask(holder).await;
    }
    let mut received = bench.listen().await;
    bench.run(&format!("DEL {LOCK}")).await;
    bench.set_life(b, -1).await;
    let attempt = FairAcquire {
        waits: false,
        ..fair_acquire(d)
    };
    let busy = bench.call(attempt).await.unwrap();
    assert!(
        matches!(busy, AcquireReply::Busy { first: None, .. }),
        "{busy:?}"
    );
    assert_eq!(bench.line().await, [c]);
    let (channel, _) = received.recv().await.unwrap();
    assert_eq!(channel, format!("{CHANNEL}:{c}"));
}

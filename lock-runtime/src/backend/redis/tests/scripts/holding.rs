//! Tests of the steps of holders (release, hand over, renew), and of steps against them.

use super::*;
use crate::values::fence::SPARE_TOKENS;

#[tokio::test]
async fn a_release_deletes_publishes_and_repeats_harmlessly() {
    let bench = ScriptBench::new().await;
    let mut messages = bench.server.listen(&[CHANNEL]).await;
    bench.acquire("a").await;
    let other = bench.call(release("b")).await.unwrap();
    assert_eq!(other.done.released, Released::NotHeld);
    assert_eq!(bench.call(release("a")).await.unwrap(), received_by(1));
    assert_eq!(bench.integer("EXISTS lock:k").await, 0);
    assert_eq!(
        messages.recv().await.unwrap(),
        (CHANNEL.to_owned(), "0".to_owned())
    );
    let before = bench.server.time().await;
    let again = bench.call(release("a")).await.unwrap();
    assert_eq!(again.done.released, Released::NotHeld);
    assert!(again.done.time >= before);
    bench.acquire("next").await;
    let late = bench.call(release("a")).await.unwrap();
    assert_eq!(late.done.released, Released::NotHeld);
    assert_eq!(bench.integer("HEXISTS lock:k next").await, 1);
    assert!(messages.try_recv().is_err(), "nothing was released");
}

#[tokio::test]
async fn a_hand_over_moves_the_lock_once_and_never_acquires() {
    let bench = ScriptBench::new().await;
    assert!(bench.call(hand_over("a", "b")).await.unwrap().is_none());
    let first = bench.token("a").await;
    let mut tokens = vec![first];
    // The second request is a copy of the first.
    for _ in 0..2 {
        let answer = bench
            .call(HandOver {
                lease_ms: 10_000,
                spare: 7,
                ..hand_over("a", "b")
            })
            .await
            .unwrap();
        let (token, _, tenure) = answer.unwrap();
        tokens.extend([token.unwrap().get(), tenure.last.unwrap().get()]);
        assert_eq!(tenure.subscribers, Some(0));
        assert_eq!(bench.text("HGET lock:k b").await.as_deref(), Some("1"));
        assert_eq!(bench.integer("HLEN lock:k").await, 1);
        let left = bench.integer("PTTL lock:k").await;
        assert!(
            (1..=10_000).contains(&left),
            "the lease is that of the new holder"
        );
    }
    assert!(tokens.is_sorted_by(|a, b| a < b));
    bench
        .call(HandOver {
            lease_ms: 1_000,
            ..hand_over("a", "b")
        })
        .await
        .unwrap();
    assert!(
        bench.integer("PTTL lock:k").await > 1_000,
        "a copy never shortens"
    );
    bench.call(hand_over("b", "c")).await.unwrap();
    assert!(bench.call(hand_over("a", "b")).await.unwrap().is_none());
    assert_eq!(bench.integer("HEXISTS lock:k c").await, 1);
}

#[tokio::test]
async fn a_hand_over_counts_listeners_if_it_has_the_right() {
    let bench = ScriptBench::new().await;
    let _one = bench.server.listen(&[CHANNEL]).await;
    let _other = bench.server.listen(&["elsewhere"]).await;
    bench.acquire("a").await;
    let answer = bench.call(hand_over("a", "b")).await.unwrap();
    let (.., tenure) = answer.unwrap();
    assert_eq!(tenure.subscribers, Some(1));
    let mut limited = bench.user("-pubsub").await;
    let answer = run(&mut limited, &hand_over("b", "c")).await.unwrap();
    let (.., tenure) = answer.unwrap();
    assert_eq!(tenure.subscribers, None);
}

#[tokio::test]
async fn a_mark_writes_the_hold_as_it_is_and_a_check_writes_nothing() {
    let bench = ScriptBench::new().await;
    bench.acquire("a").await;
    bench.run("SET lock:text v").await;
    let state = async || {
        (
            bench.run("HGETALL lock:k").await,
            bench.run("PEXPIRETIME lock:k").await,
        )
    };
    let before = state().await;
    for (ttl, writes) in [(LOOK, false), (MARK, true), (MARK, true)] {
        let changes = bench.changes().await;
        let items = renewals(&[
            (LOCK, "a", ttl),
            (LOCK, "b", ttl),
            ("lock:text", "a", ttl),
            ("lock:none", "a", ttl),
        ]);
        let answers = bench.call(Renew { items: &items }).await.unwrap();
        let none = Renewed::NotHeld;
        assert_eq!(answers, [Renewed::Held, none, none, none]);
        assert_eq!(bench.changes().await > changes, writes);
        assert_eq!(state().await, before);
        assert_eq!(bench.integer("EXISTS lock:none").await, 0);
    }
    let items = renewals(&[(LOCK, "a", -90_000)]);
    bench.call(Renew { items: &items }).await.unwrap();
    assert!(bench.integer("PTTL lock:k").await > 80_000, "extended");
    // This is a write even if the lease is already longer.
    let before = state().await;
    let changes = bench.changes().await;
    let items = renewals(&[(LOCK, "a", -1_000)]);
    bench.call(Renew { items: &items }).await.unwrap();
    assert!(bench.changes().await > changes);
    assert_eq!(state().await, before);
}

#[tokio::test]
async fn a_renewal_extends_its_own_hold_or_only_checks_it() {
    let bench = ScriptBench::new().await;
    bench.acquire("a").await;
    bench.run("HSET lock:java uuid:1 3").await;
    bench.run("PEXPIRE lock:java 5000").await;
    bench.run("SET lock:text v").await;
    let items = renewals(&[
        (LOCK, "a", 90_000),
        (LOCK, "a", 1_000),
        (LOCK, "a", 0),
        (LOCK, "b", 90_000),
        ("lock:java", "a", 90_000),
        ("lock:text", "a", 90_000),
        ("lock:none", "a", 90_000),
    ]);
    let answers = bench.call(Renew { items: &items }).await.unwrap();
    let held = answers
        .iter()
        .map(|answer| *answer == Renewed::Held)
        .collect::<Vec<_>>();
    assert_eq!(held, [true, true, true, false, false, false, false]);
    assert!(
        bench.integer("PTTL lock:k").await > 80_000,
        "never shortened"
    );
    assert!(bench.integer("PTTL lock:java").await <= 5_000);
    assert_eq!(bench.integer("EXISTS lock:none").await, 0);
    bench.run("PERSIST lock:k").await;
    bench.call(Renew { items: &items[..1] }).await.unwrap();
    assert!(bench.integer("PTTL lock:k").await > 0, "a TTL always");
}

#[tokio::test]
async fn a_forced_release_notifies_waiters_and_the_holder() {
    let bench = ScriptBench::new().await;
    let mut messages = bench.server.listen(&[CHANNEL, CONTROL]).await;
    assert!(!bench.call(force()).await.unwrap().done.0);
    bench.run("HSET lock:k uuid:7 3").await;
    assert!(bench.call(force()).await.unwrap().done.0);
    assert_eq!(bench.integer("EXISTS lock:k").await, 0);
    let named = (CONTROL.to_owned(), names(&["uuid:7"]));
    assert_eq!(messages.recv().await.unwrap(), named);
    assert_eq!(
        messages.recv().await.unwrap(),
        (CHANNEL.to_owned(), "0".to_owned())
    );
    assert!(messages.try_recv().is_err());
}

#[tokio::test]
async fn an_inspection_sees_foreign_holders_and_writes_nothing() {
    let bench = ScriptBench::new().await;
    assert!(bench.call(inspect()).await.unwrap().is_none());
    bench.run("HSET lock:k uuid:7 3").await;
    let seen = bench.call(inspect()).await.unwrap().unwrap();
    assert_eq!(
        (seen.holder.as_deref(), seen.count, seen.left),
        (Some("uuid:7"), 3, None)
    );
    bench.run("PEXPIRE lock:k 5000").await;
    let seen = bench.call(inspect()).await.unwrap().unwrap();
    assert!(seen.left.is_some_and(|left| left <= Duration::from_secs(5)));
}

#[tokio::test]
async fn a_hand_over_reserves_tokens_unless_the_fence_is_ahead() {
    let bench = ScriptBench::new().await;
    bench.token("a").await;
    let mut from = "a".to_owned();
    for (step, (ahead, set_aside)) in [(0, 1_900), (5_000_000, 0)].into_iter().enumerate() {
        let fence = bench.server.time().await + ahead;
        bench.run(&format!("SET {FENCE} {fence}")).await;
        let to = format!("b{step}");
        let script = HandOver {
            spare: SPARE_TOKENS,
            ..hand_over(&from, &to)
        };
        let answer = bench.call(script).await.unwrap();
        let (token, time, tenure) = answer.unwrap();
        let (token, last) = (token.unwrap(), tenure.last.unwrap());
        assert_eq!(last.get() - token.get().max(time), set_aside);
        assert_eq!(
            bench.text(&format!("GET {FENCE}")).await,
            Some(last.to_string())
        );
        from = to;
    }
}

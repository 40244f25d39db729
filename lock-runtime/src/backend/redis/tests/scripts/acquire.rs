//! Tests of acquires that are granted, busy, too late or at a foreign key, and of their tokens.

use super::*;

#[tokio::test]
async fn an_acquire_is_granted_once_and_busy_for_others() {
    let bench = ScriptBench::new().await;
    let before = bench.server.time().await;
    let AcquireReply::Granted { token, time, .. } = bench.acquire("a").await else {
        panic!()
    };
    assert!(time >= before && token.unwrap().get() >= time);
    assert_eq!(bench.text("HGET lock:k a").await.as_deref(), Some("1"));
    let left = bench.integer("PTTL lock:k").await;
    assert!((LEASE as i64 - 5_000..=LEASE as i64).contains(&left));
    let AcquireReply::Busy { left, .. } = bench.acquire("b").await else {
        panic!()
    };
    assert!(left.unwrap() <= Duration::from_millis(LEASE));
    assert_eq!(bench.integer("HLEN lock:k").await, 1);
}

#[tokio::test]
async fn a_second_copy_of_an_acquire_never_shortens_the_lease() {
    let bench = ScriptBench::new().await;
    let first = bench.token("a").await;
    let copy = Acquire {
        lease_ms: 1_000,
        ..acquire("a")
    };
    let AcquireReply::Granted { token, .. } = bench.call(copy).await.unwrap() else {
        panic!()
    };
    assert!(token.unwrap().get() > first);
    assert_eq!(bench.text("HGET lock:k a").await.as_deref(), Some("1"));
    assert!(bench.integer("PTTL lock:k").await > 20_000);
    bench.run("PERSIST lock:k").await;
    bench.acquire("a").await;
    assert!(bench.integer("PTTL lock:k").await > 0, "a TTL always");
}

#[tokio::test]
async fn an_acquire_that_comes_too_late_is_refused_and_leaves_nothing() {
    let bench = ScriptBench::new().await;
    let now = bench.server.time().await;
    for not_after in [0, now - 1] {
        let late = Acquire {
            not_after_us: not_after,
            ..acquire("a")
        };
        let AcquireReply::Stale { time } = bench.call(late).await.unwrap() else {
            panic!()
        };
        assert!(time >= now);
    }
    bench.acquire("a").await;
    let late = Acquire {
        not_after_us: now,
        lease_ms: 90_000,
        ..acquire("a")
    };
    assert!(matches!(
        bench.call(late).await.unwrap(),
        AcquireReply::Stale { .. }
    ));
    assert!(bench.integer("PTTL lock:k").await <= LEASE as i64);
}

#[tokio::test]
async fn a_lease_out_of_range_is_refused_before_the_first_write() {
    let bench = ScriptBench::new().await;
    for lease in [
        "0",
        "-1",
        "-86400001",
        "1.5",
        "abc",
        "",
        "nan",
        "inf",
        "-inf",
        "1e300",
        "86400001",
        "99999999999999999999",
    ] {
        for (source, keys, arguments) in [
            (
                Acquire::source(),
                &[LOCK, FENCE][..],
                vec!["a", lease, "9007199254740991"],
            ),
            (
                HandOver::source(),
                &[LOCK, FENCE],
                vec!["a", "b", lease, CHANNEL],
            ),
            (Renew::source(), &[LOCK], vec!["a", lease]),
        ] {
            // These values check and mark.
            if source.name == "renew" && ["0", "-1"].contains(&lease) {
                continue;
            }
            let answer = bench.raw(source, keys, &arguments).await;
            assert!(answer.is_err(), "{}: {lease}", source.name);
        }
    }
    assert_eq!(bench.integer("DBSIZE").await, 0);
    let odd = bench
        .raw(
            Acquire::source(),
            &[LOCK],
            &["a", "5e3", "9007199254740991"],
        )
        .await;
    assert!(odd.is_ok());
    assert!(bench.integer("PTTL lock:k").await > 0);
}

#[tokio::test]
async fn a_key_that_is_something_else_is_named_and_left_alone() {
    let bench = ScriptBench::new().await;
    for make in [
        "SET lock:k v",
        "RPUSH lock:k v",
        "HSET lock:k mode write x 1",
        "ZADD lock:k 1 v",
    ] {
        bench.run("DEL lock:k").await;
        bench.run(make).await;
        let before = bench.run("DUMP lock:k").await;
        assert!(is_foreign(bench.call(acquire("a")).await, LOCK), "{make}");
        assert!(is_foreign(bench.call(force()).await, LOCK), "{make}");
        assert!(is_foreign(bench.call(inspect()).await, LOCK), "{make}");
        let released = bench.call(release("a")).await.unwrap().done.released;
        assert_eq!(released, Released::NotHeld);
        assert!(bench.call(hand_over("a", "b")).await.unwrap().is_none());
        let renew = renewals(&[(LOCK, "a", 1_000)]);
        assert_eq!(
            bench.call(Renew { items: &renew }).await.unwrap(),
            [Renewed::NotHeld]
        );
        assert_eq!(bench.run("DUMP lock:k").await, before, "{make}");
    }
    assert_eq!(bench.integer("EXISTS lock:fence:{1}").await, 0);
    bench.run("DEL lock:k").await;
    bench.run("HSET lock:k field text").await;
    assert!(is_foreign(bench.call(force()).await, LOCK));
    assert!(is_foreign(bench.call(inspect()).await, LOCK));
}

#[tokio::test]
async fn a_fence_that_is_no_number_is_named_before_any_write() {
    let bench = ScriptBench::new().await;
    bench.acquire("holder").await;
    let before = bench.run("DUMP lock:k").await;
    for value in [
        "abc",
        "-1",
        "1.5",
        "1e3",
        "0x10",
        "9007199254740991",
        "9007199254740992",
        "00000000000000001",
    ] {
        bench.run(&format!("SET {FENCE} {value}")).await;
        assert!(
            is_foreign(bench.call(acquire("other")).await, FENCE),
            "{value}"
        );
        assert!(
            is_foreign(bench.call(acquire("holder")).await, FENCE),
            "{value}"
        );
        assert!(
            is_foreign(bench.call(hand_over("holder", "b")).await, FENCE),
            "{value}"
        );
        assert_eq!(
            bench.text(&format!("GET {FENCE}")).await.as_deref(),
            Some(value)
        );
    }
    bench.run(&format!("DEL {FENCE}")).await;
    bench.run(&format!("RPUSH {FENCE} 1")).await;
    assert!(is_foreign(bench.call(acquire("other")).await, FENCE));
    assert_eq!(bench.run("DUMP lock:k").await, before);
    bench.run("DEL lock:k").await;
    assert!(is_foreign(bench.call(acquire("other")).await, FENCE));
    assert_eq!(bench.integer("EXISTS lock:k").await, 0);
    let unfenced = Acquire {
        fence: None,
        ..acquire("other")
    };
    let granted = bench.call(unfenced).await.unwrap();
    assert!(matches!(granted, AcquireReply::Granted { token: None, .. }));
}

#[tokio::test]
async fn tokens_of_sixteen_digits_are_exact_and_never_repeat() {
    let bench = ScriptBench::new().await;
    // The fence is far ahead of the clock, as after a failover to a server whose clock lags.
    bench.run(&format!("SET {FENCE} 9007199254740985")).await;
    for (step, expected) in (9_007_199_254_740_986_u64..=9_007_199_254_740_989).enumerate() {
        assert_eq!(bench.token(&format!("a{step}")).await, expected);
        let stored = bench.text(&format!("GET {FENCE}")).await;
        assert_eq!(stored, Some(expected.to_string()));
        bench.run("DEL lock:k").await;
    }
    bench.token("a").await;
    let handed = bench.call(hand_over("a", "b")).await.unwrap();
    let (token, _, tenure) = handed.unwrap();
    assert_eq!(token.unwrap().get(), 9_007_199_254_740_991);
    assert_eq!(tenure.last, token, "none is left to set aside");
    bench.run(&format!("DEL {FENCE} lock:k")).await;
    let now = bench.server.time().await;
    assert!(bench.token("a").await >= now, "by the clock again");
}

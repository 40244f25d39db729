//! Tests of the shared scripts: each key gets its own answer, and a key in an uncommon state is left alone.

use super::*;
use crate::values::holder::HolderIds;

fn acquires_as(names: &[&str], lease_ms: u64, fenced: bool) -> AcquireEach {
    let ids = HolderIds::new();
    let all = names.iter().map(|name| OneAcquire {
        key: Key::clone(&key(name)),
        holder: ids.fresh(),
        not_after_us: FAR,
    });
    AcquireEach {
        terms: AcquireTerms::new(lease_ms, fenced, CALL),
        all: all.collect(),
    }
}

pub(super) fn acquires(names: &[&str]) -> AcquireEach {
    acquires_as(names, LEASE, true)
}

pub(super) fn releases(names: &[&str]) -> ReleaseEach {
    let holder = HolderIds::new().fresh();
    let all = names.iter().map(|name| OneRelease {
        key: Key::clone(&key(name)),
        holder,
    });
    ReleaseEach {
        terms: (),
        all: all.collect(),
    }
}

fn shown(answers: &[Option<AcquireReply>]) -> Vec<&'static str> {
    let shown = answers.iter().map(|answer| match answer {
        Some(AcquireReply::Granted { token: Some(_), .. }) => "granted",
        Some(AcquireReply::Granted { token: None, .. }) => "granted without a token",
        Some(AcquireReply::Busy { left: None, .. }) => "busy for good",
        Some(AcquireReply::Busy { .. }) => "busy",
        None => "to be asked by itself",
        other => panic!("{other:?}"),
    });
    shown.collect()
}

#[tokio::test]
async fn each_of_many_acquires_has_its_own_answer() {
    let bench = ScriptBench::new().await;
    bench.run("HSET lock:busy other 1").await;
    bench.run("PEXPIRE lock:busy 5000").await;
    bench.run("HSET lock:forever other 1").await;
    bench.run("HSET lock:junk other junk").await;
    bench.run("HSET lock:several a 1 b 1").await;
    bench.run("SET lock:string x").await;
    for (fenced, taken) in [(true, "granted"), (false, "granted without a token")] {
        let free = format!("free-{fenced}");
        let names = [
            &*free, "busy", "forever", "junk", "several", "string", &free,
        ];
        let answers = bench.call(acquires_as(&names, LEASE, fenced)).await;
        assert_eq!(
            shown(&answers.unwrap()),
            [
                taken,
                "busy",
                "busy for good",
                "to be asked by itself",
                "to be asked by itself",
                "to be asked by itself",
                "busy",
            ]
        );
        let lock = format!("lock:{free}");
        assert_eq!(bench.integer(&format!("HLEN {lock}")).await, 1);
        assert!(bench.integer(&format!("PTTL {lock}")).await > 0);
    }
    assert_eq!(bench.text("GET lock:string").await.as_deref(), Some("x"));
}

#[tokio::test]
async fn many_free_locks_are_taken_with_the_time_as_their_token() {
    let bench = ScriptBench::new().await;
    for fenced in [true, false] {
        let answers = bench.call(acquires_as(&["k", "l"], LEASE, fenced)).await;
        for answer in answers.unwrap() {
            let Some(AcquireReply::Granted { token, time, .. }) = answer else {
                panic!("{answer:?}");
            };
            assert_eq!(token.map(|token| token.get()), fenced.then_some(time));
        }
        for name in ["k", "l"] {
            let left = bench.integer(&format!("PTTL lock:{name}")).await;
            assert!((1..=LEASE as i64).contains(&left), "{left}");
            if fenced {
                let fence = bench.text(&format!("GET {}", key(name).fence())).await;
                assert!(fence.is_some());
            }
        }
        bench.run("FLUSHALL").await;
    }
}

#[tokio::test]
async fn a_lock_that_two_of_a_script_want_is_given_to_one_of_them() {
    let bench = ScriptBench::new().await;
    let mut each = acquires(&["k", "l", "k"]);
    let first = each.all[0].holder.text();
    let answers = bench.call(each).await.unwrap();
    assert_eq!(
        shown(&answers),
        ["granted", "granted", "to be asked by itself"]
    );
    let held = bench.integer(&format!("HEXISTS lock:k {first}")).await;
    assert_eq!((held, bench.integer("HLEN lock:k").await), (1, 1));
    assert!(bench.integer("PTTL lock:k").await > 0);
    // The same request is in this batch twice.
    bench.run("FLUSHALL").await;
    each = acquires(&["k", "k"]);
    each.all[1].holder = each.all[0].holder;
    let answers = bench.call(each).await.unwrap();
    assert_eq!(shown(&answers), ["granted", "to be asked by itself"]);
    assert_eq!(bench.integer("HLEN lock:k").await, 1);
}

#[tokio::test]
async fn a_group_has_its_earliest_date_and_refuses_a_bad_lease() {
    let bench = ScriptBench::new().await;
    let mut late = acquires(&["k", "l"]);
    late.all[1].not_after_us = 1;
    for each in [
        late,
        acquires_as(&["k", "l"], 86_400_001, true),
        acquires_as(&["k", "l"], 0, true),
    ] {
        let answers = bench.call(each).await.unwrap();
        assert_eq!(shown(&answers), ["to be asked by itself"; 2]);
        assert_eq!(bench.integer("DBSIZE").await, 0);
    }
}

#[tokio::test]
async fn a_user_without_exists_still_acquires_free_locks() {
    let bench = ScriptBench::new().await;
    bench.run("HSET lock:busy other 1").await;
    let mut limited = bench.user("-exists").await;
    let answers = run(&mut limited, &acquires(&["k", "busy", "k"])).await;
    let busy = "busy for good";
    assert_eq!(shown(&answers.unwrap()), ["granted", busy, "busy"]);
    let refused = bench.run("ACL LOG").await;
    assert_eq!(refused, Value::Array(vec![]), "nothing is to be refused");
}

#[tokio::test]
async fn a_batch_that_comes_too_late_asks_for_no_right() {
    let bench = ScriptBench::new().await;
    // This counts the questions for rights that the script asks.
    const COUNTS: &str = "local redis = setmetatable({acl_check_cmd = function() return redis.call('INCR', 'asked') end}, \
         {__index = redis})";
    let (flags, script) = AcquireEach::source().text.split_once('\n').unwrap();
    let text = format!("{flags}\n{COUNTS}\n{script}");
    for (not_after, times) in [("1", None), (&*FAR.to_string(), Some("1"))] {
        let mut command = redis::cmd("EVAL");
        command.arg(&text).arg(2).arg("lock:k").arg("lock:l");
        command.arg(LEASE).arg(not_after).arg("a").arg("b");
        server::run(&mut bench.connection.clone(), command)
            .await
            .unwrap();
        let asked = bench.text("GET asked").await;
        assert_eq!(asked.as_deref(), times, "{not_after}");
    }
}

#[tokio::test]
async fn a_second_copy_of_many_acquires_is_left_to_their_own_script() {
    let bench = ScriptBench::new().await;
    let each = acquires(&["k", "l"]);
    let mut copy = acquires(&["k", "l"]);
    for (copy, first) in copy.all.iter_mut().zip(&each.all) {
        copy.holder = first.holder;
    }
    bench.call(each).await.unwrap();
    let again = bench.call(copy).await.unwrap();
    assert!(again.iter().all(Option::is_none), "{again:?}");
}

#[tokio::test]
async fn many_acquires_with_one_fence_have_rising_tokens() {
    let bench = ScriptBench::new().await;
    let fence = key("{tag}").fence();
    let ahead = bench.server.time().await + 60_000_000;
    for last in [
        "PING",
        &format!("SET {fence} 5"),
        &format!("SET {fence} {ahead}"),
    ] {
        bench.run("FLUSHALL").await;
        bench.run(last).await;
        let names: Vec<_> = (0..20).map(|i| format!("{{tag}}{i}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        // A fence in an uncommon state is left to the script for one key, and every token after it is larger than
        // before.
        let answers = bench.call(acquires(&names)).await.unwrap();
        let tokens: Vec<_> = answers
            .iter()
            .filter_map(|answer| match answer {
                Some(AcquireReply::Granted { token, .. }) => Some(token.unwrap().get()),
                _ => None,
            })
            .collect();
        assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
        assert_eq!(
            tokens.len(),
            if last.ends_with(" 5") { 0 } else { 20 },
            "{last}"
        );
        if last.ends_with(&ahead.to_string()) {
            assert_eq!(tokens[0], ahead + 1);
        }
    }
}

#[tokio::test]
async fn a_fence_that_holds_no_token_is_left_as_it_was() {
    let bench = ScriptBench::new().await;
    let fence = key("k").fence();
    for junk in [
        "5",
        "junk",
        "-234567890123456",
        "1e3.567890123456",
        "9007199254740991",
    ] {
        bench.run("FLUSHALL").await;
        bench.run(&format!("SET {fence} {junk}")).await;
        // A token in one fence says nothing about the next fence.
        let other = key("other").fence();
        bench.run(&format!("SET {other} 1500000000000000")).await;
        let answers = bench.call(acquires(&["other", "k"])).await.unwrap();
        assert_eq!(
            shown(&answers),
            ["granted", "to be asked by itself"],
            "{junk}"
        );
        let left = bench.text(&format!("GET {fence}")).await;
        assert_eq!(left.as_deref(), Some(junk));
        assert_eq!(bench.integer("EXISTS lock:k").await, 0, "{junk}");
    }
    bench.run(&format!("DEL {fence}")).await;
    bench.run(&format!("LPUSH {fence} x")).await;
    let answers = bench.call(acquires(&["k"])).await.unwrap();
    assert!(answers[0].is_none(), "{answers:?}");
    assert_eq!(bench.integer("EXISTS lock:k").await, 0);
}

#[tokio::test]
async fn each_of_many_releases_has_its_own_answer() {
    let bench = ScriptBench::new().await;
    bench.run("SET lock:string x").await;
    bench.run("HSET lock:other other 1").await;
    let each = releases(&["held", "free", "other", "string", "held-too"]);
    let holder = each.all[0].holder.text();
    for name in ["held", "held-too"] {
        bench.run(&format!("HSET lock:{name} {holder} 1")).await;
    }
    let answers = bench.call(each).await.unwrap();
    assert_eq!(answers, [Some(DONE), None, None, None, Some(DONE)]);
    assert_eq!(bench.integer("EXISTS lock:held").await, 0);
    assert_eq!(bench.integer("EXISTS lock:other").await, 1);
}

#[tokio::test]
async fn a_refused_command_fails_one_request_of_a_group() {
    let bench = ScriptBench::new().await;
    for command in ["get", "hlen", "set", "hset", "pexpire", "hgetall", "pttl"] {
        bench.run("FLUSHALL").await;
        bench.run("HSET lock:busy other 1").await;
        let mut limited = bench.user(&format!("-{command}")).await;
        let answers = run(&mut limited, &acquires(&["free", "busy"]))
            .await
            .unwrap();
        assert!(
            answers.iter().any(Option::is_none),
            "{command}: {answers:?}"
        );
        let free = matches!(answers[0], Some(AcquireReply::Granted { .. }));
        let held = bench.integer("EXISTS lock:free").await == 1;
        assert_eq!(free, held, "{command}: {answers:?}");
    }
    let mut limited = bench.user("+pexpire -publish").await;
    let each = releases(&["k"]);
    bench
        .run(&format!("HSET lock:k {} 1", each.all[0].holder.text()))
        .await;
    let answers = run(&mut limited, &each).await.unwrap();
    assert_eq!(answers, [Some(unpublished(&[(CHANNEL, "0")]))]);
}

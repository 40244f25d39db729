//! The scripts of many: each key is answered by itself, and what is not as usual is left alone.

use super::*;
use crate::values::holder::HolderIds;

fn acquire_of(name: &str) -> OneAcquire {
    let key = key(name);
    OneAcquire {
        lock: key.raw().into(),
        fence: Some(key.fence()),
        holder: HolderIds::new().fresh(),
        lease_ms: LEASE,
        not_after_us: FAR,
    }
}

pub(super) fn acquires(names: &[&str]) -> Each<OneAcquire> {
    Each(names.iter().map(|name| acquire_of(name)).collect())
}

fn release_of(name: &str, holder: HolderId) -> OneRelease {
    OneRelease {
        lock: key(name).raw().into(),
        holder,
        channel: format!("redisson_lock__channel:{{lock:{name}}}"),
    }
}

pub(super) fn releases(names: &[&str]) -> Each<OneRelease> {
    let holder = HolderIds::new().fresh();
    Each(names.iter().map(|name| release_of(name, holder)).collect())
}

#[tokio::test]
async fn each_of_many_acquires_has_its_own_answer() {
    let bench = Bench::new().await;
    bench.run("HSET lock:busy other 1").await;
    bench.run("PEXPIRE lock:busy 5000").await;
    bench.run("HSET lock:forever other 1").await;
    bench.run("HSET lock:junk other junk").await;
    bench.run("HSET lock:several a 1 b 1").await;
    bench.run("SET lock:string x").await;
    let mut each = acquires(&[
        "free", "busy", "forever", "junk", "several", "string", "late", "unfenced", "long",
        "free-too",
    ]);
    each.0[6].not_after_us = 1;
    each.0[7].fence = None;
    each.0[8].lease_ms = 86_400_001;
    let answers = bench.call(each).await.unwrap();
    let shown: Vec<_> = answers
        .iter()
        .map(|answer| match answer {
            Some(AcquireReply::Granted { token: Some(_), .. }) => "granted",
            Some(AcquireReply::Granted { token: None, .. }) => "granted without a token",
            Some(AcquireReply::Busy { left: None, .. }) => "busy for good",
            Some(AcquireReply::Busy { .. }) => "busy",
            None => "to be asked by itself",
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        shown,
        [
            "granted",
            "busy",
            "busy for good",
            "to be asked by itself",
            "to be asked by itself",
            "to be asked by itself",
            "to be asked by itself",
            "granted without a token",
            "to be asked by itself",
            "granted",
        ]
    );
    for (name, fields) in [("free", 1), ("late", 0), ("unfenced", 1), ("long", 0)] {
        let found = bench.server.integer(&format!("HLEN lock:{name}")).await;
        assert_eq!(found, fields, "{name}");
    }
    assert_eq!(bench.text("GET lock:string").await.as_deref(), Some("x"));
    assert!(bench.server.integer("PTTL lock:unfenced").await > 0);
}

#[tokio::test]
async fn a_second_copy_of_many_acquires_is_left_to_their_own_script() {
    let bench = Bench::new().await;
    let each = acquires(&["k", "l"]);
    let mut copy = acquires(&["k", "l"]);
    for (copy, first) in copy.0.iter_mut().zip(&each.0) {
        copy.holder = first.holder;
    }
    bench.call(each).await.unwrap();
    let again = bench.call(copy).await.unwrap();
    assert!(again.iter().all(Option::is_none), "{again:?}");
}

#[tokio::test]
async fn many_acquires_with_one_fence_have_rising_tokens() {
    let bench = Bench::new().await;
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
        // What is no usual fence is left to the script of one, and every token after it is larger than before.
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
    let bench = Bench::new().await;
    let fence = key("k").fence();
    for junk in [
        "5",
        "junk",
        "-234567890123456",
        "1e3.567890123456",
        "9007199254740991",
    ] {
        bench.run(&format!("SET {fence} {junk}")).await;
        let answers = bench.call(acquires(&["k"])).await.unwrap();
        assert!(answers[0].is_none(), "{junk}: {answers:?}");
        let left = bench.text(&format!("GET {fence}")).await;
        assert_eq!(left.as_deref(), Some(junk));
        assert_eq!(bench.server.integer("EXISTS lock:k").await, 0, "{junk}");
    }
    bench.run(&format!("DEL {fence}")).await;
    bench.run(&format!("LPUSH {fence} x")).await;
    let answers = bench.call(acquires(&["k"])).await.unwrap();
    assert!(answers[0].is_none(), "{answers:?}");
    assert_eq!(bench.server.integer("EXISTS lock:k").await, 0);
}

#[tokio::test]
async fn each_of_many_releases_has_its_own_answer() {
    let bench = Bench::new().await;
    bench.run("SET lock:string x").await;
    bench.run("HSET lock:other other 1").await;
    let each = releases(&["held", "free", "other", "string", "held-too"]);
    let holder = each.0[0].holder.text();
    for name in ["held", "held-too"] {
        bench.run(&format!("HSET lock:{name} {holder} 1")).await;
    }
    let answers = bench.call(each).await.unwrap();
    assert_eq!(
        answers,
        [
            Some(ReleaseReply::Done),
            None,
            None,
            None,
            Some(ReleaseReply::Done)
        ]
    );
    assert_eq!(bench.server.integer("EXISTS lock:held").await, 0);
    assert_eq!(bench.server.integer("EXISTS lock:other").await, 1);
}

#[tokio::test]
async fn a_command_that_is_refused_to_one_of_many_is_no_error_of_all() {
    let bench = Bench::new().await;
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
        let held = bench.server.integer("EXISTS lock:free").await == 1;
        assert_eq!(free, held, "{command}: {answers:?}");
    }
    let mut limited = bench.user("+pexpire -publish").await;
    let each = releases(&["k"]);
    bench
        .run(&format!("HSET lock:k {} 1", each.0[0].holder.text()))
        .await;
    let answers = run(&mut limited, &each).await.unwrap();
    assert_eq!(answers, [Some(ReleaseReply::Unpublished)]);
}

//! Tests of malformed counts, holder ids that are not text, and fences without a token: every operation reports the
//! same error.

use super::fair::fair_acquire;
use super::read_write::ReadWriteKeys;
use super::*;
use crate::backend::redis::kinds::acquire_all::AcquireAll;
use crate::values::holder::HolderIds;

const JUNK: [&str; 9] = [
    "x",
    "0",
    "-1",
    "1.5",
    "01",
    "1e3",
    "nan",
    "9999999999999999",
    "99999999999999999999",
];

async fn leaves<T: std::fmt::Debug>(
    bench: &ScriptBench,
    what: &str,
    script: impl Script<Reply = T>,
) -> String {
    let before = bench.run("DUMP lock:k").await;
    let name = format!("{what}: {}", what_runs(&script));
    let Err(Fault::Foreign { key, why }) = bench.call(script).await else {
        panic!("{name} took it for a lock")
    };
    assert_eq!(key, LOCK, "{name}");
    assert_eq!(bench.run("DUMP lock:k").await, before, "{name}");
    why
}

fn what_runs<S: Script>(_: &S) -> &'static str {
    S::source().name
}

#[tokio::test]
async fn a_malformed_count_is_foreign_to_every_operation() {
    let bench = ScriptBench::new().await;
    let key = key("k");
    let requests = [request(&key, HolderIds::new().fresh(), LEASE)];
    for junk in JUNK {
        bench.run("DEL lock:k").await;
        bench.run(&format!("HSET lock:k uuid:7 {junk}")).await;
        let whys = [
            leaves(&bench, junk, acquire("a")).await,
            leaves(
                &bench,
                junk,
                AcquireAll {
                    requests: &requests,
                    sent_at: clock::now(),
                    not_after_us: FAR,
                },
            )
            .await,
            leaves(&bench, junk, fair_acquire("a")).await,
            leaves(&bench, junk, inspect()).await,
            leaves(&bench, junk, force()).await,
        ];
        assert!(whys.iter().all(|why| *why == whys[0]), "{whys:?}");
        for hash in [
            format!("mode read uuid:7 1 uuid:8 {junk}"),
            format!("mode write uuid:7:write {junk}"),
            format!("mode write uuid:7:write 1 uuid:7 {junk}"),
        ] {
            bench.run("DEL lock:k").await;
            bench.run(&format!("HSET lock:k {hash}")).await;
            bench.run("SET {lock:k}:uuid:7:rwlock_timeout:1 1").await;
            let rw = ReadWriteKeys::of("a");
            let whys = [
                leaves(&bench, &hash, rw.read()).await,
                leaves(&bench, &hash, rw.write()).await,
                leaves(&bench, &hash, inspect()).await,
                leaves(&bench, &hash, force()).await,
            ];
            assert!(whys.iter().all(|why| *why == whys[0]), "{whys:?}");
        }
    }
}

#[tokio::test]
async fn a_malformed_read_write_lock_is_foreign_to_every_operation() {
    let bench = ScriptBench::new().await;
    for hash in [
        "mode read",
        "mode write",
        "mode write uuid:7 1",
        "mode write uuid:7:write 1 uuid:8:write 1",
        "mode write uuid:7:write 1 uuid:8 1 uuid:9 1",
    ] {
        bench.run("DEL lock:k").await;
        bench.run(&format!("HSET lock:k {hash}")).await;
        let rw = ReadWriteKeys::of("a");
        leaves(&bench, hash, rw.read()).await;
        leaves(&bench, hash, rw.write()).await;
        leaves(&bench, hash, inspect()).await;
        leaves(&bench, hash, force()).await;
        leaves(&bench, hash, acquire("a")).await;
    }
}

#[tokio::test]
async fn a_large_count_is_seen_as_it_is() {
    let bench = ScriptBench::new().await;
    bench.run("HSET lock:k uuid:7 999999999999999").await;
    let seen = bench.call(inspect()).await.unwrap().unwrap();
    assert_eq!(seen.count, 999_999_999_999_999);
    assert!(matches!(
        bench.acquire("a").await,
        AcquireReply::Busy { .. }
    ));
}

#[tokio::test]
async fn a_holder_id_that_is_not_text_is_foreign_to_an_inspection() {
    let bench = ScriptBench::new().await;
    for mode in [&[][..], &["mode", "read"]] {
        let mut set = redis::cmd("HSET");
        set.arg(LOCK).arg(mode).arg(&[0xff_u8, 0xfe][..]).arg(1);
        let mut timeout = redis::cmd("SET");
        timeout
            .arg(&b"{lock:k}:\xff\xfe:rwlock_timeout:1"[..])
            .arg(1);
        for command in [set, timeout] {
            server::run(&mut bench.connection.clone(), command)
                .await
                .unwrap();
        }
        assert!(is_foreign(bench.call(inspect()).await, LOCK));
        assert!(bench.call(force()).await.unwrap().done.0);
    }
}

/// A message for a channel whose name is not text is left out of the reply, because it can have no listener.
#[tokio::test]
async fn a_waiter_id_that_is_not_text_does_not_spoil_a_forced_release() {
    let bench = ScriptBench::new().await;
    bench.acquire("a").await;
    let mut push = redis::cmd("RPUSH");
    push.arg(QUEUE).arg(&[0xff_u8][..]);
    server::run(&mut bench.connection.clone(), push)
        .await
        .unwrap();
    let mut limited = bench.user("-publish").await;
    let forced = run(&mut limited, &force()).await.unwrap();
    assert!(forced.done.0);
    assert_eq!(forced.unpublished.len(), 2, "{:?}", forced.unpublished);
}

#[tokio::test]
async fn the_error_of_a_bad_fence_says_how_to_mend_it() {
    let bench = ScriptBench::new().await;
    let own = "redisson_lock_token:{lock:k}";
    for (junk, shown) in [
        ("junk", "`junk`"),
        ("9007199254740991", "`9007199254740991`"),
        (&"x".repeat(1_000), &*format!("`{}`", "x".repeat(40))),
        ("\u{7}bell", "`\u{fffd}bell`"),
    ] {
        for (fence, counted, mend) in [
            (FENCE, false, "`DEL lock:fence:{1}`"),
            (own, true, "`SET redisson_lock_token:{lock:k}`"),
        ] {
            let mut set = redis::cmd("SET");
            set.arg(fence).arg(junk);
            server::run(&mut bench.connection.clone(), set)
                .await
                .unwrap();
            let request = Acquire {
                fence: Some(fence),
                counted,
                ..acquire("a")
            };
            let Err(Fault::Foreign { key, why }) = bench.call(request).await else {
                panic!("{junk:?} is no token")
            };
            assert_eq!(key, fence);
            assert!(why.contains(shown) && why.contains(mend), "{why}");
        }
    }
    // The remedy that the error names does help.
    bench.run("DEL lock:fence:{1}").await;
    let first = bench.token("a").await;
    bench.run(&format!("SET {own} 41")).await;
    let counted = Acquire {
        lock: "lock:f",
        fence: Some(own),
        counted: true,
        ..acquire("a")
    };
    let answer = bench.call(counted).await.unwrap();
    assert!(
        matches!(answer, AcquireReply::Granted { token: Some(token), .. } if token.get() == 42)
    );
    bench.run("LPUSH list 1").await;
    bench.run("RENAME list lock:fence:{1}").await;
    let Err(Fault::Foreign { why, .. }) = bench.call(acquire("b")).await else {
        panic!("a list is no token")
    };
    assert!(
        why.contains("no string") && why.contains("`DEL lock:fence:{1}`"),
        "{why}"
    );
    assert!(first > 0);
}

//! Tests of commands that a server refuses in the middle of a script, or altogether.

use super::*;

#[tokio::test]
async fn a_refused_publish_does_not_undo_the_release() {
    let bench = ScriptBench::new().await;
    for rules in ["-publish", "resetchannels"] {
        let mut limited = bench.user(rules).await;
        bench.acquire("a").await;
        let released = run(&mut limited, &release("a")).await.unwrap();
        assert_eq!(released, unpublished(&[(CHANNEL, "0")]), "{rules}");
        assert_eq!(bench.integer("EXISTS lock:k").await, 0);
        bench.acquire("a").await;
        let forced = run(&mut limited, &force()).await.unwrap();
        assert!(forced.done.0);
        let expected = [
            (CONTROL.to_owned(), names(&["a"])),
            (CHANNEL.to_owned(), "0".to_owned()),
        ];
        assert_eq!(forced.unpublished, expected);
    }
}

#[tokio::test]
async fn a_refused_write_leaves_no_lock_behind() {
    let bench = ScriptBench::new().await;
    for refused in ["pexpire", "hset", "set", "hlen", "time"] {
        let mut limited = bench.user(&format!("-{refused}")).await;
        let answer = run(&mut limited, &acquire("a")).await;
        assert!(
            matches!(&answer, Err(Fault::Denied(_))),
            "{refused}: {answer:?}"
        );
        assert_eq!(bench.integer("EXISTS lock:k").await, 0, "{refused}");
    }
    bench.acquire("a").await;
    for refused in ["pexpire", "hset", "set", "hexists", "get"] {
        let mut limited = bench.user(&format!("-{refused}")).await;
        let answer = run(&mut limited, &hand_over("a", "b")).await;
        assert!(
            matches!(&answer, Err(Fault::Denied(_))),
            "{refused}: {answer:?}"
        );
        assert_eq!(bench.integer("HEXISTS lock:k a").await, 1, "{refused}");
        assert_eq!(bench.integer("HLEN lock:k").await, 1, "{refused}");
    }
    let mut limited = bench.user("-hdel").await;
    assert!(matches!(
        run(&mut limited, &release("a")).await,
        Err(Fault::Denied(_))
    ));
    let items = renewals(&[(LOCK, "a", 90_000)]);
    for refused in ["hexists", "pexpire"] {
        let mut limited = bench.user(&format!("-{refused}")).await;
        let answer = run(&mut limited, &Renew { items: &items }).await;
        assert!(
            matches!(answer, Err(Fault::Denied(_))),
            "never taken for a loss: {refused}"
        );
    }
}

#[tokio::test]
async fn a_flushed_script_is_loaded_again_or_sent_whole() {
    let bench = ScriptBench::new().await;
    bench.acquire("a").await;
    bench.run("SCRIPT FLUSH").await;
    assert_eq!(bench.call(release("a")).await.unwrap(), DONE);
    assert_eq!(bench.integer("EXISTS lock:k").await, 0);
    let mut limited = bench.user("-script").await;
    bench.run("SCRIPT FLUSH").await;
    let granted = run(&mut limited, &acquire("a")).await.unwrap();
    assert!(matches!(granted, AcquireReply::Granted { .. }));
}

#[tokio::test]
async fn a_full_server_refuses_acquires_but_not_renewals_or_releases() {
    let bench = ScriptBench::new().await;
    bench.acquire("a").await;
    bench.run("CONFIG SET maxmemory 1").await;
    let refused = bench
        .call(Acquire {
            lock: "lock:new",
            ..acquire("n")
        })
        .await;
    assert!(matches!(refused, Err(Fault::NotDone(why)) if why.to_string().contains("OOM")));
    let items = renewals(&[(LOCK, "a", 90_000)]);
    assert_eq!(
        bench.call(Renew { items: &items }).await.unwrap(),
        [Renewed::Held]
    );
    let handed = bench.call(hand_over("a", "b")).await.unwrap();
    assert!(handed.is_some());
    assert_eq!(bench.call(release("b")).await.unwrap(), DONE);
    assert_eq!(bench.integer("EXISTS lock:new").await, 0);
}

#[tokio::test]
async fn a_demoted_server_says_so_and_never_that_the_lock_was_lost() {
    let bench = ScriptBench::new().await;
    bench.acquire("a").await;
    bench.run("REPLICAOF 127.0.0.1 1").await;
    let items = renewals(&[(LOCK, "a", 90_000)]);
    let read_only =
        |fault: Fault| matches!(fault, Fault::NotDone(why) if why.to_string().contains("READONLY"));
    assert!(bench.call(acquire("b")).await.is_err_and(read_only));
    assert!(
        bench
            .call(Renew { items: &items })
            .await
            .is_err_and(read_only)
    );
    assert!(bench.call(release("a")).await.is_err_and(read_only));
    assert!(bench.call(hand_over("a", "b")).await.is_err_and(read_only));
    assert!(bench.call(force()).await.is_err_and(read_only));
    assert!(bench.call(inspect()).await.unwrap().is_some());
}

//! Tests of the scripts of semaphores with values, rights and a memory that they cannot use.

use super::*;

#[tokio::test]
async fn other_values_are_foreign_and_stay_as_they_are() {
    let bench = ScriptBench::new().await;
    let one = ids(1, 1);
    for (make, key) in [
        ("HSET lock:s a 1", COUNT),
        ("SET lock:s x", COUNT),
        ("SET lock:s 1.5", COUNT),
        ("SET lock:s 9999999999999999", COUNT),
        ("SET {lock:s}:timeout x", LEASES),
    ] {
        bench.run("FLUSHALL").await;
        if key == LEASES {
            bench.call(set(2)).await.unwrap();
        }
        bench.run(make).await;
        let before = bench.run(&format!("DUMP {key}")).await;
        assert!(is_foreign(bench.call(lease(&one)).await, key), "{make}");
        assert!(is_foreign(bench.call(force()).await, key), "{make}");
        assert!(is_foreign(bench.call(read_counter()).await, key), "{make}");
        assert!(is_foreign(bench.call(delete()).await, key), "{make}");
        if key == COUNT {
            assert!(is_foreign(bench.call(set(1)).await, key), "{make}");
            assert!(is_foreign(bench.call(add(1)).await, key), "{make}");
        }
        let given = bench.call(give(&one)).await.unwrap();
        assert_eq!(given.done.released, Released::NotHeld, "{make}");
        assert_eq!(bench.renews(&one, LEASE).await, Renewed::NotHeld, "{make}");
        assert_eq!(bench.run(&format!("DUMP {key}")).await, before, "{make}");
    }
}

#[tokio::test]
async fn a_refusal_in_mid_script_neither_loses_nor_makes_permits() {
    let bench = ScriptBench::with_permits(5).await;
    let (held, more) = (ids(1, 2), ids(2, 1));
    for refused in ["get", "incrby", "zadd", "zcount", "zscore", "time"] {
        let mut limited = bench.user(&format!("-{refused}")).await;
        let answer = run(&mut limited, &lease(&more)).await;
        assert!(
            matches!(answer, Err(Fault::Denied(_))),
            "{refused}: {answer:?}"
        );
        assert_eq!(bench.state().await, ("5".to_owned(), 0), "{refused}");
    }
    assert!(bench.leases(&held).await);
    bench.expire().await;
    for refused in ["incrby", "zrange", "zrem"] {
        let mut limited = bench.user(&format!("-{refused}")).await;
        let answer = run(&mut limited, &lease(&more)).await;
        assert!(
            matches!(answer, Err(Fault::Denied(_))),
            "{refused}: {answer:?}"
        );
        assert_eq!(bench.state().await, ("3".to_owned(), 2), "{refused}");
    }
    for refused in ["get", "incrby", "zrem", "zscore"] {
        let mut limited = bench.user(&format!("-{refused}")).await;
        let answer = run(&mut limited, &give(&held)).await;
        assert!(
            matches!(answer, Err(Fault::Denied(_))),
            "{refused}: {answer:?}"
        );
        assert_eq!(bench.state().await, ("3".to_owned(), 2), "{refused}");
    }
    for refused in ["incrby", "zrange", "zrem"] {
        let mut limited = bench.user(&format!("-{refused}")).await;
        let answer = run(&mut limited, &force()).await;
        assert!(
            matches!(answer, Err(Fault::Denied(_))),
            "{refused}: {answer:?}"
        );
        assert_eq!(bench.state().await, ("3".to_owned(), 2), "{refused}");
    }
    let mut deaf = bench.user("-publish").await;
    let given = run(&mut deaf, &give(&held)).await.unwrap();
    assert_eq!(given, unpublished(&[(TOLD, "5")]));
    assert_eq!(bench.state().await, ("5".to_owned(), 0));
    // One of the two is leased no more.
    let two = ids(3, 2);
    assert!(bench.leases(&two).await);
    bench.call(give(&two[..16])).await.unwrap();
    let given = run(&mut deaf, &give(&two)).await.unwrap();
    assert_eq!(given.done.released, Released::NotHeld);
    assert_eq!(given.unpublished, [(TOLD.to_owned(), "5".to_owned())]);
}

#[tokio::test]
async fn permits_come_back_and_are_renewed_when_the_memory_is_full() {
    let bench = ScriptBench::with_permits(5).await;
    let two = ids(1, 2);
    assert!(bench.leases(&two).await);
    bench.run("CONFIG SET maxmemory 1").await;
    assert!(matches!(
        bench.call(lease(&ids(2, 1))).await,
        Err(Fault::NotDone(_))
    ));
    assert_eq!(bench.renews(&two, LEASE).await, Renewed::Held);
    let given = bench.call(give(&two)).await.unwrap();
    assert_eq!(given, DONE);
    assert_eq!(bench.state().await, ("5".to_owned(), 0));
}

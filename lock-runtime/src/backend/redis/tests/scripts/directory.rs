//! Tests of the records of clients.

use super::*;
use crate::backend::redis::kinds::directory::{Introduce, Who, Withdraw};

const CLIENT: &str = "lock:lock-manager:{00}";

pub(super) fn introduce(app: &str) -> Introduce<'_> {
    Introduce {
        client: CLIENT,
        ttl_s: 90,
        age_s: 100,
        id: "ab12cd34",
        app,
        host: "host-3",
        process_id: 17,
        version: "0.1.0",
    }
}

pub(super) fn withdraw() -> Withdraw<'static> {
    Withdraw { client: CLIENT }
}

pub(super) fn who() -> Who<'static> {
    Who { client: CLIENT }
}

#[tokio::test]
async fn a_client_is_known_by_its_last_record_until_that_is_deleted() {
    let bench = ScriptBench::new().await;
    assert!(bench.call(who()).await.unwrap().is_none());
    for app in ["first", "orders-api"] {
        bench.call(introduce(app)).await.unwrap();
        let left = bench.integer(&format!("PTTL {CLIENT}")).await;
        assert!((80_000..=90_000).contains(&left), "{left}");
        bench.run(&format!("PEXPIRE {CLIENT} 50000")).await;
    }
    let known = bench.call(who()).await.unwrap().unwrap();
    let record = known.record;
    assert_eq!(
        (
            &*record.app,
            &*record.host,
            record.process_id,
            &*record.version
        ),
        ("orders-api", "host-3", 17, "0.1.0")
    );
    let ago = known.since.elapsed().unwrap().as_secs();
    assert!((100..110).contains(&ago), "{ago}");
    bench.call(withdraw()).await.unwrap();
    bench.call(withdraw()).await.unwrap();
    assert!(bench.call(who()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_record_that_others_wrote_is_shown_as_one_short_line() {
    let bench = ScriptBench::new().await;
    let long = "x".repeat(10_000);
    for (fields, app, host) in [
        ("host h", None, ""),
        ("app a process_id many since never", Some("a"), ""),
        (
            &*format!("app {long} host {long}"),
            Some(&long[..64]),
            &long[..64],
        ),
    ] {
        bench.run(&format!("DEL {CLIENT}")).await;
        bench.run(&format!("HSET {CLIENT} {fields}")).await;
        let record = bench.call(who()).await.unwrap().map(|known| known.record);
        assert_eq!(record.as_ref().map(|record| &*record.app), app);
        assert!(record.is_none_or(|record| record.host == host));
    }
    bench.run(&format!("DEL {CLIENT}")).await;
    bench.run(&format!("SET {CLIENT} something")).await;
    assert!(bench.call(who()).await.is_err());
    assert!(bench.call(introduce("a")).await.is_err());
    let left = bench.text(&format!("GET {CLIENT}")).await;
    assert_eq!(left.as_deref(), Some("something"));
}

#[tokio::test]
async fn a_record_that_could_not_end_is_not_written() {
    let bench = ScriptBench::new().await;
    for ttl_s in [0, u64::MAX] {
        let endless = Introduce {
            ttl_s,
            ..introduce("a")
        };
        assert!(bench.call(endless).await.is_err());
    }
    assert_eq!(bench.integer("DBSIZE").await, 0);
}

//! Tests of acquiring several locks by one script.

use super::*;
use crate::backend::AcquiredAll;
use crate::backend::redis::kinds::acquire_all::AcquireAll;
use crate::values::holder::{HolderId, HolderIds};

const NAMES: [&str; 3] = ["{s}a", "{s}b", "c"];

struct Set {
    keys: Vec<Arc<Key>>,
    holders: Vec<HolderId>,
}

impl Set {
    fn new() -> Set {
        let ids = HolderIds::new();
        Set {
            keys: NAMES.into_iter().map(key).collect(),
            holders: NAMES.map(|_| ids.fresh()).to_vec(),
        }
    }

    async fn ask(&self, bench: &ScriptBench, not_after: u64) -> Result<Dated<AcquiredAll>, Fault> {
        let pairs = self.keys.iter().zip(&self.holders);
        let requests: Vec<_> = pairs
            .map(|(key, holder)| request(key, *holder, LEASE))
            .collect();
        bench
            .call(AcquireAll {
                requests: &requests,
                sent_at: clock::now(),
                not_after_us: not_after,
            })
            .await
    }

    async fn tokens(&self, bench: &ScriptBench) -> Vec<u64> {
        match self.ask(bench, FAR).await.unwrap() {
            Dated {
                done: Some(AcquiredAll::Granted(granted)),
                ..
            } => granted
                .iter()
                .map(|granted| granted.token.unwrap().get())
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    async fn held(&self, bench: &ScriptBench) -> usize {
        let mut held = 0;
        for key in &self.keys {
            let exists = bench.run(&format!("EXISTS {}", key.raw())).await;
            held += usize::from(exists == Value::Int(1));
        }
        held
    }
}

#[tokio::test]
async fn each_lock_of_a_set_has_a_lease_and_a_token_of_its_own() {
    let (bench, set) = (ScriptBench::new().await, Set::new());
    let tokens = set.tokens(&bench).await;
    assert!(tokens[1] > tokens[0], "one fence: {tokens:?}");
    for key in &set.keys {
        let ttl = bench.run(&format!("PTTL {}", key.raw())).await;
        assert!(matches!(ttl, Value::Int(1_000..=30_000)), "{ttl:?}");
    }
}

#[tokio::test]
async fn a_second_copy_acquires_nothing_twice_and_shortens_no_lease() {
    let (bench, set) = (ScriptBench::new().await, Set::new());
    let first = set.tokens(&bench).await;
    let name = set.keys[0].raw();
    bench.run(&format!("PEXPIRE {name} 600000")).await;
    let second = set.tokens(&bench).await;
    assert!(
        second
            .iter()
            .zip(&first)
            .all(|(second, first)| second > first)
    );
    let count = format!("HGET {name} {}", set.holders[0].text());
    assert_eq!(bench.text(&count).await.as_deref(), Some("1"));
    let ttl = bench.run(&format!("PTTL {name}")).await;
    assert!(matches!(ttl, Value::Int(500_000..)), "{ttl:?}");
}

#[tokio::test]
async fn a_busy_or_foreign_lock_or_a_late_request_acquires_nothing() {
    let (bench, set) = (ScriptBench::new().await, Set::new());
    let last = set.keys[2].raw();
    bench.run(&format!("HSET {last} somebody:1 1")).await;
    let busy = set.ask(&bench, FAR).await;
    assert!(
        matches!(
            busy,
            Ok(Dated {
                done: Some(AcquiredAll::Busy),
                ..
            })
        ),
        "{busy:?}"
    );
    assert_eq!(set.held(&bench).await, 1);

    bench.run(&format!("HSET {last} somebody:2 1")).await;
    let fields = set.ask(&bench, FAR).await;
    assert!(matches!(fields, Err(Fault::Foreign { .. })), "{fields:?}");
    bench.run(&format!("SET {last} x")).await;
    let string = set.ask(&bench, FAR).await;
    assert!(
        matches!(&string, Err(Fault::Foreign { key, .. }) if key == last),
        "{string:?}"
    );
    bench.run(&format!("DEL {last}")).await;

    let fence = set.keys[2].fence();
    bench.run(&format!("SET {fence} x")).await;
    let refused = set.ask(&bench, FAR).await;
    assert!(
        matches!(&refused, Err(Fault::Foreign { key, .. }) if *key == fence),
        "{refused:?}"
    );
    bench.run(&format!("SET {fence} 9007199254740990")).await;
    let refused = set.ask(&bench, FAR).await;
    assert!(matches!(refused, Err(Fault::Foreign { .. })), "{refused:?}");
    bench.run(&format!("DEL {fence}")).await;

    let late = set.ask(&bench, 1).await;
    assert!(matches!(late, Ok(Dated { done: None, .. })), "{late:?}");
    assert_eq!(set.held(&bench).await, 0);
}

#[tokio::test]
async fn a_write_that_is_refused_leaves_no_lock_behind() {
    let (bench, set) = (ScriptBench::new().await, Set::new());
    let last = set.keys[2].raw();
    let not_the_last = format!("resetkeys %RW~lock:{{s}}* %RW~lock:fence:* %R~{last}");
    for rules in ["-pexpire", "-hset", "-set", &not_the_last] {
        let mut limited = bench.user(&format!("allkeys +@all {rules}")).await;
        let pairs = set.keys.iter().zip(&set.holders);
        let requests: Vec<_> = pairs
            .map(|(key, holder)| request(key, *holder, LEASE))
            .collect();
        let refused = run(
            &mut limited,
            &AcquireAll {
                requests: &requests,
                sent_at: clock::now(),
                not_after_us: FAR,
            },
        )
        .await;
        assert!(refused.is_err(), "{rules}: {refused:?}");
        assert_eq!(set.held(&bench).await, 0, "{rules}");
    }
}

//! Tests of the scripts of semaphores with more leases than one call takes back.

use super::*;

#[tokio::test]
async fn a_forced_release_returns_and_names_all_leased_permits() {
    let bench = ScriptBench::with_permits(600).await;
    let many = ids(1, 300);
    assert_eq!(bench.call(force()).await.unwrap().done, (0, 0));
    assert!(bench.leases(&many).await);
    let mut messages = bench.server.listen(&[TOLD, CONTROL]).await;
    let mut named = String::new();
    for (permits, left, free) in [(256, 44, "556"), (44, 0, "600")] {
        let forced = bench.call(force()).await.unwrap();
        assert_eq!(forced.done, (permits, left));
        assert_eq!(bench.state().await, (free.to_owned(), left));
        let (channel, payload) = messages.recv().await.unwrap();
        let hex = payload.strip_prefix("holders:").unwrap();
        assert_eq!(
            (channel.as_str(), hex.len() as i64),
            (CONTROL, 32 * permits)
        );
        named.push_str(hex);
        let freed = (TOLD.to_owned(), free.to_owned());
        assert_eq!(messages.recv().await.unwrap(), freed);
    }
    let hex: String = many[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert!(named.contains(&hex));
}

impl ScriptBench {
    /// Adds `many` leases that end at `ends`, without taking permits for them.
    async fn leased(&self, many: usize, ends: i64) {
        let leases: Vec<_> = (0..many)
            .map(|number| format!("{ends} {number:016}"))
            .collect();
        for leases in leases.chunks(1_000) {
            self.run(&format!("ZADD {LEASES} {}", leases.join(" ")))
                .await;
        }
    }
}

#[tokio::test]
async fn leases_that_are_over_are_taken_back_a_part_at_a_time() {
    let bench = ScriptBench::with_permits(1).await;
    bench.leased(1_200, 1).await;
    let many = ids(1, 1_000);
    for (free, left) in [("501", 700), ("1001", 200)] {
        let answer = bench.call(lease(&many)).await.unwrap();
        if left == 700 {
            let now = Some(Duration::ZERO);
            assert!(
                matches!(answer, AcquireReply::Busy { left, .. } if left == now),
                "{answer:?}"
            );
            assert_eq!(bench.state().await, (free.to_owned(), left));
        } else {
            assert!(matches!(answer, AcquireReply::Granted { .. }), "{answer:?}");
        }
    }
    assert_eq!(bench.state().await, ("1".to_owned(), 1_200));
    assert!(bench.leases(&ids(2, 1)).await);
    assert_eq!(bench.state().await, ("200".to_owned(), 1_001));
}

#[tokio::test]
async fn a_counter_with_very_many_leases_is_not_deleted_in_one_step() {
    let bench = ScriptBench::with_permits(1).await;
    bench.leased(5_001, 1 << 50).await;
    let Err(Fault::Foreign { key, why }) = bench.call(delete()).await else {
        panic!("to delete them takes too long")
    };
    assert!(key == LEASES && why.contains("5001"), "{why}");
    assert_eq!(bench.state().await, ("1".to_owned(), 5_001));
    bench.call(force()).await.unwrap();
    assert!(bench.call(delete()).await.unwrap().done);
    assert_eq!(bench.state().await, (String::new(), 0));
}

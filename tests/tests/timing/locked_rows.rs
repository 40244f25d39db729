//! The shortest lease that is renewed, beside rows that somebody else has locked.

use std::time::{Duration, Instant};

use lock_runtime::{LockManager, LostReason};
use tests::faults::connected;
use tests::{Blocker, Sql, Table};

const MS: Duration = Duration::from_millis(1);
const LEASE: Duration = Duration::from_secs(1);

tests::on_each_database!(the_shortest_renewed_lease_outlasts_a_locked_row_of_a_batch);

async fn the_shortest_renewed_lease_outlasts_a_locked_row_of_a_batch<D: Sql>() {
    let table = Table::<D>::new();
    let began = Instant::now();
    while !is_outlasted(&table).await {
        let waited = began.elapsed();
        assert!(waited < 180 * LEASE, "this machine stands still too often");
    }
    table.assert_deserted().await;
}

/// Returns false if the machine stood still for so long that the round shows nothing: then other holds came close to their
/// end, too, which no locked row concerns.
async fn is_outlasted<D: Sql>(table: &Table<D>) -> bool {
    let connect = async || {
        let builder = LockManager::builder().lease(LEASE).wait(60 * LEASE);
        connected(builder.ensure_schema(true), &table.url()).await
    };
    let (locks, other) = (connect().await, connect().await);
    let mut others = Vec::new();
    for n in 0..3 {
        let request = other.mutex(format!("other-{n}"));
        others.push(request.acquire().await.unwrap());
        // One of them is renewed at any time.
        tokio::time::sleep(LEASE / 9).await;
    }
    let locked = locks.mutex("locked").acquire().await.unwrap();
    let kept = locks.mutex("kept").acquire().await.unwrap();
    let locked_read = locks.read("locked-read").acquire().await.unwrap();
    let kept_read = locks.read("kept-read").acquire().await.unwrap();
    let blockers = ["lock:locked", "lock:locked-read"]
        .map(|name| Blocker::of(&mut table.server().client(), table.name(), name));
    let (began, mut seen, mut stood_still) = (Instant::now(), Instant::now(), false);
    while began.elapsed() < 3 * LEASE && !stood_still {
        let least = others.iter().map(|guard| guard.remaining()).min();
        stood_still = seen.elapsed() > LEASE / 5 || least < Some(LEASE / 2);
        seen = Instant::now();
        let held = kept.is_held() && kept_read.is_held();
        assert!(held || stood_still, "lost after {:?}", began.elapsed());
        tokio::time::sleep(20 * MS).await;
    }
    if !stood_still {
        assert_eq!(locked.lost().wait().await, LostReason::Expired);
        assert_eq!(locked_read.lost().wait().await, LostReason::Expired);
    }
    blockers.into_iter().for_each(Blocker::commit);
    !stood_still
}

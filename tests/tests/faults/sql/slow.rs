//! Tests of a database that answers late: its holds are renewed all the same.

use std::time::{Duration, Instant};

use tests::faults::{connected, free_within};
use tests::{Direction, FaultProxy, Mariadb, Postgres, Sql, Table};

use super::{LONG, MS, end, manager};

tests::on_each_database!(holds_are_kept_by_a_database_whose_every_answer_is_late);

/// A database and the latest answers that keep a hold.
trait Late: Sql {
    const LATEST: Duration;
}

impl Late for Postgres {
    const LATEST: Duration = Duration::from_millis(8_500);
}

impl Late for Mariadb {
    /// A sign of life comes before a renewal.
    const LATEST: Duration = Duration::from_millis(2_500);
}

async fn holds_are_kept_by_a_database_whose_every_answer_is_late<D: Late>() {
    // In the first case, answers are later than a sign of life may be before another connection is tried. In the second, they
    // are later than a call may take. Three seconds at least are left for a machine that stands still.
    const LEASE: Duration = Duration::from_secs(36);
    let late_by = async |late: Duration| {
        let table = Table::<D>::new();
        let proxy = FaultProxy::of(D::PROTOCOL, table.server().addr()).await;
        let builder = tests::builder().ensure_schema(true);
        let locks = connected(
            builder.call_timeout(2_000 * MS),
            &table.url_through(proxy.addr()),
        )
        .await;
        let other = manager(&table.url()).await;
        let guard = locks.mutex("k").lease(LEASE).acquire().await.unwrap();
        proxy.delay(Direction::Replies, late);
        // By then, it would be over without a second renewal.
        let over = Instant::now() + LEASE * 4 / 3;
        while Instant::now() < over {
            assert!(guard.is_held(), "answers {late:?} late");
            tokio::time::sleep(20 * MS).await;
        }
        proxy.delay(Direction::Replies, Duration::ZERO);
        drop(guard);
        free_within(&other, "k", LONG).await;
        end(table, locks, other).await;
    };
    tokio::join!(late_by(1_500 * MS), late_by(D::LATEST));
}

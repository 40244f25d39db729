//! Tests of what renewals cost a database, counted by the database.

use std::time::{Duration, Instant};

use tests::faults::connected;
use tests::{Mariadb, MariadbServer, Postgres, PostgresServer, Server, Sql, eventually};

use super::MS;
use crate::mysql_cost::counted;

/// A database that counts the statements that renew.
trait Counts: Sql {
    fn counting() -> Server<Self>;
    fn renewals(server: &Server<Self>) -> i64;
}

impl Counts for Postgres {
    fn counting() -> PostgresServer {
        PostgresServer::with(&["log_statement=all"])
    }

    fn renewals(server: &PostgresServer) -> i64 {
        let log = server.log();
        i64::try_from(log.matches("AS r (name, holder, lease)").count()).unwrap()
    }
}

impl Counts for Mariadb {
    fn counting() -> MariadbServer {
        MariadbServer::start()
    }

    fn renewals(server: &MariadbServer) -> i64 {
        counted(server, &["Com_update_multi"])
    }
}

tests::on_each_database!(a_thousand_holds_are_renewed_by_a_few_statements);

async fn a_thousand_holds_are_renewed_by_a_few_statements<D: Counts>() {
    const LEASE: Duration = Duration::from_secs(18);
    let server = D::counting();
    let builder = tests::builder().ensure_schema(true);
    let locks = connected(builder, &server.url()).await;
    let (mut guards, asked) = (Vec::new(), Instant::now());
    for n in 0..1_000 {
        let request = locks.mutex(format!("k{n}")).lease(LEASE);
        guards.push(request.acquire().await.unwrap());
    }
    let acquiring = asked.elapsed();
    eventually("holds are renewed", async || D::renewals(&server) > 0).await;
    let (before, began) = (D::renewals(&server), Instant::now());
    while began.elapsed() < LEASE {
        assert!(guards.iter().all(|guard| guard.is_held()));
        tokio::time::sleep(100 * MS).await;
    }
    let sent = D::renewals(&server) - before;
    // A round is a third of the lease. A statement renews what is due within a thirtieth of the lease, so holds that were
    // acquired slowly need more of them.
    let times = |time: Duration, of: Duration| i64::try_from(time.as_millis() / of.as_millis());
    let rounds = times(began.elapsed(), LEASE / 3).unwrap();
    let most = rounds * (10 + times(acquiring, LEASE / 30).unwrap());
    assert!(sent > 0 && sent <= most, "{sent} of {most} statements");
    for guard in guards {
        guard.release().await.unwrap();
    }
}

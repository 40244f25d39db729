//! The effect on the table of a transaction that stays open elsewhere.

use tests::Server;
use tokio::time::Instant;

use crate::database::Database;
use crate::peers::Peer;
use crate::{number, quick_or, server};

pub(crate) async fn run<D: Database>() {
    let server = server::<D>();
    let peer = Peer::ours(&server).await;
    let mut old = D::session(&server).await;
    println!("one task on one key while a transaction elsewhere keeps an old snapshot");
    peer.pair(0).await;
    chunk(&server, &peer, "without it").await;
    for statement in D::SNAPSHOT {
        old.ask(statement, &[]).await;
    }
    for _ in 0..4 {
        chunk(&server, &peer, "with it").await;
    }
    old.ask("COMMIT", &[]).await;
    for _ in 0..2 {
        chunk(&server, &peer, "after it").await;
    }
}

async fn chunk<D: Database>(server: &Server<D>, peer: &Peer, when: &str) {
    let (began, pairs) = (Instant::now(), quick_or(200, 5_000));
    for _ in 0..pairs {
        peer.pair(0).await;
    }
    let rate = f64::from(pairs) / began.elapsed().as_secs_f64();
    let size = number(server, D::SIZE);
    println!("  {when:12} {rate:7.0} pairs/s, the table and its index have {size} KiB");
}

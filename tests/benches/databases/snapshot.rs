//! What a transaction that stays open elsewhere does to the table.

use tokio::time::Instant;

use crate::peers::{Peer, client};
use crate::{number, server};

const PAIRS: usize = 5_000;

pub(crate) async fn run() {
    let server = server();
    let peer = Peer::ours(&server).await;
    let old = client(&server).await;
    println!("one task on one key while a transaction elsewhere keeps an old snapshot");
    peer.pair(0).await;
    chunk(&server, &peer, "without it").await;
    old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM lock_leases")
        .await
        .unwrap();
    for _ in 0..4 {
        chunk(&server, &peer, "with it").await;
    }
    old.batch_execute("COMMIT").await.unwrap();
    for _ in 0..2 {
        chunk(&server, &peer, "after it").await;
    }
}

async fn chunk(server: &tests::PostgresServer, peer: &Peer, when: &str) {
    let began = Instant::now();
    for _ in 0..PAIRS {
        peer.pair(0).await;
    }
    let rate = PAIRS as f64 / began.elapsed().as_secs_f64();
    let size = number(server, "pg_relation_size('lock_leases')") / 1024;
    println!("  {when:12} {rate:7.0} pairs/s, the table has {size} KiB");
}

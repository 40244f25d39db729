//! A day of locks on few names: how large the table gets that no vacuum tends.

use std::sync::Arc;

use crate::peers::Peer;
use crate::{number, server};

const PAIRS: usize = 1_000_000;
const NAMES: usize = 100;
const TASKS: usize = 20;

pub(crate) async fn run() {
    let server = server();
    let peer = Arc::new(Peer::ours(&server).await);
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let peer = peer.clone();
            tokio::spawn(async move {
                for n in 0..PAIRS / TASKS {
                    peer.pair((task + n * TASKS) % NAMES).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let kib = |what: &str| number(&server, &format!("pg_relation_size('{what}')")) / 1024;
    println!("{PAIRS} pairs on {NAMES} names, without a vacuum");
    println!(
        "  table {} KiB, index {} KiB",
        kib("lock_leases"),
        kib("lock_leases_pkey")
    );
}

//! A day's worth of locks on few names, and how large the table gets if nobody cleans it.

use std::sync::Arc;

use crate::database::Database;
use crate::peers::Peer;
use crate::{number, quick_or, server};

const NAMES: usize = 100;
const TASKS: usize = 20;

pub(crate) async fn run<D: Database>() {
    let (server, pairs) = (server::<D>(), quick_or(2_000, 1_000_000));
    let peer = Arc::new(Peer::ours(&server).await);
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let peer = peer.clone();
            tokio::spawn(async move {
                for n in 0..pairs / TASKS {
                    peer.pair((task + n * TASKS) % NAMES).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let size = number(&server, D::SIZE);
    println!(
        "{pairs} pairs on {NAMES} names, without a vacuum: the table and its index have {size} KiB"
    );
}

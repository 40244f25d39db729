//! Pairs of acquire and release of free locks.

use std::sync::Arc;
use std::time::Duration;

use tests::RedisServer;
use tokio::time::Instant;

use crate::database::Database;
use crate::peers::Peer;
use crate::{quick_or, server};

const ROUND: Duration = Duration::from_millis(1_500);

pub(crate) async fn one_task<D: Database>() {
    compare::<D>("one task on a key of its own", 1).await;
}

pub(crate) async fn many_tasks<D: Database>() {
    compare::<D>("64 tasks on keys of their own", 64).await;
}

/// Measures the library's bare statements with and without a limit of time, on databases where they have one.
pub(crate) async fn limit<D: Database>() {
    let Some(limit) = D::LIMIT else {
        return;
    };
    let server = server::<D>();
    drop(Peer::ours(&server).await);
    let peers = [
        Peer::bare(&server).await,
        Peer::unlimited(&server, limit).await,
    ];
    let peers: Vec<_> = peers.into_iter().map(Arc::new).collect();
    take_turns("one task on a key of its own", 1, &peers).await;
}

async fn compare<D: Database>(title: &str, tasks: usize) {
    let (server, redis) = (server::<D>(), RedisServer::start());
    let peers = [
        Peer::ours(&server).await,
        Peer::bare(&server).await,
        Peer::shed_lock(&server).await,
        Peer::advisory(&server).await,
        Peer::on_redis(&redis.url()).await,
    ];
    let peers: Vec<_> = peers.into_iter().map(Arc::new).collect();
    take_turns(title, tasks, &peers).await;
}

/// Measures the peers in turns, and prints the ratio of the first one's rate to each.
async fn take_turns(title: &str, tasks: usize, peers: &[Arc<Peer>]) {
    let mut rates = vec![Vec::new(); peers.len()];
    let (rounds, long) = (quick_or(1, 9), quick_or(ROUND / 10, ROUND));
    for round in 0..=rounds {
        for turn in 0..peers.len() {
            // Another peer goes first in every round, so that a drift of the machine's speed falls on all.
            let number = (round + turn) % peers.len();
            let rate = rate(&peers[number], tasks, long).await;
            if round > 0 {
                rates[number].push(rate);
            }
        }
    }
    println!("{title}: pairs per second, median of {rounds} rounds of {long:?}, least and most");
    let (first, ours) = (peers[0].name, rates[0].clone());
    for (peer, rates) in peers.iter().zip(&mut rates) {
        let mut ratios: Vec<f64> = ours
            .iter()
            .zip(&*rates)
            .map(|(ours, rate)| ours / rate)
            .collect();
        let (rate, least, most) = spread(rates);
        let (ratio, from, to) = spread(&mut ratios);
        println!(
            "  {:24} {rate:9.0}  ({least:.0} to {most:.0})  {first} / it {ratio:5.2} ({from:.2} to {to:.2})",
            peer.name
        );
    }
}

/// Returns the median, the least and the greatest sample.
fn spread(samples: &mut [f64]) -> (f64, f64, f64) {
    samples.sort_by(f64::total_cmp);
    let last = samples.len() - 1;
    (samples[last / 2], samples[0], samples[last])
}

async fn rate(peer: &Arc<Peer>, tasks: usize, long: Duration) -> f64 {
    let began = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let peer = peer.clone();
            tokio::spawn(async move {
                let mut pairs = 0_u32;
                while began.elapsed() < long {
                    peer.pair(task).await;
                    pairs += 1;
                }
                pairs
            })
        })
        .collect();
    let mut pairs = 0.0;
    for task in tasks {
        pairs += f64::from(task.await.unwrap());
    }
    pairs / began.elapsed().as_secs_f64()
}

//! The writes that a try for a lock causes while somebody else holds the lock.

use crate::database::Database;
use crate::peers::Peer;
use crate::{number, quick_or, server};

pub(crate) async fn run<D: Database>() {
    let (server, tries) = (server::<D>(), quick_or(100, 2_000));
    let mut holder = D::session(&server).await;
    println!("a try for a busy lock: bytes of the log and changes, mean of {tries}");
    for peer in [
        Peer::ours(&server).await,
        Peer::shed_lock(&server).await,
        Peer::advisory(&server).await,
    ] {
        peer.hold(&mut holder).await;
        let (logged, changed) = (number(&server, D::LOGGED), number(&server, D::CHANGED));
        for _ in 0..tries {
            peer.busy().await;
        }
        let per_try =
            |what, before: i64| (number(&server, what) - before) as f64 / f64::from(tries);
        println!(
            "  {:24} {:6.1} bytes  {:5.2} changes",
            peer.name,
            per_try(D::LOGGED, logged),
            per_try(D::CHANGED, changed)
        );
    }
    if let Some(conflict) = D::BUSY_INSERT {
        let logged = number(&server, D::LOGGED);
        for _ in 0..tries {
            assert_eq!(holder.ask(conflict, &[]).await, 0);
        }
        let bytes = (number(&server, D::LOGGED) - logged) as f64 / f64::from(tries);
        println!("  INSERT … ON CONFLICT     {bytes:6.1} bytes");
    }
}

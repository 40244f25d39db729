//! What a try for a lock that somebody else holds writes.

use crate::peers::{Peer, client};
use crate::{number, server, wal};

const TRIES: u32 = 2_000;

pub(crate) async fn run() {
    let server = server();
    let holder = client(&server).await;
    println!("a try for a busy lock: bytes of WAL and transaction ids, mean of {TRIES}");
    for peer in [
        Peer::ours(&server).await,
        Peer::shed_lock(&server).await,
        Peer::advisory(&server).await,
    ] {
        peer.hold(&holder).await;
        let ids = || {
            number(
                &server,
                "pg_snapshot_xmax(pg_current_snapshot())::text::bigint",
            )
        };
        let (written, used) = (wal(&server), ids());
        for _ in 0..TRIES {
            peer.busy().await;
        }
        let per_try = |now: i64, before: i64| (now - before) as f64 / f64::from(TRIES);
        println!(
            "  {:24} {:6.1} bytes  {:5.2} ids",
            peer.name(),
            per_try(wal(&server), written),
            per_try(ids(), used)
        );
    }
    // What one writes first: it needs no row.
    let conflict = "INSERT INTO shedlock VALUES ('k0', 'epoch', 'epoch', '') ON CONFLICT (name) DO UPDATE \
        SET lock_until = EXCLUDED.lock_until WHERE shedlock.lock_until <= timezone('utc', CURRENT_TIMESTAMP)";
    let written = wal(&server);
    for _ in 0..TRIES {
        assert_eq!(holder.execute(conflict, &[]).await.unwrap(), 0);
    }
    let bytes = (wal(&server) - written) as f64 / f64::from(TRIES);
    println!("  INSERT … ON CONFLICT     {bytes:6.1} bytes");
}

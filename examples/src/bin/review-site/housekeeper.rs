//! One process of all keeps house: it removes the names of writers that are no more.
//!
//! **The lock** `site:housekeeper` is that of an election: a process has it for as long as it lives, and another one leads
//! when it ends. Two at once would do no harm here, only the same work: for more than that, see
//! [the guide](../../../../docs/guide.md#leader-election).

use std::time::Duration;

use lock_runtime::{LockError, LockManager};
use tokio::time::interval;

use crate::sale_stream::StreamSale;

pub(crate) const LOCK: &str = "site:housekeeper";
const EVERY: Duration = Duration::from_secs(600);

/// Waits until this process is elected, and keeps house until its locks shut down.
pub(crate) async fn keep_house(locks: LockManager, sale: StreamSale) {
    let election = locks.elect(LOCK);
    let led = election.lead(async |lease| {
        let mut every = interval(EVERY);
        loop {
            tokio::select! {
                // The shutdown begins: another process leads at once.
                () = lease.closing() => return,
                _ = every.tick() => {
                    if let Err(error) = sale.forget_writers().await {
                        tracing::warn!("old writers are not forgotten: {error}");
                    }
                }
            }
        }
    });
    match led.await {
        Ok(()) | Err(LockError::ShuttingDown { .. }) => {}
        Err(error) => tracing::error!("this process keeps house no more: {error}"),
    }
}

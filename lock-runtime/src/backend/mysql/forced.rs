//! Forced releases: nobody is told of them, so a task looks for them while something is held.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::statements::Own;
use crate::backend::sql::{Arg, Calls, Purpose, Row};
use crate::backend::{Event, EventSink, Fault, Holders};
use crate::sync::Mutex;
use crate::values::{HolderId, Moment, clock, jittered};

/// How often it looks, on average.
const CADENCE: Duration = Duration::from_millis(400);
/// How far it looks back: longer than a look and a commit take, all in all.
const BACK: Duration = Duration::from_secs(20);

/// Looks, and tells.
pub(super) struct Looker {
    pub(super) own: Arc<Own>,
    pub(super) calls: Arc<dyn Calls>,
    pub(super) timeout: Duration,
    pub(super) events: EventSink,
    /// Those who were told, as far as they are still noted.
    pub(super) told: Mutex<HashSet<HolderId>>,
}

impl Looker {
    pub(super) async fn look(&self) {
        // An outage is logged by the pool.
        let Ok(forced) = self.ask().await else {
            return;
        };
        let told = std::mem::replace(&mut *self.told.lock(), forced.clone());
        for &holder in forced.difference(&told) {
            (self.events)(Event::ForceReleased(Holders::Id(holder)));
        }
    }

    async fn ask(&self) -> Result<HashSet<HolderId>, Fault> {
        let (now, args) = (clock::now(), vec![Arg::micros(BACK)]);
        let until = (now + self.timeout).into();
        let asked = self
            .calls
            .call(Purpose::Other, &self.own.forced, args, now, until);
        let rows = asked.await?.rows;
        let holder = |row: &Row| HolderId::parse(row.text(0).ok()??);
        Ok(rows.iter().filter_map(holder).collect())
    }
}

/// The task that looks now and then.
pub(super) struct Watcher {
    pub(super) looker: Arc<Looker>,
    /// Until when something may be held; `None` if nothing was.
    pub(super) held: watch::Receiver<Option<Moment>>,
}

impl Watcher {
    /// Ends when the sender of `held` is gone.
    pub(super) async fn run(mut self) {
        let mut open = self.held.clone();
        tokio::select! {
            () = async { while open.changed().await.is_ok() {} } => {}
            () = self.watch() => {}
        }
        self.looker.calls.close();
    }

    async fn watch(&mut self) {
        loop {
            let is_held = |until: &Option<Moment>| until.is_some_and(|until| !until.has_passed());
            if self.held.wait_for(is_held).await.is_err() {
                return;
            }
            self.looker.look().await;
            clock::sleep(jittered(CADENCE)).await;
        }
    }
}

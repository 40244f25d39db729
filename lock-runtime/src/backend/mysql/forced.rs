//! Forced releases. The databases send no message about them, so a task looks for them while something is held.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::Server;
use crate::backend::sql::{Arg, Calls, Purpose, Row, Statement};
use crate::backend::{Event, EventSink, Fault, Holders};
use crate::sync::Mutex;
use crate::values::{HolderId, Moment, clock, jittered};

/// The average pause between two looks.
const CADENCE: Duration = Duration::from_millis(400);
/// The time that a look goes back, which is longer than a look and a commit take together.
const BACK: Duration = Duration::from_secs(20);

/// The part that looks for forced releases and reports them.
pub(super) struct Looker {
    pub(super) server: Arc<Server>,
    /// The statement that looks.
    pub(super) forced: Arc<Statement>,
    pub(super) calls: Arc<dyn Calls>,
    pub(super) events: EventSink,
    /// The holders whose forced release was reported, as long as the database still notes it.
    pub(super) told: Mutex<HashSet<HolderId>>,
}

impl Looker {
    /// Looks now and then. `held` is the time until which something may be held.
    pub(super) async fn watch(
        self: Arc<Self>,
        mut held: watch::Receiver<Moment>,
    ) -> Result<Infallible, Fault> {
        let is_held = |until: &Moment| !until.has_passed();
        while held.wait_for(is_held).await.is_ok() {
            self.look().await;
            clock::sleep(jittered(CADENCE)).await;
        }
        Err(Fault::closed())
    }

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
        let until = (clock::now() + self.server.timeout).into();
        let (calls, args) = (self.calls.clone(), vec![Arg::micros(BACK)]);
        let asked = calls.call(Purpose::Other, &self.forced, args, until);
        let rows = asked.await?.rows;
        let holder = |row: &Row| HolderId::parse(row.text(0).ok()??);
        Ok(rows.iter().filter_map(holder).collect())
    }
}

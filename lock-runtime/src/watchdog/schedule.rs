//! The holds of one manager, each at its next event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::Instant;

use crate::backend::Victim;
use crate::clock::Moment;
use crate::hold::Hold;
use crate::victims::Missing;
#[cfg(feature = "redis")]
use crate::victims::{Newcomers, Unnamed};

#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// By number. A tree, for its few entries need no hash.
    pub(super) holds: BTreeMap<u64, Watched>,
    pub(super) queue: BTreeSet<(Instant, u64)>,
    /// When the loop wakes by itself; `None` while it sleeps without an end.
    pub(super) planned: Option<Instant>,
    /// A hold was inserted since the loop last planned. It then stays awake for a tick even if nothing is held:
    /// short holds in a row would wake it for each of them.
    pub(super) busy: bool,
    /// Victims of forced releases that were not found here.
    pub(super) missing: Missing,
    #[cfg(feature = "redis")]
    newcomers: Newcomers,
}

#[derive(Debug)]
pub(super) struct Watched {
    pub(super) hold: Arc<Hold>,
    pub(super) next: Instant,
    /// When the next renewal is due; `None` while one is in flight.
    pub(super) renew_at: Option<Moment>,
}

impl Schedule {
    /// Takes in a hold that was confirmed a moment ago.
    pub(super) fn add(&mut self, hold: Arc<Hold>, renew_at: Moment) {
        let number = hold.holder().number();
        let next = renew_at.earlier(hold.end_at()).tick();
        self.queue.insert((next, number));
        #[cfg(feature = "redis")]
        self.newcomers.note(number, self.holds.len());
        let renew_at = Some(renew_at);
        self.holds.insert(
            number,
            Watched {
                hold,
                next,
                renew_at,
            },
        );
    }

    /// Moves a hold's entry to its next event: so far from `now` as the clock says that leaves less time. The other one
    /// stood still while the machine was suspended.
    pub(super) fn plan(&mut self, number: u64, renew_at: Option<Moment>, now: Moment) {
        let Some(watched) = self.holds.get_mut(&number) else {
            return;
        };
        self.queue.remove(&(watched.next, number));
        let end = watched.hold.end_at() - now;
        watched.renew_at = renew_at;
        watched.next = now.tick() + renew_at.map_or(end, |at| end.min(at - now));
        self.queue.insert((watched.next, number));
    }

    /// The holds that have no name yet.
    #[cfg(feature = "redis")]
    pub(super) fn unnamed(&mut self) -> Unnamed {
        let holds = &self.holds;
        let all = holds.values().map(|watched| &*watched.hold);
        self.newcomers.take(all, |number| {
            holds.get(&number).map(|watched| &*watched.hold)
        })
    }

    /// Takes out the victims that were found, under these numbers, and waits for those that were not.
    pub(super) fn take(&mut self, numbers: Vec<u64>, victim: Victim) -> Vec<Arc<Hold>> {
        let taken: Vec<_> = numbers
            .into_iter()
            .filter_map(|number| self.remove(number))
            .collect();
        if taken.is_empty() || !victim.is_one() {
            self.missing.note(victim);
        }
        taken
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Arc<Hold>> {
        let watched = self.holds.remove(&number)?;
        self.queue.remove(&(watched.next, number));
        Some(watched.hold)
    }
}

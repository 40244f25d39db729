//! The tenures of one manager, each at its next event.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::backend::{Backend, Holders, Renewed};
use crate::hold::Tenure;
use crate::observe::Cause;
use crate::renew::forced_release::Missing;
use crate::renew::places::Places;
use crate::values::{Alias, Count, Counted, Key, Kind, Moment, clock, jittered};

/// The number of due entries that one look takes, and of entries not due yet that it looks at to fill the batches: the
/// schedule is locked meanwhile. The next look, which follows at once, takes the rest.
pub(super) const MOST: usize = 1024;

/// A hold that the store has left out this often goes by a renewal that waits for the writers of its key. Most writers
/// are done at once, and a renewal that waits is a request of its own.
const LEFT_OUT_LIMIT: u32 = 2;

/// The number of keys for which renewals wait at most. Where others have locked more keys than that, they have probably
/// locked very many, for a moment: then a batch renews all of them afterwards.
const MOST_WAITING: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// By number. A tree, because its few entries need no hash.
    pub(super) tenures: BTreeMap<u64, Watched>,
    pub(super) queue: BTreeSet<(Instant, u64)>,
    /// The moment at which the loop wakes; `None` while it sleeps without an end.
    pub(super) planned: Option<Instant>,
    /// A hold was inserted since the loop last planned. The loop then stays awake for a tick even if nothing is held:
    /// short holds in a row would wake it for each of them.
    pub(super) busy: bool,
    /// Victims of forced releases whose holds may still come.
    pub(super) missing: Missing,
    pub(super) places: Places,
    /// The numbers of tenures by the names of their holders in messages: of those that keep their locks, and of all that were
    /// here when a message named victims.
    names: HashMap<Alias, u64>,
    /// Batches under way that wait for the writers of their keys.
    waiting: Arc<Count>,
}

#[derive(Debug)]
pub(super) struct Watched {
    pub(super) tenure: Arc<Tenure>,
    /// The moment at which it is to be looked at next.
    pub(super) next: Instant,
    /// The moment of the next request to the store: for a renewal, or beside a request that is not answered yet.
    renew_at: Moment,
    /// The moment at which the last confirmed request was sent.
    confirmed: Moment,
    /// A request is under way, so that `renew_at` is the time for another one beside it.
    asked: bool,
    /// The number of times that the store has left it out since it was confirmed.
    left_out: u32,
    /// The trouble that was logged since a renewal succeeded.
    trouble: Option<Cause>,
    /// Its name, once it is in [`names`](Schedule::names).
    pub(super) alias: Option<Alias>,
}

impl Watched {
    /// Whether its renewal waits for the writers of its key.
    fn waits(&self) -> bool {
        self.left_out >= LEFT_OUT_LIMIT
    }
}

/// Holds that are renewed by one call.
#[derive(Debug)]
pub(super) struct Batch {
    /// The place in the store that has them.
    pub(super) place: usize,
    /// Set if the batch waits for the writers of its key, which is one then.
    pub(super) waits: Option<Counted>,
    pub(super) tenures: Vec<Arc<Tenure>>,
}

/// The age at which a hold of a lock that is only reserved asks for its lease. A shorter hold sends no request but its release.
const LEASED_AFTER: Duration = Duration::from_millis(15);

/// What the holds of one call have in common. Their kind: each has its script. Their lease, in powers of two: a call's
/// timeout follows its shortest lease, and must suit all of them. Their place: a node that is frozen delays the answers
/// of its own holds alone. Their key, if the call waits for the writers of the key: these delay no other hold.
type Group = (Kind, u32, usize, Option<Arc<Key>>);

/// Returns when to look at a hold next, by the clock that leaves less time from `now`: the other clock stood still while the
/// machine was suspended.
fn next_look(now: Moment, renew_at: Moment, end: Moment) -> Instant {
    now.tick() + (renew_at - now).min(end - now)
}

impl Schedule {
    #[cfg(simulation)]
    pub(super) fn sizes(&self) -> [usize; 3] {
        [self.tenures.len(), self.queue.len(), self.names.len()]
    }

    /// Takes in a tenure that was confirmed by a request sent at `confirmed`, unless it is over already.
    pub(super) fn add(&mut self, tenure: Arc<Tenure>, confirmed: Moment) {
        let Some(end) = tenure.end_if_live() else {
            return;
        };
        let (holder, kind) = (tenure.holder(), tenure.key().kind());
        let number = holder.number();
        let renew_at = if tenure.is_unleased() {
            confirmed + LEASED_AFTER
        } else {
            confirmed + tenure.paced_by().next_renewal()
        };
        // The machine may have been suspended since the request was sent.
        let next = next_look(clock::now(), renew_at, end);
        self.queue.insert((next, number));
        self.tenures.insert(
            number,
            Watched {
                tenure,
                next,
                renew_at,
                confirmed,
                asked: false,
                left_out: 0,
                trouble: None,
                alias: None,
            },
        );
        if holder.keeps() {
            // This costs a hash, for a tenure that costs a request to the store anyway.
            self.name(number, holder.alias(kind));
        }
    }

    /// Takes in the name of a tenure, if it is still here.
    pub(super) fn name(&mut self, number: u64, alias: Alias) {
        if let Some(watched) = self.tenures.get_mut(&number) {
            watched.alias = Some(alias);
            self.names.insert(alias, number);
        }
    }

    /// Returns `true` if some tenures have no name yet. Makes room for their names, which takes less time at once.
    pub(super) fn lacks_names(&mut self) -> bool {
        let lacking = self.tenures.len().saturating_sub(self.names.len());
        self.names.reserve(lacking);
        lacking > 0
    }

    /// Returns the tenures of these holders, by aliases those that have their names.
    pub(super) fn of(&self, holders: &Holders) -> Vec<Arc<Tenure>> {
        let tenure = |number: &u64| Some(self.tenures.get(number)?.tenure.clone());
        match holders {
            Holders::Id(id) => {
                // Other managers of a memory store have holders of the same numbers.
                let found = tenure(&id.number()).filter(|found| found.holder() == *id);
                found.into_iter().collect()
            }
            Holders::Aliases(aliases) => {
                let numbers = aliases.iter().filter_map(|alias| self.names.get(alias));
                numbers.filter_map(tenure).collect()
            }
        }
    }

    /// Moves the entry of a tenure whose turn or idle time ends earlier than its lease.
    pub(super) fn ends_earlier(&mut self, tenure: &Tenure) {
        let number = tenure.holder().number();
        if let Some(watched) = self.tenures.get_mut(&number)
            && let Some(end) = tenure.end_if_live()
            && end.tick() < watched.next
        {
            // By tokio's clock alone: a suspension plans everything anew.
            self.queue.remove(&(watched.next, number));
            watched.next = end.tick();
            self.queue.insert((watched.next, number));
        }
    }

    /// Plans a request for now, whatever is under way.
    pub(super) fn ask_now(&mut self, number: u64, now: Moment) {
        if let Some(watched) = self.tenures.get_mut(&number) {
            watched.asked = false;
            self.plan(number, now, now);
        }
    }

    /// Returns until when no other request is sent beside the one that is under way: a place that answers others is at
    /// work on it, and must not be given the same work twice. A renewal that waits for writers is not repeated either:
    /// it has its place among them. Only the last part of the lease is for a request whose answer alone was lost.
    fn wait_for_answer(
        &self,
        watched: &Watched,
        place: usize,
        timeout: Duration,
        now: Moment,
    ) -> Option<Moment> {
        if !watched.asked {
            return None;
        }
        let ttl = watched.tenure.paced_by();
        let last_call = watched.confirmed + ttl.last_call();
        let until = if watched.waits() {
            last_call
        } else {
            let heard = self.places.last_answer(place)?;
            last_call.earlier(heard + ttl.call_timeout(timeout))
        };
        (!now.has_reached(until)).then_some(until)
    }

    /// Moves a hold's entry to its next event.
    pub(super) fn plan(&mut self, number: u64, renew_at: Moment, now: Moment) {
        let Some(watched) = self.tenures.get_mut(&number) else {
            return;
        };
        self.queue.remove(&(watched.next, number));
        let end = watched.tenure.end_if_live().unwrap_or(now);
        watched.renew_at = renew_at;
        watched.next = next_look(now, renew_at, end);
        self.queue.insert((watched.next, number));
    }

    /// Takes out the renewals that are due, in batches of `batch`, and plans when each hold is asked about again if there is no
    /// answer. Also returns the holds whose time seems to be over. `timeout`: the configured call timeout.
    pub(super) fn due(
        &mut self,
        backend: &dyn Backend,
        batch: usize,
        timeout: Duration,
        now: Moment,
    ) -> (Vec<Batch>, Vec<Arc<Tenure>>) {
        let tick = now.tick();
        let (mut over, mut moved) = (Vec::new(), Vec::new());
        let mut groups: HashMap<Group, Vec<Arc<Tenure>>> = HashMap::new();
        let mut waiting: HashSet<Arc<Key>> = HashSet::new();
        // Holds that are due soon fill the batches that go out anyway, but start none.
        let (mut horizon, mut unfilled) = (tick, 0_usize);
        let (mut due, mut ahead) = (0, 0);
        for &(at, number) in &self.queue {
            #[cfg(test)]
            super::tests::LOOKED_AT.with(|looked| looked.set(looked.get() + 1));
            let is_due = at <= tick;
            if is_due {
                due += 1;
            } else {
                ahead += 1;
            }
            if due > MOST || ahead > MOST || (!is_due && (unfilled == 0 || at > horizon)) {
                break;
            }
            let Some(watched) = self.tenures.get(&number) else {
                continue;
            };
            let tenure = &watched.tenure;
            if is_due && !tenure.is_good_at(now) {
                over.push(tenure.clone());
                continue;
            }
            if is_due && !now.has_reached(watched.renew_at) {
                // Its end has moved since: the entry still stands at the old end.
                moved.push((number, watched.renew_at));
                continue;
            }
            if !is_due && (watched.asked || watched.renew_at.tick() > horizon) {
                continue;
            }
            let (ttl, key) = (tenure.ttl(), tenure.key());
            let place = backend.place(key);
            if let Some(until) = self.wait_for_answer(watched, place, timeout, now) {
                moved.push((number, until));
                continue;
            }
            let has_room = || self.waiting.count() + waiting.len() < MOST_WAITING;
            let alone = watched.waits() && (waiting.contains(key) || has_room());
            let alone = alone.then(|| key.clone());
            waiting.extend(alone.clone());
            let group = (key.kind(), ttl.millis().ilog2(), place, alone);
            let group = groups.entry(group).or_default();
            let was_full = group.len().is_multiple_of(batch);
            if is_due {
                horizon = horizon.max(tick + ttl.early());
            } else if was_full {
                continue;
            }
            group.push(tenure.clone());
            let is_full = group.len().is_multiple_of(batch);
            unfilled = unfilled + usize::from(was_full) - usize::from(is_full);
        }
        for (number, renew_at) in moved {
            self.plan(number, renew_at, now);
        }
        for tenure in groups.values().flatten() {
            self.asked(tenure, timeout, now);
        }
        let under_way = &self.waiting;
        let batches = groups.iter().flat_map(|((_, _, place, alone), tenures)| {
            let batches = tenures.chunks(batch);
            batches.map(move |tenures| Batch {
                place: *place,
                waits: alone.as_ref().map(|_| under_way.enter()),
                tenures: tenures.to_vec(),
            })
        });
        (batches.collect(), over)
    }

    /// Notes that the store is being asked about the hold. Without an answer, it is asked again after a pause, beside
    /// the requests that are under way.
    fn asked(&mut self, tenure: &Tenure, timeout: Duration, now: Moment) {
        let number = tenure.holder().number();
        let Some(watched) = self.tenures.get_mut(&number) else {
            return;
        };
        watched.asked = true;
        let ttl = tenure.paced_by();
        let overdue = now.since(watched.confirmed + ttl.cadence());
        self.plan(number, now + ttl.answer_wait(timeout, overdue), now);
    }

    /// Takes in the answer to a request that was sent at `sent_at`.
    ///
    /// A later request that was confirmed says more than this answer.
    pub(super) fn answered(
        &mut self,
        tenure: &Tenure,
        place: usize,
        answer: Renewed,
        sent_at: Moment,
        now: Moment,
    ) {
        let number = tenure.holder().number();
        let Some(watched) = self.tenures.get_mut(&number) else {
            return;
        };
        if !sent_at.has_reached(watched.confirmed) {
            return;
        }
        watched.asked = false;
        let ttl = tenure.paced_by();
        let renew_at = if matches!(answer, Renewed::Held | Renewed::NotHeld) {
            (watched.confirmed, watched.left_out) = (sent_at, 0);
            watched.trouble = None;
            if tenure.is_to_be_lengthened() {
                // It did not ask for that yet: the caller that wants it has planned the next request.
                watched.renew_at
            } else {
                sent_at + self.places.next_renewal(place, ttl)
            }
        } else {
            watched.left_out = match answer {
                Renewed::LeftOut => watched.left_out + 1,
                // It has waited in vain: the writers may be done now, and a batch finds that out for less.
                _ if watched.waits() => 0,
                _ => watched.left_out,
            };
            watched.renew_at.earlier(now + jittered(ttl.retry_pause()))
        };
        self.plan(number, renew_at, now);
    }

    /// Plans some entries anew, from this number on: tokio's clock stood still while the machine was suspended. Returns
    /// the number to go on from.
    pub(super) fn realign(&mut self, from: u64, now: Moment) -> Option<u64> {
        let mut some: Vec<_> = self
            .tenures
            .range(from..)
            .map(|(number, watched)| (*number, watched.renew_at))
            .take(MOST + 1)
            .collect();
        let rest = (some.len() > MOST).then(|| some.pop()).flatten();
        for (number, renew_at) in some {
            self.plan(number, renew_at, now);
        }
        rest.map(|(number, _)| number)
    }

    /// Returns the moment at which the tenure was to be looked at next. `None` if it is not here.
    pub(super) fn remove(&mut self, tenure: &Tenure) -> Option<Instant> {
        let number = tenure.holder().number();
        let watched = self.tenures.remove(&number)?;
        self.queue.remove(&(watched.next, number));
        if let Some(alias) = watched.alias {
            self.names.remove(&alias);
        }
        Some(watched.next)
    }

    /// Notes that renewals of these tenures are in this trouble. Returns the number of those that were in no such
    /// trouble before: it is logged once, until a renewal succeeds.
    pub(super) fn get_into(&mut self, trouble: Cause, tenures: &[Arc<Tenure>]) -> usize {
        let mut more = 0;
        for tenure in tenures {
            if let Some(watched) = self.tenures.get_mut(&tenure.holder().number())
                && watched.trouble.replace(trouble) != Some(trouble)
            {
                more += 1;
            }
        }
        more
    }
}

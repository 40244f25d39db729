//! The watchdog: one loop per manager that renews holds in batches, checks fixed ones, and ends each hold at its
//! local deadline whatever the store does. It knows the backend only by its trait.
//!
//! Each hold is in the schedule once, at its next event. While a renewal is in flight that event is the hold's end,
//! so a store that does not answer delays nothing:
//!
//! | state | next event | what ends it |
//! |---|---|---|
//! | Held | a third of the lease after the last confirmed request | a renewal is sent |
//! | Renewing | the hold's end | an answer, a fault, or the end |
//! | Unknown: the last renewal failed | a short pause | the renewal is sent again |
//! | Lost | none | it leaves the schedule |

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::backend::{Backend, Event, Fault, Renewal, Renewed};
use crate::clock::{self, Moment};
use crate::error::LostReason;
use crate::hold::Hold;
use crate::kind::Kind;
use crate::lifecycle::Lifecycle;
use crate::observe;
use crate::victims::{Missing, Sought};
#[cfg(feature = "redis")]
use crate::victims::{Names, Newcomers, Unnamed};

/// How long the loop sleeps at most while there are holds: a suspended machine is noticed this late.
const TICK: Duration = Duration::from_secs(1);

/// The schedule of all holds of one manager.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    schedule: Mutex<Schedule>,
    /// What forced releases call the holds. Locked before the schedule and never by who acquires or releases, so that
    /// nobody waits for a hash.
    #[cfg(feature = "redis")]
    names: Mutex<Names>,
    /// Raised when something is due earlier than the loop plans to wake.
    wake: Notify,
}

#[derive(Debug, Default)]
struct Schedule {
    /// By number. A tree, for its few entries need no hash.
    holds: BTreeMap<u64, Watched>,
    queue: BTreeSet<(Instant, u64)>,
    /// When the loop wakes by itself; `None` while it sleeps without an end.
    planned: Option<Instant>,
    /// A hold was inserted since the loop last planned. It then stays awake for a tick even if nothing is held:
    /// short holds in a row would wake it for each of them.
    busy: bool,
    /// Victims of forced releases that were not found here.
    missing: Missing,
    #[cfg(feature = "redis")]
    newcomers: Newcomers,
}

#[derive(Debug)]
struct Watched {
    hold: Arc<Hold>,
    next: Instant,
    /// When the next renewal is due; `None` while one is in flight.
    renew_at: Option<Moment>,
}

impl Schedule {
    /// Takes in a hold that is not here yet.
    fn add(&mut self, hold: Arc<Hold>, renew_at: Moment) {
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

    /// Moves a hold's entry to its next event.
    fn plan(&mut self, number: u64, renew_at: Option<Moment>) {
        let Some(watched) = self.holds.get_mut(&number) else {
            return;
        };
        self.queue.remove(&(watched.next, number));
        let end = watched.hold.end_at();
        watched.renew_at = renew_at;
        watched.next = renew_at.map_or(end, |at| at.earlier(end)).tick();
        self.queue.insert((watched.next, number));
    }

    /// The holds that have no name yet.
    #[cfg(feature = "redis")]
    fn unnamed(&mut self) -> Unnamed {
        let holds = &self.holds;
        let all = holds.values().map(|watched| &*watched.hold);
        self.newcomers.take(all, |number| {
            holds.get(&number).map(|watched| &*watched.hold)
        })
    }

    /// Takes out the victims that were found, under these numbers, and waits for those that were not.
    fn take(&mut self, numbers: Vec<u64>, sought: Sought) -> Vec<Arc<Hold>> {
        let taken: Vec<_> = numbers
            .into_iter()
            .filter_map(|number| self.remove(number))
            .collect();
        if taken.is_empty() || !sought.is_one() {
            self.missing.note(sought);
        }
        taken
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Hold>> {
        let watched = self.holds.remove(&number)?;
        self.queue.remove(&(watched.next, number));
        Some(watched.hold)
    }
}

impl Watch {
    // Nothing panics while the schedule is locked, so a poisoned one is still whole.
    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a hold that was confirmed by a request sent at `sent_at`.
    pub(crate) fn insert(&self, hold: &Arc<Hold>, sent_at: Moment) {
        let mut schedule = self.schedule();
        if schedule.missing.names(hold) {
            drop(schedule);
            hold.lose(LostReason::ForceReleased);
            return;
        }
        schedule.add(hold.clone(), next_renewal(hold, sent_at));
        schedule.busy = true;
        self.wake_in_time(schedule);
    }

    /// Renews a hold as soon as possible.
    pub(crate) fn look_now(&self, hold: &Hold) {
        let schedule = self.schedule();
        self.plan(schedule, hold.holder().number(), Some(clock::now()));
    }

    fn plan(&self, mut schedule: MutexGuard<'_, Schedule>, number: u64, renew_at: Option<Moment>) {
        schedule.plan(number, renew_at);
        self.wake_in_time(schedule);
    }

    /// Wakes the loop if something is due before it wakes by itself.
    fn wake_in_time(&self, schedule: MutexGuard<'_, Schedule>) {
        let next = schedule.queue.first().map(|(at, _)| *at);
        let early = match (next, schedule.planned) {
            (Some(next), Some(planned)) => next < planned,
            (Some(_), None) => true,
            (None, _) => false,
        };
        drop(schedule);
        if early {
            self.wake.notify_one();
        }
    }

    /// Forgets a hold: an answer that is still on its way is ignored.
    pub(crate) fn remove(&self, hold: &Hold) {
        drop(self.schedule().remove(hold.holder().number()));
    }

    /// Ends every hold for `reason`.
    pub(crate) fn lose_all(&self, reason: LostReason) {
        let holds: Vec<_> = {
            let schedule = self.schedule();
            let holds = schedule.holds.values().map(|watched| &watched.hold);
            holds.cloned().collect()
        };
        for hold in holds {
            self.remove(&hold);
            hold.lose(reason);
        }
    }

    /// Takes in what the store says without being asked.
    pub(crate) fn hear(&self, event: Event) {
        let Event::ForceReleased(victim) = event;
        let Some(sought) = Sought::from(victim) else {
            return;
        };
        // Unlocked: a loss wakes waiters.
        for hold in self.take(sought) {
            hold.lose(LostReason::ForceReleased);
        }
    }

    /// Takes out the holds that are sought.
    fn take(&self, sought: Sought) -> Vec<Arc<Hold>> {
        match sought {
            Sought::Id(id) => {
                let mut schedule = self.schedule();
                let watched = schedule.holds.get(&id.number());
                let found = watched.is_some_and(|watched| watched.hold.holder() == id);
                let numbers = found.then_some(id.number()).into_iter().collect();
                schedule.take(numbers, sought)
            }
            #[cfg(feature = "redis")]
            Sought::Alias(_) | Sought::Aliases(_) => {
                let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
                let unnamed = self.schedule().unnamed();
                names.learn(unnamed);
                let mut schedule = self.schedule();
                // Who came while the schedule was unlocked: few.
                names.learn(schedule.unnamed());
                names.tidy(schedule.holds.len(), |number| {
                    schedule.holds.contains_key(&number)
                });
                schedule.take(names.find(&sought), sought)
            }
        }
    }

    /// Ends the holds whose time is over, and takes out the batches of renewals that are due. `all`: look at every
    /// hold, not only at those that tokio's clock says are due.
    fn collect(&self, backend: &dyn Backend, all: bool) -> Vec<Vec<Arc<Hold>>> {
        let batch = backend.renew_batch();
        let now = clock::now().tick();
        let (mut over, mut moved) = (Vec::new(), Vec::new());
        // By kind: each has its script. By lease, in powers of two: a call's timeout follows its shortest lease, and must
        // suit all of them. By place: a node that is frozen keeps back the answers of its own holds alone.
        let mut due: HashMap<(Kind, u32, usize), Vec<Arc<Hold>>> = HashMap::new();
        let mut schedule = self.schedule();
        let mut horizon = now;
        for &(at, number) in &schedule.queue {
            let Some(watched) = schedule.holds.get(&number) else {
                continue;
            };
            if (at <= now || all) && !watched.hold.is_good() {
                over.push(number);
                continue;
            }
            if at > horizon {
                if all {
                    continue;
                }
                break;
            }
            if watched.renew_at.is_none() {
                if at <= now {
                    // Its end has moved since: the entry stands where the old one was.
                    moved.push(number);
                }
                continue;
            }
            let term = watched.hold.term();
            let key = watched.hold.key();
            let group = (key.kind(), term.millis().ilog2(), backend.place(key));
            let group = due.entry(group).or_default();
            if at <= now {
                // Those that are due soon fill the batch that goes out anyway, but start none.
                horizon = horizon.max(now + term.early());
            } else if group.len().is_multiple_of(batch) {
                continue;
            }
            group.push(watched.hold.clone());
        }
        let batches: Vec<Vec<_>> = due
            .values()
            .flat_map(|group| group.chunks(batch).map(<[_]>::to_vec))
            .collect();
        for hold in batches.iter().flatten() {
            schedule.plan(hold.holder().number(), None);
        }
        for number in moved {
            schedule.plan(number, None);
        }
        let over: Vec<_> = over
            .into_iter()
            .filter_map(|number| schedule.remove(number))
            .collect();
        drop(schedule);
        // Unlocked: a loss wakes waiters.
        for hold in over {
            hold.loss();
        }
        batches
    }

    /// Makes every renewal due that was in flight: nobody waits for its answer any more. Twice is as good as once.
    fn renew_forgotten(&self) {
        let mut schedule = self.schedule();
        let forgotten =
            |(number, watched): (&u64, &Watched)| watched.renew_at.is_none().then_some(*number);
        let forgotten: Vec<u64> = schedule.holds.iter().filter_map(forgotten).collect();
        for number in forgotten {
            schedule.plan(number, Some(clock::now()));
        }
    }

    /// When the loop must wake; notes it, so that an insertion knows whether to wake it earlier.
    fn next_wake(&self) -> Option<Instant> {
        let mut schedule = self.schedule();
        let tick = clock::now().tick() + TICK;
        let busy = std::mem::take(&mut schedule.busy);
        let first = schedule.queue.first().map(|(at, _)| *at);
        schedule.planned = first.or(busy.then_some(tick)).map(|at| at.min(tick));
        schedule.planned
    }

    /// Takes in the answers to a batch.
    fn settle(&self, outcome: &Outcome) {
        let Outcome {
            holds,
            batch,
            answers,
            sent_at,
        } = outcome;
        match answers {
            Ok(_) => observe::renewed(),
            Err(fault) => observe::renewal_failed(holds.len(), fault),
        }
        for (index, (hold, renewal)) in holds.iter().zip(batch).enumerate() {
            let renew_at = match answers {
                Ok(answers) => match answers.get(index) {
                    Some(Renewed::Unknown) | None => clock::now() + hold.term().retry_pause(),
                    Some(answer) => {
                        hold.renewed(renewal, *answer, *sent_at);
                        next_renewal(hold, *sent_at)
                    }
                },
                Err(_) => clock::now() + hold.term().retry_pause(),
            };
            if hold.is_good() {
                self.plan(self.schedule(), hold.holder().number(), Some(renew_at));
            } else {
                // Its end is noted by whoever ended it, or here, if its time ran out meanwhile.
                hold.loss();
                self.remove(hold);
            }
        }
    }
}

/// A third of the lease after it was last confirmed, up to a tenth of that early: ten thousand locks taken in one
/// instant are not renewed in one.
fn next_renewal(hold: &Hold, confirmed: Moment) -> Moment {
    let term = hold.term();
    let early = u64::try_from(term.early().as_micros()).unwrap_or(u64::MAX);
    confirmed + (term.cadence() - Duration::from_micros(fastrand::u64(..=early)))
}

/// What became of one renewal call.
struct Outcome {
    holds: Vec<Arc<Hold>>,
    batch: Vec<Renewal>,
    answers: Result<Vec<Renewed>, Fault>,
    sent_at: Moment,
}

/// Starts the loop on the current runtime. It ends with the manager; if it panics, it is started again.
pub(crate) fn start(
    watch: Arc<Watch>,
    backend: Arc<dyn Backend>,
    life: Arc<Lifecycle>,
    timeout: Duration,
) {
    let sentinel = Sentinel { life: life.clone() };
    tokio::spawn(async move {
        let _sentinel = sentinel;
        loop {
            let run = tokio::spawn(run(watch.clone(), backend.clone(), life.clone(), timeout));
            match run.await {
                Err(error) if error.is_panic() => observe::watchdog_restarted(),
                _ => return,
            }
        }
    });
}

/// Dropped with the loop: if the manager was not stopped, the runtime is gone.
struct Sentinel {
    life: Arc<Lifecycle>,
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.life.runtime_gone();
    }
}

async fn run(
    watch: Arc<Watch>,
    backend: Arc<dyn Backend>,
    life: Arc<Lifecycle>,
    timeout: Duration,
) {
    // A loop that panicked has left calls behind.
    watch.renew_forgotten();
    let mut calls = JoinSet::new();
    let mut last = clock::now();
    loop {
        let suspended = last.was_suspended_since();
        last = clock::now();
        for holds in watch.collect(&*backend, suspended) {
            calls.spawn(renew(backend.clone(), holds, timeout));
        }
        let wake = watch.next_wake();
        let asleep = async {
            match wake {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = life.stopped() => return,
            Some(done) = calls.join_next() => {
                match done {
                    Ok(outcome) => watch.settle(&outcome),
                    // It panicked, and with it went the names of its holds.
                    Err(_) => watch.renew_forgotten(),
                }
            }
            () = watch.wake.notified() => {}
            () = asleep => {}
        }
    }
}

async fn renew(backend: Arc<dyn Backend>, mut holds: Vec<Arc<Hold>>, timeout: Duration) -> Outcome {
    // Looked at again right before the request is sent: nothing is renewed that is being released.
    holds.retain(|hold| hold.is_good());
    let batch: Vec<Renewal> = holds.iter().map(|hold| hold.renewal()).collect();
    let timeout = holds
        .iter()
        .map(|hold| hold.term().call_timeout(timeout))
        .min()
        .unwrap_or(timeout);
    let sent_at = clock::now();
    let answers = backend.renew(&batch, timeout).await;
    Outcome {
        holds,
        batch,
        answers,
        sent_at,
    }
}

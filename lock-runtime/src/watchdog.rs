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

mod schedule;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::schedule::{Schedule, Watched};
use crate::backend::{Backend, Event, Fault, Renewal, Renewed, Victim};
use crate::backoff::jittered;
use crate::clock::{self, Moment};
use crate::error::LostReason;
use crate::hold::Hold;
use crate::kind::Kind;
use crate::lifecycle::Lifecycle;
use crate::observe;
#[cfg(feature = "redis")]
use crate::victims::Names;

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
        schedule.add(hold.clone(), sent_at + hold.term().next_renewal());
        schedule.busy = true;
        self.wake_in_time(schedule);
    }

    /// Renews a hold as soon as possible.
    pub(crate) fn look_now(&self, hold: &Hold) {
        let now = clock::now();
        self.plan(hold.holder().number(), now, now);
    }

    fn plan(&self, number: u64, renew_at: Moment, now: Moment) {
        let mut schedule = self.schedule();
        schedule.plan(number, Some(renew_at), now);
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

    /// Ends every hold for `reason`. Tells when the last of their leases is over.
    pub(crate) fn lose_all(&self, reason: LostReason) -> Option<Moment> {
        let holds: Vec<_> = {
            let schedule = self.schedule();
            let holds = schedule.holds.values().map(|watched| &watched.hold);
            holds.cloned().collect()
        };
        let over_at = holds.iter().map(|hold| hold.deadline());
        let over_at = over_at.reduce(Moment::later);
        for hold in holds {
            self.remove(&hold);
            hold.lose(reason);
        }
        over_at
    }

    /// Takes in what the store says without being asked.
    pub(crate) fn hear(&self, event: Event) {
        let Event::ForceReleased(victim) = event;
        // Unlocked: a loss wakes waiters.
        for hold in self.take(victim) {
            hold.lose(LostReason::ForceReleased);
        }
    }

    /// Takes out the holds that are meant.
    fn take(&self, victim: Victim) -> Vec<Arc<Hold>> {
        match &victim {
            Victim::Id(id) => {
                let mut schedule = self.schedule();
                let watched = schedule.holds.get(&id.number());
                let found = watched.is_some_and(|watched| watched.hold.holder() == *id);
                let numbers = found.then_some(id.number()).into_iter().collect();
                schedule.take(numbers, victim)
            }
            #[cfg(feature = "redis")]
            Victim::Aliases(aliases) => {
                let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
                let unnamed = self.schedule().unnamed();
                names.learn(unnamed);
                let mut schedule = self.schedule();
                // Who came while the schedule was unlocked: few.
                names.learn(schedule.unnamed());
                names.tidy(schedule.holds.len(), |number| {
                    schedule.holds.contains_key(&number)
                });
                schedule.take(names.find(aliases), victim)
            }
        }
    }

    /// Ends the holds whose time is over, and takes out the batches of renewals that are due. `all`: the machine was
    /// suspended, and every hold may be due whatever tokio's clock says.
    fn collect(&self, backend: &dyn Backend, all: bool) -> Vec<Vec<Arc<Hold>>> {
        let batch = backend.renew_batch();
        let read = clock::now();
        let now = read.tick();
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
            let is_due = at <= now || all;
            if is_due && !watched.hold.is_good() {
                over.push(number);
                continue;
            }
            if at > horizon && !all {
                break;
            }
            if watched.renew_at.is_none() {
                if is_due {
                    // Its end has moved since: the entry stands where the old one was.
                    moved.push(number);
                }
                continue;
            }
            let term = watched.hold.term();
            let key = watched.hold.key();
            let group = (key.kind(), term.millis().ilog2(), backend.place(key));
            let group = due.entry(group).or_default();
            if is_due {
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
        let in_flight = batches.iter().flatten();
        let in_flight = in_flight.map(|hold| hold.holder().number());
        for number in in_flight.chain(moved) {
            schedule.plan(number, None, read);
        }
        let over: Vec<_> = over
            .into_iter()
            .filter_map(|number| schedule.holds.get(&number))
            .map(|watched| watched.hold.clone())
            .collect();
        drop(schedule);
        // Unlocked: a loss wakes waiters. Each leaves once it is told: a panic in between costs no other.
        for hold in over {
            hold.loss();
            self.remove(&hold);
        }
        batches
    }

    /// Makes every renewal due that was in flight: nobody waits for its answer any more. Twice is as good as once.
    fn renew_forgotten(&self) {
        let mut schedule = self.schedule();
        let now = clock::now();
        // Not at once: what panicked may panic again.
        let again = |watched: &Watched| now + jittered(watched.hold.term().retry_pause());
        let forgotten = schedule.holds.iter();
        let forgotten = forgotten.filter(|(_, watched)| watched.renew_at.is_none());
        let forgotten: Vec<_> = forgotten
            .map(|(number, watched)| (*number, again(watched)))
            .collect();
        for (number, renew_at) in forgotten {
            schedule.plan(number, Some(renew_at), now);
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
            let answer = answers.as_ref().ok().and_then(|all| all.get(index));
            let now = clock::now();
            let renew_at = match answer {
                Some(Renewed::Unknown) | None => now + jittered(hold.term().retry_pause()),
                Some(answer) => {
                    hold.renewed(renewal, *answer, *sent_at);
                    // A longer lease that was wanted meanwhile was not asked for by this renewal.
                    if hold.is_to_be_lengthened() {
                        now
                    } else {
                        *sent_at + hold.term().next_renewal()
                    }
                }
            };
            if hold.is_good() {
                self.plan(hold.holder().number(), renew_at, now);
            } else {
                // Its end is noted by whoever ended it, or here, if its time ran out meanwhile.
                hold.loss();
                self.remove(hold);
            }
        }
    }
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
    let sentinel = Sentinel {
        life: life.clone(),
        watch: watch.clone(),
    };
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

/// Dropped with the loop: if the manager was not stopped, the runtime is gone. Nobody renews any more then, nor looks
/// when a lease is over: those who watch for a loss in other runtimes would not be told.
struct Sentinel {
    life: Arc<Lifecycle>,
    watch: Arc<Watch>,
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        if self.life.runtime_gone() {
            self.watch.lose_all(LostReason::Shutdown);
        }
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
        let now = clock::now();
        let suspended = now.is_behind_a_suspension_since(last);
        last = now;
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

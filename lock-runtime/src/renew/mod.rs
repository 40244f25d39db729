//! The watchdog: one loop per manager that renews holds in batches, checks fixed ones, and ends each hold at its
//! local deadline whatever the store does. It knows the backend only by its trait.
//!
//! Each hold is in the schedule once, at its next event or at its end, whichever is first. So a store that does not
//! answer delays nothing:
//!
//! | state | next event | what ends it |
//! |---|---|---|
//! | Held | a third of the lease after the last confirmed request, up to three fifths where answers are slow | a renewal is sent |
//! | Asked | a sixth of the lease later (the call timeout at most), then longer and longer | another renewal is sent beside the first, unless the store answers others: then it has too much to do |
//! | Failed: the last renewal failed, or left the hold out because others wrote its key | a short pause | the renewal is sent again; after it was left out twice, by one that waits for the key |
//! | Lost | none | it leaves the schedule |
//!
//! An answer counts as long as it is true: the lease that it confirms began when its request was sent, however late it
//! comes. What was confirmed by a later request says more than the answer to an earlier one.

mod answers;
mod digest;
pub(crate) mod forced_release;
mod keeper;
#[cfg(test)]
mod left_out;
#[cfg(test)]
mod models;
mod places;
pub(crate) mod presence;
mod schedule;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::answers::{renew, take_in};
use self::digest::Digest;
pub(crate) use self::keeper::After;
use self::schedule::{Batch, Schedule};
use crate::backend::{Backend, Event, Holders};
use crate::hold::{Hold, Lifecycle};
use crate::observe::{self, Cause};
use crate::renew::forced_release::Names;
use crate::renew::presence::Presence;
use crate::sync::{Modelled, ModelledGuard, Mutex};
use crate::values::{Backoff, Key, LockError, LostReason, Moment, clock};

/// The longest sleep of the loop while there are holds: a suspended machine is noticed this late.
const TICK: Duration = Duration::from_secs(1);
/// A watchdog that ran for so long before it panicked is started anew as if it had never panicked.
const STABLE: Duration = Duration::from_secs(10);

/// The schedule of all holds of one manager.
#[derive(Default)]
pub(crate) struct Watch {
    schedule: Modelled<Schedule>,
    /// The names of the holds in forced releases. Locked before the schedule and never by who acquires or releases, so
    /// that nobody waits for a hash.
    names: Modelled<Names>,
    /// The events that are logged once a second. Nothing else is locked with it.
    digest: Mutex<Digest>,
    /// Raised when something is due earlier than the loop plans to wake.
    wake: Notify,
}

impl Watch {
    /// Watches a hold that was confirmed by a request sent at `sent_at`.
    pub(crate) fn insert(&self, hold: &Arc<Hold>, sent_at: Moment) {
        let mut schedule = self.schedule.lock();
        if schedule.missing.names(hold) {
            drop(schedule);
            self.end(hold, LostReason::ForceReleased);
            return;
        }
        schedule.add(hold.clone(), sent_at);
        schedule.busy = true;
        self.wake_in_time(schedule);
    }

    /// Looks at a hold as soon as possible: renews it, or takes it out if it is lost.
    pub(crate) fn look_now(&self, hold: &Hold) {
        let now = clock::now();
        let mut schedule = self.schedule.lock();
        schedule.ask_now(hold.holder().number(), now);
        self.wake_in_time(schedule);
    }

    /// Returns the number of holds.
    pub(crate) fn count(&self) -> usize {
        self.schedule.lock().holds.len()
    }

    /// Wakes the loop if something is due before it wakes by itself.
    fn wake_in_time(&self, schedule: ModelledGuard<'_, Schedule>) {
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

    /// Forgets a hold: an answer that is still on its way is ignored. False if it was not known any more.
    pub(crate) fn remove(&self, hold: &Hold) -> bool {
        let removed = self.schedule.lock().remove(hold);
        removed.is_some()
    }

    /// Takes out a hold if it is over; one that is lost is logged. A live one stays, whatever it looked like before: it
    /// may have been renewed meanwhile. Unlocked: a loss wakes waiters.
    fn remove_if_over(&self, hold: &Hold) -> bool {
        self.remove_if_over_late(hold, Duration::ZERO)
    }

    /// As [`remove_if_over`](Watch::remove_if_over), while the loop runs so much later than it wanted.
    fn remove_if_over_late(&self, hold: &Hold, late: Duration) -> bool {
        let over = hold.is_over();
        // One that has ended in good order is taken out by who ended it. The next one may have its place already.
        let goes_on = hold.holder().keeps() && hold.is_ended();
        if !over || goes_on {
            return over;
        }
        let now = clock::now().tick();
        let (planned, removed) = {
            let mut schedule = self.schedule.lock();
            (schedule.planned_for(hold), schedule.remove(hold).is_some())
        };
        if removed {
            self.log_lost(hold);
            // Nobody looked at the hold when it was time to: the store is not to blame.
            let unseen = planned.map(|planned| now.saturating_duration_since(planned));
            let late = late.max(unseen.unwrap_or_default());
            let was_had = hold.was_claimed() && !hold.is_idle();
            if hold.known_loss() == Some(LostReason::Expired)
                && was_had
                && late >= hold.ttl().cadence()
                && self.is_news(Cause::Starved, 1)
            {
                observe::watchdog_late(late);
            }
        }
        over
    }

    /// Ends a hold as lost.
    pub(crate) fn lose(&self, hold: &Hold, reason: LostReason) {
        hold.lose(reason);
        self.remove_if_over(hold);
    }

    /// As [`lose`](Watch::lose), for a hold that is not in the schedule, or not any more.
    fn end(&self, hold: &Hold, reason: LostReason) {
        hold.lose(reason);
        self.log_lost(hold);
    }

    fn log_lost(&self, hold: &Hold) {
        let Some(reason) = hold.known_loss().filter(|_| !hold.is_idle()) else {
            return;
        };
        if !hold.was_claimed() {
            if self.is_news(Cause::NeverClaimed, 1) {
                observe::never_claimed(hold);
            }
        } else if self.is_news(Cause::Lost(reason), 1) {
            observe::lost(hold, reason);
        }
    }

    /// Ends every hold for `reason`. Tells when the last of their leases is over.
    pub(crate) fn lose_all(&self, reason: LostReason) -> Option<Moment> {
        let holds: Vec<_> = {
            let schedule = self.schedule.lock();
            let holds = schedule.holds.values().map(|watched| &watched.hold);
            holds.cloned().collect()
        };
        let over_at = holds.iter().map(|hold| hold.deadline());
        let over_at = over_at.reduce(Moment::later);
        for hold in holds {
            self.lose(&hold, reason);
        }
        over_at
    }

    /// All holds, in the order in which they were asked for. In steps: others need the schedule as well.
    pub(crate) fn holds(&self) -> Vec<Arc<Hold>> {
        const STEP: usize = 1024;
        let mut all = Vec::new();
        let mut from = 0;
        loop {
            let schedule = self.schedule.lock();
            let step = schedule.holds.range(from..).take(STEP);
            let before = all.len();
            for (number, watched) in step {
                from = number + 1;
                all.push(watched.hold.clone());
            }
            if all.len() < before + STEP {
                return all;
            }
        }
    }

    /// Returns the first of the holds of that name, whatever its kind. It looks at the oldest ones only: those who give up
    /// in a crowd are many.
    pub(crate) fn first_of(&self, key: &Key) -> Option<Arc<Hold>> {
        const OLDEST: usize = 1024;
        let schedule = self.schedule.lock();
        let holds = schedule.holds.values().take(OLDEST);
        let mut holds = holds.map(|watched| &watched.hold);
        let found = holds.find(|hold| hold.key().raw() == key.raw() && !hold.is_idle());
        found.cloned()
    }

    /// Takes in what the store says without being asked.
    pub(crate) fn hear(&self, event: Event) {
        match event {
            // Unlocked: a loss wakes waiters.
            Event::ForceReleased(victim) => {
                for hold in self.take(victim) {
                    self.end(&hold, LostReason::ForceReleased);
                }
            }
            Event::Wanted(wanted) => self.give_up(&wanted),
        }
    }

    /// Takes out the holds that are meant.
    fn take(&self, victim: Holders) -> Vec<Arc<Hold>> {
        match &victim {
            Holders::Id(id) => {
                let mut schedule = self.schedule.lock();
                let watched = schedule.holds.get(&id.number());
                let found = watched.is_some_and(|watched| watched.hold.holder() == *id);
                let numbers = found.then_some(id.number()).into_iter().collect();
                schedule.take(numbers, victim)
            }
            Holders::Aliases(aliases) => {
                let mut names = self.names.lock();
                let unnamed = self.schedule.lock().unnamed();
                names.learn(unnamed);
                let mut schedule = self.schedule.lock();
                // The few that came while the schedule was unlocked.
                names.learn(schedule.unnamed());
                names.tidy(schedule.holds.len(), |number| {
                    schedule.holds.contains_key(&number)
                });
                schedule.take(names.find(aliases), victim)
            }
        }
    }

    /// Takes the holds out whose time is over, and gives the batches of renewals that are due. `late`: so much later
    /// than it wanted, the loop is running.
    fn collect(&self, backend: &dyn Backend, timeout: Duration, late: Duration) -> Vec<Batch> {
        let batch = backend.traits().renew_batch.max(1);
        let now = clock::now();
        let due = self.schedule.lock().due(backend, batch, timeout, now);
        for hold in due.over {
            // Each leaves once it is told: a panic in between costs no other.
            self.remove_if_over_late(&hold, late);
        }
        due.batches
    }

    /// Plans every hold anew after a suspension of the machine.
    async fn realign(&self) {
        let mut from = Some(0);
        while let Some(number) = from {
            from = self.schedule.lock().realign(number, clock::now());
            tokio::task::yield_now().await;
        }
    }

    /// Returns when the loop must wake, and notes it, so that an insertion knows whether to wake it earlier.
    fn next_wake(&self, store: &'static str) -> Option<Instant> {
        let said = self.digest.lock().next();
        let mut schedule = self.schedule.lock();
        // In the order in which they were asked for.
        let oldest = schedule
            .holds
            .values()
            .find(|watched| !watched.hold.is_idle())
            .map(|watched| watched.hold.granted_at());
        let tick = clock::now().tick() + TICK;
        let busy = std::mem::take(&mut schedule.busy);
        let first = schedule.queue.first().map(|(at, _)| *at);
        let next = first.or(busy.then_some(tick)).map(|at| at.min(tick));
        schedule.planned = match (next, said) {
            (Some(next), Some(said)) => Some(next.min(said)),
            (next, said) => next.or(said),
        };
        let planned = schedule.planned;
        drop(schedule);
        observe::oldest(store, oldest);
        planned
    }

    /// Logs that a release in the background failed. One that found its lock lost counts as a loss: it must not hide a
    /// release that the store refused.
    pub(crate) fn release_failed(&self, label: &'static str, error: &LockError) {
        let cause = match error {
            LockError::Lost { reason, .. } => Cause::Lost(*reason),
            _ => Cause::ReleaseFailed,
        };
        if self.is_news(cause, 1) {
            observe::release_failed(label, error);
        }
    }

    /// Whether to log this in full. If not, it is counted, and told within a second.
    fn is_news(&self, cause: Cause, holds: usize) -> bool {
        let mut digest = self.digest.lock();
        let idle = digest.next().is_none();
        let news = digest.is_first(cause, holds, clock::now().tick());
        drop(digest);
        if idle {
            // The loop may be asleep for longer than that second.
            self.wake.notify_one();
        }
        news
    }

    /// Logs what was counted in the seconds that have ended.
    fn log_digest(&self, now: Instant) {
        let told = self.digest.lock().ended(now);
        for (cause, holds) in told {
            observe::more_of(cause, holds);
        }
    }
}

/// The state that the tasks of a manager work on.
#[derive(Clone)]
pub(crate) struct Background {
    pub(crate) watch: Arc<Watch>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) life: Arc<Lifecycle>,
    pub(crate) presence: Arc<Presence>,
    /// Of a call to the store.
    pub(crate) timeout: Duration,
}

/// Starts the loop in that runtime, and what tells others who this is. Both end with the manager; if the loop panics, it
/// is started again after a pause.
pub(crate) fn start(runtime: &Handle, of: Background) {
    runtime.spawn(presence::keep(of.clone()));
    let end = EndOfRuntime(of.clone());
    runtime.spawn(async move {
        let _end = end;
        let first = || Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
        let (mut backoff, mut panics) = (first(), 0_u64);
        loop {
            let began = clock::now();
            let run = tokio::spawn(run(of.clone()));
            if !run.await.is_err_and(|error| error.is_panic()) {
                return;
            }
            if began.elapsed() > STABLE {
                (backoff, panics) = (first(), 0);
            }
            panics += 1;
            // At a falling rate: 1, 2, 4, 8, ...
            if panics.is_power_of_two() {
                observe::watchdog_restarted(panics);
            }
            tokio::select! {
                () = of.life.stopped() => return,
                () = clock::sleep(backoff.pause()) => {}
            }
        }
    });
}

/// Dropped with the loop: if the manager was not stopped, the runtime has ended. Nobody renews any more then, nor looks
/// when a lease is over: those who watch for a loss in other runtimes would not be told.
struct EndOfRuntime(Background);

impl Drop for EndOfRuntime {
    fn drop(&mut self) {
        let EndOfRuntime(of) = self;
        if !of.life.is_stopped() {
            if let Some(next) = of.life.runtimes.ended() {
                // Should that one have ended as well, the loop is dropped at once, and this is asked again.
                start(&next, of.clone());
                return;
            }
            if of.backend.traits().lives_in_a_runtime {
                of.life.runtime_gone();
            }
            of.watch.lose_all(LostReason::Shutdown);
        }
        // Nobody will wake for it.
        of.watch.log_digest(clock::now().tick() + TICK);
    }
}

async fn run(of: Background) {
    let Background {
        watch,
        backend,
        life,
        timeout,
        ..
    } = of;
    let mut calls = JoinSet::new();
    let (mut last, mut planned) = (clock::now(), None);
    loop {
        // Answers that are there come before the next questions.
        while let Some(done) = calls.try_join_next() {
            take_in(&watch, done);
        }
        let now = clock::now();
        if now.is_behind_a_suspension_since(last) {
            watch.realign().await;
        }
        let late = planned.map_or(Duration::ZERO, |planned: Instant| {
            let wanted = planned.max(last.tick());
            now.since(last).saturating_sub(wanted - last.tick())
        });
        last = now;
        for batch in watch.collect(&*backend, timeout, late) {
            calls.spawn(renew(watch.clone(), backend.clone(), batch, timeout));
        }
        watch.log_digest(now.tick());
        planned = watch.next_wake(backend.store().name());
        let asleep = async {
            match planned {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = life.stopped() => return,
            Some(done) = calls.join_next() => take_in(&watch, done),
            () = watch.wake.notified() => {}
            () = asleep => {}
        }
    }
}

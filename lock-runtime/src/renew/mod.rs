//! The watchdog: one loop per manager that renews tenures in batches, checks fixed ones, and ends each tenure at its
//! local deadline whatever the store does. It knows the backend only by its trait.
//!
//! Invariants:
//!
//! - Each tenure is in the schedule once, from its grant to its release, in whichever turn it is.
//! - Its place there is its next event or its end, if that comes first. So a store that does not answer delays nothing.
//!
//! | the tenure is | next event | what happens then |
//! |---|---|---|
//! | only reserved (`is_unleased`) | 15 ms after its request (`LEASED_AFTER`) | its lease is asked for |
//! | confirmed | a third of the lease (of 30 s at most for a read) after the last confirmed request, up to three fifths where answers are slow | a renewal is sent |
//! | asked about (`Watched::asked`) | a sixth of the lease later (the call timeout at most), then longer and longer | another renewal is sent beside the first, unless the store answers others: then it has too much to do |
//! | in trouble: the last renewal failed, or left it out because others wrote its key (`left_out`) | a short pause | the renewal is sent again; after it was left out twice, by a renewal that waits for the key |
//! | over | none | it leaves the schedule |
//!
//! A late answer counts: the lease that it confirms began when its request was sent. Once a later request was confirmed, the
//! answer to an earlier one is ignored.

mod alarm;
mod answers;
mod digest;
pub(crate) mod forced_release;
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

use self::alarm::Alarm;
use self::answers::{renew, take_in};
use self::digest::Digest;
use self::schedule::{Batch, MOST, Schedule, Watched};
use crate::backend::{Backend, Event, Fault, Holders};
use crate::hold::{Hold, Lifecycle, Loss, Tenure};
use crate::observe::{self, Cause, metrics};
use crate::renew::forced_release::alias;
use crate::renew::presence::Presence;
use crate::sync::{Modelled, ModelledGuard, Mutex};
use crate::values::{Backoff, Key, LockError, LostReason, Moment, clock};

/// The longest sleep of the loop while there are holds: a suspended machine is noticed this late.
const TICK: Duration = Duration::from_secs(1);
/// A watchdog that ran for this time before it panicked is started anew as if it had never panicked.
const STABLE: Duration = Duration::from_secs(10);

/// The schedule of all tenures of one manager.
#[derive(Default)]
pub(crate) struct Watch {
    schedule: Modelled<Schedule>,
    /// The events that are logged once a second. Nothing else is locked with it.
    digest: Mutex<Digest>,
    /// Wakes the loop.
    wake: Arc<Notify>,
    /// Raises `wake` in a runtime of several workers.
    alarm: Mutex<Option<Alarm>>,
}

impl Watch {
    /// Watches a tenure that was confirmed by a request sent at `sent_at`. A tenure that is over already is not
    /// watched: nothing would take it out any more.
    pub(crate) fn insert(&self, tenure: &Arc<Tenure>, sent_at: Moment) {
        let mut schedule = self.schedule.lock();
        if schedule.missing.names(tenure) {
            drop(schedule);
            tenure.lose(LostReason::ForceReleased);
            self.log_lost(tenure);
            return;
        }
        schedule.add(tenure.clone(), sent_at);
        schedule.busy = true;
        self.wake_in_time(schedule);
    }

    /// Looks at a tenure as soon as possible: renews it, or takes it out if it is lost.
    pub(crate) fn look_now(&self, tenure: &Tenure) {
        let now = clock::now();
        let mut schedule = self.schedule.lock();
        schedule.ask_now(tenure.holder().number(), now);
        self.wake_in_time(schedule);
    }

    /// Notes that the current turn, or idle time, of a tenure ends before its lease does.
    pub(crate) fn ends_earlier(&self, tenure: &Tenure) {
        let mut schedule = self.schedule.lock();
        schedule.ends_earlier(tenure);
        self.wake_in_time(schedule);
    }

    pub(crate) fn count(&self) -> usize {
        self.schedule.lock().tenures.len()
    }

    /// Returns the number of entries of the watchdog: tenures, times at which something is due, and names.
    #[cfg(simulation)]
    pub(crate) fn sizes(&self) -> [usize; 3] {
        self.schedule.lock().sizes()
    }

    /// Has the loop wake in time for what is due before it wakes by itself.
    fn wake_in_time(&self, mut schedule: ModelledGuard<'_, Schedule>) {
        let Some(next) = schedule.queue.first().map(|(at, _)| *at) else {
            return;
        };
        if schedule.planned.is_none_or(|planned| next < planned) {
            let at = next.min(clock::now().tick() + TICK);
            schedule.planned = Some(at);
            drop(schedule);
            self.wake_at(at);
        }
    }

    /// Has the loop wake at that moment at the latest.
    fn wake_at(&self, at: Instant) {
        if !self.sets_alarm(at) {
            // It plans its sleep anew.
            self.wake.notify_one();
        }
    }

    /// Sets the alarm to that moment, if there is one.
    fn sets_alarm(&self, at: Instant) -> bool {
        let alarm = self.alarm.lock();
        alarm.as_ref().map(|alarm| alarm.set(at)).is_some()
    }

    /// Returns when the loop has to run: at that moment, or when it is woken.
    async fn sleep(&self, until: Option<Instant>) {
        let woken = self.wake.notified();
        match until.filter(|at| !self.sets_alarm(*at)) {
            // An error means that it is that moment.
            Some(at) => _ = tokio::time::timeout_at(at, woken).await,
            None => woken.await,
        }
    }

    /// Forgets a tenure: an answer that is still on its way is ignored. False if it was forgotten already.
    pub(crate) fn remove(&self, tenure: &Tenure) -> bool {
        self.schedule.lock().remove(tenure).is_some()
    }

    /// Takes out a tenure if it is over, and logs a turn that is lost. A live tenure stays, whatever it looked like
    /// before: it may have been renewed meanwhile. Call it with the schedule unlocked: a loss wakes waiters.
    /// `late`: how much later than planned the loop is running, for a call of the loop.
    fn remove_if_over(&self, tenure: &Arc<Tenure>, late: Duration) -> bool {
        if !tenure.is_over() {
            return false;
        }
        let now = clock::now().tick();
        let planned = self.schedule.lock().remove(tenure);
        if let Some(planned) = planned
            && let Some(loss) = self.log_lost(tenure)
        {
            // Nothing looked at the tenure when it was time to: the store is not to blame.
            let late = late.max(now.saturating_duration_since(planned));
            if loss.reason == LostReason::Expired
                && loss.claimed
                && late >= tenure.paced_by().cadence()
                && self.is_news(Cause::Starved, 1)
            {
                observe::watchdog_late(late);
            }
        }
        true
    }

    /// Also takes the tenure out of the schedule, and logs the loss.
    pub(crate) fn lose(&self, tenure: &Arc<Tenure>, reason: LostReason) {
        tenure.lose(reason);
        self.remove_if_over(tenure, Duration::ZERO);
    }

    /// Logs the loss of a turn, if one was lost.
    fn log_lost(&self, tenure: &Tenure) -> Option<Loss> {
        let loss = tenure.lost_turn()?;
        if !loss.claimed && loss.reason == LostReason::Expired {
            if self.is_news(Cause::NeverClaimed, 1) {
                observe::never_claimed(tenure.key(), &loss);
            }
        } else if self.is_news(Cause::Lost(loss.reason), 1) {
            observe::lost(tenure.key(), &loss);
        }
        Some(loss)
    }

    /// Ends every tenure for `reason`. Returns when the last of their leases is over.
    pub(crate) fn lose_all(&self, reason: LostReason) -> Option<Moment> {
        let tenures: Vec<_> = {
            let schedule = self.schedule.lock();
            let watched = schedule.tenures.values();
            watched.map(|watched| watched.tenure.clone()).collect()
        };
        let over_at = tenures.iter().map(|tenure| tenure.deadline());
        let over_at = over_at.reduce(Moment::later);
        for tenure in tenures {
            self.lose(&tenure, reason);
        }
        over_at
    }

    /// Returns the turns that callers have, in the order in which their tenures were asked for. It works in steps,
    /// because others need the schedule as well.
    pub(crate) fn holds(&self) -> Vec<Hold> {
        let mut all = Vec::new();
        self.for_each_hold(|hold| all.push(hold));
        all
    }

    /// Returns when the oldest of the turns that callers have began. Leaders do not count: a leadership may last for as long
    /// as the process.
    fn oldest(&self) -> Option<Moment> {
        let mut oldest: Option<Moment> = None;
        self.for_each_hold(|hold| {
            let began = hold.with_turn(|turn| (!turn.label.leads).then_some(turn.granted_at));
            let began = began.flatten();
            oldest = oldest.into_iter().chain(began).reduce(Moment::earlier);
        });
        oldest
    }

    fn for_each_hold(&self, mut look: impl FnMut(Hold)) {
        let tenure = |watched: &Watched| watched.tenure.clone();
        self.for_each(tenure, |tenure| {
            if let Some(hold) = tenure.hold() {
                look(hold);
            }
        });
    }

    /// Looks at all tenures, some at a time, and calls `then` for each of these with the schedule unlocked.
    fn for_each<T>(&self, look: impl Fn(&Watched) -> T, mut then: impl FnMut(T)) {
        let mut from = Some(0);
        while let Some(first) = from {
            let some: Vec<_> = {
                let schedule = self.schedule.lock();
                let some = schedule.tenures.range(first..).take(MOST);
                some.map(|(number, watched)| (*number, look(watched)))
                    .collect()
            };
            let last = some.last().map(|(number, _)| number + 1);
            from = last.filter(|_| some.len() == MOST);
            some.into_iter().for_each(|(_, seen)| then(seen));
        }
    }

    /// Returns the first of the holds of that name, whatever its kind. It looks at the oldest holds only, because many
    /// callers of a crowded key give up.
    pub(crate) fn first_of(&self, key: &Key) -> Option<Hold> {
        const OLDEST: usize = 1024;
        let schedule = self.schedule.lock();
        let oldest = schedule.tenures.values().take(OLDEST);
        let of_key = oldest.filter(|watched| watched.tenure.key().raw() == key.raw());
        let mut holds = of_key.filter_map(|watched| watched.tenure.hold());
        holds.next()
    }

    /// Takes in an event that the store sends without a request.
    pub(crate) fn hear(&self, event: Event) {
        match event {
            Event::ForceReleased(victims) => self.lose_victims(&victims),
            Event::Wanted(wanted) => self.give_up(&wanted),
        }
    }

    /// Ends the holds that a forced release names, and those that are still to come.
    fn lose_victims(&self, victims: &Holders) {
        // This comes first: a hold that comes from now on is looked for among the missing, so nothing else need find it.
        self.schedule.lock().missing.note(victims.clone());
        if let Holders::Aliases(_) = victims {
            self.name_all();
        }
        let mut schedule = self.schedule.lock();
        let found = schedule.of(victims);
        if !found.is_empty() && victims.is_one() {
            schedule.missing.forget(victims);
        }
        // The schedule is unlocked here: a loss wakes waiters.
        drop(schedule);
        for tenure in found {
            self.lose(&tenure, LostReason::ForceReleased);
        }
    }

    /// Names the holds that have no name yet. If there is one, this looks at all holds. An acquire or a release waits for no
    /// hash: the schedule is unlocked meanwhile.
    fn name_all(&self) {
        if !self.schedule.lock().lacks_names() {
            return;
        }
        let unnamed = |watched: &Watched| watched.alias.is_none().then(|| watched.tenure.clone());
        self.for_each(unnamed, |tenure| {
            if let Some(tenure) = tenure {
                let alias = alias(tenure.holder(), tenure.key().kind());
                self.schedule.lock().name(tenure.holder().number(), alias);
            }
        });
    }

    /// Gives up a lock that this process keeps and another process wants. The event is a hint: the other process asks
    /// again if the lock is not known any more, or not yet.
    fn give_up(&self, wanted: &Holders) {
        let mut tenures = self.schedule.lock().of(wanted);
        // Where others can publish the message, it means kept locks only.
        tenures.retain(|tenure| matches!(wanted, Holders::Id(_)) || tenure.holder().keeps());
        // The schedule is unlocked here: the end of an idle tenure takes it out.
        for tenure in tenures {
            tenure.give_up();
        }
    }

    /// Takes out the tenures whose time is over, and returns the batches of renewals that are due. `late`: how much
    /// later than planned the loop is running.
    fn collect(&self, backend: &dyn Backend, timeout: Duration, late: Duration) -> Vec<Batch> {
        let batch = backend.traits().renew_batch.max(1);
        let now = clock::now();
        let (batches, over) = self.schedule.lock().due(backend, batch, timeout, now);
        for tenure in over {
            // Each is taken out and reported before the next: a panic in between costs no other.
            self.remove_if_over(&tenure, late);
        }
        batches
    }

    /// Plans every tenure anew after a suspension of the machine.
    async fn realign(&self) {
        let mut from = Some(0);
        while let Some(number) = from {
            from = self.schedule.lock().realign(number, clock::now());
            tokio::task::yield_now().await;
        }
    }

    /// Returns when the loop must wake, and notes it, so that an insertion knows whether to wake it earlier. While there are
    /// holds, that is at `tick` at the latest.
    fn next_wake(&self, tick: Instant) -> Option<Instant> {
        let said = self.digest.lock().next();
        let mut schedule = self.schedule.lock();
        let busy = std::mem::take(&mut schedule.busy);
        let first = schedule.queue.first().map(|(at, _)| *at);
        let next = first.or(busy.then_some(tick)).map(|at| at.min(tick));
        schedule.planned = next.into_iter().chain(said).min();
        schedule.planned
    }

    /// Logs that a release in the background failed. A release that found its lock lost counts as a loss: it must not
    /// hide a release that the store refused.
    pub(crate) fn release_failed(&self, label: &'static str, error: &LockError) {
        let cause = match error {
            LockError::Lost { reason, .. } => Cause::Lost(*reason),
            _ => Cause::ReleaseFailed,
        };
        if self.is_news(cause, 1) {
            observe::release_failed(label, error);
        }
    }

    /// Logs that a renewal failed which the watchdog did not send.
    pub(crate) fn renewal_failed(&self, fault: &Fault) {
        if self.is_news(Cause::Failed, 1) {
            observe::renewal_failed(1, fault);
        }
    }

    /// Logs that the store refuses to give back what a lost or unconfirmed hold may have left.
    pub(crate) fn undo_refused(&self, name: &str, fault: &Fault) {
        if self.is_news(Cause::UndoRefused, 1) {
            observe::undo_refused(name, fault);
        }
    }

    /// Whether to log this in full. If not, it is counted, and logged within a second.
    fn is_news(&self, cause: Cause, holds: usize) -> bool {
        let mut digest = self.digest.lock();
        let idle = digest.next().is_none();
        let now = clock::now().tick();
        let news = digest.is_first(cause, holds, now);
        drop(digest);
        if idle {
            // The loop may be asleep for longer than that second.
            self.wake_at(now);
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
    /// The timeout of a call to the store.
    pub(crate) timeout: Duration,
}

/// Starts the loop in that runtime, and the task that writes the client record. Both end with the manager; if the loop
/// panics, it is started again after a pause.
pub(crate) fn start(runtime: &Handle, of: Background) {
    // The loop of an earlier runtime may have ended.
    of.watch.digest.lock().set_logged(true);
    *of.watch.alarm.lock() = Alarm::begin(runtime, &of.watch.wake);
    let presence = presence::keep(of.clone());
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
    // Spawned last: the last one stays with this worker, which may go on with a body that blocks.
    runtime.spawn(presence);
}

/// Dropped with the loop: if the manager was not stopped, the runtime has ended. Then nothing renews any more, and
/// nothing checks when a lease is over: callers that wait for a loss in other runtimes would not learn of it.
struct EndOfRuntime(Background);

impl Drop for EndOfRuntime {
    fn drop(&mut self) {
        let EndOfRuntime(of) = self;
        // First of all: another runtime may begin with an alarm of its own at any time.
        *of.watch.alarm.lock() = None;
        if !of.life.is_stopped() {
            if let Some(next) = of.life.runtimes.ended() {
                // If that runtime has ended as well, the loop is dropped at once, and this runs again.
                start(&next, of.clone());
                return;
            }
            if of.backend.traits().lives_in_a_runtime {
                of.life.runtime_gone();
            }
            of.watch.lose_all(LostReason::Shutdown);
        }
        // No loop will wake to log it.
        of.watch.log_digest(clock::now().tick() + TICK);
        of.watch.digest.lock().set_logged(false);
        metrics::oldest(of.backend.store().name(), || None);
    }
}

async fn run(of: Background) {
    let mut calls = JoinSet::new();
    let (mut last, mut planned) = (clock::now(), None);
    let mut tick = last;
    loop {
        // Answers that have arrived are taken in before the next requests.
        while let Some(done) = calls.try_join_next() {
            take_in(&of.watch, done);
        }
        let now = clock::now();
        if now.is_behind_a_suspension_since(last) {
            of.watch.realign().await;
        }
        let late = planned.map_or(Duration::ZERO, |planned: Instant| {
            let wanted = planned.max(last.tick());
            now.since(last).saturating_sub(wanted - last.tick())
        });
        last = now;
        for batch in of.watch.collect(&*of.backend, of.timeout, late) {
            calls.spawn(renew(
                of.watch.clone(),
                of.backend.clone(),
                batch,
                of.timeout,
            ));
        }
        of.watch.log_digest(now.tick());
        if of.watch.count() == 0 || now.has_reached(tick) {
            metrics::oldest(of.backend.store().name(), || of.watch.oldest());
            tick = now + TICK;
        }
        planned = of.watch.next_wake(tick.tick());
        tokio::select! {
            () = of.life.stopped() => return,
            Some(done) = calls.join_next() => take_in(&of.watch, done),
            () = of.watch.sleep(planned) => {}
        }
    }
}

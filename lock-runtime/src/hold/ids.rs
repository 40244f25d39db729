//! The sources of ids that a manager draws from, and the ranges that it has drawn ahead.
//!
//! - A range is asked for by one task at a time, so ids rise in the order in which their callers asked.
//! - A caller is served by a range that is there, or waits. Waiters are served in order.
//! - At a low rate, a range is as large as what waits. Where two ids or more are asked for in a round trip, it is what the
//!   callers take in [`AHEAD`], and the next one is drawn before it is used up.
//! - What is left of a range is thrown away after [`FRESH`], and once the store was connected to anew: a copy of this
//!   process may have the same range.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::backend::Fault;
use crate::hold::Core;
use crate::sync::Mutex;
use crate::values::ids::MOST_IDS;
use crate::values::{IdRange, IdSecret, Key, Kind, LockError, LockName, Moment, clock};

/// The time for which a range lasts where ids are drawn ahead; two round trips, if they take longer.
const AHEAD: Duration = Duration::from_millis(10);

/// The time for which ids may be handed out that were drawn ahead, by every clock. An older id would be out of order, and a
/// copy of this process that begins later has a range that is older than that by its wall clock.
const FRESH: Duration = Duration::from_millis(100);

/// The sources of a manager.
#[derive(Debug, Default)]
pub(crate) struct IdSources(Mutex<Sources>);

#[derive(Debug, Default)]
struct Sources {
    by_name: HashMap<(String, bool), Weak<IdSource>>,
    /// The number of entries at which unused ones are removed.
    sweep_at: usize,
}

impl IdSources {
    /// Returns the source of that name. All callers that ask for it while it is in use get the same one.
    pub(crate) fn get(&self, name: &LockName, shuffled: bool) -> Arc<IdSource> {
        let source = || Arc::new(IdSource::new(name.clone(), shuffled));
        if name.check().is_err() {
            // It may have the text of a good name, and each request of it is refused.
            return source();
        }
        let mut sources = self.0.lock();
        let id = (name.as_str().to_owned(), shuffled);
        if let Some(source) = sources.by_name.get(&id).and_then(Weak::upgrade) {
            return source;
        }
        if sources.by_name.len() >= sources.sweep_at {
            sources
                .by_name
                .retain(|_, source| source.strong_count() > 0);
            sources.sweep_at = (sources.by_name.len() * 2).max(64);
        }
        let source = source();
        sources.by_name.insert(id, Arc::downgrade(&source));
        source
    }
}

/// One source, and what was drawn from it.
#[derive(Debug)]
pub(crate) struct IdSource {
    name: LockName,
    key: OnceLock<Arc<Key>>,
    state: Mutex<SourceState>,
}

#[derive(Debug)]
struct SourceState {
    /// The ranges that were drawn, and when. The one to use first is in front.
    ranges: VecDeque<(IdRange, IdClocks)>,
    /// No caller waits while there is a range that serves it.
    waiters: VecDeque<IdWaiter>,
    /// The task that draws, or is about to.
    drawing: Option<DrawTask>,
    /// The last sign of life of this task: its start, or the time at which it asked for a range.
    stirred: Moment,
    /// The number of tasks that have drawn.
    draws: u64,
    /// The number of waiters that the range under way is for: the first ones.
    served_next: usize,
    /// The secret of a source of shuffled ids: the store's, or one to make the source with.
    secret: Option<IdSecret>,
    /// The number of ids that were asked for since `since`.
    asked: u64,
    /// The time at which the last range was asked for.
    since: Option<Moment>,
    /// The time that this request took.
    took: Duration,
    /// The size of the last range.
    last: u32,
}

#[derive(Debug)]
struct IdWaiter {
    count: u32,
    tell: oneshot::Sender<DrawnIds>,
}

/// The ids for a waiter, and when they were drawn.
pub(crate) type DrawnIds = Result<(IdRange, IdClocks), Fault>;

/// Names a task that draws. If its runtime is not driven any more, another task takes its place, and nobody gets what
/// it draws later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DrawTask(u64);

/// The clocks, and the generation of the manager's holder ids, which every new connection ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdClocks {
    moment: Moment,
    wall: u64,
    generation: u64,
}

impl IdClocks {
    pub(crate) fn of(core: &Core) -> IdClocks {
        IdClocks {
            moment: clock::now(),
            wall: clock::wall_micros(),
            generation: core.ids.generation(),
        }
    }

    /// Whether what was drawn then may be handed out now.
    fn is_soon_after(self, drawn: IdClocks) -> bool {
        let wall = self.wall.checked_sub(drawn.wall).map(Duration::from_micros);
        self.generation == drawn.generation
            && wall.is_some_and(|since| since < FRESH)
            && self.moment.since(drawn.moment) < FRESH
    }

    /// Whether this process is still the only one that saw what it saw then, as far as it can tell: no connection was opened
    /// in between, and the wall clock went no further than the others. In a copy that is restored later, it has gone on alone.
    pub(crate) fn is_in_one_life_with(self, then: IdClocks) -> bool {
        let wall = self.wall.checked_sub(then.wall).map(Duration::from_micros);
        let gone = self.moment.since(then.moment);
        self.generation == then.generation && wall.is_some_and(|wall| wall < gone + FRESH)
    }
}

/// What a caller gets. With `draw`, it is to start that task.
pub(crate) struct IdAnswer {
    pub(crate) ids: Result<IdRange, oneshot::Receiver<DrawnIds>>,
    pub(crate) draw: Option<DrawTask>,
    pub(crate) asked: Moment,
}

impl IdSource {
    fn new(name: LockName, shuffled: bool) -> IdSource {
        let state = SourceState {
            ranges: VecDeque::new(),
            waiters: VecDeque::new(),
            drawing: None,
            stirred: clock::now(),
            draws: 0,
            served_next: 0,
            secret: shuffled.then(IdSecret::new),
            asked: 0,
            since: None,
            took: Duration::ZERO,
            last: 1,
        };
        IdSource {
            name,
            key: OnceLock::new(),
            state: Mutex::new(state),
        }
    }

    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    /// The checked key.
    ///
    /// # Errors
    /// [`LockError::InvalidName`].
    pub(crate) fn key(&self, core: &Core) -> Result<&Arc<Key>, LockError> {
        match self.key.get() {
            Some(key) => Ok(key),
            None => {
                // The kind of all that is not a lock.
                let key = core.key(&self.name, Kind::Semaphore)?;
                Ok(self.key.get_or_init(|| Arc::new(key)))
            }
        }
    }

    /// Takes `count` ids that are there, or waits for them. `clocks` reads the time.
    pub(crate) fn ask(&self, count: u32, clocks: impl FnOnce() -> IdClocks) -> IdAnswer {
        let mut state = self.state.lock();
        // Now, and not before the lock: no range that is here is younger.
        let now = clocks();
        state.asked += u64::from(count);
        // The waiters come first.
        let ready = if state.waiters.is_empty() {
            state.take(count, now)
        } else {
            None
        };
        let ids = ready.ok_or_else(|| {
            let (tell, told) = oneshot::channel();
            state.waiters.push_back(IdWaiter { count, tell });
            told
        });
        let draw = match state.drawing {
            None if state.size(now.moment) > 0 => {
                state.draws += 1;
                state.stirred = now.moment;
                Some(DrawTask(state.draws))
            }
            _ => None,
        };
        state.drawing = state.drawing.or(draw);
        let asked = now.moment;
        IdAnswer { ids, draw, asked }
    }

    /// Returns for how long a caller that has waited since `asked` may go on waiting: many ranges may have to be drawn
    /// before its own. Zero if the task that draws has given no sign of life for `patience`, because its runtime is not
    /// driven. The next caller starts another one then.
    pub(crate) fn patience_left(&self, patience: Duration, asked: Moment, now: Moment) -> Duration {
        let mut state = self.state.lock();
        let silent = now.since(state.stirred).min(now.since(asked));
        let left = patience.saturating_sub(silent);
        if left.is_zero() {
            state.drawing = None;
        }
        left
    }

    /// Returns how many ids the task has to draw next, and with which secret. If that is nothing, returns `None`, and the task
    /// ends.
    pub(crate) fn next(&self, draw: DrawTask, now: IdClocks) -> Option<(u32, Option<IdSecret>)> {
        let mut state = self.state.lock();
        if state.drawing != Some(draw) {
            return None;
        }
        state.waiters.retain(|waiter| !waiter.tell.is_closed());
        let count = state.size(now.moment);
        if count == 0 {
            state.drawing = None;
            return None;
        }
        state.served_next = state.waiters.len();
        state.asked = 0;
        state.since = Some(now.moment);
        state.stirred = now.moment;
        state.last = count;
        Some((count, state.secret))
    }

    /// Takes in a range that was asked for at `sent`, and serves the waiters.
    pub(crate) fn drew(&self, draw: DrawTask, range: IdRange, sent: IdClocks, now: IdClocks) {
        let mut state = self.state.lock();
        if state.drawing != Some(draw) {
            return;
        }
        state.secret = range.secret;
        state.took = now.moment.since(sent.moment);
        state.ranges.push_back((range, now));
        let mut served = Vec::new();
        while let Some(waiter) = state.waiters.pop_front() {
            if waiter.tell.is_closed() {
                continue;
            }
            let Some(ids) = state.take(waiter.count, now) else {
                state.waiters.push_front(waiter);
                break;
            };
            served.push((waiter.tell, ids));
        }
        drop(state);
        for (tell, ids) in served {
            // A caller that leaves just now loses its ids.
            let _ = tell.send(Ok((ids, now)));
        }
    }

    /// Tells the waiters that the range was for that nothing was drawn. Later waiters get the next range.
    pub(crate) fn failed(&self, draw: DrawTask, fault: &Fault) {
        let mut state = self.state.lock();
        if state.drawing != Some(draw) {
            return;
        }
        let number = state.served_next.min(state.waiters.len());
        let failed: Vec<_> = state.waiters.drain(..number).collect();
        drop(state);
        tell(failed, fault);
    }

    /// Tells all waiters that the runtime of the task has ended.
    pub(crate) fn ended(&self, draw: DrawTask) {
        let mut state = self.state.lock();
        if state.drawing != Some(draw) {
            return;
        }
        state.drawing = None;
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        tell(waiters, &Fault::runtime_ended());
    }
}

fn tell(waiters: impl IntoIterator<Item = IdWaiter>, fault: &Fault) {
    for waiter in waiters {
        let _ = waiter.tell.send(Err(fault.clone()));
    }
}

impl SourceState {
    /// Takes ids from the first range that has as many, and throws away the rest of the ranges before it, because ids
    /// rise.
    fn take(&mut self, count: u32, now: IdClocks) -> Option<IdRange> {
        while let Some((range, drawn)) = self.ranges.front_mut() {
            if now.is_soon_after(*drawn)
                && let Some(ids) = range.take(count)
            {
                return Some(ids);
            }
            self.ranges.pop_front();
        }
        None
    }

    /// Whether half of the last range is used up.
    fn is_low(&self) -> bool {
        let left: u32 = self.ranges.iter().map(|(range, _)| range.left()).sum();
        left * 2 <= self.last
    }

    /// The size of the range to draw now: what waits, or what is asked for in [`AHEAD`] at the rate since the last range
    /// was asked for, if two or more ids are asked for in a round trip. It doubles at most.
    fn size(&self, now: Moment) -> u32 {
        let waiting: u64 = self
            .waiters
            .iter()
            .map(|waiter| u64::from(waiter.count))
            .sum();
        let elapsed = self.since.map(|since| now.since(since)).unwrap_or_default();
        let in_time = |time: Duration| match elapsed.as_nanos() {
            0 => 0,
            elapsed => u128::from(self.asked) * time.as_nanos() / elapsed,
        };
        let ahead = if self.is_low() && in_time(self.took) >= 2 {
            in_time(AHEAD.max(self.took * 2)).min(u128::from(self.last) * 2)
        } else {
            0
        };
        let most = u64::from(MOST_IDS);
        let size = waiting.max(u64::try_from(ahead).unwrap_or(most)).min(most);
        u32::try_from(size).unwrap_or(MOST_IDS)
    }
}

#[cfg(test)]
mod tests;

//! The entry of a holder that has several holds, one after the other: in a tenure, or because it keeps its lock between them.
//! It goes from one hold to the next, with what the store has confirmed of the holder. That of a keeper remembers that
//! somebody else wants the lock.

use std::sync::Arc;

use super::Watch;
use crate::backend::{Holders, Renewal, Renewed};
use crate::hold::Hold;
use crate::values::{LostReason, Moment};

/// The watchdog's knowledge of a hold that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// It was watched to the end.
    Watched,
    /// So it was, and somebody else has asked for the lock.
    Wanted,
    /// It was not: it may have been released by force.
    Unknown,
}

impl Watch {
    /// As [`remove`](Watch::remove), and tells whether the lock was asked for meanwhile.
    pub(crate) fn leave(&self, hold: &Hold) -> After {
        match self.schedule.lock().leave(hold) {
            None => After::Unknown,
            Some(true) => After::Wanted,
            Some(false) => After::Watched,
        }
    }

    /// The lock goes from a hold to the idle one, which has the same holder id: a renewal that is under way is one of the
    /// idle hold from here on. If the lock was asked for, or is lost, it is watched no more.
    pub(crate) fn leave_to(&self, hold: &Hold, idle: &Arc<Hold>) -> After {
        let mut schedule = self.schedule.lock();
        if schedule.is_wanted(hold) {
            schedule.remove(hold);
            return After::Wanted;
        }
        if !schedule.pass_on(hold, idle) {
            return After::Unknown;
        }
        self.wake_in_time(schedule);
        After::Watched
    }

    /// The lock goes from a hold, or the idle one, to the next hold of the same holder. False if it was lost, or released by
    /// force.
    pub(crate) fn pass_on(&self, from: &Hold, to: &Arc<Hold>) -> bool {
        let mut schedule = self.schedule.lock();
        let goes = schedule.pass_on(from, to);
        self.wake_in_time(schedule);
        goes
    }

    /// Somebody else wants a lock that this process keeps: it is given back at once, or when its hold has ended. A hint:
    /// one that is not known any more, or not yet, is asked for again.
    pub(super) fn give_up(&self, wanted: &Holders) {
        let idle = {
            let mut schedule = self.schedule.lock();
            schedule.want(wanted)
        };
        // Unlocked: its end removes it.
        for hold in idle {
            hold.lose(LostReason::MaxHold);
        }
    }

    /// What to ask of the store for the holder of a lock that is kept, and which of its holds has the lock by now. While holds
    /// follow one another, the one that was due has nearly always ended before the request is sent.
    pub(super) fn renewal_of_keeper(
        &self,
        due: &Hold,
        now: Moment,
    ) -> Option<(Arc<Hold>, Renewal)> {
        let current = {
            let schedule = self.schedule.lock();
            schedule.holds.get(&due.holder().number())?.hold.clone()
        };
        let renewal = current.renewal_if_watched(now)?;
        Some((current, renewal))
    }

    /// Takes in what the store said of the holder of a lock that is kept. Which of its holds has the lock by now.
    ///
    /// Under the lock: if the lock is between two holds, the one that follows knows of it, or cannot have the lock.
    pub(super) fn answered_keeper(
        &self,
        asked: &Hold,
        renewal: &Renewal,
        answer: Renewed,
        sent_at: Moment,
    ) -> Option<Arc<Hold>> {
        let number = asked.holder().number();
        let mut schedule = self.schedule.lock();
        let current = schedule.holds.get(&number)?.hold.clone();
        match answer {
            Renewed::Held => current.is_confirmed(renewal, sent_at),
            Renewed::NotHeld => schedule.forget(number),
            Renewed::Unknown | Renewed::LeftOut => {}
        }
        drop(schedule);
        if answer == Renewed::NotHeld {
            self.end(&current, LostReason::Refused);
        }
        Some(current)
    }
}

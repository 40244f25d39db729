//! Whether what several clients saw of one lock could have happened one after the other.
//!
//! The sweep over [`holds`](crate::history) looks at the time in which a client was certain; this looks at everything
//! that it was told: a refusal says that somebody had the lock, a release that was confirmed says that its owner had
//! it until then. Each operation took effect at one moment between its call and its answer. A lease that may have run
//! out is an end without a latest moment; what nobody knows the outcome of may have happened or not.
//!
//! The search is that of Wing and Gong with Lowe's memory of states that were tried. An own one, for unknown outcomes
//! are part of every torture, and a lock leaves little to try: only its holder can end a hold, and a refusal that can
//! be placed changes nothing and is placed at once.

use std::collections::{BTreeSet, HashSet};

/// No latest moment.
pub const OPEN: u64 = u64::MAX;

/// What an operation did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum What {
    /// The lock was granted.
    Take,
    /// The hold of the same owner ended: given back, or its lease ran out.
    End,
    /// Somebody else had it.
    Refused,
    /// Nobody knows whether it was granted.
    MayTake,
    /// Nobody knows whether, or when, that hold ended.
    MayEnd,
}

/// An operation as its caller saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    /// Who asked; each hold is another owner's.
    pub owner: usize,
    /// What it did.
    pub what: What,
    /// When it was called.
    pub from: u64,
    /// When its answer was there, or [`OPEN`].
    pub until: u64,
}

/// What the search came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order that explains everything.
    Possible,
    /// There is none: this many operations can be explained, and not this one.
    Impossible(usize, Op),
    /// Too many states for the budget.
    Undecided,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    /// All that must have happened before this one has.
    first: usize,
    /// What has happened of the rest.
    done: BTreeSet<usize>,
    holder: Option<usize>,
}

/// Looks for an order; at most `budget` states are tried.
pub fn search(history: &[Op], budget: usize) -> Verdict {
    let is_certain = |op: &&Op| !matches!(op.what, What::MayTake | What::MayEnd);
    let mut ops: Vec<Op> = history.iter().filter(is_certain).cloned().collect();
    ops.sort_by_key(|op| (op.from, op.until));
    let certain = ops.len();
    ops.extend(history.iter().filter(|op| !is_certain(op)).cloned());

    let start = State {
        first: 0,
        done: BTreeSet::new(),
        holder: None,
    };
    let mut seen = HashSet::from([start.clone()]);
    let mut stack = vec![start];
    let mut stuck: Option<(usize, usize)> = None;
    while let Some(mut state) = stack.pop() {
        let candidates = loop {
            let (candidates, tightest) = eligible(&ops, certain, &state);
            let refused = |index: &&usize| ops[**index].what == What::Refused;
            match candidates.iter().find(refused) {
                Some(index) if state.holder.is_some() => state.happens(*index, certain),
                _ => {
                    let explained = state.explained();
                    let Some(tightest) = tightest else {
                        return Verdict::Possible;
                    };
                    if stuck.is_none_or(|(most, _)| explained >= most) {
                        stuck = Some((explained, tightest));
                    }
                    break candidates;
                }
            }
        };
        // What is certain is tried first: it is on top of the stack.
        for index in candidates.into_iter().rev() {
            let op = &ops[index];
            let holder = match (op.what, state.holder) {
                (What::Take | What::MayTake, None) => Some(op.owner),
                (What::End | What::MayEnd, Some(holder)) if holder == op.owner => None,
                _ => continue,
            };
            let mut next = state.clone();
            next.happens(index, certain);
            next.holder = holder;
            if seen.insert(next.clone()) {
                stack.push(next);
            }
        }
        if seen.len() > budget {
            return Verdict::Undecided;
        }
    }
    let (explained, at) = stuck.unwrap_or_default();
    Verdict::Impossible(explained, ops[at].clone())
}

/// What can happen next, the certain first, and what has to happen soonest, unless all has.
fn eligible(ops: &[Op], certain: usize, state: &State) -> (Vec<usize>, Option<usize>) {
    let mut tightest: Option<usize> = None;
    let mut found = Vec::new();
    for index in state.first..certain {
        if tightest.is_some_and(|tightest| ops[index].from > ops[tightest].until) {
            break;
        }
        if state.done.contains(&index) {
            continue;
        }
        found.push(index);
        if tightest.is_none_or(|tightest| ops[index].until < ops[tightest].until) {
            tightest = Some(index);
        }
    }
    let end = tightest.map_or(0, |tightest| ops[tightest].until);
    found.retain(|index| ops[*index].from <= end);
    found.sort_by_key(|index| ops[*index].until);
    let maybe = certain..ops.len();
    found.extend(maybe.filter(|index| ops[*index].from <= end && !state.done.contains(index)));
    (found, tightest)
}

impl State {
    fn happens(&mut self, index: usize, certain: usize) {
        self.done.insert(index);
        while self.first < certain && self.done.remove(&self.first) {
            self.first += 1;
        }
    }

    fn explained(&self) -> usize {
        self.first + self.done.len()
    }
}

#[cfg(test)]
mod tests;

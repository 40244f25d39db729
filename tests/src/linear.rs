//! A check of whether what several clients saw of one lock could have happened one after the other.
//!
//! The sweep over [`holds`](crate::history) looks at the time in which a client was certain. This check looks at
//! everything that a client was told: a refusal says that somebody had the lock, and a confirmed release says that its
//! owner had it until then. Each operation took effect at one moment between its call and its answer. A lease that may
//! have run out is an end without a latest moment. An operation of unknown outcome may have happened or not.
//!
//! The search is that of Wing and Gong with Lowe's memory of states that were tried. It is our own, because unknown
//! outcomes are part of every torture, and because a lock leaves little to try: only its holder can end a hold, and a
//! refusal that can be placed changes nothing and is placed at once.

use std::collections::{BTreeSet, HashSet};

/// The end of an operation that has no latest moment.
pub const OPEN: u64 = u64::MAX;

/// The effect of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum What {
    /// The lock was granted.
    Take,
    /// The hold of the same owner ended: it was given back, or its lease ran out.
    End,
    /// Somebody else had it.
    Refused,
    /// It is unknown whether it was granted.
    MayTake,
    /// It is unknown whether, or when, that hold ended.
    MayEnd,
}

/// An operation as its caller saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    /// The client that asked. Each hold has an owner of its own.
    pub owner: usize,
    /// The effect that it had.
    pub what: What,
    /// The fencing token of a grant, if one is known. It is greater than that of every grant before it.
    pub token: Option<u64>,
    /// The time of its call.
    pub from: u64,
    /// The time at which its answer was there, or [`OPEN`].
    pub until: u64,
}

/// The result of the search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order that explains everything.
    Possible,
    /// There is none: at most this many operations can be explained, and then not this one.
    Impossible(usize, Op),
    /// There were too many states for the budget.
    Undecided,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    /// The index of the first certain operation that has not happened. All before it have.
    first: usize,
    /// The others that have happened.
    done: BTreeSet<usize>,
    holder: Option<usize>,
    /// The greatest token so far.
    token: u64,
}

/// Looks for an order. Tries at most `budget` states.
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
        token: 0,
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
        // Certain operations are tried first, because they are on top of the stack.
        for index in candidates.into_iter().rev() {
            let op = &ops[index];
            let rises = op.token.is_none_or(|token| token > state.token);
            let holder = match (op.what, state.holder) {
                (What::Take | What::MayTake, None) if rises => Some(op.owner),
                (What::End | What::MayEnd, Some(holder)) if holder == op.owner => None,
                _ => continue,
            };
            let mut next = state.clone();
            next.happens(index, certain);
            next.holder = holder;
            next.token = op.token.unwrap_or(state.token);
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

/// Returns the operations that can happen next, the certain ones first, and the one that has to happen soonest, unless
/// all certain ones have happened.
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

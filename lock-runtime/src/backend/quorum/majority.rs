//! The counting of the nodes' answers. Pure.

use std::time::Duration;

use crate::backend::{Fault, Renewed, Snapshot};
use crate::values::StoreError;

/// Returns the smallest number that is more than half of `nodes`.
pub(super) fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// Returns the fault of a round in which too many nodes gave no answer.
pub(super) fn no_majority(nodes: usize, faults: &[(String, Fault)]) -> Fault {
    let permanent = || faults.iter().filter(|(_, fault)| !fault.is_passing());
    if permanent().count() >= majority(nodes)
        && let Some((_, fault)) = permanent().next()
    {
        return fault.clone();
    }
    let any = |is: fn(&Fault) -> bool| faults.iter().any(|(_, fault)| is(fault));
    if any(|fault| matches!(fault, Fault::Outdated)) {
        return Fault::Outdated;
    }
    let mut text = format!("{} of {nodes} quorum nodes failed", faults.len());
    for (node, fault) in faults {
        text += &format!("; {node}: {fault}");
    }
    let source = StoreError::new(text);
    if any(|fault| matches!(fault, Fault::Unknown(_))) {
        Fault::Unknown(source)
    } else {
        Fault::NotDone(source)
    }
}

/// The answers to an acquisition.
#[derive(Debug, Default)]
pub(super) struct Votes {
    pub(super) granted: usize,
    /// The rest of each lease that is in the way.
    pub(super) busy: Vec<Option<Duration>>,
    pub(super) faults: Vec<(String, Fault)>,
}

impl Votes {
    /// Returns whether a majority granted it, or `false` if none can any more; `None` while that is open.
    pub(super) fn verdict(&self, nodes: usize) -> Option<bool> {
        let needed = majority(nodes);
        let is_won = self.granted >= needed;
        let is_lost = self.busy.len() + self.faults.len() > nodes - needed;
        (is_won || is_lost).then_some(is_won)
    }

    /// Returns what a lost vote means: enough leases are in the way, or too many nodes are away.
    pub(super) fn conclusion(mut self, nodes: usize) -> Result<Option<Duration>, Fault> {
        let needed = majority(nodes);
        if self.faults.len() > nodes - needed {
            return Err(no_majority(nodes, &self.faults));
        }
        // The result is the time until enough of the leases are over for a majority. A lease without an end is over
        // last.
        self.busy.sort_by_key(|left| left.unwrap_or(Duration::MAX));
        let missing = needed.saturating_sub(self.granted);
        Ok(missing
            .checked_sub(1)
            .and_then(|index| self.busy.get(index).or(self.busy.last()).copied())
            .flatten())
    }
}

/// The nodes' answers about one hold in a renewal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Confirmations {
    pub(super) held: usize,
    pub(super) refused: usize,
    pub(super) left_out: usize,
}

impl Confirmations {
    pub(super) fn add(&mut self, answer: Renewed) {
        match answer {
            Renewed::Held => self.held += 1,
            Renewed::NotHeld => self.refused += 1,
            Renewed::LeftOut => self.left_out += 1,
            Renewed::Unknown => {}
        }
    }

    /// Returns the verdict. A majority decides either way; fewer of both say nothing.
    pub(super) fn verdict(self, nodes: usize) -> Renewed {
        let needed = majority(nodes);
        if self.held >= needed {
            Renewed::Held
        } else if self.refused >= needed {
            Renewed::NotHeld
        } else if self.held + self.left_out >= needed {
            Renewed::LeftOut
        } else {
            Renewed::Unknown
        }
    }
}

/// Returns the holder of a lock by what the nodes saw: the one that a majority names, or would name if the `silent`
/// nodes named it, too.
pub(super) fn holder(nodes: usize, silent: usize, seen: &[Option<Snapshot>]) -> Option<Snapshot> {
    let needed = majority(nodes);
    let mut seen: Vec<&Snapshot> = seen.iter().flatten().collect();
    // The longest lease comes first: the last one that a majority needs says when there is no majority any more.
    seen.sort_by_key(|seen| std::cmp::Reverse(seen.left.unwrap_or(Duration::MAX)));
    let same = |one: &Snapshot| {
        let holder = one.holder.clone();
        seen.iter().filter(move |other| other.holder == holder)
    };
    // Of several whom a majority may name, the one that most nodes name.
    let (count, first) = seen
        .iter()
        .rev()
        .map(|one| (same(one).count(), *one))
        .max_by_key(|(count, _)| *count)?;
    let last = same(first).nth(count.min(needed) - 1);
    (count + silent >= needed).then(|| Snapshot {
        left: last.and_then(|seen| seen.left),
        ..first.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::LockMode;

    const SECOND: Duration = Duration::from_secs(1);

    fn votes(granted: usize, busy: &[u32], faults: usize) -> Votes {
        let fault = || (String::from("n"), Fault::not_done("away"));
        Votes {
            granted,
            busy: busy.iter().map(|left| Some(*left * SECOND)).collect(),
            faults: (0..faults).map(|_| fault()).collect(),
        }
    }

    #[test]
    fn half_is_no_majority() {
        assert_eq!([1, 3, 5, 7].map(majority), [1, 2, 3, 4]);
        assert_eq!([2, 4].map(majority), [2, 3]);
    }

    #[test]
    fn a_vote_is_decided_as_soon_as_the_rest_cannot_change_it() {
        assert_eq!(votes(2, &[], 0).verdict(3), Some(true));
        assert_eq!(votes(1, &[1], 0).verdict(3), None);
        assert_eq!(votes(1, &[1], 1).verdict(3), Some(false));
        assert_eq!(votes(0, &[1, 1], 0).verdict(3), Some(false));
        assert_eq!(votes(2, &[1, 1], 0).verdict(5), None);
        assert_eq!(votes(3, &[1, 1], 0).verdict(5), Some(true));
    }

    #[test]
    fn a_lost_vote_is_busy_until_enough_leases_are_over() {
        assert_eq!(
            votes(0, &[9, 4, 7], 0).conclusion(3).unwrap(),
            Some(7 * SECOND)
        );
        assert_eq!(
            votes(1, &[9, 4], 0).conclusion(3).unwrap(),
            Some(4 * SECOND)
        );
        assert_eq!(votes(1, &[4], 1).conclusion(3).unwrap(), Some(4 * SECOND));
        let mut endless = votes(0, &[3], 0);
        endless.busy.extend([None, None]);
        assert_eq!(endless.conclusion(3).unwrap(), None);
        assert!(votes(1, &[], 2).conclusion(3).is_err());
    }

    #[test]
    fn a_refusal_for_good_by_a_majority_is_one() {
        let denied = || (String::new(), Fault::denied("no"));
        let away = || (String::from("b"), Fault::not_done("away"));
        let unknown = || (String::from("c"), Fault::unknown("silent"));
        assert!(matches!(
            no_majority(3, &[denied(), denied()]),
            Fault::Denied(_)
        ));
        let passing = no_majority(3, &[denied(), away()]);
        assert!(matches!(passing, Fault::NotDone(_)), "it can come back");
        assert!(matches!(
            no_majority(3, &[away(), unknown()]),
            Fault::Unknown(_)
        ));
    }

    #[test]
    fn the_holder_is_the_one_that_most_nodes_name() {
        let seen = |holder: &str, left| {
            Some(Snapshot {
                holder: Some(holder.to_owned()),
                left: Some(left * SECOND),
                ..Snapshot::of(LockMode::Exclusive)
            })
        };
        let told = |nodes, silent, seen: &[Option<Snapshot>]| {
            let named = holder(nodes, silent, seen)?;
            Some((named.holder.unwrap(), named.left.unwrap()))
        };
        // Two nodes of five are silent, and another client has left a vote behind.
        let votes = [seen("left behind", 30), seen("y", 9), seen("y", 10)];
        assert_eq!(told(5, 2, &votes), Some(("y".to_owned(), SECOND * 9)));
        assert_eq!(told(5, 0, &votes), None);
    }

    #[test]
    fn a_renewal_needs_a_majority_of_either_answer() {
        let say = |held, refused, left_out| {
            let said = Confirmations {
                held,
                refused,
                left_out,
            };
            said.verdict(5)
        };
        assert_eq!(say(3, 2, 0), Renewed::Held);
        assert_eq!(say(2, 3, 0), Renewed::NotHeld);
        assert_eq!(say(2, 2, 0), Renewed::Unknown);
        assert_eq!(say(0, 0, 0), Renewed::Unknown);
        // Together with the nodes that have left it out, there would be a majority.
        assert_eq!(say(1, 1, 2), Renewed::LeftOut);
        assert_eq!(say(1, 2, 1), Renewed::Unknown);
    }
}

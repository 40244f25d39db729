//! The holds that a forced release names. Where others can read the message, it names holders by aliases, which are
//! hashes. The aliases of our own holds are computed when the first such message comes, each once: an acquire pays for
//! no hash before that.

use std::cell::LazyCell;
use std::collections::VecDeque;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::backend::Holders;
use crate::hold::Tenure;
use crate::values::{Alias, HolderId, Kind, Moment, clock};

/// The time within which a grant may arrive after the message of its forced release. A later one is lost at its next
/// renewal.
const LONGEST_DETOUR: Duration = Duration::from_secs(10);
/// Most victims are other managers' holds: an operator who releases thousands must not make us remember them all.
const MOST_MISSING: usize = 64;
/// The number of names of past holds that may stay among those of present ones.
const MOST_GONE: usize = 1024;

/// The alias of a holder. Costs a hash.
fn alias(holder: HolderId, kind: Kind) -> Alias {
    #[cfg(test)]
    tests::HASHED.with(|hashed| hashed.set(hashed.get() + 1));
    holder.alias(kind)
}

/// Victims that were not found among the holds, and when they were named. Their holds may still come: a grant and the
/// message of its forced release travel on different connections, and either may be first.
#[derive(Debug, Default)]
pub(crate) struct Missing(VecDeque<(Moment, Holders)>);

impl Missing {
    pub(crate) fn note(&mut self, victim: Holders) {
        self.0.truncate(MOST_MISSING - 1);
        self.0.push_front((clock::now(), victim));
    }

    /// Whether a hold that is watched only now was released by force before. Costs one hash at most.
    pub(crate) fn names(&mut self, tenure: &Tenure) -> bool {
        if self.0.is_empty() {
            return false;
        }
        self.0.retain(|(at, _)| at.elapsed() < LONGEST_DETOUR);
        let alias = LazyCell::new(|| alias(tenure.holder(), tenure.key().kind()));
        self.0.iter().any(|(_, victim)| match victim {
            Holders::Id(id) => *id == tenure.holder(),
            Holders::Aliases(aliases) => aliases.contains(&*alias),
        })
    }
}

/// The holds that came since the names were last brought up to date. `None` before the first message that needs names:
/// then all holds are new.
#[derive(Debug, Default)]
pub(crate) struct Newcomers(Option<Vec<u64>>);

impl Newcomers {
    /// Notes a hold. `here`: the number of all holds.
    pub(crate) fn note(&mut self, number: u64, here: usize) {
        if let Some(numbers) = &mut self.0 {
            if numbers.len() < here + MOST_GONE {
                numbers.push(number);
            } else {
                // No message has come for a while: the next one hashes all holds, which are no more than these.
                self.0 = None;
            }
        }
    }

    /// Returns the numbers of the holds that may have no name yet; `None`: of all holds. None are new after it.
    pub(crate) fn take(&mut self) -> Option<Vec<u64>> {
        self.0.replace(Vec::new())
    }
}

/// The numbers of our holds by their names in messages. Names of holds that are gone stay for a while.
#[derive(Debug, Default)]
pub(crate) struct HolderNames(HashMap<Alias, u64>);

impl HolderNames {
    pub(crate) fn learn(&mut self, unnamed: Vec<(HolderId, Kind)>) {
        for (holder, kind) in unnamed {
            self.0.insert(alias(holder, kind), holder.number());
        }
    }

    /// Returns `true` if more of the names are of holds that are gone than of the `here` others.
    pub(crate) fn are_of_the_past(&self, here: usize) -> bool {
        self.0.len() > 2 * here + MOST_GONE
    }

    /// Drops the names of all holds but these.
    pub(crate) fn keep(&mut self, here: &HashSet<u64>) {
        self.0.retain(|_, number| here.contains(number));
        self.0.shrink_to(2 * here.len() + MOST_GONE);
    }

    /// Returns the numbers of the holds that have one of these names.
    pub(crate) fn find(&self, aliases: &HashSet<Alias>) -> Vec<u64> {
        let number = |alias| self.0.get(alias).copied();
        aliases.iter().filter_map(number).collect()
    }
}

#[cfg(test)]
mod tests;

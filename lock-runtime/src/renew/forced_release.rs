//! The holds that a forced release names. Where others can read the message, it names holders by aliases, which are
//! hashes. The aliases of our own holds are computed when such a message comes, each once as a rule: an acquire pays for no
//! hash before that.

use std::cell::LazyCell;
use std::collections::VecDeque;
use std::time::Duration;

use crate::backend::Holders;
use crate::hold::Tenure;
use crate::values::{Alias, HolderId, Kind, Moment, clock};

/// The time within which a grant may arrive after the message of its forced release. A later one is lost at its next
/// renewal.
const LONGEST_DETOUR: Duration = Duration::from_secs(10);
/// Most victims are other managers' holds: an operator who releases thousands must not make us remember them all.
const MOST_MISSING: usize = 64;

/// The alias of a holder. Costs a hash.
pub(super) fn alias(holder: HolderId, kind: Kind) -> Alias {
    #[cfg(test)]
    tests::HASHED.with(|hashed| hashed.set(hashed.get() + 1));
    holder.alias(kind)
}

/// Victims whose holds may still come, and when they were named: a grant and the message of its forced release travel on
/// different connections, and either may be first.
#[derive(Debug, Default)]
pub(crate) struct Missing(VecDeque<(Moment, Holders)>);

impl Missing {
    pub(crate) fn note(&mut self, victim: Holders) {
        self.0.truncate(MOST_MISSING - 1);
        self.0.push_front((clock::now(), victim));
    }

    /// Forgets a victim whose hold was found.
    pub(crate) fn forget(&mut self, victim: &Holders) {
        self.0.retain(|(_, missing)| missing != victim);
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

#[cfg(test)]
mod tests;

//! Bugs that are planted to see them caught: a clean run proves nothing if the checks are blind.
//!
//! | file | where the bugs are |
//! | --- | --- |
//! | `scripts.rs` | in what a Redis server does: scripts are replaced on the wire |
//! | `statements.rs`, `postgres.rs`, `mysql.rs` | in what a database does: statements are changed on the wire |
//! | `client.rs` | in what a client does: lines of the library that differ in a copy of it, by `tests::planted` |

mod client;
mod mysql;
mod postgres;
mod scripts;
mod statements;

use crate::faults;
use crate::keys::Tasks;
use crate::site::{Site, Topology};
use crate::statements::Statement;
use tests::judge::Finding;
use tests::planted::Bug;

/// A planted bug.
pub(crate) struct Planted {
    pub(crate) name: &'static str,
    /// The tasks that show it. Others stay away where they would only leave it fewer chances.
    pub(crate) tasks: Tasks,
    /// The fault without which it would not show, or two. Without any, it shows in a calm round.
    pub(crate) faults: &'static [&'static str],
    /// The checks, any of which has to catch it.
    pub(crate) caught_by: &'static [&'static str],
    broken: Broken,
}

/// The part that is broken.
enum Broken {
    Scripts(&'static [scripts::Twist]),
    Statements(Topology, &'static [statements::Twist]),
    /// The bug of that name in the copy of the library.
    Client,
    /// The resource's register, which looks at no token.
    Register,
}

/// Checks that everything that bugs change is as they expect it.
///
/// # Errors
/// The message says what is not, and of which bug.
pub(crate) fn check() -> Result<(), String> {
    for bug in all() {
        if let Broken::Statements(_, broken) = bug.broken {
            statements::check(broken).map_err(|why| format!("{}: {why}", bug.name))?;
        }
        if matches!(bug.broken, Broken::Client) && bug.bug().is_none() {
            return Err(format!("{}: the copy has no such bug", bug.name));
        }
        for fault in bug.faults {
            if faults::named(fault, bug.topology()).is_none() {
                return Err(format!("{}: there is no fault `{fault}`", bug.name));
            }
        }
    }
    tests::planted::check()
}

/// Returns all planted bugs.
pub(crate) fn all() -> impl Iterator<Item = &'static Planted> {
    let of_databases = postgres::ALL.iter().chain(mysql::ALL);
    let on_the_wire = scripts::ALL.iter().chain(of_databases);
    on_the_wire.chain(client::ALL)
}

impl Planted {
    /// Returns whether the register looks at tokens.
    pub(crate) fn checks_tokens(&self) -> bool {
        !matches!(self.broken, Broken::Register)
    }

    fn bug(&self) -> Option<&'static Bug> {
        Bug::named(self.name)
    }

    /// Returns the bug to choose in the copy's clients, or `None` if the clients are the true ones.
    pub(crate) fn in_clients(&self) -> Option<&'static str> {
        matches!(self.broken, Broken::Client).then_some(self.name)
    }

    /// Returns the statements that it changes.
    pub(crate) fn statements(&self) -> Vec<Statement> {
        match self.broken {
            Broken::Statements(_, twists) => twists.iter().map(|twist| twist.statement).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the topology in which it shows.
    pub(crate) fn topology(&self) -> Topology {
        match self.broken {
            Broken::Statements(topology, _) => topology,
            Broken::Client if self.bug().is_some_and(|bug| bug.is_in("/sql/")) => {
                Topology::Postgres
            }
            _ => Topology::Single,
        }
    }

    /// Breaks what the clients will call.
    pub(crate) fn plant(&self, site: &mut Site) {
        match self.broken {
            Broken::Scripts(broken) => scripts::plant(broken, site),
            Broken::Statements(_, broken) => statements::plant(broken, site),
            Broken::Client | Broken::Register => {}
        }
    }

    /// Returns the finding of a check that had to catch it, if there is one.
    pub(crate) fn what_caught_it<'a>(&self, findings: &'a [Finding]) -> Option<&'a Finding> {
        let mut found = findings.iter();
        found.find(|finding| self.is_caught_by(finding.check))
    }

    /// Returns whether this is one of the checks that have to catch it.
    pub(crate) fn is_caught_by(&self, check: &str) -> bool {
        self.caught_by.contains(&check)
    }

    /// Returns whether the broken part was there to be called.
    pub(crate) fn is_planted(&self, rewrites: u64) -> bool {
        !matches!(self.broken, Broken::Scripts(_) | Broken::Statements(..)) || rewrites > 0
    }
}

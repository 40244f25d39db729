//! The judge of what several processes said of their locks: torture's, on real servers, and the simulation's.
//!
//! | module | concept |
//! | --- | --- |
//! | [`names`] | what the names of keys and of holders say |
//! | `log` | what was said, parsed |
//! | `checks` | the checks that need nothing but that |
//! | [`histories`] | what was said as files, for a judge from outside |
//! | [`order`] | whether one order of events explains what was said of one lock |

/// The names of the simulation's checks: it refuses findings of others. The table of promises in `tests/README.md` has all.
pub const SIMULATED: &[&str] = &[
    "at-rest",
    "counter",
    "ending",
    "errors",
    "false-loss",
    "hang",
    "healthy",
    "ids",
    "ids-order",
    "last-wait",
    "leftover",
    "log",
    "needless-loss",
    "order",
    "overlap",
    "queue",
    "refused-holder",
    "rest",
    "stale-write",
    "token",
];

mod checks;
pub mod histories;
mod log;
pub mod names;
pub mod order;

pub use self::checks::{
    Finding, Terms, findings, is_told, overlaps, overtaken, unused_while_waited_for,
};
pub use self::log::{Answer, Log, Loss, Share, Try, Wait, Write};

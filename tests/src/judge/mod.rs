//! The judge of what several processes said of their locks: torture's, on real servers, and the simulation's.
//!
//! | module | concept |
//! | --- | --- |
//! | [`names`] | what the names of keys and of holders say |
//! | `log` | what was said, parsed |
//! | `checks` | the checks that need nothing but that |
//! | [`histories`] | what was said as files, for a judge from outside |
//! | [`order`] | whether one order of events explains what was said of one lock |

mod checks;
pub mod histories;
mod log;
pub mod names;
pub mod order;

pub use self::checks::{Finding, Terms, findings, is_told, overlaps, unused_while_waited_for};
pub use self::log::{Answer, Log, Loss, Share, Try, Wait, Write};

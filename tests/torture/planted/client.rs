//! Bugs in what a client does, and what has to catch each of them: see [`tests::planted`].

use super::{Broken, Planted};
use crate::keys::Tasks;

/// Those that torture finds.
pub(super) const ALL: &[Planted] = &[
    Planted {
        name: "a deadline that counts from the reply",
        tasks: Tasks::All,
        // The process is granted the lock, and then does not run until the lease is over. Late answers are nearly
        // always under way.
        faults: &["delay", "process-frozen"],
        caught_by: &["overlap", "refused-holder"],
        broken: Broken::Client,
    },
    Planted {
        name: "a deadline at which nobody is told",
        tasks: Tasks::All,
        faults: &["process-frozen"],
        caught_by: &["overlap", "refused-holder"],
        broken: Broken::Client,
    },
    Planted {
        name: "an unanswered renewal that counts as confirmed",
        tasks: Tasks::All,
        // Renewals are refused for longer than a lease. Then others ask sooner than the holder asks again.
        faults: &["rights-revoked"],
        caught_by: &["overlap", "refused-holder"],
        broken: Broken::Client,
    },
    Planted {
        name: "a renewal that is refused and goes on",
        tasks: Tasks::Long,
        faults: &["server-forgets"],
        // The hold ends with its lease, though its holder was told before.
        caught_by: &["overlap"],
        broken: Broken::Client,
    },
    Planted {
        name: "an unanswered acquire that counts as granted",
        tasks: Tasks::All,
        faults: &["reply-lost"],
        caught_by: &["overlap", "refused-holder"],
        broken: Broken::Client,
    },
    Planted {
        name: "a dropped acquire that nobody undoes",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["gap"],
        broken: Broken::Client,
    },
    Planted {
        name: "a wake-up that is taken for the grant",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["overlap"],
        broken: Broken::Client,
    },
    Planted {
        name: "a waiter that does nothing but listen",
        tasks: Tasks::All,
        faults: &["process-killed"],
        caught_by: &["takeover"],
        broken: Broken::Client,
    },
    Planted {
        name: "a hand-over that keeps the token",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["token"],
        broken: Broken::Client,
    },
    Planted {
        name: "a hand-over that the store never hears of",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["needless-loss", "overlap"],
        broken: Broken::Client,
    },
    Planted {
        name: "a range that gives a token twice",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["token"],
        broken: Broken::Client,
    },
    Planted {
        name: "a lock that is passed on after its release was sent",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["overlap", "refused-holder", "needless-loss"],
        broken: Broken::Client,
    },
    Planted {
        name: "a tenure that grants time",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["overlap", "refused-holder"],
        broken: Broken::Client,
    },
    Planted {
        name: "answers of a group that are mixed up",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["overlap", "refused-holder", "needless-loss"],
        broken: Broken::Client,
    },
    Planted {
        name: "a connection of one client that is never opened again",
        tasks: Tasks::Hot,
        faults: &["cut"],
        // The others have every key again soon.
        caught_by: &["recovery"],
        broken: Broken::Client,
    },
    Planted {
        name: "PostgreSQL: a dropped acquire that nobody undoes",
        tasks: Tasks::Lone,
        faults: &[],
        caught_by: &["gap"],
        broken: Broken::Client,
    },
    Planted {
        name: "PostgreSQL: a grant that is dated at its answer",
        tasks: Tasks::Lone,
        // Two things would hide it. An answer that comes after the call's timeout is no grant, so there is no timeout. And
        // the date of the answer itself is right: requests are dated by it, too, and would all come too late.
        faults: &["process-frozen"],
        caught_by: &["overlap", "refused-holder"],
        broken: Broken::Client,
    },
    Planted {
        name: "PostgreSQL: a row that could not be locked and counts as renewed",
        tasks: Tasks::Long,
        faults: &["row-locked"],
        caught_by: &["overlap", "refused-holder", "false-loss"],
        broken: Broken::Client,
    },
    Planted {
        name: "a kept lock that is had again after its release was sent",
        tasks: Tasks::Kept,
        faults: &[],
        caught_by: &["overlap", "refused-holder", "needless-loss"],
        broken: Broken::Client,
    },
    Planted {
        name: "a kept lock that is had again after its loss",
        tasks: Tasks::Kept,
        faults: &[],
        // Two guards are there on purpose, and each would hide that the other is gone. An end takes the lock out of the
        // queue. A caller that finds the lock there looks whether it is over, and has what is left of its lease.
        caught_by: &["overlap", "refused-holder", "needless-loss"],
        broken: Broken::Client,
    },
    Planted {
        name: "a renewal of a kept lock that does not count",
        tasks: Tasks::Kept,
        faults: &[],
        // Each turn believes in what was confirmed when the lock began to be kept.
        caught_by: &["needless-loss"],
        broken: Broken::Client,
    },
    Planted {
        name: "a keeper that nobody can ask",
        tasks: Tasks::Kept,
        faults: &[],
        caught_by: &["kept"],
        broken: Broken::Client,
    },
];

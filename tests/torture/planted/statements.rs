//! Bugs of what a database does.
//!
//! Client and server are the real ones. The proxy changes the text of a statement on its way.

use super::{Broken, Planted};
use crate::site::Site;
use crate::statements::{Statement, postgres};

/// A statement that reads another way on its way.
pub(crate) struct Twist {
    statement: Statement,
    /// What stands in its file, once.
    is: &'static str,
    /// What the server reads.
    becomes: &'static str,
}

const fn twist(statement: Statement, is: &'static str, becomes: &'static str) -> Twist {
    Twist {
        statement,
        is,
        becomes,
    }
}

/// All of them.
pub(super) const ALL: &[Planted] = &[
    Planted {
        name: "PostgreSQL: an acquire that ignores the holder",
        fault: None,
        caught_by: &["overlap"],
        broken: Broken::Statements(&[twist(
            postgres!("acquire"),
            "(l.holder IS NULL OR l.expires_at <= c.now OR l.holder = $2)",
            "true",
        )]),
    },
    Planted {
        name: "PostgreSQL: an acquire that looks at the beginning of the lease",
        fault: None,
        caught_by: &["overlap"],
        broken: Broken::Statements(&[twist(
            postgres!("acquire"),
            "l.expires_at <= c.now",
            "l.expires_at <= c.now + interval '0.7 s'",
        )]),
    },
    Planted {
        name: "PostgreSQL: an acquire for which no lease is ever over",
        fault: Some("process-killed"),
        caught_by: &["recovery"],
        broken: Broken::Statements(&[
            twist(postgres!("acquire"), "OR l.expires_at <= c.now ", ""),
            twist(postgres!("take_over"), "OR l.expires_at <= c.now ", ""),
        ]),
    },
    Planted {
        name: "PostgreSQL: milliseconds that are taken for seconds",
        fault: Some("process-killed"),
        caught_by: &["recovery", "leftover"],
        broken: Broken::Statements(&[
            twist(
                postgres!("acquire"),
                "$3 * interval '1 microsecond'",
                "$3 * interval '1 millisecond'",
            ),
            twist(
                postgres!("hand_over"),
                "$4 * interval '1 microsecond'",
                "$4 * interval '1 millisecond'",
            ),
        ]),
    },
    Planted {
        name: "PostgreSQL: a release without the holder check",
        // Releases that are repeated because their answer was lost find the next holder.
        fault: Some("reply-lost"),
        caught_by: &["overlap"],
        broken: Broken::Statements(&[twist(postgres!("release"), "AND l.holder = $2 ", "")]),
    },
    Planted {
        name: "PostgreSQL: a release that releases nothing",
        fault: None,
        caught_by: &["leftover", "order", "gap"],
        broken: Broken::Statements(&[twist(
            postgres!("release"),
            "holder = NULL,\n    expires_at = clock_timestamp()",
            "holder = l.holder",
        )]),
    },
    Planted {
        name: "PostgreSQL: a release that wakes nobody",
        fault: None,
        caught_by: &["wake-ups", "gap"],
        broken: Broken::Statements(&[
            twist(
                postgres!("release"),
                "WHEN l.waited_until > clock_timestamp()",
                "WHEN false",
            ),
            twist(
                postgres!("release_share"),
                "WHEN l.waited_until > c.now",
                "WHEN false",
            ),
        ]),
    },
    Planted {
        name: "PostgreSQL: a fair lock that calls the last in its queue",
        fault: None,
        caught_by: &["gap"],
        broken: Broken::Statements(&[twist(
            postgres!("leave_queue"),
            "l.queue -> 0 ->> 't'",
            "l.queue -> -1 ->> 't'",
        )]),
    },
    Planted {
        name: "PostgreSQL: a turn that is taken beside the holder",
        fault: None,
        caught_by: &["overlap"],
        broken: Broken::Statements(&[twist(
            postgres!("take_turn"),
            "l.expires_at <= c.now",
            "l.expires_at > c.now",
        )]),
    },
    Planted {
        name: "PostgreSQL: a renewal that extends nothing",
        fault: None,
        caught_by: &["overlap", "needless-loss"],
        broken: Broken::Statements(&[twist(
            postgres!("renew"),
            "greatest(l.expires_at, clock_timestamp() + r.lease * interval '1 microsecond')",
            "l.expires_at",
        )]),
    },
    Planted {
        name: "PostgreSQL: a renewal without the holder check",
        fault: Some("clock-jump"),
        caught_by: &["overlap"],
        broken: Broken::Statements(&[
            twist(
                postgres!("renew"),
                "ON l.name = r.name AND l.holder = r.holder\n    ORDER",
                "ON l.name = r.name\n    ORDER",
            ),
            twist(
                postgres!("renew"),
                "AND free.name = r.name AND l.holder = r.holder ",
                "AND free.name = r.name ",
            ),
            twist(
                postgres!("renew"),
                "RETURNING l.name, l.holder",
                "RETURNING l.name, r.holder",
            ),
        ]),
    },
    Planted {
        name: "PostgreSQL: a renewal that waits for locked rows",
        fault: Some("row-locked"),
        caught_by: &["bystander"],
        broken: Broken::Statements(&[twist(postgres!("renew"), " SKIP LOCKED", "")]),
    },
    Planted {
        name: "PostgreSQL: tokens that are rounded",
        fault: None,
        caught_by: &["token"],
        broken: Broken::Statements(&[
            twist(
                postgres!("acquire"),
                "RETURNING l.token,",
                "RETURNING l.token / 100000 * 100000,",
            ),
            twist(
                postgres!("hand_over"),
                "RETURNING l.token,",
                "RETURNING l.token / 100000 * 100000,",
            ),
        ]),
    },
    Planted {
        name: "PostgreSQL: a read beside a writer",
        fault: None,
        caught_by: &["overlap"],
        broken: Broken::Statements(&[
            twist(postgres!("read"), "\n    holder = NULL,", ""),
            twist(
                postgres!("read"),
                "AND (l.holder IS NULL OR l.expires_at <= c.now)",
                "",
            ),
        ]),
    },
    Planted {
        name: "PostgreSQL: a writer beside readers",
        fault: None,
        caught_by: &["overlap"],
        broken: Broken::Statements(&[twist(
            postgres!("take_over"),
            "AND (l.shares IS NULL OR",
            "AND (true OR",
        )]),
    },
    Planted {
        name: "PostgreSQL: permits that are not taken off",
        fault: None,
        caught_by: &["overlap"],
        broken: Broken::Statements(&[twist(
            postgres!("acquire_permits"),
            "l.permits - ",
            "l.permits - 0 * ",
        )]),
    },
    Planted {
        name: "PostgreSQL: a set that takes what is free of it",
        fault: None,
        caught_by: &["gap"],
        broken: Broken::Statements(&[
            twist(
                postgres!("acquire_all"),
                " AND (SELECT free.all FROM free)",
                "",
            ),
            twist(postgres!("acquire_all"), "THEN 1 ELSE 0", "THEN 1 ELSE 1"),
        ]),
    },
];

/// Has the proxy forward the broken statements in place of the true ones.
///
/// # Panics
/// When a line is not there, or twice: the statement has changed, and the bug has to change with it.
pub(super) fn plant(broken: &'static [Twist], site: &mut Site) {
    for Twist { statement, is, .. } in broken {
        let times = statement.text().matches(is).count();
        assert_eq!(times, 1, "`{is}` stands there {times} times, not once");
    }
    site.database().proxy().rewrite(|words| {
        let [kind, text] = words else { return None };
        let true_one = std::str::from_utf8(text).ok()?;
        let twists = broken.iter().filter(|twist| twist.statement.is(true_one));
        let other = twists.fold(true_one.to_owned(), |text, twist| {
            text.replace(twist.is, twist.becomes)
        });
        (other != true_one).then(|| vec![kind.to_vec(), other.into_bytes()])
    });
}

//! Bugs of what PostgreSQL does.

use super::statements::twist;
use super::{Broken, Planted};
use crate::site::Topology;
use crate::statements::postgres;

/// All of them.
pub(super) const ALL: &[Planted] = &[
    Planted {
        name: "PostgreSQL: an acquire that ignores the holder",
        fault: None,
        caught_by: &["overlap"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[twist(
                postgres!("acquire"),
                "(l.holder IS NULL OR l.expires_at <= c.now OR l.holder = $2)",
                "true",
            )],
        ),
    },
    Planted {
        name: "PostgreSQL: an acquire that looks at the beginning of the lease",
        fault: None,
        caught_by: &["overlap"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[twist(
                postgres!("acquire"),
                "l.expires_at <= c.now",
                "l.expires_at <= c.now + interval '0.7 s'",
            )],
        ),
    },
    Planted {
        name: "PostgreSQL: an acquire for which no lease is ever over",
        fault: Some("process-killed"),
        caught_by: &["recovery"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[
                twist(postgres!("acquire"), "OR l.expires_at <= c.now ", ""),
                twist(postgres!("take_over"), "OR l.expires_at <= c.now ", ""),
            ],
        ),
    },
    Planted {
        name: "PostgreSQL: milliseconds that are taken for seconds",
        fault: Some("process-killed"),
        caught_by: &["recovery", "leftover"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[
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
            ],
        ),
    },
    Planted {
        name: "PostgreSQL: a release without the holder check",
        // Releases that are repeated because their answer was lost find the next holder.
        fault: Some("reply-lost"),
        caught_by: &["overlap"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[twist(postgres!("release"), "AND l.holder = $2 ", "")],
        ),
    },
    Planted {
        name: "PostgreSQL: a release that releases nothing",
        fault: None,
        caught_by: &["leftover", "order", "gap"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[twist(
                postgres!("release"),
                "holder = NULL,\n    expires_at = clock_timestamp()",
                "holder = l.holder",
            )],
        ),
    },
    Planted {
        name: "PostgreSQL: a release that wakes nobody",
        fault: None,
        caught_by: &["wake-ups", "gap"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[
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
            ],
        ),
    },
    Planted {
        name: "PostgreSQL: a fair lock that calls the last in its queue",
        fault: None,
        caught_by: &["gap"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[twist(
                postgres!("leave_queue"),
                "l.queue -> 0 ->> 't'",
                "l.queue -> -1 ->> 't'",
            )],
        ),
    },
    Planted {
        name: "PostgreSQL: a turn that is taken beside the holder",
        fault: None,
        caught_by: &["overlap"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[twist(
                postgres!("take_turn"),
                "l.expires_at <= c.now",
                "l.expires_at > c.now",
            )],
        ),
    },
    Planted {
        name: "PostgreSQL: a renewal that extends nothing",
        fault: None,
        caught_by: &["overlap", "needless-loss"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[twist(
                postgres!("renew"),
                "greatest(l.expires_at, clock_timestamp() + r.lease * interval '1 microsecond')",
                "l.expires_at",
            )],
        ),
    },
    Planted {
        name: "PostgreSQL: a renewal without the holder check",
        fault: Some("clock-jump"),
        caught_by: &["overlap"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[
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
            ],
        ),
    },
    Planted {
        name: "PostgreSQL: a renewal that waits for locked rows",
        fault: Some("row-locked"),
        caught_by: &["bystander"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[twist(postgres!("renew"), " SKIP LOCKED", "")],
        ),
    },
    Planted {
        name: "PostgreSQL: tokens that are rounded",
        fault: None,
        caught_by: &["token"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[
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
            ],
        ),
    },
    Planted {
        name: "PostgreSQL: a read beside a writer",
        fault: None,
        caught_by: &["overlap"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[
                twist(postgres!("read"), "\n    holder = NULL,", ""),
                twist(
                    postgres!("read"),
                    "AND (l.holder IS NULL OR l.expires_at <= c.now)",
                    "",
                ),
            ],
        ),
    },
    Planted {
        name: "PostgreSQL: a writer beside readers",
        fault: None,
        caught_by: &["overlap"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[twist(
                postgres!("take_over"),
                "AND (l.shares IS NULL OR",
                "AND (true OR",
            )],
        ),
    },
    Planted {
        name: "PostgreSQL: permits that are not taken off",
        fault: None,
        caught_by: &["overlap"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[twist(
                postgres!("acquire_permits"),
                "l.permits - ",
                "l.permits - 0 * ",
            )],
        ),
    },
    Planted {
        name: "PostgreSQL: a set that takes what is free of it",
        fault: None,
        caught_by: &["gap"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[
                twist(
                    postgres!("acquire_all"),
                    " AND (SELECT free.all FROM free)",
                    "",
                ),
                twist(postgres!("acquire_all"), "THEN 1 ELSE 0", "THEN 1 ELSE 1"),
            ],
        ),
    },
];

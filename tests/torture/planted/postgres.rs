//! Bugs in what PostgreSQL does.

use super::statements::twist;
use super::{Broken, Planted};
use crate::keys::Tasks;
use crate::site::Topology;
use crate::statements::postgres;

/// All bugs of PostgreSQL.
pub(super) const ALL: &[Planted] = &[
    Planted {
        name: "PostgreSQL: an acquire that ignores the holder",
        tasks: Tasks::Hot,
        faults: &[],
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
        tasks: Tasks::Long,
        faults: &[],
        caught_by: &["overlap"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[twist(
                postgres!("acquire"),
                "l.expires_at <= c.now",
                "l.expires_at <= c.now + interval '0.9 s'",
            )],
        ),
    },
    Planted {
        name: "PostgreSQL: an acquire for which no lease is ever over",
        tasks: Tasks::Hot,
        faults: &["process-killed"],
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
        tasks: Tasks::Hot,
        faults: &["process-killed"],
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
        tasks: Tasks::Long,
        // Releases that are repeated because their answer was lost find the next holder.
        faults: &["reply-lost"],
        caught_by: &["overlap", "false-loss"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[twist(postgres!("release"), "AND l.holder = $2 ", "")],
        ),
    },
    Planted {
        name: "PostgreSQL: a release that releases nothing",
        tasks: Tasks::Hot,
        faults: &[],
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
        tasks: Tasks::Hot,
        faults: &[],
        caught_by: &["wake-ups"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[
                twist(
                    postgres!("release"),
                    "WHEN l.waited_until > clock_timestamp()",
                    "WHEN false",
                ),
                // This statement undoes a dropped acquire.
                twist(
                    postgres!("settle"),
                    "WHEN l.waited_until > clock_timestamp()",
                    "WHEN false",
                ),
            ],
        ),
    },
    Planted {
        name: "PostgreSQL: a fair lock that calls the last in its queue",
        tasks: Tasks::Fair,
        faults: &[],
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
        tasks: Tasks::Fair,
        faults: &[],
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
        tasks: Tasks::Long,
        faults: &[],
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
        name: "PostgreSQL: a renewal of shares that extends nothing",
        tasks: Tasks::ReadWrite,
        faults: &[],
        caught_by: &["overlap"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[
                twist(
                    postgres!("renew_shares"),
                    "greatest((s.value -> 0)::bigint, {micros_now} + (r.leases -> s.key)::bigint)",
                    "(s.value -> 0)::bigint",
                ),
                // As if the share was there still. Otherwise, the next renewal would tell its holder.
                twist(
                    postgres!("renew_shares"),
                    "AS k (holder)\nWHERE (l.shares -> k.holder -> 0)::bigint > {micros_now}\nUNION",
                    "AS k (holder)\nUNION",
                ),
            ],
        ),
    },
    Planted {
        name: "PostgreSQL: a renewal without the holder check",
        tasks: Tasks::Long,
        faults: &["clock-jump"],
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
        tasks: Tasks::Long,
        faults: &["row-locked"],
        caught_by: &["bystander"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[twist(postgres!("renew"), " SKIP LOCKED", "")],
        ),
    },
    Planted {
        name: "PostgreSQL: tokens that are rounded",
        tasks: Tasks::Hot,
        faults: &[],
        caught_by: &["token"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[
                twist(
                    postgres!("acquire"),
                    "ELSE l.token END",
                    "ELSE l.token / 100000 * 100000 END",
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
        tasks: Tasks::ReadWrite,
        faults: &[],
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
        tasks: Tasks::ReadWrite,
        faults: &[],
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
        tasks: Tasks::Permits,
        faults: &[],
        caught_by: &["overlap"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[twist(
                postgres!("acquire_permits"),
                " - {used_by_others}",
                " - 0 * {used_by_others}",
            )],
        ),
    },
    Planted {
        name: "PostgreSQL: a set that takes what is not free",
        tasks: Tasks::Sets,
        faults: &[],
        caught_by: &["overlap", "needless-loss"],
        broken: Broken::Statements(
            Topology::Postgres,
            &[
                twist(
                    postgres!("acquire_all"),
                    "(l.holder IS NULL OR l.expires_at <= c.now OR l.holder = ANY ($2))",
                    "true",
                ),
                // The statement checks this again once the rows are locked.
                twist(
                    postgres!("acquire_all"),
                    "(l.holder IS NULL OR l.expires_at <= clock_timestamp() OR l.holder = r.holder)",
                    "true",
                ),
            ],
        ),
    },
];

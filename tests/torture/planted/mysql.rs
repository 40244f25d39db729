//! Bugs in what MySQL and MariaDB do.

use super::statements::twist;
use super::{Broken, Planted};
use crate::keys::Tasks;
use crate::site::Topology;
use crate::statements::mysql;

/// All bugs of MySQL.
pub(super) const ALL: &[Planted] = &[
    Planted {
        name: "MySQL: an acquire that ignores the holder",
        tasks: Tasks::Hot,
        faults: &[],
        caught_by: &["overlap"],
        broken: Broken::Statements(
            Topology::Mysql,
            &[twist(
                mysql!("acquire"),
                "(holder IS NULL OR expires_at <= {micros} OR holder = $2)",
                "TRUE",
            )],
        ),
    },
    Planted {
        name: "MySQL: an acquire that looks at the beginning of the lease",
        tasks: Tasks::Long,
        faults: &[],
        caught_by: &["overlap"],
        broken: Broken::Statements(
            Topology::Mysql,
            &[twist(
                mysql!("acquire"),
                "OR expires_at <= {micros} OR",
                "OR expires_at <= {micros} + 900000 OR",
            )],
        ),
    },
    Planted {
        name: "MySQL: an acquire for which no lease is ever over",
        tasks: Tasks::Hot,
        faults: &["process-killed"],
        caught_by: &["recovery"],
        broken: Broken::Statements(
            Topology::Mysql,
            &[
                twist(mysql!("acquire"), "OR expires_at <= {micros} ", ""),
                twist(mysql!("take_over"), "OR expires_at <= {micros} ", ""),
            ],
        ),
    },
    Planted {
        name: "MySQL: a release without the holder check",
        tasks: Tasks::Long,
        faults: &["reply-lost"],
        caught_by: &["overlap", "false-loss"],
        broken: Broken::Statements(
            Topology::Mysql,
            &[twist(mysql!("release"), "AND holder = $2 ", "")],
        ),
    },
    Planted {
        name: "MySQL: a release that releases nothing",
        tasks: Tasks::All,
        faults: &[],
        caught_by: &["leftover", "order", "gap"],
        broken: Broken::Statements(
            Topology::Mysql,
            &[twist(
                mysql!("release"),
                "holder = NULL,\n    expires_at = IF(LAST_INSERT_ID(polled_until > {micros}), {micros}, {micros})",
                "counter = counter + 1",
            )],
        ),
    },
    Planted {
        name: "MySQL: a turn that is taken beside the holder",
        tasks: Tasks::Fair,
        faults: &[],
        caught_by: &["overlap"],
        broken: Broken::Statements(
            Topology::Mysql,
            &[twist(
                mysql!("take_turn"),
                "OR expires_at <= {micros} OR",
                "OR expires_at > {micros} OR",
            )],
        ),
    },
    Planted {
        name: "MySQL: a renewal that extends nothing",
        tasks: Tasks::Long,
        faults: &[],
        caught_by: &["overlap", "needless-loss"],
        broken: Broken::Statements(
            Topology::Mysql,
            &[
                twist(
                    mysql!("renew"),
                    "GREATEST(l.expires_at, {micros} + r.c3)",
                    "l.expires_at",
                ),
                // Else the answer would say so, and the client would renew again, by the statement that waits.
                twist(mysql!("renew"), "l.expires_at >= @began + r.c3", "TRUE"),
            ],
        ),
    },
    Planted {
        name: "MySQL: a renewal that waits for locked rows",
        tasks: Tasks::Long,
        faults: &["row-locked"],
        caught_by: &["bystander"],
        broken: Broken::Statements(
            Topology::Mysql,
            &[twist(mysql!("renew"), " SKIP LOCKED", "")],
        ),
    },
    Planted {
        name: "MySQL: tokens that are rounded",
        tasks: Tasks::Hot,
        faults: &[],
        caught_by: &["token"],
        broken: Broken::Statements(
            Topology::Mysql,
            &[
                twist(
                    mysql!("acquire"),
                    "LAST_INSERT_ID(GREATEST(last_token + 1, {micros}))",
                    "LAST_INSERT_ID(GREATEST(last_token + 1, {micros}) DIV 100000 * 100000)",
                ),
                twist(
                    mysql!("hand_over"),
                    "SELECT token, last_token",
                    "SELECT token DIV 100000 * 100000, last_token",
                ),
            ],
        ),
    },
    Planted {
        name: "MySQL: a read beside a writer",
        tasks: Tasks::ReadWrite,
        faults: &[],
        caught_by: &["overlap"],
        broken: Broken::Statements(
            Topology::Mysql,
            &[
                twist(mysql!("read"), "\n    holder = NULL,", ""),
                twist(
                    mysql!("read"),
                    "AND (holder IS NULL OR expires_at <= {micros})",
                    "",
                ),
            ],
        ),
    },
    Planted {
        name: "MySQL: a writer beside readers",
        tasks: Tasks::ReadWrite,
        faults: &[],
        caught_by: &["overlap"],
        broken: Broken::Statements(
            Topology::Mysql,
            &[twist(
                mysql!("take_over"),
                "AND (shares IS NULL OR",
                "AND (TRUE OR",
            )],
        ),
    },
    Planted {
        name: "MySQL: permits that are not taken off",
        tasks: Tasks::Permits,
        faults: &[],
        caught_by: &["overlap"],
        broken: Broken::Statements(
            Topology::Mysql,
            &[twist(
                mysql!("acquire_permits"),
                " - {used_by_others}",
                " - 0 * {used_by_others}",
            )],
        ),
    },
    Planted {
        name: "MySQL: a set that takes what is not free",
        tasks: Tasks::Sets,
        faults: &[],
        caught_by: &["overlap", "needless-loss"],
        broken: Broken::Statements(
            Topology::Mysql,
            &[twist(
                mysql!("acquire_all"),
                "(f.holder IS NULL OR f.expires_at <= {micros} OR f.holder = UNHEX(w.c2))",
                "TRUE",
            )],
        ),
    },
    Planted {
        name: "MySQL: a row that could not be locked and counts as renewed",
        tasks: Tasks::Long,
        faults: &["row-locked"],
        caught_by: &["overlap", "refused-holder", "false-loss"],
        broken: Broken::Statements(
            Topology::Mysql,
            &[twist(
                mysql!("renew"),
                "l.expires_at >= @began + r.c3",
                "TRUE",
            )],
        ),
    },
];
